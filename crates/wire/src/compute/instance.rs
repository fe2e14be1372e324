//! Azure's ComputeInstance: its properties besides those that every compute has.

use muster_core::model::{
    AdminAccount, Cluster, ClusterPhase, LastOperation, Power, Progress, RemoteLogin,
};
use serde::Serialize;

use super::resource::{envelope, errors};
use super::{ComputeFacts, ComputeResource, NodeCounts, ProvisioningState, ResourceRef, resource};
use crate::error::{ArmError, ErrorBody};
use crate::json::Field;
use crate::timestamp;

/// Azure's name for the administrator of every instance.
const ADMIN: &str = "azureuser";

/// A compute of either kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ComputeDocument {
    Cluster(Box<ComputeResource>),
    Instance(Box<ComputeResource<InstanceProperties>>),
}

/// An instance has no applications and no address that is reachable from outside, so those properties are empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceProperties {
    pub vm_size: String,
    pub subnet: Option<ResourceRef>,
    pub ssh_settings: SshSettings,
    pub autologger_settings: (),
    pub errors: Vec<ErrorBody>,
    pub connectivity_endpoints: Endpoints,
    pub applications: [(); 0],
    pub state: &'static str,
    pub last_operation: Option<LastOperationBody>,
    pub created_by: Option<CreatedBy>,
    pub application_sharing_policy: (),
    pub compute_instance_authorization_type: &'static str,
    pub personal_compute_instance_settings: (),
    pub setup_scripts: (),
    pub enable_node_public_ip: bool,
    pub release_quota_on_stop: bool,
    pub data_mounts: (),
    pub data_disks: (),
    pub containers: (),
    pub update_status: (),
    pub versions: (),
    pub custom_services: [(); 0],
    pub os_image_metadata: (),
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SshSettings {
    pub ssh_public_access: &'static str,
    pub admin_user_name: &'static str,
    pub ssh_port: (),
    pub admin_public_key: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoints {
    pub public_ip_address: (),
    pub private_ip_address: (),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastOperationBody {
    pub operation_name: &'static str,
    pub operation_time: String,
    pub operation_status: &'static str,
    pub operation_trigger: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CreatedBy {
    pub user_name: String,
    pub user_org_id: (),
    pub user_id: Option<String>,
}

/// The response to PUT, PATCH and GET.
pub fn document(facts: &ComputeFacts<'_>) -> ComputeDocument {
    if !facts.cluster.is_instance() {
        return ComputeDocument::Cluster(Box::new(resource(facts)));
    }
    let mut shown = envelope(facts, properties(facts));
    let is_failed = shown.properties.properties.state == "CreateFailed";
    if is_failed && facts.state.is_none() {
        shown.properties.provisioning_state = ProvisioningState::Failed;
    }
    ComputeDocument::Instance(Box::new(shown))
}

fn properties(facts: &ComputeFacts<'_>) -> InstanceProperties {
    let Cluster { spec, backoff, last, .. } = facts.cluster;
    let is_open = spec.remote_login == RemoteLogin::Enabled;
    let key = spec.admin.as_ref().and_then(|admin| admin.ssh_public_key.as_deref());
    InstanceProperties {
        vm_size: spec.vm_size.to_string(),
        subnet: spec.subnet.as_deref().map(|id| ResourceRef { id: id.to_owned() }),
        ssh_settings: SshSettings {
            ssh_public_access: if is_open { "Enabled" } else { "Disabled" },
            admin_user_name: ADMIN,
            ssh_port: (),
            admin_public_key: key.map(str::to_owned),
        },
        autologger_settings: (),
        errors: errors(backoff).unwrap_or_default(),
        connectivity_endpoints: Endpoints { public_ip_address: (), private_ip_address: () },
        applications: [],
        state: state(facts.cluster, facts.counts),
        last_operation: last.map(last_operation),
        created_by: facts.created_by.map(|name| CreatedBy {
            user_name: name.to_owned(),
            user_org_id: (),
            user_id: facts.creator_id.map(str::to_owned),
        }),
        application_sharing_policy: (),
        compute_instance_authorization_type: "personal",
        personal_compute_instance_settings: (),
        setup_scripts: (),
        enable_node_public_ip: spec.enable_node_public_ip,
        release_quota_on_stop: spec.releases_quota_on_stop,
        data_mounts: (),
        data_disks: (),
        containers: (),
        update_status: (),
        versions: (),
        custom_services: [],
        os_image_metadata: (),
        note: facts.note.map(str::to_owned),
    }
}

/// Azure's word for the state of the instance.
fn state(cluster: &Cluster, counts: NodeCounts) -> &'static str {
    if matches!(cluster.phase, ClusterPhase::Deleting | ClusterPhase::Gone) {
        return "Deleting";
    }
    match cluster.under_way() {
        Some(None) => return "Creating",
        Some(Some(Power::Start)) => return "Starting",
        Some(Some(Power::Stop)) => return "Stopping",
        Some(Some(Power::Restart)) => return "Restarting",
        None => {}
    }
    if !cluster.is_wanted_up() {
        let failed =
            |last: &LastOperation| last.power.is_none() && last.progress == Progress::Failed;
        return if cluster.last.as_ref().is_some_and(failed) { "CreateFailed" } else { "Stopped" };
    }
    if counts.running > 0 {
        "JobRunning"
    } else if counts.idle > 0 {
        "Running"
    } else if counts.preparing > 0 {
        // The node was lost, and another one is being created.
        "Starting"
    } else {
        "Unusable"
    }
}

fn last_operation(last: LastOperation) -> LastOperationBody {
    let (name, failed) = match last.power {
        None => ("Create", "CreateFailed"),
        Some(Power::Start) => ("Start", "StartFailed"),
        Some(Power::Stop) => ("Stop", "StopFailed"),
        Some(Power::Restart) => ("Restart", "RestartFailed"),
    };
    LastOperationBody {
        operation_name: name,
        operation_time: timestamp::format(last.at),
        operation_status: match last.progress {
            Progress::UnderWay => "InProgress",
            Progress::Done => "Succeeded",
            Progress::Failed => failed,
        },
        operation_trigger: "User",
    }
}

/// The settings in `sshSettings`.
#[derive(Debug, Default)]
pub(super) struct Ssh {
    pub(super) admin: Option<AdminAccount>,
    pub(super) login: Option<RemoteLogin>,
}

pub(super) fn ssh(aml: &Field<'_>) -> Result<Ssh, ArmError> {
    let field = aml.get("sshSettings")?;
    let words = [("Enabled", RemoteLogin::Enabled), ("Disabled", RemoteLogin::Disabled)];
    let key = field.get("adminPublicKey")?.text()?.filter(|key| !key.is_empty());
    Ok(Ssh {
        login: field.get("sshPublicAccess")?.choice(&words)?,
        admin: key.map(|key| AdminAccount {
            user_name: ADMIN.into(),
            ssh_public_key: Some(key),
            password_digest: None,
        }),
    })
}

/// Refuses settings that would be stored but never take effect.
pub(super) fn check_supported(aml: &Field<'_>) -> Result<(), ArmError> {
    let refused = [
        ("schedules", "start and stop it by hand, or from a program"),
        (
            "idleTimeBeforeShutdown",
            "stop it by hand, or use a cluster, whose idle nodes are deleted",
        ),
        ("setupScripts", "run the script as a job on the instance"),
        ("customServices", "run the service as a job on the instance"),
        ("personalComputeInstanceSettings", "let that user create the instance"),
    ];
    for (name, remedy) in refused {
        let field = aml.get(name)?;
        if field.is_filled() {
            let message = format!("{} is not supported yet; leave it out: {remedy}", field.path);
            return Err(ArmError::not_supported(&field.path, message));
        }
    }
    let patching = aml.get("enableOSPatching")?;
    if patching.boolean()? == Some(true) {
        let path = &patching.path;
        let message =
            format!("{path} is not supported: nodes are created anew at every start; leave it out");
        return Err(ArmError::not_supported(path, message));
    }
    Ok(())
}
