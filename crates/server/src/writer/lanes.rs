//! The requests that wait for the writer: one lane per caller, so that no caller waits behind another caller's
//! requests.
//!
//! Each batch is filled from the lanes in turn, one message of each, until it is full or all lanes are empty. The
//! server itself and its nodes have half of every batch, and callers the other half; each may use what the other does
//! not need. The order within a lane is kept.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use muster_core::Input;

use super::Unavailable;

/// How many messages of callers may wait, and separately, how many of the server and its nodes. Further ones are
/// refused.
pub const QUEUE_MAX: usize = 4_096;
/// How many messages of one lane may wait.
pub const LANE_MAX: usize = QUEUE_MAX / 8;
/// How many messages share one commit. More would only make the first of them wait longer.
pub const BATCH_MAX: usize = 256;
/// How many messages of one lane a batch may have. Others that arrive in the meantime wait for as long as these take.
const SHARE_MAX: usize = 64;

/// The sender of a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Lane {
    Server,
    Node(Box<str>),
    /// By object id.
    Caller(Box<str>),
    /// Callers without an identity, which share one lane.
    Anonymous,
}

impl Lane {
    /// The lane of an input.
    pub fn of(input: &Input) -> Lane {
        let caller = |object_id: &str| Lane::Caller(object_id.into());
        match input {
            Input::Asked { by, .. }
            | Input::PutWorkspace { by, .. }
            | Input::PutCluster { by, .. }
            | Input::PutDatastore { by, .. } => caller(&by.object_id),
            Input::NoteActivity(activity) => caller(&activity.by.object_id),
            Input::SubmitJob(request) | Input::CheckJob(request) => caller(&request.by.object_id),
            Input::Report { node, .. } => Lane::Node(node.as_str().into()),
            Input::SaveTree(request) => Lane::Node(request.node.as_str().into()),
            Input::PatchWorkspace { .. }
            | Input::DeleteWorkspace { .. }
            | Input::PatchCluster { .. }
            | Input::DeleteCluster { .. }
            | Input::PowerInstance { .. }
            | Input::CancelJob { .. }
            | Input::EditJob(_)
            | Input::RemoveExpired(_)
            | Input::EffectDone { .. }
            | Input::NodeEvicted { .. }
            | Input::NodeEnded { .. }
            | Input::EvictNode { .. }
            | Input::SetQuota { .. }
            | Input::ChangeAccess(_)
            | Input::ChangeGovernance(_)
            | Input::ChangeHosts(_)
            | Input::Deploy(_)
            | Input::DeleteDeployment { .. }
            | Input::DeleteDatastore { .. }
            | Input::ChangeAsset(_)
            | Input::Tick => Lane::Server,
        }
    }
}

/// Lanes that are served in turn.
struct Side<T> {
    lanes: HashMap<Lane, VecDeque<T>>,
    /// Each lane that is not empty, once; the first is served next.
    turns: VecDeque<Lane>,
    waiting: usize,
}

impl<T> Default for Side<T> {
    fn default() -> Side<T> {
        Side { lanes: HashMap::new(), turns: VecDeque::new(), waiting: 0 }
    }
}

impl<T> Side<T> {
    fn push(&mut self, lane: Lane, message: T) -> Result<(), Unavailable> {
        if self.waiting >= QUEUE_MAX {
            return Err(Unavailable::Busy);
        }
        let queue = self.lanes.entry(lane.clone()).or_default();
        // The server's own messages cannot be refused.
        if queue.len() >= LANE_MAX && lane != Lane::Server {
            return Err(Unavailable::TooMany);
        }
        if queue.is_empty() {
            self.turns.push_back(lane);
        }
        queue.push_back(message);
        self.waiting += 1;
        Ok(())
    }

    /// Takes up to `room` messages, one of each lane in turn.
    fn take(&mut self, room: usize, into: &mut Vec<T>) {
        let mut taken: HashMap<Lane, usize> = HashMap::new();
        let end = into.len() + room.min(self.waiting);
        let mut full = Vec::new();
        while into.len() < end {
            let Some(lane) = self.turns.pop_front() else { break };
            let count = taken.entry(lane.clone()).or_default();
            if *count >= SHARE_MAX {
                full.push(lane);
                continue;
            }
            *count += 1;
            let Some(queue) = self.lanes.get_mut(&lane) else { continue };
            into.extend(queue.pop_front());
            self.waiting -= 1;
            if queue.is_empty() {
                self.lanes.remove(&lane);
            } else {
                self.turns.push_back(lane);
            }
        }
        // These lanes have had their share of this batch, so lanes that arrive in the meantime are served before them.
        self.turns.extend(full);
    }
}

struct State<T> {
    own: Side<T>,
    callers: Side<T>,
    is_closed: bool,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    came: Condvar,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A panic cannot leave anything half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.came.notify_all();
    }
}

/// Where messages are added. When it is dropped, the lanes are closed.
pub struct LaneSender<T>(Arc<Shared<T>>);

/// Where batches are taken.
pub struct LaneReceiver<T>(Arc<Shared<T>>);

/// The messages that the writer processes together.
#[derive(Debug, PartialEq, Eq)]
pub struct Messages<T> {
    pub messages: Vec<T>,
    /// Whether the lanes are closed, and these are the last messages.
    pub is_last: bool,
}

pub fn open<T>() -> (LaneSender<T>, LaneReceiver<T>) {
    let state = State { own: Side::default(), callers: Side::default(), is_closed: false };
    let shared = Arc::new(Shared { state: Mutex::new(state), came: Condvar::new() });
    (LaneSender(Arc::clone(&shared)), LaneReceiver(shared))
}

impl<T> LaneSender<T> {
    pub fn push(&self, lane: Lane, message: T) -> Result<(), Unavailable> {
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(Unavailable::Stopping);
        }
        match lane {
            Lane::Server | Lane::Node(_) => state.own.push(lane, message)?,
            Lane::Caller(_) | Lane::Anonymous => state.callers.push(lane, message)?,
        }
        drop(state);
        self.0.came.notify_one();
        Ok(())
    }

    /// Closes the lanes. Waiting messages are still processed, and no others are accepted.
    pub fn close(&self) {
        self.0.close();
    }
}

impl<T> Drop for LaneSender<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<T> LaneReceiver<T> {
    /// The next batch as soon as there is one, or an empty one after `patience`.
    pub fn take(&self, patience: Duration) -> Messages<T> {
        let mut state = self.wait(patience);
        let mut messages = Vec::new();
        let State { own, callers, is_closed } = &mut *state;
        own.take(BATCH_MAX / 2, &mut messages);
        callers.take(BATCH_MAX - messages.len(), &mut messages);
        own.take(BATCH_MAX - messages.len(), &mut messages);
        let is_last = *is_closed && own.waiting + callers.waiting == 0;
        Messages { messages, is_last }
    }

    /// The next message alone, or `None` after `patience`.
    pub fn take_one(&self, patience: Duration) -> Result<Option<T>, Closed> {
        let mut state = self.wait(patience);
        if state.is_closed {
            return Err(Closed);
        }
        let mut one = Vec::new();
        state.own.take(1, &mut one);
        if one.is_empty() {
            state.callers.take(1, &mut one);
        }
        Ok(one.pop())
    }

    fn wait(&self, patience: Duration) -> MutexGuard<'_, State<T>> {
        let until = Instant::now() + patience;
        let mut state = self.0.lock();
        while !state.is_closed && state.own.waiting + state.callers.waiting == 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.0.came.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }
}

impl<T> Drop for LaneReceiver<T> {
    /// Callers that wait for a reply get none, and notice.
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        let left = (std::mem::take(&mut state.own), std::mem::take(&mut state.callers));
        drop(state);
        drop(left);
    }
}

/// No more messages will arrive.
#[derive(Debug, PartialEq, Eq)]
pub struct Closed;

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    fn caller(name: &str) -> Lane {
        Lane::Caller(name.into())
    }

    #[test]
    fn a_busy_caller_does_not_keep_others_waiting() {
        let (entrance, exit) = open();
        for number in 0..400 {
            entrance.push(caller("noisy"), ("noisy", number)).unwrap();
        }
        entrance.push(caller("quiet"), ("quiet", 0)).unwrap();
        entrance.push(Lane::Node("n".into()), ("node", 0)).unwrap();
        let Messages { messages, is_last } = exit.take(SOON);
        assert!(
            messages.contains(&("quiet", 0)) && messages.contains(&("node", 0)),
            "{messages:?}"
        );
        assert!(messages.len() <= SHARE_MAX + 2 && !is_last);
        // Nothing is lost, and the order of each caller is kept.
        let noisy = |messages: &[(&str, i32)]| -> Vec<i32> {
            messages.iter().filter(|(who, _)| *who == "noisy").map(|(_, number)| *number).collect()
        };
        let mut seen = noisy(&messages);
        for _ in 0..10 {
            seen.extend(noisy(&exit.take(SOON).messages));
        }
        assert_eq!(seen, (0..400).collect::<Vec<_>>());
    }

    #[test]
    fn callers_are_served_in_turn() {
        let (entrance, exit) = open();
        // More lanes than a batch has room for.
        for round in 0..2 {
            for who in 0..300 {
                entrance.push(caller(&format!("c{who}")), (who, round)).unwrap();
            }
        }
        let first = exit.take(SOON).messages;
        assert_eq!(first.len(), BATCH_MAX);
        assert!(
            first.iter().all(|(_, round)| *round == 0),
            "no caller is served twice before all others once"
        );
        let second = exit.take(SOON).messages;
        let early = second.iter().take_while(|(_, round)| *round == 0).count();
        assert_eq!(early, 300 - BATCH_MAX, "those that have waited longest come first");
    }

    #[test]
    fn callers_do_not_starve_nodes_nor_nodes_callers() {
        let (entrance, exit) = open();
        for number in 0..1_000 {
            entrance.push(Lane::Node(format!("n{number}").into()), "node").unwrap();
            entrance.push(caller(&format!("c{number}")), "caller").unwrap();
        }
        let Messages { messages, .. } = exit.take(SOON);
        let nodes = messages.iter().filter(|who| **who == "node").count();
        assert_eq!((nodes, messages.len()), (BATCH_MAX / 2, BATCH_MAX));
    }

    #[test]
    fn no_caller_takes_all_places() {
        let (entrance, exit) = open();
        for _ in 0..LANE_MAX {
            entrance.push(caller("noisy"), ()).unwrap();
        }
        assert_eq!(entrance.push(caller("noisy"), ()), Err(Unavailable::TooMany));
        for others in 0.. {
            match entrance.push(caller(&others.to_string()), ()) {
                Ok(()) => {}
                Err(refused) => {
                    assert_eq!((refused, others), (Unavailable::Busy, QUEUE_MAX - LANE_MAX));
                    break;
                }
            }
        }
        // Whatever callers do, reports of nodes are accepted.
        entrance.push(Lane::Node("n".into()), ()).unwrap();
        assert!(!exit.take(SOON).messages.is_empty());
        entrance.push(caller("later"), ()).unwrap();
    }

    #[test]
    fn waiting_messages_are_processed_before_the_end() {
        let (entrance, exit) = open();
        for number in 0..100 {
            entrance.push(caller("one"), number).unwrap();
        }
        entrance.close();
        assert_eq!(entrance.push(Lane::Server, 0), Err(Unavailable::Stopping));
        let first = exit.take(SOON);
        assert_eq!((first.messages.len(), first.is_last), (SHARE_MAX, false));
        let rest = exit.take(SOON);
        assert_eq!((rest.messages.len(), rest.is_last), (100 - SHARE_MAX, true));
        assert_eq!(exit.take_one(SOON), Err(Closed));
    }
}
