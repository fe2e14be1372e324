//! Post-mortems: what is recorded about nodes that failed or were lost. The format is Muster's own, also on the
//! server's disk.

use muster_core::model::{NodeFailure, NodePhase, Trouble};
use serde::{Deserialize, Serialize};

use crate::compute::trouble;
use crate::timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PostMortem {
    pub node: String,
    pub compute: String,
    pub host: String,
    pub vm_size: String,
    /// `CreateFailed`, `BootTimedOut`, `Ended`, `Rebooted` or `LeaseExpired`.
    pub cause: String,
    /// The cause as a message.
    pub message: String,
    /// The state of the node until then: `Requested`, `Booting`, `Idle` or `Leased`.
    pub was: String,
    pub requested_on: String,
    pub given_up_on: String,
    pub jobs: Vec<HeldJob>,
    /// Absent if the node could not be examined, for example because it was on another host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub findings: Option<Findings>,
    /// The end of its agent's log; omitted in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_log: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldJob {
    pub name: String,
    pub epoch: String,
    pub rank: u32,
}

/// What was found on the node's host. Figures that were not measured are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Findings {
    /// The exit code of its first process: that of its agent, or 128 plus the signal that ended the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended its first process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// How often the node was throttled because of its memory use, reached its limit, and had a process killed because
    /// of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_high: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes_peak: Option<u64>,
    /// How often it could not start another process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes_denied: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_microseconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_free_bytes: Option<u64>,
}

impl PostMortem {
    pub fn new(node: &str, failure: &NodeFailure, found: Option<(Findings, String)>) -> PostMortem {
        let (findings, agent_log) = found.unzip();
        let job = |held: &muster_core::model::HeldJob| HeldJob {
            name: held.name.to_string(),
            epoch: held.epoch.to_string(),
            rank: held.rank,
        };
        PostMortem {
            node: node.to_owned(),
            compute: failure.cluster_name.to_string(),
            host: failure.host.to_string(),
            vm_size: failure.vm_size.to_string(),
            cause: cause(&failure.why).to_owned(),
            message: trouble(&failure.why),
            was: phase(failure.was).to_owned(),
            requested_on: timestamp::format(failure.requested_at),
            given_up_on: timestamp::format(failure.given_up_at),
            jobs: failure.jobs.iter().map(job).collect(),
            findings,
            agent_log,
        }
    }

    /// The form that is used in lists.
    pub fn without_log(self) -> PostMortem {
        PostMortem { agent_log: None, ..self }
    }
}

fn cause(why: &Trouble) -> &'static str {
    match why {
        Trouble::LeaseExpired => "LeaseExpired",
        Trouble::Rebooted => "Rebooted",
        Trouble::BootTimedOut => "BootTimedOut",
        Trouble::Ended => "Ended",
        Trouble::CreateFailed { .. } => "CreateFailed",
        Trouble::Evicted => "Evicted",
    }
}

fn phase(phase: NodePhase) -> &'static str {
    match phase {
        NodePhase::Requested => "Requested",
        NodePhase::Booting => "Booting",
        NodePhase::Idle => "Idle",
        NodePhase::Leased => "Leased",
        NodePhase::Unusable => "Unusable",
        NodePhase::Leaving => "Leaving",
        NodePhase::Gone => "Gone",
    }
}

#[cfg(test)]
mod tests {
    use muster_core::ids::{ClusterId, Epoch};
    use muster_core::model::{self, HostName};
    use muster_core::time::Wall;

    use super::*;

    #[test]
    fn a_post_mortem_says_what_is_known_and_leaves_out_the_rest() {
        let failure = NodeFailure {
            cluster: ClusterId(3),
            cluster_name: "cpu".into(),
            host: HostName::local(),
            vm_size: "Standard_DS3_v2".into(),
            why: Trouble::Ended,
            was: NodePhase::Leased,
            requested_at: Wall(0),
            given_up_at: Wall(1_000_000),
            jobs: vec![model::HeldJob { name: "train".into(), epoch: Epoch(7), rank: 1 }],
        };
        let found = Findings { signal: Some(9), oom_kills: Some(0), ..Findings::default() };
        let whole = PostMortem::new("cpu-1", &failure, Some((found, "last words\n".to_owned())));
        let text = crate::to_json(&whole);
        assert!(text.contains(r#""findings":{"signal":9,"oomKills":0},"agentLog""#), "{text}");
        assert!(text.contains(r#""cause":"Ended","message":"all its processes ended"#), "{text}");
        assert!(text.contains(r#""givenUpOn":"1970-01-01T00:00:01Z""#), "{text}");
        assert_eq!(serde_json::from_str::<PostMortem>(&text).unwrap(), whole);
        let elsewhere = PostMortem::new("cpu-1", &failure, None);
        assert!(!crate::to_json(&elsewhere).contains("findings"));
        assert_eq!(whole.without_log().agent_log, None);
    }
}
