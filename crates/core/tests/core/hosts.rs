//! Hosts: how they join, which nodes they take, and how they are removed.

use std::collections::BTreeMap;

use crate::support::{self, Stage, apply, workspace};
use muster_core::agent::AttemptPhase;
use muster_core::model::{
    Capacity, Exit, HostName, HostState, JobPhase, KeyDigest, NodePhase, Scope,
};
use muster_core::time::Span;
use muster_core::why::{Reason, Remedy, why, why_cluster};
use muster_core::{ClusterPatch, HostRequest, Input, InputResult, NewHost, RefusalKind, Reply};

fn host(name: &str) -> HostName {
    HostName::new(name).expect("a name")
}

fn ask(stage: &mut Stage, request: HostRequest) -> InputResult {
    stage.say(Input::ChangeHosts(Box::new(request)))
}

fn issue(stage: &mut Stage, word: &str, name: Option<&str>) -> InputResult {
    let request = HostRequest::IssueTicket {
        digest: KeyDigest::made_up(word),
        intent: Scope::Everything,
        host: name.map(host),
        good_for: Span::seconds(600),
    };
    ask(stage, request)
}

fn join(stage: &mut Stage, ticket: &str, name: &str, key: &str) -> InputResult {
    let capacity = Capacity { gpus: 0, vcpus: 8, memory_mb: 32 * 1024 };
    let (ticket, key) = (KeyDigest::made_up(ticket), KeyDigest::made_up(key));
    ask(stage, HostRequest::Join(NewHost { ticket, name: host(name), capacity, key }))
}

fn refusal(answer: InputResult) -> RefusalKind {
    answer.expect_err("it should be refused").kind
}

#[test]
fn a_join_token_is_valid_once_and_only_its_host_may_ask_again() {
    let mut stage = Stage::new();
    issue(&mut stage, "t", None).expect("issued");
    let first = join(&mut stage, "t", "box", "k").expect("joined");
    // The answer was lost.
    assert_eq!(join(&mut stage, "t", "box", "k").expect("joined already"), first);
    assert_eq!(refusal(join(&mut stage, "t", "box", "other")), RefusalKind::NotFound);
    assert_eq!(refusal(join(&mut stage, "t", "other", "k")), RefusalKind::NotFound);
    issue(&mut stage, "u", None).expect("issued");
    assert_eq!(refusal(join(&mut stage, "u", "BOX", "k")), RefusalKind::Conflict);
    assert_eq!(refusal(join(&mut stage, "u", "local", "k")), RefusalKind::Conflict);
    // A refusal does not use up the token.
    join(&mut stage, "u", "box-2", "k2").expect("joined");
    let names: Vec<&str> = stage.world.hosts().hosts().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["box", "box-2"]);
}

#[test]
fn join_tokens_expire_and_may_be_for_one_name() {
    let mut stage = Stage::new();
    issue(&mut stage, "t", Some("box")).expect("issued");
    assert_eq!(refusal(join(&mut stage, "t", "other", "k")), RefusalKind::Invalid);
    stage.pass_s(600);
    assert_eq!(refusal(join(&mut stage, "t", "box", "k")), RefusalKind::NotFound);
    // The next one removes the expired ones.
    issue(&mut stage, "u", Some("box")).expect("issued");
    assert_eq!(stage.world.hosts().tickets().len(), 1);
    join(&mut stage, "u", "box", "k").expect("joined");
    assert_eq!(refusal(issue(&mut stage, "v", Some("box"))), RefusalKind::Conflict);
}

#[test]
fn what_a_host_has_may_change_and_strangers_have_nothing() {
    let mut stage = Stage::new();
    let capacity = Capacity { gpus: 0, vcpus: 4, memory_mb: 8192 };
    let local = HostRequest::Seen { name: HostName::local(), capacity };
    ask(&mut stage, local.clone()).expect("the server's own host");
    let changes = stage.log.len();
    ask(&mut stage, local).expect("again");
    assert_eq!(stage.log.len(), changes, "nothing new");
    let stranger = HostRequest::Seen { name: host("box"), capacity };
    assert_eq!(refusal(ask(&mut stage, stranger)), RefusalKind::NotFound);
    let nothing = HostRequest::Seen { name: HostName::local(), capacity: Capacity::default() };
    assert_eq!(refusal(ask(&mut stage, nothing)), RefusalKind::Invalid);
    let remove = HostRequest::Remove { name: HostName::local(), is_forced: true };
    assert_eq!(refusal(ask(&mut stage, remove)), RefusalKind::Invalid);
    let state = HostState::Cordoned;
    let cordon = HostRequest::SetState { name: HostName::local(), state };
    let Ok(Reply::Host(found)) = ask(&mut stage, cordon) else { panic!("it can be cordoned") };
    assert_eq!(found.state, HostState::Cordoned);
}

/// One node of the default size.
const NODE: Capacity = Capacity { gpus: 0, vcpus: 4, memory_mb: 14_336 };

fn nodes(count: u32) -> Capacity {
    Capacity { gpus: 0, vcpus: 4 * count, memory_mb: 14_336 * u64::from(count) }
}

/// A server without over-commit, with room for this many nodes on its own host.
fn strict(local: u32) -> Stage {
    let mut stage = Stage::new();
    stage.world.settings.over_commit = false;
    if local > 0 {
        let seen = HostRequest::Seen { name: HostName::local(), capacity: nodes(local) };
        ask(&mut stage, seen).expect("it has some");
    }
    stage
}

fn set_state(stage: &mut Stage, name: &str, state: HostState) {
    ask(stage, HostRequest::SetState { name: host(name), state }).expect("it can be done");
}

fn on_hosts(stage: &Stage) -> BTreeMap<String, usize> {
    let mut hosts = BTreeMap::new();
    for node in stage.world.nodes() {
        *hosts.entry(node.host.to_string()).or_default() += 1;
    }
    hosts
}

fn count(stage: &Stage, name: &str) -> usize {
    on_hosts(stage).get(name).copied().unwrap_or(0)
}

fn codes(stage: &Stage, job: &str) -> Vec<&'static str> {
    why(&stage.world, stage.job(job).expect("live").id).iter().map(Reason::code).collect()
}

#[test]
fn the_default_size_is_what_these_tests_think() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    stage.submit("a", "pool", 1).expect("accepted");
    let capacity = stage.world.nodes().next().expect("one").capacity;
    assert_eq!(capacity, NODE);
}

#[test]
fn joined_hosts_come_first_and_the_tightest_before_the_others() {
    let mut stage = Stage::with_cluster("pool", 0, 9, 60);
    stage.join_host("wide", nodes(3));
    stage.join_host("narrow", nodes(2));
    for number in 0..7 {
        stage.submit(&format!("job-{number}"), "pool", 1).expect("accepted");
    }
    // The server's own host takes the rest, because it may be over-committed.
    let expected = [("local", 2), ("narrow", 2), ("wide", 3)].map(|(h, n)| (h.to_owned(), n));
    assert_eq!(on_hosts(&stage), BTreeMap::from(expected));
    stage.provide();
    let assignments: Vec<&str> = stage.world.nodes().map(|node| node.host.as_str()).collect();
    assert_eq!(assignments[..3], ["narrow", "narrow", "wide"]);
}

#[test]
fn a_host_takes_only_those_that_it_is_for() {
    let mut stage = Stage::new();
    stage.join_host_for("theirs", nodes(9), Scope::group("sub", "other"));
    stage.join_host_for("pools", nodes(9), Scope::compute(&workspace(), "pool"));
    stage.put_cluster("pool", 1, 1, 60).expect("valid");
    stage.put_cluster("beside", 1, 1, 60).expect("valid");
    assert_eq!(on_hosts(&stage).into_keys().collect::<Vec<_>>(), ["local", "pools"]);
}

#[test]
fn without_over_commit_a_full_host_takes_no_more_and_why_says_so() {
    let mut stage = strict(2);
    stage.put_cluster("pool", 0, 9, 60).expect("valid");
    for number in 0..4 {
        stage.submit(&format!("job-{number}"), "pool", 1).expect("accepted");
    }
    assert_eq!(count(&stage, "local"), 2);
    assert!(codes(&stage, "job-2").contains(&"HostsFull"), "{:?}", codes(&stage, "job-2"));
    let reasons = why(&stage.world, stage.job("job-2").expect("live").id);
    let words = reasons.iter().find(|reason| reason.code() == "HostsFull").expect("it is");
    assert_eq!(
        words.to_string(),
        "'pool' needs 1 more × STANDARD_DS3_V2 (4 cores, 14336 MB), but host 'local' has 0 cores, 0 MB left; \
         scale something down, set over-commit=true on the server, or join another host"
    );
    // Following the advice helps.
    apply(&mut stage, &words.remedy());
    assert_eq!(count(&stage, "another"), 2);
}

#[test]
fn nodes_of_one_job_must_be_on_one_host_and_why_says_so() {
    let mut stage = strict(2);
    stage.put_cluster("pool", 0, 9, 60).expect("valid");
    stage.submit("wide", "pool", 4).expect("accepted");
    let reasons = why(&stage.world, stage.job("wide").expect("live").id);
    let words = reasons.iter().find(|reason| reason.code() == "HostsTooSmall").expect("it is");
    assert!(
        words.to_string().starts_with(
            "all nodes of a job must be on one host; no host has room for 4 × STANDARD_DS3_V2 \
             (4 cores, 14336 MB each): host 'local' has 8 cores"
        ),
        "{words}"
    );
    // Two hosts have room for one node each, which is enough in total but not for a job of two nodes.
    let mut stage = strict(2);
    stage.put_cluster("beside", 1, 1, 60).expect("valid");
    stage.join_host("box", nodes(1));
    stage.put_cluster("pool", 0, 9, 60).expect("valid");
    stage.submit("two", "pool", 2).expect("accepted");
    let reasons = why(&stage.world, stage.job("two").expect("live").id);
    let words = reasons.iter().find(|reason| reason.code() == "HostsFull").expect("it is");
    assert!(
        words.to_string().starts_with(
            "all nodes of a job must be on one host; no host has room for 2 × STANDARD_DS3_V2 \
             (4 cores, 14336 MB each) now: "
        ),
        "{words}"
    );
}

#[test]
fn room_that_a_node_leaves_goes_to_a_waiting_job_in_any_region() {
    let mut stage = strict(1);
    stage.put_cluster("pool", 0, 1, 0).expect("valid");
    let west = ClusterPatch {
        location: Some("westus".into()),
        nodes_max: Some(1),
        idle_time: Some(Span::ZERO),
        ..ClusterPatch::default()
    };
    stage.put("west", west).expect("valid");
    stage.submit("first", "pool", 1).expect("accepted");
    stage.submit("second", "west", 1).expect("accepted");
    stage.provide();
    stage.run("first");
    assert_eq!(codes(&stage, "second"), ["HostsFull"]);
    stage.finish("first");
    stage.provide();
    stage.provide();
    assert_eq!(stage.phase("second"), JobPhase::Starting);
}

#[test]
fn the_first_cluster_is_not_overtaken_on_a_full_host_by_smaller_nodes() {
    let mut stage = strict(2);
    let small = ClusterPatch {
        vm_size: Some("Standard_DS1_v2".into()),
        nodes_max: Some(8),
        idle_time: Some(Span::ZERO),
        ..ClusterPatch::default()
    };
    stage.put("small", small).expect("valid");
    stage.put_cluster("large", 0, 2, 0).expect("valid");
    for number in 0..5 {
        stage.submit(&format!("small-{number}"), "small", 1).expect("accepted");
    }
    stage.submit("large-0", "large", 2).expect("accepted");
    stage.submit("small-late", "small", 1).expect("accepted");
    stage.provide();
    for number in 0..5 {
        stage.run(&format!("small-{number}"));
        // There is room for one small node but not for the two large ones, so it is kept for them.
        assert_eq!(codes(&stage, "large-0"), ["HostsFull"]);
    }
    for number in 0..4 {
        stage.finish(&format!("small-{number}"));
        stage.provide();
    }
    stage.finish("small-4");
    for _ in 0..3 {
        stage.provide();
    }
    // Existing nodes may run their own cluster's jobs, but no new node was created before the large ones.
    stage.run("small-late");
    stage.finish("small-late");
    for _ in 0..3 {
        stage.provide();
    }
    assert_eq!(stage.phase("large-0"), JobPhase::Starting);
}

#[test]
fn a_size_that_fits_nowhere_waits_with_that_reason_and_holds_back_no_other() {
    let mut stage = strict(1);
    let large = ClusterPatch {
        vm_size: Some("Standard_DS5_v2".into()),
        nodes_min: Some(1),
        nodes_max: Some(1),
        ..ClusterPatch::default()
    };
    stage.put("large", large).expect("creation succeeds");
    stage.put_cluster("pool", 0, 1, 60).expect("valid");
    stage.submit("never", "large", 1).expect("accepted");
    stage.submit("now", "pool", 1).expect("accepted");
    assert_eq!(count(&stage, "local"), 1);
    assert_eq!(codes(&stage, "never"), ["HostsTooSmall"]);
    let large = stage.world.clusters().find(|cluster| cluster.name.as_str() == "large");
    let reasons = why_cluster(&stage.world, large.expect("made").id);
    apply(&mut stage, &reasons[0].remedy());
    assert_eq!(count(&stage, "another"), 1);
}

#[test]
fn a_job_of_several_nodes_is_on_one_host() {
    let mut stage = strict(0);
    stage.join_host("one", nodes(3));
    stage.join_host("two", nodes(4));
    stage.put_cluster("pool", 0, 7, 600).expect("valid");
    stage.submit("gang", "pool", 4).expect("accepted");
    assert_eq!((count(&stage, "one"), count(&stage, "two")), (0, 4));
    stage.submit("other", "pool", 3).expect("accepted");
    assert_eq!((count(&stage, "one"), count(&stage, "two")), (3, 4));
    stage.submit("never", "pool", 5).expect("accepted");
    assert!(codes(&stage, "never").contains(&"HostsTooSmall"));
    stage.provide();
    let host_of = |stage: &Stage, job: &str| -> Vec<String> {
        let members = stage.members(job).into_iter();
        let mut hosts: Vec<String> = members
            .map(|(node, _)| stage.world.node(node).expect("a member").host.to_string())
            .collect();
        hosts.dedup();
        hosts
    };
    assert_eq!(host_of(&stage, "gang"), ["two"]);
    assert_eq!(host_of(&stage, "other"), ["one"]);
}

#[test]
fn idle_nodes_on_two_hosts_make_way_for_a_job_that_needs_one() {
    let mut stage = strict(0);
    stage.join_host("one", nodes(2));
    stage.put_cluster("pool", 0, 4, 6000).expect("valid");
    for number in 0..2 {
        stage.submit(&format!("job-{number}"), "pool", 1).expect("accepted");
    }
    stage.join_host("two", nodes(4));
    for number in 2..4 {
        stage.submit(&format!("job-{number}"), "pool", 1).expect("accepted");
    }
    stage.provide();
    for number in 0..4 {
        stage.run(&format!("job-{number}"));
    }
    assert_eq!((count(&stage, "one"), count(&stage, "two")), (2, 2));
    stage.submit("gang", "pool", 4).expect("accepted");
    for number in 0..4 {
        stage.finish(&format!("job-{number}"));
    }
    for _ in 0..4 {
        stage.provide();
    }
    assert_eq!(stage.phase("gang"), JobPhase::Starting);
    assert_eq!((count(&stage, "one"), count(&stage, "two")), (0, 4));
}

#[test]
fn an_idle_node_elsewhere_does_not_count_for_a_job_that_needs_one_host() {
    let mut stage = strict(0);
    stage.join_host("one", nodes(1));
    stage.put_cluster("pool", 0, 9, 6000).expect("valid");
    stage.submit("small", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("small");
    stage.finish("small");
    stage.join_host("two", nodes(4));
    stage.submit("gang", "pool", 4).expect("accepted");
    assert_eq!((count(&stage, "one"), count(&stage, "two")), (1, 4));
    stage.provide();
    assert_eq!(stage.phase("gang"), JobPhase::Starting);
}

#[test]
fn a_cordoned_host_takes_nothing_new_and_is_used_again_when_it_is_open() {
    let mut stage = Stage::with_cluster("pool", 0, 2, 600);
    stage.join_host("box", nodes(2));
    stage.submit("runs", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("runs");
    set_state(&mut stage, "box", HostState::Cordoned);
    stage.submit("next", "pool", 1).expect("accepted");
    assert_eq!((count(&stage, "box"), count(&stage, "local")), (1, 1));
    stage.provide();
    stage.run("next");
    stage.finish("runs");
    // It is idle where no job starts, until its idle time is over.
    stage.submit("last", "pool", 1).expect("accepted");
    assert_eq!(stage.phase("last"), JobPhase::Queued);
    let cluster = stage.world.clusters().next().expect("one").id;
    let said = why_cluster(&stage.world, cluster);
    assert!(said.iter().any(|reason| reason.code() == "HostClosed"), "{said:?}");
    // It is deleted at once, because the cluster is at its maximum.
    stage.provide();
    assert_eq!((count(&stage, "box"), count(&stage, "local")), (0, 2));
    set_state(&mut stage, "box", HostState::Open);
    stage.finish("next");
    stage.submit("after", "pool", 1).expect("accepted");
    stage.provide();
    assert_eq!(count(&stage, "box"), 0, "running nodes are used first");
}

#[test]
fn an_idle_node_on_a_cordoned_host_has_its_time_and_serves_again_if_opened() {
    let mut stage = Stage::with_cluster("pool", 0, 4, 600);
    stage.join_host("box", nodes(2));
    stage.submit("runs", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("runs");
    stage.finish("runs");
    set_state(&mut stage, "box", HostState::Cordoned);
    assert_eq!(stage.count(NodePhase::Idle), 1);
    set_state(&mut stage, "box", HostState::Open);
    stage.submit("again", "pool", 1).expect("accepted");
    assert_eq!(stage.phase("again"), JobPhase::Starting);
    stage.run("again");
    stage.finish("again");
    set_state(&mut stage, "box", HostState::Cordoned);
    stage.pass_s(601);
    assert_eq!(stage.count(NodePhase::Leaving), 1);
}

#[test]
fn a_drained_host_empties_as_its_jobs_end() {
    let mut stage = Stage::with_cluster("pool", 0, 3, 600);
    stage.join_host("box", nodes(3));
    for job in ["one", "two"] {
        stage.submit(job, "pool", 1).expect("accepted");
    }
    stage.provide();
    stage.run("one");
    stage.run("two");
    stage.submit("coming", "pool", 1).expect("accepted");
    assert_eq!(count(&stage, "box"), 3);
    set_state(&mut stage, "box", HostState::Draining);
    // The node that was starting is not waited for.
    stage.provide();
    assert_eq!((count(&stage, "box"), count(&stage, "local")), (2, 1));
    stage.finish("one");
    stage.provide();
    assert_eq!(count(&stage, "box"), 1);
    let remove = HostRequest::Remove { name: host("box"), is_forced: false };
    assert_eq!(refusal(ask(&mut stage, remove.clone())), RefusalKind::Conflict);
    stage.finish("two");
    stage.provide();
    assert_eq!(count(&stage, "box"), 0);
    ask(&mut stage, remove).expect("it is empty");
    assert!(stage.world.hosts().host(&host("box")).is_none());
}

#[test]
fn what_runs_on_a_host_that_is_given_up_starts_elsewhere_only_after_its_lease() {
    let mut stage = Stage::with_cluster("pool", 0, 2, 600);
    stage.join_host("box", nodes(2));
    stage.submit("runs", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("runs");
    stage.submit("coming", "pool", 1).expect("accepted");
    let old = stage.members("runs")[0];
    let name = stage.world.node(old.0).expect("up").name.to_string();
    ask(&mut stage, HostRequest::Remove { name: host("box"), is_forced: true }).expect("done");
    assert_eq!((count(&stage, "box"), count(&stage, "local")), (1, 1));
    let removing = stage.world.hosts().host(&host("box")).expect("until its nodes are deleted");
    assert_eq!((removing.state, removing.key), (HostState::Removing, None));
    // Its report does not renew its lease, and it is told to end.
    stage.silence(Span::seconds(30));
    let desired = stage.report(&name, &[(old.1, AttemptPhase::Running)]);
    assert!(desired.end && desired.assignments.is_empty());
    stage.silence(Span::seconds(39));
    stage.say(Input::Tick).expect("a tick");
    assert_eq!(stage.phase("runs"), JobPhase::Running);
    stage.silence(Span::seconds(1));
    stage.say(Input::Tick).expect("a tick");
    assert_eq!(stage.phase("runs"), JobPhase::Queued);
    assert_eq!(count(&stage, "box"), 0);
    assert!(stage.world.hosts().host(&host("box")).is_none(), "removed with its last node");
    assert!(stage.world.effects().all(|effect| stage.world.node(effect.kind.node()).is_some()));
}

#[test]
fn an_end_that_a_given_up_host_reports_counts() {
    let mut stage = Stage::with_cluster("pool", 0, 2, 600);
    stage.join_host("box", nodes(2));
    stage.submit("runs", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("runs");
    ask(&mut stage, HostRequest::Remove { name: host("box"), is_forced: true }).expect("done");
    let (node, epoch) = stage.members("runs")[0];
    let name = stage.world.node(node).expect("up").name.to_string();
    stage.report(&name, &[(epoch, AttemptPhase::Ended(Exit::Code(0)))]);
    assert_eq!(stage.phase("runs"), JobPhase::Completed);
    assert!(stage.world.hosts().host(&host("box")).is_none());
}

#[test]
fn gpus_that_no_host_has_are_refused_unless_over_commit_is_set() {
    let gpu = ClusterPatch { vm_size: Some("Standard_NC6s_v3".into()), ..ClusterPatch::default() };
    let mut stage = strict(8);
    let refused = stage.put("gpu", gpu.clone()).expect_err("no host has any");
    assert_eq!(support::remedy(&refused), Remedy::JoinHost);
    stage.join_host("box", Capacity { gpus: 1, ..nodes(64) });
    stage.put("gpu", gpu.clone()).expect("one has");
    Stage::new().put("gpu", gpu).expect("over-commit");
}

#[test]
fn a_node_waits_for_gpus_that_others_have_and_why_says_so() {
    let two = ClusterPatch {
        vm_size: Some("Standard_NC12s_v3".into()),
        nodes_max: Some(3),
        ..ClusterPatch::default()
    };
    let mut stage = strict(0);
    let capacity = Capacity { gpus: 4, ..nodes(1000) };
    let seen = HostRequest::Seen { name: HostName::local(), capacity };
    ask(&mut stage, seen).expect("it has some");
    stage.put("gpu", two).expect("it fits");
    for name in ["a", "b", "c"] {
        stage.submit(name, "gpu", 1).expect("accepted");
    }
    assert_eq!(count(&stage, "local"), 2);
    let reasons = why(&stage.world, stage.job("c").expect("live").id);
    let words = reasons.iter().find(|reason| reason.code() == "HostsFull").expect("it is");
    assert!(words.to_string().contains("2 GPUs), but host 'local' has"), "{words}");
}

#[test]
fn a_silent_host_gets_nothing_new_until_it_reports() {
    let mut stage = Stage::with_cluster("pool", 0, 9, 600);
    stage.join_host("box", nodes(2));
    stage.submit("one", "pool", 1).expect("accepted");
    ask(&mut stage, HostRequest::Silent { name: host("box") }).expect("noted");
    stage.submit("two", "pool", 1).expect("accepted");
    assert_eq!((count(&stage, "box"), count(&stage, "local")), (1, 1));
    ask(&mut stage, HostRequest::Seen { name: host("box"), capacity: nodes(3) }).expect("heard");
    stage.submit("three", "pool", 1).expect("accepted");
    assert_eq!((count(&stage, "box"), count(&stage, "local")), (2, 1));
}
