//! `GET {workspace}/providers/Muster.Why/jobs/{name}` and `…/computes/{name}`: why a job waits, and why a cluster has
//! its current size. Azure has no such resource, so the format is Muster's own.

use muster_core::why::Reason;
use serde::{Deserialize, Serialize};

use crate::job::JobFacts;
use crate::notes::NOTE;
use crate::spelling;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyDocument {
    /// Every reason, the most fundamental first.
    pub value: Vec<WhyReason>,
    /// If there is nothing to wait for: what the job is doing, or how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the owner should know although it is no reason to wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyReason {
    /// The code of the reason, for programs.
    pub code: String,
    /// The class of the failure, if there was one: `provision` if nodes cannot be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// What the reason is, and what can be done about it.
    pub message: String,
    /// The limit that is involved.
    pub limit: String,
    /// The current value of the limit.
    pub value: u64,
    /// The value that would be needed.
    pub needed: u64,
    /// The command that would lift the limit, ready to be pasted into a shell.
    pub command: String,
    /// The person to ask, if the caller is not permitted to run the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
}

impl WhyReason {
    fn new(reason: &Reason) -> WhyReason {
        let figures = reason.figures();
        WhyReason {
            code: reason.code().to_owned(),
            class: reason.class().map(|class| class.as_str().to_owned()),
            message: reason.to_string(),
            limit: figures.limit.into(),
            value: figures.value,
            needed: figures.needed,
            command: spelling::command(&reason.remedy()),
            ask: None,
        }
    }
}

/// The job's own note comes before those about its compute.
pub fn job_document(facts: &JobFacts<'_>, reasons: &[Reason], notes: Vec<String>) -> WhyDocument {
    let message = reasons.is_empty().then(|| facts.sentence());
    let own = facts.spec.properties.get(NOTE).cloned();
    let notes = own.into_iter().chain(notes).collect();
    WhyDocument { message, ..compute_document(reasons, notes) }
}

pub fn compute_document(reasons: &[Reason], notes: Vec<String>) -> WhyDocument {
    WhyDocument { value: reasons.iter().map(WhyReason::new).collect(), message: None, notes }
}

#[cfg(test)]
mod tests {
    use muster_core::model::ClusterName;

    use super::*;

    #[test]
    fn nodes_that_cannot_be_made_are_a_failure_of_their_own_class() {
        let (cluster, last) = (ClusterName::new("cpu").unwrap(), "no room".into());
        let retry_at = muster_core::time::Wall(0);
        let document = compute_document(
            &[Reason::CreateFailing { cluster, failures: 1, retry_at, last }],
            Vec::new(),
        );
        assert_eq!(document.value[0].class.as_deref(), Some("provision"));
        assert!(
            crate::to_json(&document).contains(r#""code":"CreateFailing","class":"provision""#)
        );
    }

    #[test]
    fn a_reason_has_its_figures_and_its_command_apart() {
        let cluster = ClusterName::new("cpu").unwrap();
        let reasons = [Reason::MaximumTooLow { cluster, nodes_max: 2, needed: 3 }];
        let document = compute_document(&reasons, Vec::new());
        assert_eq!(
            crate::to_json(&document),
            concat!(
                r#"{"value":[{"code":"MaximumTooLow","message":"compute 'cpu' has at most 2 nodes, "#,
                r#"but this job needs 3; raise the maximum","limit":"max_instances","value":2,"needed":3,"#,
                r#""command":"muster compute update --name cpu --max-instances 3"}]}"#
            )
        );
        let text = crate::to_json(&document);
        assert_eq!(crate::from_json::<WhyDocument>(text.as_bytes()).unwrap(), document);
    }
}
