//! What stands in a workspace's way, in the shape of Azure's diagnosis.
//!
//! Azure looks into networks, accounts and registries. None of them is here, so nothing can be wrong with
//! them, and their lists are empty. Locks are here.

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

/// Of the locks that hold for the workspace.
pub fn document<'a>(locks: impl Iterator<Item = &'a Lock>) -> DiagnosisDocument {
    let finding = |lock: &Lock| Finding {
        code: "ResourceLock".to_owned(),
        level: "Information".to_owned(),
        message: format!(
            "the {} lock '{}' on {} holds here; what it forbids is refused until it is removed",
            lock.level.as_str(),
            lock.name,
            lock.scope
        ),
    };
    let resource_lock_results = locks.map(finding).collect();
    DiagnosisDocument { value: Results { resource_lock_results, ..Results::default() } }
}
