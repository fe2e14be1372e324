//! Jobs that consist of other jobs, and how the state of such a parent follows from its children.
//!
//! A parent holds no nodes. Its children have deterministic names and IDs: the child at position `p` has the ID after
//! the parent's by `p + 1`, so a child that has not started needs no record of its own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{CancelReason, Failure, Job, JobEvent, JobSpec, JobState};
use crate::ids::JobId;
use crate::limits;
use crate::planted::{Bug, is_planted};
use crate::time::{Span, Wall};

/// What a job consists of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobKind {
    /// A command that runs on the job's own nodes.
    #[default]
    Command,
    /// The same command once for each of many indices. Each of these tasks is a job of its own.
    Array(Box<ArrayPlan>),
}

impl JobKind {
    pub(super) fn is_command(&self) -> bool {
        *self == JobKind::Command
    }
}

/// Which tasks an array job has, and how many of them may run at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayPlan {
    pub indices: ArrayIndices,
    /// At most this many tasks run or start at the same time. `None` is as many as there is room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// All tasks together may take this long, from when the first of them starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// The indices of an array job's tasks, in ascending order and each of them once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ArrayIndices {
    ranges: Vec<IndexRange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IndexRange {
    first: u32,
    last: u32,
    step: u32,
}

impl IndexRange {
    fn len(self) -> u32 {
        (self.last - self.first) / self.step + 1
    }
}

/// Why the indices of an array were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadIndices {
    #[error("{0:?} is not a list of indices; write for example 0-9, 1,4,7 or 0-100:10")]
    Form(String),
    #[error("the range {0} ends before it begins; write the smaller index first")]
    Backwards(String),
    #[error("index {0} is not greater than the one before it; sort the indices and name each once")]
    Order(u32),
    #[error("index {0} is too large; the largest is {max}", max = limits::ARRAY_INDEX_MAX)]
    Index(u64),
    #[error(
        "there are more than {max} ranges of indices; use fewer and larger ones",
        max = limits::ARRAY_RANGES_MAX
    )]
    Ranges,
    #[error("there are {0} indices; an array has at most {max}", max = limits::ARRAY_TASKS_MAX)]
    Number(u64),
}

impl ArrayIndices {
    /// The number of tasks, which is at least 1.
    pub fn len(&self) -> u32 {
        self.ranges.iter().map(|range| range.len()).sum()
    }

    /// Indices are never empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The index of the task at this position, counted from 0.
    pub fn at(&self, position: u32) -> Option<u32> {
        let mut left = position;
        for range in &self.ranges {
            if left < range.len() {
                return Some(range.first + left * range.step);
            }
            left -= range.len();
        }
        None
    }

    pub fn position_of(&self, index: u32) -> Option<u32> {
        let mut before = 0;
        for range in &self.ranges {
            if (range.first..=range.last).contains(&index) {
                let offset = index - range.first;
                return offset.is_multiple_of(range.step).then_some(before + offset / range.step);
            }
            before += range.len();
        }
        None
    }

    pub fn last(&self) -> u32 {
        self.ranges.last().map_or(0, |range| range.last)
    }
}

impl FromStr for ArrayIndices {
    type Err = BadIndices;

    fn from_str(text: &str) -> Result<ArrayIndices, BadIndices> {
        let mut ranges: Vec<IndexRange> = Vec::new();
        let mut total: u64 = 0;
        for part in text.split(',') {
            let range = range_of(part.trim())?;
            if let Some(before) = ranges.last().filter(|before| before.last >= range.first) {
                return Err(BadIndices::Order(range.first.min(before.last)));
            }
            total += u64::from(range.len());
            if total > u64::from(limits::ARRAY_TASKS_MAX) {
                // The rest is not read: the text may name many more.
                return Err(BadIndices::Number(total));
            }
            if ranges.len() == limits::ARRAY_RANGES_MAX {
                return Err(BadIndices::Ranges);
            }
            ranges.push(range);
        }
        Ok(ArrayIndices { ranges })
    }
}

fn range_of(text: &str) -> Result<IndexRange, BadIndices> {
    let form = || BadIndices::Form(text.chars().take(40).collect());
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number: u64 = text.parse().map_err(|_| form())?;
        match u32::try_from(number) {
            _ if !is_number => Err(form()),
            Ok(index) if index <= limits::ARRAY_INDEX_MAX => Ok(index),
            Ok(_) | Err(_) => Err(BadIndices::Index(number)),
        }
    };
    let (range, step) = match text.split_once(':') {
        Some((range, step)) => (range, number(step)?),
        None => (text, 1),
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(range)?, number(range)?),
    };
    if last < first {
        return Err(BadIndices::Backwards(text.to_owned()));
    }
    if step == 0 {
        return Err(form());
    }
    // The last index is one that the steps reach, so that equal arrays are written in the same way.
    let last = last - (last - first) % step;
    let step = if first == last { 1 } else { step };
    Ok(IndexRange { first, last, step })
}

impl fmt::Display for ArrayIndices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, range) in self.ranges.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            match *range {
                IndexRange { first, last, .. } if first == last => write!(f, "{comma}{first}")?,
                IndexRange { first, last, step: 1 } => write!(f, "{comma}{first}-{last}")?,
                IndexRange { first, last, step } => write!(f, "{comma}{first}-{last}:{step}")?,
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for ArrayIndices {
    type Error = BadIndices;

    fn try_from(text: String) -> Result<ArrayIndices, BadIndices> {
        text.parse()
    }
}

impl From<ArrayIndices> for String {
    fn from(indices: ArrayIndices) -> String {
        indices.to_string()
    }
}

/// The children of a parent by what has become of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChildCounts {
    /// They have not started and have no record yet.
    pub waiting: u32,
    /// They have a record and have not ended.
    pub live: u32,
    pub completed: u32,
    pub failed: u32,
    pub canceled: u32,
}

impl ChildCounts {
    pub fn ended(&self) -> u32 {
        self.completed + self.failed + self.canceled
    }

    pub fn all(&self) -> u32 {
        self.waiting + self.live + self.ended()
    }
}

/// What a parent whose children have started knows about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentState {
    /// When its first child was granted its nodes.
    pub since: Wall,
    /// Set when all of its children have to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<TreeEnding>,
}

/// Why all children of a parent have to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeEnding {
    Canceled(CancelReason),
    /// They did not end within the time limit of their parent.
    TimedOut,
}

impl TreeEnding {
    /// Why the children are canceled.
    pub(crate) fn reason_for_children(&self) -> CancelReason {
        match self {
            TreeEnding::Canceled(why) => why.clone(),
            TreeEnding::TimedOut => CancelReason::ParentTimedOut,
        }
    }
}

/// The next state of a parent, if its children require another one than it has. This alone decides how a parent begins
/// and ends. `first_failed` is the first of the children that failed.
pub fn next_parent_state(
    parent: &Job,
    children: ChildCounts,
    first_failed: Option<JobId>,
    at: Wall,
) -> Option<(JobEvent, JobState)> {
    let ending = match &parent.state {
        JobState::Queued if children.live + children.ended() > 0 => {
            let state = ParentState { since: at, ending: None };
            return Some((JobEvent::ChildStarted, JobState::Parent(Box::new(state))));
        }
        JobState::Parent(state) => state.ending.as_ref(),
        JobState::Queued
        | JobState::Starting(_)
        | JobState::Running(_)
        | JobState::CancelRequested(_)
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => return None,
    };
    // Children without a record never start once all have to end.
    let has_live = children.live > 0 && !is_planted(Bug::ParentEndsEarly);
    if has_live || (children.waiting > 0 && ending.is_none()) {
        return None;
    }
    let failed = |why| (JobEvent::Failed, JobState::Failed { at, why: Box::new(why) });
    let is_complete = children.waiting == 0 && children.completed > 0;
    Some(match ending {
        _ if children.failed == 0 && children.canceled == 0 && is_complete => {
            (JobEvent::Succeeded, JobState::Completed { at })
        }
        Some(TreeEnding::TimedOut) => failed(Failure::TreeTimedOut),
        Some(TreeEnding::Canceled(why)) => {
            (JobEvent::Canceled, JobState::Canceled { at, why: why.clone() })
        }
        None if children.failed > 0 => {
            let first = first_failed.and_then(|child| parent.child_name(child)).unwrap_or_default();
            failed(Failure::Children { failed: children.failed, of: children.all(), first })
        }
        // Children that were canceled one by one do not make the others fail.
        None if is_complete => (JobEvent::Succeeded, JobState::Completed { at }),
        None => {
            let why = CancelReason::Asked;
            (JobEvent::ChildrenCanceled, JobState::Canceled { at, why })
        }
    })
}

impl JobSpec {
    /// The specification of one task of an array. Each task has its own folder below those of the array's outputs, named
    /// after its index.
    pub fn for_task(&self, index: u32) -> JobSpec {
        let mut spec = JobSpec { array: None, ..self.clone() };
        spec.display_name = spec.display_name.map(|name| format!("{name}_{index}").into());
        for output in spec.outputs.values_mut() {
            let path = output.to.path.trim_end_matches('/');
            let path = match path.rsplit_once('/') {
                Some((folder, file)) if output.kind.is_file() => format!("{folder}/{index}/{file}"),
                None if output.kind.is_file() => format!("{index}/{path}"),
                Some(_) | None => format!("{path}/{index}"),
            };
            output.to.path = path.into();
        }
        spec
    }
}

impl Job {
    pub fn array(&self) -> Option<&ArrayPlan> {
        match &self.kind {
            JobKind::Command => None,
            JobKind::Array(plan) => Some(plan),
        }
    }

    /// Whether it consists of other jobs.
    pub fn is_parent(&self) -> bool {
        self.array().is_some()
    }

    /// How many children it will have.
    pub fn children(&self) -> u32 {
        self.array().map_or(0, |plan| plan.indices.len())
    }

    /// The largest ID among the job and its children.
    pub fn last_id(&self) -> JobId {
        JobId(self.id.0 + u64::from(self.children()))
    }

    /// The ID of the child at this position.
    pub fn child_at(&self, position: u32) -> Option<JobId> {
        (position < self.children()).then(|| JobId(self.id.0 + 1 + u64::from(position)))
    }

    /// The index of a child.
    pub fn child_index(&self, child: JobId) -> Option<u32> {
        let position = child.0.checked_sub(self.id.0 + 1)?;
        self.array()?.indices.at(u32::try_from(position).ok()?)
    }

    pub fn child_name(&self, child: JobId) -> Option<Box<str>> {
        Some(child_name(&self.name, self.child_index(child)?))
    }

    /// The child with this name, ignoring case.
    pub fn child_named(&self, name: &str) -> Option<JobId> {
        let (parent, index) = parent_and_index(name)?;
        if !parent.eq_ignore_ascii_case(&self.name) {
            return None;
        }
        self.child_at(self.array()?.indices.position_of(index)?)
    }

    /// A child that has not started.
    pub fn child(&self, id: JobId) -> Option<Job> {
        Some(Job {
            id,
            workspace: self.workspace,
            cluster: self.cluster,
            name: self.child_name(id)?,
            kind: JobKind::Command,
            parent: Some(self.id),
            principal: self.principal,
            nodes: self.nodes,
            share: self.share.clone(),
            priority: self.priority,
            spec: self.spec,
            submitted_at: self.submitted_at,
            attempts: 0,
            losses: 0,
            on_eviction: self.on_eviction,
            is_returned: false,
            environment: self.environment,
            state: JobState::Queued,
        })
    }
}

/// The name of the child with this index.
pub fn child_name(parent: &str, index: u32) -> Box<str> {
    format!("{parent}_{index}").into()
}

/// The name of the parent and the index, if this could be the name of a child.
pub fn parent_and_index(name: &str) -> Option<(&str, u32)> {
    let (parent, digits) = name.rsplit_once('_')?;
    let is_canonical = digits == "0" || !digits.starts_with('0');
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let index = digits.parse().ok().filter(|_| is_canonical && is_number)?;
    (!parent.is_empty()).then_some((parent, index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(text: &str) -> ArrayIndices {
        text.parse().expect(text)
    }

    #[test]
    fn indices_are_read_as_slurm_users_write_them() {
        let plain = indices("0-9999");
        assert_eq!(
            (plain.len(), plain.at(0), plain.at(9_999), plain.at(10_000)),
            (10_000, Some(0), Some(9_999), None)
        );
        let mixed = indices("1, 4-10:3 ,20-22");
        let all: Vec<u32> = (0..).map_while(|position| mixed.at(position)).collect();
        assert_eq!(all, [1, 4, 7, 10, 20, 21, 22]);
        for (position, index) in (0..).zip(&all) {
            assert_eq!(mixed.position_of(*index), Some(position));
        }
        assert_eq!(mixed.position_of(5), None);
        assert_eq!(mixed.to_string(), "1,4-10:3,20-22");
        assert_eq!(indices("0-10:4").to_string(), "0-8:4");
        assert_eq!(indices("7-8:9").to_string(), "7");
    }

    #[test]
    fn indices_that_make_no_sense_are_refused() {
        for text in ["", "a", "-1", "1-", "1--2", "+1", "1:0", "0-9:0", "0-9%2", "1,,2", "１"] {
            assert!(matches!(text.parse::<ArrayIndices>(), Err(BadIndices::Form(_))), "{text:?}");
        }
        assert!(matches!("5-3".parse::<ArrayIndices>(), Err(BadIndices::Backwards(_))));
        assert!(matches!("3,1".parse::<ArrayIndices>(), Err(BadIndices::Order(1))));
        assert!(matches!("1-5,5".parse::<ArrayIndices>(), Err(BadIndices::Order(5))));
        assert!(matches!("0-4000000000".parse::<ArrayIndices>(), Err(BadIndices::Index(_))));
        let many: Vec<String> = (0..300).map(|index| (index * 2).to_string()).collect();
        assert_eq!(many.join(",").parse::<ArrayIndices>(), Err(BadIndices::Ranges));
        assert!(matches!("0-100000".parse::<ArrayIndices>(), Err(BadIndices::Number(100_001))));
        assert!(matches!("99999999999".parse::<ArrayIndices>(), Err(BadIndices::Index(_))));
    }

    #[test]
    fn names_of_children_are_canonical() {
        assert_eq!(parent_and_index("sweep_12"), Some(("sweep", 12)));
        assert_eq!(parent_and_index("a_b_0"), Some(("a_b", 0)));
        for name in
            ["sweep", "sweep_", "_1", "sweep_01", "sweep_+1", "sweep_1x", "sweep_99999999999"]
        {
            assert_eq!(parent_and_index(name), None, "{name}");
        }
    }
}
