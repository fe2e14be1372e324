//! How computes and nodes are displayed: the entities that `az ml compute` prints, and a few figures that it leaves
//! out.

use std::collections::BTreeMap;

use muster_wire::compute::{
    AllocationState, IdentityBody, NodeInfo, NodeState, NodeStateCounts, NodeUse,
    ProvisioningState, Seen, SeenCompute, SeenOperation,
};
use muster_wire::duration;
use serde::Serialize;

use crate::output::width;

pub const HEADER: [&str; 7] =
    ["Name", "Compute type", "State", "Instance type", "Nodes", "Min", "Max"];
pub const NODE_HEADER: [&str; 8] =
    ["Node id", "State", "CPU", "Memory", "Host", "Address", "Port", "Run id"];
/// The columns to leave out on a narrow terminal, in this order.
const NODE_EXPENDABLE: [&str; 3] = ["Port", "Address", "Host"];

#[derive(Debug, Serialize)]
pub struct Compute {
    name: String,
    id: String,
    #[serde(rename = "type")]
    kind: String,
    /// In camel case, because az adds it to the entity.
    #[serde(rename = "resourceGroup")]
    resource_group: Option<String>,
    location: Option<String>,
    description: Option<String>,
    tags: Option<BTreeMap<String, String>>,
    identity: Option<Identity>,
    created_on: Option<String>,
    provisioning_state: ProvisioningState,
    provisioning_errors: Option<Vec<String>>,
    size: String,
    tier: Option<String>,
    min_instances: Option<u32>,
    max_instances: Option<u32>,
    idle_time_before_scale_down: Option<u64>,
    network_settings: NetworkSettings,
    enable_node_public_ip: Option<bool>,
    ssh_public_access_enabled: bool,
    ssh_settings: Option<SshSettings>,
    /// The state of a compute instance; like the next two fields, clusters do not have it.
    state: Option<String>,
    last_operation: Option<SeenOperation>,
    release_quota_on_stop: Option<bool>,
    // The fields from here on are Muster's own.
    scale_up: Option<String>,
    allocation_state: Option<AllocationState>,
    current_node_count: Option<u32>,
    target_node_count: Option<u32>,
    node_state_counts: Option<NodeCounts>,
    errors: Option<Vec<String>>,
    note: Option<String>,
}

#[derive(Debug, Serialize)]
struct Identity {
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: Option<String>,
    user_assigned_identities: Option<Vec<AssignedIdentity>>,
}

#[derive(Debug, Serialize)]
struct AssignedIdentity {
    resource_id: String,
}

#[derive(Debug, Serialize)]
struct NetworkSettings {
    subnet: Option<String>,
}

#[derive(Debug, Serialize)]
struct SshSettings {
    admin_username: String,
    /// For compute instances only: the key of a cluster is not returned.
    ssh_key_value: Option<String>,
}

#[derive(Debug, Serialize)]
struct NodeCounts {
    idle_node_count: u32,
    leaving_node_count: u32,
    preempted_node_count: u32,
    preparing_node_count: u32,
    running_node_count: u32,
    unusable_node_count: u32,
}

#[derive(Debug, Serialize)]
pub struct Node {
    node_id: String,
    node_state: NodeState,
    /// A string, as az prints it.
    port: Option<String>,
    private_ip_address: Option<String>,
    public_ip_address: Option<String>,
    run_id: Option<String>,
    /// Muster's own: why a node is unusable.
    reason: Option<String>,
    /// Muster's own: the host that the node is on.
    host: Option<String>,
    /// Muster's own: what the node uses.
    usage: Option<NodeUse>,
}

/// Without the note, which is among the tags for other clients.
pub fn own_tags(mut tags: BTreeMap<String, String>) -> BTreeMap<String, String> {
    tags.remove(muster_wire::notes::NOTE);
    tags
}

pub fn entity(compute: &SeenCompute) -> Compute {
    let (properties, own) = (&compute.properties, &compute.properties.properties);
    let scale = own.scale_settings.as_ref();
    let messages = |errors: &Option<Vec<muster_wire::error::ErrorBody>>| {
        let errors = errors.as_ref().filter(|errors| !errors.is_empty())?;
        let one = |body: &muster_wire::error::ErrorBody| {
            format!("({}) {}", body.error.code, body.error.message)
        };
        Some(errors.iter().map(one).collect())
    };
    Compute {
        name: compute.name.clone(),
        id: compute.id.clone(),
        kind: properties.compute_type.to_ascii_lowercase(),
        resource_group: resource_group(&compute.id),
        location: compute.location.clone(),
        description: properties.description.clone(),
        tags: compute.tags.clone().map(own_tags).filter(|tags| !tags.is_empty()),
        identity: compute.identity.as_ref().map(identity),
        created_on: properties.created_on.clone(),
        provisioning_state: properties.provisioning_state,
        provisioning_errors: messages(&properties.provisioning_errors),
        size: own.vm_size.clone(),
        tier: own.vm_priority.as_deref().map(snake_case),
        min_instances: scale.map(|scale| scale.min_node_count),
        max_instances: scale.map(|scale| scale.max_node_count),
        idle_time_before_scale_down: scale
            .and_then(|scale| scale.node_idle_time_before_scale_down.as_deref())
            .and_then(|text| duration::parse(text).ok())
            .map(|span| span.as_seconds()),
        network_settings: NetworkSettings {
            subnet: own.subnet.as_ref().map(|subnet| subnet.id.clone()),
        },
        enable_node_public_ip: own.enable_node_public_ip,
        ssh_public_access_enabled: is_open(own),
        ssh_settings: ssh(own),
        state: own.state.clone(),
        last_operation: own.last_operation.clone(),
        release_quota_on_stop: own.release_quota_on_stop,
        scale_up: scale
            .map(|scale| scale.scale_up.as_deref().unwrap_or("Immediate").to_ascii_lowercase()),
        allocation_state: own.allocation_state,
        current_node_count: own.current_node_count,
        target_node_count: own.target_node_count,
        node_state_counts: own.node_state_counts.map(node_counts),
        errors: messages(&own.errors),
        note: own.note.clone(),
    }
}

fn is_open(own: &Seen) -> bool {
    let of_instance = own.ssh_settings.as_ref().and_then(|ssh| ssh.ssh_public_access.as_deref());
    own.remote_login_port_public_access.as_deref().or(of_instance) == Some("Enabled")
}

fn ssh(own: &Seen) -> Option<SshSettings> {
    let of_cluster = own.user_account_credentials.as_ref().map(|admin| SshSettings {
        admin_username: admin.admin_user_name.clone(),
        ssh_key_value: None,
    });
    of_cluster.or_else(|| {
        let ssh = own.ssh_settings.as_ref()?;
        let admin_username = ssh.admin_user_name.clone()?;
        Some(SshSettings { admin_username, ssh_key_value: ssh.admin_public_key.clone() })
    })
}

/// A compute instance has its own state, which is more informative, and no nodes to count.
pub fn row(compute: &Compute) -> Vec<String> {
    let number =
        |count: Option<u32>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    vec![
        compute.name.clone(),
        compute.kind.clone(),
        compute.state.clone().unwrap_or_else(|| format!("{:?}", compute.provisioning_state)),
        compute.size.clone(),
        number(compute.current_node_count),
        number(compute.min_instances),
        number(compute.max_instances),
    ]
}

pub fn node(node: NodeInfo) -> Node {
    Node {
        node_id: node.node_id,
        node_state: node.node_state,
        port: node.port.map(|port| port.to_string()),
        private_ip_address: node.private_ip_address,
        public_ip_address: node.public_ip_address,
        run_id: node.run_id,
        reason: node.reason,
        host: node.host,
        usage: node.usage,
    }
}

/// Prints a table that fits the terminal, if there is one.
pub fn node_table(nodes: &[Node], columns: Option<usize>) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let rows: Vec<_> = nodes.iter().map(node_row).collect();
    let columns = columns.unwrap_or(usize::MAX);
    let kept = width::kept(&NODE_HEADER, &rows, columns, &NODE_EXPENDABLE);
    let header = kept.iter().map(|index| NODE_HEADER[*index]).collect();
    let row = |row: Vec<String>| kept.iter().map(|index| row[*index].clone()).collect();
    (header, rows.into_iter().map(row).collect())
}

fn node_row(node: &Node) -> Vec<String> {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let usage = node.usage.as_ref();
    let state = match &node.reason {
        Some(reason) => format!("{} ({reason})", node.node_state.as_str()),
        None => node.node_state.as_str().to_owned(),
    };
    vec![
        node.node_id.clone(),
        state,
        or_dash(&usage.and_then(|usage| usage.cpu_millicores).map(cores)),
        or_dash(&usage.and_then(|usage| usage.memory_bytes).map(mib)),
        or_dash(&node.host),
        or_dash(&node.private_ip_address),
        or_dash(&node.port),
        or_dash(&node.run_id),
    ]
}

/// Formats 979 thousandths as `0.98`.
fn cores(millicores: u64) -> String {
    let hundredths = millicores.saturating_add(5) / 10;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// The resource group in an ARM id.
pub fn resource_group(id: &str) -> Option<String> {
    let mut parts = id.split('/');
    parts.find(|part| part.eq_ignore_ascii_case("resourceGroups"))?;
    parts.next().map(str::to_owned)
}

fn identity(body: &IdentityBody) -> Identity {
    let one = |id: &String| AssignedIdentity { resource_id: id.clone() };
    Identity {
        kind: snake_case(&body.kind),
        principal_id: body.principal_id.clone(),
        tenant_id: body.tenant_id.clone(),
        user_assigned_identities: body
            .user_assigned_identities
            .as_ref()
            .map(|assigned| assigned.keys().map(one).collect()),
    }
}

fn node_counts(counts: NodeStateCounts) -> NodeCounts {
    NodeCounts {
        idle_node_count: counts.idle_node_count,
        leaving_node_count: counts.leaving_node_count,
        preempted_node_count: counts.preempted_node_count,
        preparing_node_count: counts.preparing_node_count,
        running_node_count: counts.running_node_count,
        unusable_node_count: counts.unusable_node_count,
    }
}

/// `LowPriority` → `low_priority`.
fn snake_case(word: &str) -> String {
    let mut text = String::with_capacity(word.len() + 2);
    let mut before: Option<char> = None;
    for c in word.chars() {
        if c.is_ascii_uppercase() && before.is_some_and(|before| before.is_ascii_alphanumeric()) {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
        before = Some(c);
    }
    text
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The fields that are printed of a compute.
    pub fn keys() -> std::collections::BTreeSet<String> {
        let compute: SeenCompute = serde_json::from_str(SHOWN).unwrap();
        let shown = serde_json::to_value(entity(&compute)).unwrap();
        shown.as_object().unwrap().keys().cloned().collect()
    }

    const SHOWN: &str = r#"{
        "id": "/subscriptions/s/resourceGroups/Rg/providers/Microsoft.MachineLearningServices/workspaces/w/computes/cpu",
        "name": "cpu", "type": "Microsoft.MachineLearningServices/workspaces/computes",
        "location": "eastus", "tags": {},
        "identity": {"type": "SystemAssigned,UserAssigned", "userAssignedIdentities": {"/id/1": {}}},
        "properties": {"computeType": "AmlCompute", "provisioningState": "Succeeded",
            "properties": {"vmSize": "STANDARD_DS3_V2", "vmPriority": "LowPriority",
                "scaleSettings": {"minNodeCount": 0, "maxNodeCount": 2, "nodeIdleTimeBeforeScaleDown": "PT2M"},
                "remoteLoginPortPublicAccess": "NotSpecified", "enableNodePublicIp": true,
                "allocationState": "Steady", "currentNodeCount": 1, "targetNodeCount": 1,
                "nodeStateCounts": {"idleNodeCount": 1}}}}"#;

    #[test]
    fn a_cluster_is_shown_as_az_shows_it() {
        let compute: SeenCompute = serde_json::from_str(SHOWN).unwrap();
        let entity = entity(&compute);
        let shown = serde_json::to_value(&entity).unwrap();
        assert_eq!(shown["type"], "amlcompute");
        assert_eq!(shown["tier"], "low_priority");
        assert_eq!(shown["resourceGroup"], "Rg");
        assert_eq!(shown["idle_time_before_scale_down"], 120);
        assert_eq!(shown["identity"]["type"], "system_assigned,user_assigned");
        assert_eq!(shown["identity"]["user_assigned_identities"][0]["resource_id"], "/id/1");
        assert_eq!(shown["node_state_counts"]["idle_node_count"], 1);
        assert_eq!(shown["ssh_public_access_enabled"], false);
        assert_eq!(
            row(&entity),
            ["cpu", "amlcompute", "Succeeded", "STANDARD_DS3_V2", "1", "0", "2"]
        );
    }

    #[test]
    fn a_table_of_nodes_shows_what_they_use_and_fits() {
        let text = r#"{"nodeId": "cpu-1-n1", "nodeState": "running", "runId": "busy_train_a1b2c3d4e5",
            "privateIpAddress": "10.88.0.2", "host": "local",
            "usage": {"cpu_millicores": 979, "memory_bytes": 327155712}}"#;
        let used = node(serde_json::from_str(text).unwrap());
        let text = r#"{"nodeId": "cpu-1-n2", "nodeState": "preparing"}"#;
        let nodes = [used, node(serde_json::from_str(text).unwrap())];
        let (header, rows) = node_table(&nodes, None);
        assert_eq!(header, NODE_HEADER);
        let wanted = [
            [
                "cpu-1-n1",
                "running",
                "0.98",
                "312 MiB",
                "local",
                "10.88.0.2",
                "-",
                "busy_train_a1b2c3d4e5",
            ],
            ["cpu-1-n2", "preparing", "-", "-", "-", "-", "-", "-"],
        ];
        assert_eq!(rows, wanted);
        let (header, rows) = node_table(&nodes, Some(64));
        assert_eq!(header, ["Node id", "State", "CPU", "Memory", "Run id"]);
        assert_eq!(rows[0][4], "busy_train_a1b2c3d4e5");
        assert_eq!(
            (cores(0), cores(1), cores(16_000)),
            ("0.00".into(), "0.00".into(), "16.00".into())
        );
    }

    const INSTANCE: &str = r#"{
        "id": "/subscriptions/s/resourceGroups/Rg/providers/Microsoft.MachineLearningServices/workspaces/w/computes/ci",
        "name": "ci", "type": "Microsoft.MachineLearningServices/workspaces/computes", "location": "eastus",
        "properties": {"computeType": "ComputeInstance", "provisioningState": "Succeeded",
            "properties": {"vmSize": "STANDARD_DS3_V2", "state": "Running", "applications": [],
                "sshSettings": {"sshPublicAccess": "Enabled", "adminUserName": "azureuser", "sshPort": null,
                    "adminPublicKey": "ssh-rsa AAAA"},
                "lastOperation": {"operationName": "Start", "operationStatus": "Succeeded"},
                "releaseQuotaOnStop": true, "enableNodePublicIp": true, "errors": []}}}"#;

    #[test]
    fn an_instance_has_a_state_and_no_scale() {
        let compute: SeenCompute = serde_json::from_str(INSTANCE).unwrap();
        let entity = entity(&compute);
        let shown = serde_json::to_value(&entity).unwrap();
        assert_eq!(
            (&shown["type"], &shown["state"]),
            (&"computeinstance".into(), &"Running".into())
        );
        assert_eq!(shown["last_operation"]["operationName"], "Start");
        assert_eq!(shown["ssh_settings"]["ssh_key_value"], "ssh-rsa AAAA");
        assert_eq!(shown["ssh_public_access_enabled"], true);
        assert_eq!(shown["release_quota_on_stop"], true);
        for absent in ["min_instances", "scale_up", "tier", "errors", "current_node_count"] {
            assert!(shown[absent].is_null(), "{absent}: {shown}");
        }
        let wanted = ["ci", "computeinstance", "Running", "STANDARD_DS3_V2", "-", "-", "-"];
        assert_eq!(row(&entity), wanted);
        assert_eq!(compute.properties.properties.nodes().idle_node_count, 1);
    }
}
