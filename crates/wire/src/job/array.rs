//! Array jobs and their tasks, as properties of a command job: Azure has no such kind of job.

use std::collections::BTreeMap;

use muster_core::model::{ArrayPlan, ChildCounts, Cost};

use super::property;
use crate::duration;
use crate::error::ArmError;
use crate::json::{Field, shorten};

/// What a job has to do with other jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Family<'a> {
    #[default]
    Alone,
    /// It consists of other jobs, which have cost this much.
    Parent { counts: ChildCounts, cost: Cost },
    /// It is part of another job.
    Child { parent: &'a str, index: u32 },
}

/// Reads which tasks an array has, and its limits.
pub(super) fn parse_array(properties: &Field<'_>) -> Result<Option<Box<ArrayPlan>>, ArmError> {
    let (array, timeout) =
        (properties.get(property::ARRAY)?, properties.get(property::ARRAY_TIMEOUT)?);
    let limit = timeout.duration()?;
    let Some(text) = array.text()?.filter(|text| !text.is_empty()) else {
        return match limit {
            None => Ok(None),
            Some(_) => Err(timeout.invalid(format!(
                "{} is set, but the job is not an array; set {} as well, or leave it out",
                timeout.path, array.path
            ))),
        };
    };
    let plan = parse_plan(&text)
        .map_err(|why| array.invalid(format!("{} is '{}': {why}", array.path, shorten(&text))))?;
    Ok(Some(Box::new(ArrayPlan { timeout: limit, ..plan })))
}

/// Reads indices as Slurm users write them: `0-99`, `1,4,7`, `0-100:10`, each with `%8` for at most 8 at once.
pub fn parse_plan(text: &str) -> Result<ArrayPlan, String> {
    let (indices, limit) = match text.split_once('%') {
        Some((indices, limit)) => (indices, Some(limit.trim())),
        None => (text, None),
    };
    let concurrency = limit
        .map(|limit| match limit.parse() {
            Ok(limit) if limit > 0 => Ok(limit),
            Ok(_) | Err(_) => Err(format!(
                "after % there is {limit:?}; give how many tasks may run at once, such as %8"
            )),
        })
        .transpose()?;
    let indices = indices.parse().map_err(|why: muster_core::model::BadIndices| why.to_string())?;
    Ok(ArrayPlan { indices, concurrency, timeout: None })
}

fn plan_text(plan: &ArrayPlan) -> String {
    match plan.concurrency {
        Some(limit) => format!("{}%{limit}", plan.indices),
        None => plan.indices.to_string(),
    }
}

pub(super) fn array_properties(
    plan: Option<&ArrayPlan>,
) -> impl Iterator<Item = (&'static str, String)> {
    let array = plan.map(|plan| (property::ARRAY, plan_text(plan)));
    let timeout = plan.and_then(|plan| plan.timeout);
    array.into_iter().chain(timeout.map(|limit| (property::ARRAY_TIMEOUT, duration::format(limit))))
}

impl Family<'_> {
    pub(super) fn write_on(self, properties: &mut BTreeMap<String, String>) {
        let mut put = |key: &str, value: String| properties.insert(key.to_owned(), value);
        match self {
            Family::Alone => {}
            Family::Child { parent, index } => {
                put(property::PARENT, parent.to_owned());
                put(property::ARRAY_INDEX, index.to_string());
            }
            Family::Parent { counts, .. } => {
                put(property::CHILDREN, counts_text(counts));
                for (key, count) in [
                    (property::CHILDREN_WAITING, counts.waiting),
                    (property::CHILDREN_RUNNING, counts.live),
                    (property::CHILDREN_COMPLETED, counts.completed),
                    (property::CHILDREN_FAILED, counts.failed),
                    (property::CHILDREN_CANCELED, counts.canceled),
                ] {
                    put(key, count.to_string());
                }
            }
        }
    }
}

/// For example "3 running, 12 completed, 1 failed of 100 tasks".
pub fn counts_text(counts: ChildCounts) -> String {
    let named = [
        (counts.waiting, "waiting"),
        (counts.live, "running"),
        (counts.completed, "completed"),
        (counts.failed, "failed"),
        (counts.canceled, "canceled"),
    ];
    let some = named.into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = some.map(|(count, what)| format!("{count} {what}")).collect();
    format!("{} of {} tasks", parts.join(", "), counts.all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_as_slurm_users_write_them() {
        for (text, tasks, limit) in
            [("0-9999%8", 10_000, Some(8)), ("1,3,5", 3, None), ("0-10:5 % 2", 3, Some(2))]
        {
            let plan = parse_plan(text).expect(text);
            assert_eq!((plan.indices.len(), plan.concurrency), (tasks, limit), "{text}");
            assert_eq!(parse_plan(&plan_text(&plan)), Ok(plan), "{text}");
        }
        for text in
            ["", "%8", "0-9%", "0-9%0", "0-9%-1", "0-9%x", "9-0", "0-9%8%8", "0-9%99999999999"]
        {
            assert!(parse_plan(text).is_err(), "{text:?}");
        }
    }
}
