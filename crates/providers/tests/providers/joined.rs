//! Checks that nodes on a joined host conform. The host is a thread that follows the list and reports what it has; the
//! test commits what is wanted.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use muster_core::NodeRequest;
use muster_core::model::{Capacity, HostName, Node, NodeState};
use muster_core::time::Wall;
use muster_providers::conformance::check;
use muster_providers::joined::protocol::{HeldNode, HostReport, SyncRequest, VERSION};
use muster_providers::joined::{Joined, Roster};
use muster_providers::{CreateError, DeleteError, ListError, Provider, Remains};

/// The server's own host, which has no nodes.
struct Bare;

impl Provider for Bare {
    fn name(&self) -> &'static str {
        "bare"
    }

    fn create(&self, request: &NodeRequest) -> Result<(), CreateError> {
        panic!("{} must not be created here", request.name);
    }

    fn delete(&self, _: &str) -> Result<(), DeleteError> {
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>, ListError> {
        Ok(Vec::new())
    }

    fn ended(&self) -> Result<Vec<String>, ListError> {
        Ok(Vec::new())
    }

    fn remains(&self, _: &str) -> Option<Remains> {
        None
    }
}

/// Commits a node before it is created and before it is deleted, as the writer does.
struct Committing {
    joined: Joined,
    roster: Arc<Roster>,
}

fn the_box() -> HostName {
    HostName::new("box").unwrap()
}

impl Committing {
    fn commit(&self, request: &NodeRequest, state: NodeState) {
        self.roster.update(&Node {
            id: request.node,
            name: request.name.clone(),
            cluster: request.cluster,
            host: the_box(),
            vm_size: request.vm_size.clone(),
            capacity: request.capacity,
            tier: request.tier,
            price_micro_usd_per_hour: 0,
            requested_at: Wall(0),
            state,
            boot_id: "".into(),
            address: "".into(),
            evict_at: None,
            meter: None,
        });
    }
}

impl Provider for Committing {
    fn name(&self) -> &'static str {
        self.joined.name()
    }

    fn create(&self, request: &NodeRequest) -> Result<(), CreateError> {
        let request = NodeRequest { host: the_box(), ..request.clone() };
        // An invalid name gets no further than the provider.
        if !request.name.is_empty()
            && request.name.bytes().all(|b| b.is_ascii_lowercase() || b"-0123456789".contains(&b))
        {
            self.commit(&request, NodeState::Requested);
        }
        self.joined.create(&request)
    }

    fn delete(&self, node_name: &str) -> Result<(), DeleteError> {
        let request = muster_providers::conformance::request(node_name);
        let is_known = self.roster.home_of(node_name).is_some();
        if is_known {
            self.commit(&request, NodeState::Leaving);
        }
        self.joined.delete(node_name)?;
        if is_known {
            self.commit(&request, NodeState::Gone);
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>, ListError> {
        self.joined.list()
    }

    fn ended(&self) -> Result<Vec<String>, ListError> {
        self.joined.ended()
    }

    fn remains(&self, node_name: &str) -> Option<Remains> {
        self.joined.remains(node_name)
    }
}

/// The nodes of the host, and whether they are alive.
type Nodes = Mutex<BTreeMap<String, bool>>;

/// Creates the missing nodes, removes the rest, and reports what it has.
fn machine(roster: &Roster, nodes: &Nodes, is_over: &AtomicBool) {
    for sequence in 1.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let (stamp, wanted) = roster.wanted(&the_box());
        let mut nodes = nodes.lock().unwrap();
        nodes.retain(|name, _| wanted.iter().any(|request| *request.name == **name));
        for request in &wanted {
            nodes.entry(request.name.to_string()).or_insert(true);
        }
        let held = |(name, is_alive): (&String, &bool)| HeldNode {
            name: name.clone(),
            is_alive: *is_alive,
            has_ended: !is_alive,
            trouble: None,
        };
        let report = HostReport {
            following: Some(stamp),
            capacity: Capacity { gpus: 0, vcpus: 4, memory_mb: 8192 },
            not_enforced: Vec::new(),
            nodes: nodes.iter().map(held).collect(),
            environments: Vec::new(),
        };
        drop(nodes);
        let request = SyncRequest { version: VERSION, generation: 1, sequence, wait_ms: 0, report };
        roster.hear(&the_box(), &request, Instant::now());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn nodes_of_a_joined_host_do_what_every_provider_must() {
    let roster = Arc::new(Roster::new(1, Duration::from_secs(40)));
    let provider = Committing {
        joined: Joined::new(Arc::new(Bare), Arc::clone(&roster)),
        roster: Arc::clone(&roster),
    };
    let (nodes, is_over) = (Nodes::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| machine(&roster, &nodes, &is_over));
        let running = |name: &str| usize::from(nodes.lock().unwrap().get(name) == Some(&true));
        let kill = |name: &str| {
            nodes.lock().unwrap().insert(name.to_owned(), false);
        };
        check(&provider, &running, Some(&kill));
        is_over.store(true, Ordering::Relaxed);
    });
}
