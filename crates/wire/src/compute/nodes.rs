//! The nodes of a cluster.

use muster_core::model::{Node, NodeState as CoreState, Trouble};
use serde::{Deserialize, Serialize};

use muster_core::model::ComputeKind;

use super::kind_word;

/// What is known about a node when it is shown.
#[derive(Debug, Clone, Copy)]
pub struct NodeFacts<'a> {
    pub node: &'a Node,
    /// The name of the job that runs on the node.
    pub job: Option<&'a str>,
    /// The resource use of a node that has reported recently.
    pub usage: Option<NodeUse>,
}

/// The current resource use of a node. A figure is `None` if it is not measured on the node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUse {
    /// Thousandths of a core that were busy between the last two reports.
    pub cpu_millicores: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
    pub disk_size_bytes: Option<u64>,
}

/// The key is `nodes`, not `value` as in every other list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeList {
    #[serde(default)]
    pub compute_type: Option<String>,
    #[serde(default)]
    pub nodes: Vec<NodeInfo>,
    /// Absent on the last page, because azureml-core follows it whenever it is present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_link: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "BothSpellings", rename_all = "camelCase")]
pub struct NodeInfo {
    pub node_id: String,
    #[serde(default)]
    pub private_ip_address: Option<String>,
    #[serde(default)]
    pub public_ip_address: Option<String>,
    #[serde(default)]
    pub port: Option<u16>,
    pub node_state: NodeState,
    #[serde(default)]
    pub run_id: Option<String>,
    /// Muster's own: what is wrong with an unusable node.
    #[serde(default)]
    pub reason: Option<String>,
    /// Muster's own: the host that the node is on.
    #[serde(default)]
    pub host: Option<String>,
    /// Muster's own: the resources that the node uses.
    #[serde(default)]
    pub usage: Option<NodeUse>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    Idle,
    Running,
    Preparing,
    Unusable,
    Leaving,
    Preempted,
}

impl NodeState {
    pub fn as_str(self) -> &'static str {
        match self {
            NodeState::Idle => "idle",
            NodeState::Running => "running",
            NodeState::Preparing => "preparing",
            NodeState::Unusable => "unusable",
            NodeState::Leaving => "leaving",
            NodeState::Preempted => "preempted",
        }
    }
}

/// Azure's client copies the keys of the response to attributes that it then reads in snake case, so with Azure's own
/// spelling alone they would all be empty. Other clients ignore the keys that they do not know.
#[derive(Serialize)]
struct BothSpellings {
    #[serde(rename = "nodeId")]
    node_id_camel: String,
    #[serde(rename = "privateIpAddress")]
    private_ip_address_camel: Option<String>,
    #[serde(rename = "publicIpAddress")]
    public_ip_address_camel: Option<String>,
    port: Option<u16>,
    #[serde(rename = "nodeState")]
    node_state_camel: NodeState,
    #[serde(rename = "runId")]
    run_id_camel: Option<String>,
    node_id: String,
    private_ip_address: Option<String>,
    public_ip_address: Option<String>,
    node_state: NodeState,
    run_id: Option<String>,
    reason: Option<String>,
    host: Option<String>,
    usage: Option<NodeUse>,
}

impl From<NodeInfo> for BothSpellings {
    fn from(node: NodeInfo) -> BothSpellings {
        BothSpellings {
            node_id_camel: node.node_id.clone(),
            private_ip_address_camel: node.private_ip_address.clone(),
            public_ip_address_camel: node.public_ip_address.clone(),
            port: node.port,
            node_state_camel: node.node_state,
            run_id_camel: node.run_id.clone(),
            node_id: node.node_id,
            private_ip_address: node.private_ip_address,
            public_ip_address: node.public_ip_address,
            node_state: node.node_state,
            run_id: node.run_id,
            reason: node.reason,
            host: node.host,
            usage: node.usage,
        }
    }
}

/// Deleted nodes are omitted.
pub fn nodes(kind: ComputeKind, facts: &[NodeFacts<'_>], next_link: Option<String>) -> NodeList {
    NodeList {
        compute_type: Some(kind_word(kind)),
        nodes: facts.iter().filter_map(info).collect(),
        next_link,
    }
}

/// The state of a node; `None` if it is deleted.
pub(crate) fn state(node: &Node) -> Option<NodeState> {
    info(&NodeFacts { node, job: None, usage: None }).map(|info| info.node_state)
}

fn info(facts: &NodeFacts<'_>) -> Option<NodeInfo> {
    let node = facts.node;
    let (node_state, reason) = match &node.state {
        CoreState::Leased { .. } if node.evict_at.is_some() => {
            let reason = "it is being evicted; its jobs were notified and have a short time to end";
            (NodeState::Preempted, Some(reason.to_owned()))
        }
        CoreState::Unusable { why: why @ Trouble::Evicted } => {
            (NodeState::Preempted, Some(format!("{}, and is being deleted", trouble(why))))
        }
        CoreState::Requested | CoreState::Booting => (NodeState::Preparing, None),
        CoreState::Idle { .. } => (NodeState::Idle, None),
        CoreState::Leased { .. } => (NodeState::Running, None),
        CoreState::Unusable { why } => {
            let reason = format!(
                "{}; it is being deleted, and muster compute show-post-mortem shows what was recorded about it",
                trouble(why)
            );
            (NodeState::Unusable, Some(reason))
        }
        CoreState::Leaving => (NodeState::Leaving, None),
        CoreState::Gone => return None,
    };
    let (address, port) = host_and_port(&node.address);
    // Addresses are unique on a host only, so the addresses on other hosts carry the host's name as their scope.
    let address = address.map(|address| match node.host.is_local() {
        true => address,
        false => format!("{address}%{}", node.host),
    });
    Some(NodeInfo {
        node_id: node.name.to_string(),
        private_ip_address: address,
        public_ip_address: None,
        port,
        node_state,
        run_id: facts.job.map(str::to_owned),
        reason,
        host: Some(node.host.to_string()),
        usage: facts.usage,
    })
}

/// A message that says what happened to the node.
pub(crate) fn trouble(why: &Trouble) -> String {
    match why {
        Trouble::LeaseExpired => "it was not heard from for longer than its lease".to_owned(),
        Trouble::Rebooted => "it restarted, and its processes were lost".to_owned(),
        Trouble::BootTimedOut => "it did not report in time after it was created".to_owned(),
        Trouble::Ended => "all its processes ended or were killed".to_owned(),
        Trouble::Evicted => "this low-priority node was evicted".to_owned(),
        Trouble::CreateFailed { message } => format!("it could not be created: {message}"),
    }
}

/// `10.0.0.4`, `10.0.0.4:50000`, `[fd00::4]:50000`, or empty while the address is not known.
fn host_and_port(address: &str) -> (Option<String>, Option<u16>) {
    if address.is_empty() {
        return (None, None);
    }
    match address.parse::<std::net::SocketAddr>() {
        Ok(socket) => (Some(socket.ip().to_string()), Some(socket.port())),
        Err(_) => match address.rsplit_once(':') {
            // More than one colon without brackets is an IPv6 address without a port.
            Some((host, port)) if !host.contains(':') => match port.parse() {
                Ok(port) => (Some(host.to_owned()), Some(port)),
                Err(_) => (Some(address.to_owned()), None),
            },
            Some(_) | None => (Some(address.to_owned()), None),
        },
    }
}

#[cfg(test)]
mod tests {
    use muster_core::ids::{ClusterId, Epoch, JobId, NodeId};
    use muster_core::model::Tier;
    use muster_core::time::Wall;

    use super::*;

    fn leased() -> CoreState {
        let lease = muster_core::model::Lease {
            job: JobId(1),
            epoch: Epoch(1),
            rank: 0,
            share: None,
            batch: None,
        };
        CoreState::Leased { leases: vec![lease] }
    }

    fn node(state: CoreState) -> Node {
        Node {
            id: NodeId(1),
            name: "cpu-n1".into(),
            cluster: ClusterId(1),
            host: Default::default(),
            vm_size: "STANDARD_DS3_V2".into(),
            capacity: Default::default(),
            tier: Tier::Dedicated,
            price_micro_usd_per_hour: 1,
            requested_at: Wall(0),
            state,
            boot_id: "".into(),
            address: "10.0.0.4:50000".into(),
            evict_at: None,
            meter: None,
        }
    }

    #[test]
    fn states_are_azures() {
        let since = Wall(0);
        let leased = leased();
        let failed = Trouble::CreateFailed { message: "no room".into() };
        let cases = [
            (CoreState::Requested, "preparing"),
            (CoreState::Booting, "preparing"),
            (CoreState::Idle { since, has_served: false }, "idle"),
            (leased, "running"),
            (CoreState::Unusable { why: failed }, "unusable"),
            (CoreState::Leaving, "leaving"),
        ];
        for (state, wanted) in cases {
            let node = node(state);
            let facts = NodeFacts { node: &node, job: None, usage: None };
            let list = nodes(ComputeKind::Cluster, &[facts], None);
            assert_eq!(list.nodes[0].node_state.as_str(), wanted);
            assert_eq!(list.nodes[0].reason.is_some(), wanted == "unusable");
        }
        let gone = node(CoreState::Gone);
        let facts = NodeFacts { node: &gone, job: None, usage: None };
        assert!(nodes(ComputeKind::Cluster, &[facts], None).nodes.is_empty());
    }

    #[test]
    fn a_node_is_written_in_both_spellings_and_read_in_one() {
        let node = node(leased());
        let usage = NodeUse { memory_bytes: Some(7), ..NodeUse::default() };
        let facts = NodeFacts { node: &node, job: Some("job1"), usage: Some(usage) };
        let list = nodes(ComputeKind::Cluster, &[facts], None);
        let text = crate::to_json(&list);
        assert_eq!(
            text,
            concat!(
                r#"{"computeType":"AmlCompute","nodes":[{"nodeId":"cpu-n1","#,
                r#""privateIpAddress":"10.0.0.4","publicIpAddress":null,"port":50000,"#,
                r#""nodeState":"running","runId":"job1","node_id":"cpu-n1","#,
                r#""private_ip_address":"10.0.0.4","public_ip_address":null,"#,
                r#""node_state":"running","run_id":"job1","reason":null,"#,
                r#""host":"local","usage":{"cpu_millicores":null,"memory_bytes":7,"#,
                r#""disk_bytes":null,"disk_size_bytes":null}}]}"#
            )
        );
        assert_eq!(crate::from_json::<NodeList>(text.as_bytes()).unwrap(), list);
    }

    #[test]
    fn nodes_of_different_hosts_are_distinguished() {
        let (here, mut there) = (node(leased()), node(leased()));
        there.host = muster_core::model::HostName::new("box").unwrap();
        let facts = [&here, &there].map(|node| NodeFacts { node, job: None, usage: None });
        let shown = nodes(ComputeKind::Cluster, &facts, None).nodes;
        let address = |index: usize| shown[index].private_ip_address.as_deref();
        assert_eq!((address(0), address(1)), (Some("10.0.0.4"), Some("10.0.0.4%box")));
        assert_eq!(shown[1].host.as_deref(), Some("box"));
    }

    #[test]
    fn addresses_of_every_form_are_taken_apart() {
        let cases = [
            ("", None, None),
            ("10.0.0.4", Some("10.0.0.4"), None),
            ("10.0.0.4:22", Some("10.0.0.4"), Some(22)),
            ("host-1", Some("host-1"), None),
            ("host-1:22", Some("host-1"), Some(22)),
            ("host-1:x", Some("host-1:x"), None),
            ("fd00::4", Some("fd00::4"), None),
            ("[fd00::4]:22", Some("fd00::4"), Some(22)),
        ];
        for (address, host, port) in cases {
            assert_eq!(host_and_port(address), (host.map(str::to_owned), port), "{address}");
        }
    }
}
