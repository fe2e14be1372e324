//! What every provider must do. Panics if one does not.

use std::time::{Duration, Instant};

use muster_core::NodeRequest;
use muster_core::ids::{ClusterId, NodeId};
use muster_core::model::{Capacity, HostName, Tier};

use crate::Provider;

const PATIENCE: Duration = Duration::from_secs(60);

pub fn request(name: &str) -> NodeRequest {
    NodeRequest {
        node: NodeId(1),
        cluster: ClusterId(1),
        name: name.into(),
        host: HostName::local(),
        vm_size: "Standard_DS1_v2".into(),
        capacity: Capacity { gpus: 0, vcpus: 1, memory_mb: 3584 },
        tier: Tier::Dedicated,
    }
}

/// `running` counts the nodes of that name that are really running, by other means than the provider's own. `kill` ends
/// one of them as an accident would; it is `None` for a provider that cannot detect that a node has ended.
pub fn check(
    provider: &dyn Provider,
    running: &dyn Fn(&str) -> usize,
    kill: Option<&dyn Fn(&str)>,
) {
    let subject = Subject { provider, running };
    subject.what_never_was_is_deleted();
    subject.the_same_order_twice_is_one_node();
    subject.orders_at_once_are_one_node();
    subject.deleting_one_leaves_the_others();
    subject.ended_nodes_are_reported(kill);
    subject.other_names_are_refused();
}

struct Subject<'a> {
    provider: &'a dyn Provider,
    running: &'a dyn Fn(&str) -> usize,
}

impl Subject<'_> {
    fn create(&self, name: &str) {
        self.provider.create(&request(name)).expect("a node is created");
    }

    fn delete(&self, name: &str) {
        self.provider.delete(name).expect("a node is deleted");
    }

    fn is_listed(&self, name: &str) -> bool {
        self.provider.list().expect("nodes are listed").iter().any(|listed| listed == name)
    }

    fn assert_gone(&self, name: &str) {
        assert!(!self.is_listed(name), "{name} is still listed");
        assert_eq!((self.running)(name), 0, "{name} is still running");
    }

    /// A node may take a while to start, but there is never more than one.
    fn wait_for_one(&self, name: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match (self.running)(name) {
                0 => assert!(Instant::now() < deadline, "{name} does not start"),
                1 => return,
                more => panic!("{more} nodes are called {name}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn what_never_was_is_deleted(&self) {
        self.assert_gone("conformance-0");
        self.delete("conformance-0");
    }

    fn the_same_order_twice_is_one_node(&self) {
        self.create("conformance-1");
        assert!(self.is_listed("conformance-1"));
        self.create("conformance-1");
        self.wait_for_one("conformance-1");
        self.create("conformance-1");
        assert_eq!((self.running)("conformance-1"), 1);
        self.delete("conformance-1");
        self.assert_gone("conformance-1");
        self.delete("conformance-1");
        self.assert_gone("conformance-1");
    }

    fn orders_at_once_are_one_node(&self) {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let provider = self.provider;
                scope.spawn(move || provider.create(&request("conformance-2")).expect("made"));
            }
        });
        self.wait_for_one("conformance-2");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let provider = self.provider;
                scope.spawn(move || provider.delete("conformance-2").expect("deleted"));
            }
        });
        self.assert_gone("conformance-2");
    }

    fn deleting_one_leaves_the_others(&self) {
        // The first name is a prefix of the second.
        self.create("conformance-3");
        self.create("conformance-33");
        self.wait_for_one("conformance-33");
        self.delete("conformance-3");
        self.assert_gone("conformance-3");
        assert!(self.is_listed("conformance-33"));
        assert_eq!((self.running)("conformance-33"), 1);
        self.delete("conformance-33");
        self.assert_gone("conformance-33");
    }

    fn has_ended(&self, name: &str) -> bool {
        self.provider.ended().expect("ended nodes are listed").iter().any(|ended| ended == name)
    }

    /// Only nodes that were created and have ended are listed, for as long as something of them is left.
    fn ended_nodes_are_reported(&self, kill: Option<&dyn Fn(&str)>) {
        assert!(!self.has_ended("conformance-4"), "it never existed");
        self.create("conformance-4");
        self.create("conformance-44");
        self.wait_for_one("conformance-4");
        self.wait_for_one("conformance-44");
        assert!(!self.has_ended("conformance-4"), "it is running");
        if let Some(kill) = kill {
            kill("conformance-4");
            let deadline = Instant::now() + PATIENCE;
            while !self.has_ended("conformance-4") {
                assert!(Instant::now() < deadline, "its end is not reported");
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_eq!((self.running)("conformance-4"), 0, "its end was reported too early");
        }
        assert!(!self.has_ended("conformance-44"), "the other is still running");
        for name in ["conformance-4", "conformance-44"] {
            self.delete(name);
            self.assert_gone(name);
            assert!(!self.has_ended(name), "nothing of it is left");
        }
    }

    fn other_names_are_refused(&self) {
        let before = self.provider.list().expect("nodes are listed");
        for name in ["", "..", "../up", "a/b", "Upper", "-x", "with space"] {
            assert!(self.provider.create(&request(name)).is_err(), "{name:?} was created");
            assert!(self.provider.delete(name).is_err(), "{name:?} was deleted");
        }
        assert_eq!(self.provider.list().expect("nodes are listed"), before);
    }
}
