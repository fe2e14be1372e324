//! Problems of a workspace, in the form of Azure's diagnosis.
//!
//! Azure examines networks, accounts and registries. Muster has none of these, so their lists are empty. It does have
//! locks.

use muster_core::model::Lock;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiagnosisDocument {
    pub value: Results,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Results {
    pub user_defined_route_results: Vec<Finding>,
    pub network_security_rule_results: Vec<Finding>,
    pub resource_lock_results: Vec<Finding>,
    pub dns_resolution_results: Vec<Finding>,
    pub storage_account_results: Vec<Finding>,
    pub key_vault_results: Vec<Finding>,
    pub container_registry_results: Vec<Finding>,
    pub application_insights_results: Vec<Finding>,
    pub other_results: Vec<Finding>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub code: String,
    /// `Warning`, `Error` or `Information`.
    pub level: String,
    pub message: String,
}

/// The diagnosis from the locks that apply to the workspace.
pub fn document<'a>(locks: impl Iterator<Item = &'a Lock>) -> DiagnosisDocument {
    let finding = |lock: &Lock| Finding {
        code: "ResourceLock".to_owned(),
        level: "Information".to_owned(),
        message: format!(
            "the {} lock '{}' on {} applies to this workspace; what it forbids is refused until the lock is removed",
            lock.level.as_str(),
            lock.name,
            lock.scope
        ),
    };
    let resource_lock_results = locks.map(finding).collect();
    DiagnosisDocument { value: Results { resource_lock_results, ..Results::default() } }
}
