//! The state of a long-running operation, as `Azure-AsyncOperation` polls read it.

use muster_core::model::{Operation, OperationStatus};
use serde::{Deserialize, Serialize};

use crate::error::ErrorDetail;
use crate::timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationDocument {
    #[serde(default)]
    pub name: Option<String>,
    /// `InProgress`, `Succeeded`, `Failed` or `Canceled`.
    pub status: String,
    #[serde(default)]
    pub start_time: Option<String>,
    #[serde(default)]
    pub end_time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDetail>,
}

impl OperationDocument {
    pub fn is_over(&self) -> bool {
        self.status != "InProgress"
    }
}

pub fn document(operation: &Operation) -> OperationDocument {
    let status = match operation.status {
        OperationStatus::InProgress => "InProgress",
        OperationStatus::Succeeded => "Succeeded",
        OperationStatus::Failed => "Failed",
        OperationStatus::Canceled => "Canceled",
    };
    let code = match operation.status {
        OperationStatus::Canceled => "OperationSuperseded",
        _ => "OperationFailed",
    };
    OperationDocument {
        name: Some(operation.id.to_string()),
        status: status.to_owned(),
        start_time: Some(timestamp::format(operation.started_at)),
        end_time: operation.ended_at.map(timestamp::format),
        error: operation.error.as_deref().map(|why| ErrorDetail::new(code, why)),
    }
}

#[cfg(test)]
mod tests {
    use muster_core::ids::OperationId;
    use muster_core::model::{OperationKind, Scope};
    use muster_core::time::Wall;

    use super::*;

    #[test]
    fn a_poll_reports_the_end_and_the_reason() {
        let mut operation = Operation {
            id: OperationId(7),
            scope: Scope::Everything,
            by: None,
            kind: OperationKind::PutCluster,
            status: OperationStatus::InProgress,
            started_at: Wall(1_000_000),
            ended_at: None,
            error: None,
        };
        let running = document(&operation);
        assert_eq!(
            crate::to_json(&running),
            r#"{"name":"o0000000000000007","status":"InProgress","startTime":"1970-01-01T00:00:01Z","endTime":null}"#
        );
        assert!(!running.is_over());
        operation.ended_at = Some(Wall(2_000_000));
        operation.status = OperationStatus::Succeeded;
        assert!(document(&operation).is_over());
        operation.status = OperationStatus::Failed;
        operation.error = Some("no node came up".into());
        let failed = document(&operation);
        assert!(failed.is_over());
        let error = failed.error.unwrap();
        assert_eq!((&*error.code, &*error.message), ("OperationFailed", "no node came up"));
    }
}
