//! A multi-node job needs all of its nodes on one host. Which host is best depends on the room that other clusters'
//! nodes leave there.

use crate::support::Stage;
use muster_core::agent::AttemptPhase;
use muster_core::model::{Capacity, Exit, JobPhase, NodePhase};

/// Room for two nodes of the default size.
const TWO: Capacity = Capacity { gpus: 0, vcpus: 8, memory_mb: 28_672 };

fn host_of(stage: &Stage, job: &str) -> String {
    let (node, _) = stage.members(job)[0];
    stage.world.node(node).expect("a member").host.to_string()
}

/// Found by seed 31: the cluster was not visited when another cluster's node was deleted from a host.
#[test]
fn an_idle_node_makes_way_when_others_leave_the_better_host() {
    let mut stage = Stage::new();
    stage.world.settings.over_commit = false;
    stage.join_host("one", TWO);
    stage.join_host("two", TWO);
    stage.put_cluster("gangs", 0, 2, 3_600).expect("a valid cluster");
    stage.put_cluster("others", 0, 3, 60).expect("a valid cluster");
    stage.submit("single", "gangs", 1).expect("accepted");
    stage.provide();
    stage.run("single");
    for job in ["a", "b", "c"] {
        stage.submit(job, "others", 1).expect("accepted");
    }
    stage.provide();
    for job in ["a", "b", "c"] {
        stage.run(job);
    }
    let beside = host_of(&stage, "single");
    let (stays, leave): (Vec<&str>, Vec<&str>) =
        ["a", "b", "c"].into_iter().partition(|job| host_of(&stage, job) == beside);
    assert_eq!((stays.len(), leave.len()), (1, 2), "both hosts are full");
    stage.finish("single");
    stage.submit("gang", "gangs", 2).expect("accepted");
    stage.provide();
    assert_eq!(stage.phase("gang"), JobPhase::Queued, "there is no room for it anywhere");
    for job in leave {
        stage.members_say(job, AttemptPhase::Ended(Exit::Code(0)));
    }
    assert_eq!(stage.count(NodePhase::Idle), 3, "one of them is on the host with a running job");

    // Their nodes are deleted, and with the last of them the other host becomes the better one.
    stage.pass_s(61);
    stage.provide();
    stage.provide();
    stage.provide();
    stage.run("gang");
    assert_ne!(host_of(&stage, "gang"), beside);
    assert_eq!(stage.phase(stays[0]), JobPhase::Running);
}
