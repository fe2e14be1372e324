//! How the fields in the server's errors are called here: by the flag that was given, or by their name in YAML files.
//! The server uses Azure's names, which users of `muster` do not see anywhere else.

use std::ffi::OsString;

use muster_core::refusal::{ClusterProperty, Field, JobField};
use muster_wire::error::ErrorDetail;
use muster_wire::spelling::{MessagePart, bare, field_at};

use crate::failure::message;

/// The message of an error, made safe for a terminal.
pub fn of_error(detail: &ErrorDetail) -> String {
    spelled(detail, &std::env::args_os().collect::<Vec<_>>())
}

fn spelled(detail: &ErrorDetail, args: &[OsString]) -> String {
    if detail.parts.is_empty() {
        return message(&detail.message);
    }
    let part = |part: &MessagePart| match part {
        MessagePart::Text(text) => text.clone(),
        MessagePart::Field { field } => name_at(field, args),
    };
    message(&detail.parts.iter().map(part).collect::<String>())
}

/// The name of the field at a path of Azure's JSON. In YAML files, fields that are not in the tables below have the
/// same names in snake case.
fn name_at(path: &str, args: &[OsString]) -> String {
    let Some((field, below)) = field_at(path) else { return snake_case(&bare(path)) };
    let Spelling { yaml, flag } = spelling(field);
    let is_given = |flag: &&str| args.iter().any(|arg| is_flag(arg, flag));
    match (flag.filter(is_given), below.as_str()) {
        (Some(flag), _) => flag.to_owned(),
        // Azure wraps some references in an object.
        (None, "" | "id") => yaml.to_owned(),
        (None, below) => format!("{yaml}.{below}"),
    }
}

fn is_flag(arg: &OsString, flag: &str) -> bool {
    let arg = arg.to_str().unwrap_or_default();
    arg.split('=').next() == Some(flag)
}

fn snake_case(path: &str) -> String {
    let mut text = String::with_capacity(path.len() + 4);
    for c in path.chars() {
        if c.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

/// The name of a field in YAML files, and its flag if there is one.
pub struct Spelling {
    pub yaml: &'static str,
    pub flag: Option<&'static str>,
}

const fn both(yaml: &'static str, flag: &'static str) -> Spelling {
    Spelling { yaml, flag: Some(flag) }
}

const fn only(yaml: &'static str) -> Spelling {
    Spelling { yaml, flag: None }
}

fn spelling(field: Field) -> Spelling {
    match field {
        Field::Cluster(property) => of_cluster(property),
        Field::Job(field) => of_job(field),
        Field::AdminUserName => both("ssh_settings.admin_username", "--admin-username"),
        Field::AdminSshKey => both("ssh_settings.ssh_key_value", "--ssh-key-value"),
        Field::FriendlyName => both("display_name", "--display-name"),
        Field::ManagedNetwork => only("managed_network"),
        Field::AssetDescription => both("description", "--description"),
        Field::AssetProperties => only("properties"),
        Field::ResourceGroup => both("resource_group", "--resource-group"),
        Field::RolePrincipal => both("assignee", "--assignee"),
        Field::RoleDefinition => both("role", "--role"),
        Field::TokenLifetime => both("expires_in", "--expires-in"),
    }
}

pub fn of_cluster(property: ClusterProperty) -> Spelling {
    match property {
        ClusterProperty::Kind => both("type", "--type"),
        ClusterProperty::ReleasesQuotaOnStop => only("release_quota_on_stop"),
        ClusterProperty::Location => both("location", "--location"),
        ClusterProperty::Description => both("description", "--description"),
        ClusterProperty::Tags => both("tags", "--tags"),
        ClusterProperty::VmSize => both("size", "--size"),
        ClusterProperty::Tier => both("tier", "--tier"),
        ClusterProperty::NodesMin => both("min_instances", "--min-instances"),
        ClusterProperty::NodesMax => both("max_instances", "--max-instances"),
        ClusterProperty::IdleTime => {
            both("idle_time_before_scale_down", "--idle-time-before-scale-down")
        }
        ClusterProperty::ScaleUp => both("scale_up", "--scale-up"),
        ClusterProperty::OsType => only("os_type"),
        ClusterProperty::VirtualMachineImage => only("virtual_machine_image"),
        ClusterProperty::IsolatedNetwork => only("isolated_network"),
        ClusterProperty::Subnet => both("network_settings.subnet", "--subnet"),
        ClusterProperty::Admin => both("ssh_settings", "--admin-username"),
        ClusterProperty::RemoteLogin => {
            both("ssh_public_access_enabled", "--ssh-public-access-enabled")
        }
        ClusterProperty::EnableNodePublicIp => {
            both("enable_node_public_ip", "--enable-node-public-ip")
        }
        ClusterProperty::DisableLocalAuth => only("disable_local_auth"),
        ClusterProperty::Identity => both("identity", "--identity-type"),
        ClusterProperty::PropertyBag => only("property_bag"),
    }
}

fn of_job(field: JobField) -> Spelling {
    match field {
        JobField::Command => both("command", "--command"),
        JobField::Compute => both("compute", "--compute"),
        JobField::Nodes => both("resources.instance_count", "--instance-count"),
        JobField::InstanceType => both("resources.instance_type", "--instance-type"),
        JobField::Tier => only("queue_settings.job_tier"),
        JobField::Timeout => both("limits.timeout", "--timeout"),
        JobField::DisplayName => both("display_name", "--display-name"),
        JobField::ExperimentName => both("experiment_name", "--experiment-name"),
        JobField::Description => both("description", "--description"),
        JobField::IsArchived => only("is_archived"),
        JobField::EnvironmentVariables => both("environment_variables", "--env"),
        JobField::Checkpoint => both("properties.muster.checkpoint", "--checkpoint"),
        JobField::ShareVcpus => both("resources.properties.cpus", "--cpus"),
        JobField::ShareMemory => both("resources.properties.memory", "--memory"),
        JobField::ShareGpus => both("resources.properties.gpus", "--gpus"),
        JobField::Processes => only("distribution.process_count_per_instance"),
        JobField::Workers => only("distribution.worker_count"),
        JobField::ClientId => only("identity.client_id"),
        JobField::ObjectId => only("identity.object_id"),
        JobField::ResourceId => only("identity.msi_resource_id"),
        JobField::Inputs => only("inputs"),
        JobField::Outputs => only("outputs"),
        JobField::Services => only("services"),
        JobField::Properties => only("properties"),
    }
}

#[cfg(test)]
mod tests {
    use muster_core::Refused;
    use muster_core::refusal::{ClusterRule, JobRule};
    use muster_wire::ArmError;

    use super::*;

    fn seen(error: &ArmError, args: &[&str]) -> String {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        spelled(&error.body.error, &args)
    }

    #[test]
    fn a_field_is_called_as_it_was_given() {
        let rule = ClusterRule::TooManyNodes { nodes: 5000, max: 1000 };
        let error = ArmError::from(Refused::invalid(ClusterProperty::NodesMax, rule));
        let rest = "is 5000; a cluster has at most 1000 nodes, so lower it";
        assert_eq!(error.body.error.message, format!("maxNodeCount {rest}"));
        assert_eq!(seen(&error, &["--max-instances", "5000"]), format!("--max-instances {rest}"));
        assert_eq!(seen(&error, &["--max-instances=5000"]), format!("--max-instances {rest}"));
        assert_eq!(seen(&error, &["--file", "c.yml"]), format!("max_instances {rest}"));
        let rule = ClusterRule::MinimumAboveMaximum { min: 7, max: 4 };
        let error = ArmError::from(Refused::invalid(ClusterProperty::NodesMin, rule));
        assert_eq!(
            seen(&error, &["--min-instances", "7"]),
            "--min-instances is 7, more than max_instances, which is 4; lower one or raise the other"
        );
        let error = ArmError::from(Refused::invalid(JobField::Nodes, JobRule::NoNodes));
        assert_eq!(seen(&error, &[]), "resources.instance_count is 0; a job needs at least 1");
    }

    #[test]
    fn what_the_servers_parser_refuses_is_called_so_too() {
        let cases = [
            ("properties.properties.scaleSettings.maxNodeCount", "max_instances"),
            ("properties.scaleSettings.maxNodeCount", "max_instances"),
            ("properties.properties.subnet.id", "network_settings.subnet"),
            ("properties.resources.instanceCount", "resources.instance_count"),
            ("properties.resources.properties.cpus", "resources.properties.cpus"),
            ("properties.resources.shmSize", "resources.shm_size"),
            ("properties.environmentVariables.HomeDir", "environment_variables.HomeDir"),
            ("properties.properties", "properties"),
        ];
        for (path, name) in cases {
            let error = ArmError::invalid_property(path, format!("{path} is 'x'; give 1"));
            assert_eq!(seen(&error, &[]), format!("{name} is 'x'; give 1"));
        }
    }

    #[test]
    fn no_name_here_is_one_of_azures() {
        for field in Field::all() {
            let Spelling { yaml, flag } = spelling(field);
            assert!(!yaml.contains(|c: char| c.is_ascii_uppercase()), "{yaml}");
            assert!(flag.is_none_or(|flag| flag.starts_with("--")), "{flag:?}");
            assert_eq!(name_at(muster_wire::spelling::place(field), &[]), yaml, "{field:?}");
        }
    }
}
