mod size;

use muster_core::agent::Report;
use muster_core::ids::Epoch;
use muster_core::model::{Caller, WorkspaceKey};
use muster_core::time::{Elapsed, Span};
use muster_core::{ClusterPatch, InputResult};

use super::*;
use crate::{Durability, SqliteStore};

type Tested = Controller<SqliteStore>;

fn at(seconds: u64) -> Now {
    let elapsed = Elapsed(seconds * 1_000_000);
    Now { wall: Wall(0) + Span(elapsed.0), elapsed }
}

/// Passes one input through the controller. Returns how many inputs were stepped, and the answer.
fn pass(controller: &mut Tested, input: Input, now: Now) -> (usize, InputResult) {
    let mut batch = Batch::default();
    controller.admit(&mut batch, input, (), now).expect("it is admitted");
    let pending = controller.step(batch, now).expect("it is stepped");
    let stepped = pending.inputs().len();
    let mut released = controller.commit(pending).expect("it is committed");
    let (_, _, answer) = released.answers.pop().expect("it is answered");
    (stepped, answer)
}

fn report(node: &str) -> Input {
    let (boot_id, address) = ("boot".into(), "here".into());
    let report =
        Report { boot_id, address, floor: Epoch(0), attempts: Vec::new(), waiting: Vec::new() };
    Input::Report { node: node.to_owned(), report }
}

/// A controller with a node that has joined, in second 1.
fn with_a_node(path: &std::path::Path) -> (Tested, String) {
    let store = SqliteStore::open(path, Durability::None).expect("the store opens");
    let loaded = Loaded::claim(store, 1).expect("it can be claimed");
    let catalogue = Arc::new(Catalogue::builtin());
    let mut controller = Tested::new(loaded, Settings::default(), catalogue, at(0));
    let by = Caller { object_id: "o".into(), name: "n".into() };
    let workspace = WorkspaceKey::new("s", "g", "w");
    let nodes = (Some(1), Some(1));
    let wanted = ClusterPatch { nodes_min: nodes.0, nodes_max: nodes.1, ..Default::default() };
    let put = Input::PutCluster {
        workspace: workspace.clone(),
        name: "pool".into(),
        wanted: Box::new(wanted),
        by: by.clone(),
    };
    for input in [Input::workspace(workspace, "eastus", by), put] {
        assert!(pass(&mut controller, input, at(1)).1.is_ok());
    }
    let world = controller.world().expect("there is a World");
    let node = world.nodes().next().expect("there is a node").name.to_string();
    assert!(pass(&mut controller, report(&node), at(1)).0 > 0, "the node joins");
    (controller, node)
}

#[test]
fn a_report_with_nothing_new_is_not_stepped() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut controller, node) = with_a_node(&folder.path().join("muster.db"));
    let revision = controller.revision;
    for second in 2..10 {
        let (stepped, answer) = pass(&mut controller, report(&node), at(second));
        assert_eq!(stepped, 0);
        assert!(matches!(answer, Ok(Reply::Desired(desired)) if !desired.end));
        let world = controller.world().expect("there is a World");
        let id = world.node_by_name(&node).expect("it is known").id;
        assert_eq!(world.last_renewal(id), Some(at(second).elapsed));
    }
    assert_eq!(controller.revision, revision);
    assert!(pass(&mut controller, report("unknown"), at(10)).0 > 0);
}

/// The answer to a report must not be older than that to an input before it.
#[test]
fn a_report_behind_another_input_of_its_batch_takes_part_in_the_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut controller, node) = with_a_node(&folder.path().join("muster.db"));
    let delete =
        Input::DeleteCluster { workspace: WorkspaceKey::new("s", "g", "w"), name: "pool".into() };
    let mut batch = Batch::default();
    for input in [report(&node), delete, report(&node)] {
        controller.admit(&mut batch, input, (), at(2)).expect("it is admitted");
    }
    let pending = controller.step(batch, at(2)).expect("it is stepped");
    let released = controller.commit(pending).expect("it is committed");
    let ends = released.answers.iter().map(|(_, _, answer)| match answer {
        Ok(Reply::Desired(desired)) => Some(desired.end),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [Some(false), None, Some(true)]);
}

/// A server that was replaced must not keep a node running an attempt that the next server has given to another node.
#[test]
fn a_replaced_controller_does_not_even_renew() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("muster.db");
    let (mut controller, node) = with_a_node(&path);
    let mut next = SqliteStore::open(&path, Durability::None).expect("the store opens");
    next.claim(2).expect("it can be claimed");
    let mut batch = Batch::default();
    controller.admit(&mut batch, report(&node), (), at(2)).expect("it is admitted");
    let pending = controller.step(batch, at(2)).expect("no step is needed");
    let failed = controller.commit(pending).expect_err("another server has the store");
    assert!(matches!(failed.cause, Cause::Commit(StoreError::Fenced { .. })));
    assert_eq!(failed.answers, [((), Err(NotDone::Unconfirmed))]);
    assert!(controller.world().is_none());
}
