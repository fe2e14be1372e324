//! Scenarios: what users do, and what must happen then.

use crate::support::{self, Stage, workspace};
use muster_core::agent::AttemptPhase;
use muster_core::cluster_properties::Effect;
use muster_core::ids::Epoch;
use muster_core::model::{
    AdminAccount, AttemptOutcome, Category, ClusterName, Exit, Identity, JobPhase, LedgerLine,
    NodePhase, NodeState, OsType, RemoteLogin, Tier,
};
use muster_core::refusal::{ClusterProperty, ClusterRule, JobField, JobRule, Rule};
use muster_core::time::Span;
use muster_core::why::{Reason, Remedy, why};
use muster_core::{Change, ClusterPatch, EffectKind, Input, RefusalKind, Reply};

fn lines(stage: &Stage) -> Vec<&LedgerLine> {
    let posted = stage.log.iter().filter_map(|change| match change {
        Change::LedgerPosted(line) => Some(line),
        _ => None,
    });
    posted.collect()
}

fn spent(stage: &Stage, category: Category, outcome: AttemptOutcome) -> u64 {
    lines(stage)
        .into_iter()
        .filter(|line| line.category == category && line.outcome == outcome)
        .map(|line| line.span().as_seconds())
        .sum()
}

#[test]
fn from_zero_to_one_to_zero_on_the_ledger() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    stage.submit("job", "pool", 1).expect("accepted");
    stage.settle_effects(|_| true);
    stage.pass_s(30);
    stage.provide();
    stage.pass_s(2);
    stage.run("job");
    stage.pass_s(100);
    stage.finish("job");
    stage.pass_s(60);
    stage.pass_s(5);
    stage.settle_effects(|_| true);
    assert_eq!(stage.nodes(), []);
    assert_eq!(spent(&stage, Category::Start, AttemptOutcome::None), 30);
    assert_eq!(spent(&stage, Category::Prepare, AttemptOutcome::Succeeded), 2);
    assert_eq!(spent(&stage, Category::Run, AttemptOutcome::Succeeded), 100);
    assert_eq!(spent(&stage, Category::Idle, AttemptOutcome::None), 60);
    assert_eq!(spent(&stage, Category::Stop, AttemptOutcome::None), 5);
    let total: u64 = lines(&stage).iter().map(|line| line.span().as_seconds()).sum();
    assert_eq!(total, 197, "the lines add up to the node's life");
    assert!(lines(&stage).windows(2).all(|pair| pair[0].to == pair[1].from), "no gap, no overlap");
}

#[test]
fn a_cluster_without_nodes_costs_nothing() {
    let mut stage = Stage::with_cluster("pool", 0, 4, 60);
    stage.pass_s(86_400);
    assert_eq!(lines(&stage).len(), 0, "a day before the first job");
    stage.submit("job", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("job");
    stage.pass_s(100);
    stage.finish("job");
    stage.pass_s(60);
    stage.provide();
    assert_eq!(stage.nodes(), []);
    let bill = lines(&stage).len();
    assert_ne!(bill, 0, "the job itself is on it");
    stage.pass_s(86_400);
    assert_eq!(lines(&stage).len(), bill, "a day after the last node was deleted");
}

#[test]
fn a_cluster_of_fixed_size_always_has_all_its_nodes() {
    let mut stage = Stage::with_cluster("pool", 2, 2, 60);
    stage.provide();
    stage.pass_s(86_400);
    assert_eq!(stage.nodes(), [NodePhase::Idle, NodePhase::Idle], "no idle time deletes them");
    for job in ["one", "two", "three"] {
        stage.submit(job, "pool", 1).expect("accepted");
    }
    assert_eq!(stage.nodes().len(), 2, "nor does a job add one");
    for job in ["one", "two"] {
        stage.run(job);
        stage.finish(job);
    }
    stage.run("three");
    stage.finish("three");
    stage.pass_s(86_400);
    assert_eq!(stage.nodes(), [NodePhase::Idle, NodePhase::Idle]);
}

#[test]
fn idle_time_that_the_minimum_causes_is_floor() {
    let mut stage = Stage::with_cluster("pool", 1, 2, 60);
    stage.provide();
    stage.pass_s(600);
    stage.put_cluster("pool", 0, 2, 60).expect("lowered");
    assert_eq!(spent(&stage, Category::Floor, AttemptOutcome::None), 600);
    assert_eq!(stage.nodes(), [NodePhase::Leaving], "its timer ran out long ago");
}

#[test]
fn a_wide_job_starts_whole_or_not_at_all() {
    let mut stage = Stage::with_cluster("pool", 0, 3, 60);
    stage.submit("narrow", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("narrow");
    stage.submit("wide", "pool", 3).expect("accepted");
    stage.provide();
    assert_eq!(stage.phase("wide"), JobPhase::Queued);
    assert_eq!((stage.count(NodePhase::Idle), stage.count(NodePhase::Leased)), (2, 1));
    stage.pass_s(10);
    stage.submit("late", "pool", 1).expect("accepted");
    assert_eq!(
        stage.phase("late"),
        JobPhase::Queued,
        "it would not be done in time for the wide one"
    );
    stage.pass_s(600);
    assert_eq!(stage.count(NodePhase::Idle), 2, "awaited nodes do not time out");
    stage.finish("narrow");
    assert_eq!(stage.phase("wide"), JobPhase::Starting);
    assert_eq!(stage.members("wide").len(), 3);
}

#[test]
fn when_no_job_waits_any_more_the_timer_starts() {
    let mut stage = Stage::with_cluster("pool", 0, 2, 60);
    stage.submit("narrow", "pool", 1).expect("accepted");
    stage.submit("wide", "pool", 2).expect("accepted");
    stage.provide();
    stage.run("narrow");
    stage.pass_s(600);
    stage.cancel("wide").expect("canceled");
    assert_eq!(stage.count(NodePhase::Idle), 1);
    stage.pass_s(59);
    assert_eq!(stage.count(NodePhase::Idle), 1);
    stage.pass_s(1);
    assert_eq!(stage.count(NodePhase::Leaving), 1);
}

#[test]
fn one_members_failure_ends_all() {
    let mut stage = Stage::with_cluster("pool", 0, 2, 60);
    stage.submit("wide", "pool", 2).expect("accepted");
    stage.provide();
    stage.run("wide");
    let members = stage.members("wide");
    let name = |stage: &Stage, at: usize| {
        stage.world.node(members[at].0).expect("a member").name.to_string()
    };
    let epoch = members[0].1;
    let failed = AttemptPhase::Ended(Exit::Code(3));
    let (first, second) = (name(&stage, 0), name(&stage, 1));
    stage.report(&first, &[(epoch, failed)]);
    let desired = stage.report(&second, &[(epoch, AttemptPhase::Running)]);
    assert_eq!(desired.assignments, [], "the other member is told to stop");
    assert_eq!(stage.phase("wide"), JobPhase::Running, "not over before it has stopped");
    stage.report(&second, &[(epoch, AttemptPhase::Ended(Exit::Stopped))]);
    assert_eq!(stage.phase("wide"), JobPhase::Failed);
}

#[test]
fn a_lost_node_sends_its_job_back_to_where_it_stood() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    stage.submit("first", "pool", 1).expect("accepted");
    stage.submit("second", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("first");
    let old = stage.members("first")[0].1;
    stage.silence(Span::seconds(71));
    stage.say(Input::Tick).expect("a tick");
    assert_eq!(stage.phase("first"), JobPhase::Queued);
    assert_eq!(stage.nodes(), [NodePhase::Unusable], "no second node beside one that may still be");
    stage.provide();
    stage.provide();
    assert_eq!(stage.phase("first"), JobPhase::Starting, "before the job behind it");
    assert!(stage.members("first")[0].1 > old, "under a later epoch");
    assert_eq!(spent(&stage, Category::Run, AttemptOutcome::Retried), 71);
}

#[test]
fn a_node_that_comes_back_from_the_dead_is_dismissed() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    stage.submit("job", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("job");
    let (node, epoch) = stage.members("job")[0];
    let name = stage.world.node(node).expect("a member").name.to_string();
    stage.silence(Span::seconds(71));
    stage.say(Input::Tick).expect("a tick");
    let desired = stage.report(&name, &[(epoch, AttemptPhase::Ended(Exit::Code(0)))]);
    assert!(desired.end);
    assert_eq!(desired.acknowledged, [epoch], "it may forget what is no longer needed");
    assert_eq!(stage.phase("job"), JobPhase::Queued, "the old epoch completes nothing");
    stage.provide();
    assert!(stage.report(&name, &[]).end, "also when the node is no longer known");
}

#[test]
fn a_job_that_kills_its_nodes_is_given_up() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    stage.submit("poison", "pool", 1).expect("accepted");
    for _ in 0..5 {
        stage.provide();
        stage.provide();
        stage.run("poison");
        stage.silence(Span::seconds(71));
        stage.say(Input::Tick).expect("a tick");
    }
    assert_eq!(stage.phase("poison"), JobPhase::Failed);
}

#[test]
fn a_cancel_reaches_a_node_that_never_got_the_assignment() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    stage.submit("job", "pool", 1).expect("accepted");
    stage.provide();
    let (node, epoch) = stage.members("job")[0];
    let name = stage.world.node(node).expect("a member").name.to_string();
    stage.cancel("job").expect("accepted");
    let desired = stage.report(&name, &[]);
    assert_eq!(
        (desired.assignments.len(), desired.floor),
        (0, epoch),
        "it is told never to start it"
    );
    assert_eq!(stage.phase("job"), JobPhase::CancelRequested, "not before it has confirmed");
    // Its next report shows the floor.
    let report = muster_core::agent::Report {
        boot_id: "boot".into(),
        address: "10.0.0.4".into(),
        floor: epoch,
        attempts: Vec::new(),
        waiting: Vec::new(),
    };
    stage.say(Input::Report { node: name, report }).expect("answered");
    assert_eq!(stage.phase("job"), JobPhase::Canceled);
    assert_eq!(stage.nodes(), [NodePhase::Idle]);
}

#[test]
fn a_cancel_that_comes_too_late_changes_nothing() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    stage.submit("job", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("job");
    stage.cancel("job").expect("accepted");
    stage.cancel("job").expect("requested again");
    stage.finish("job");
    assert_eq!(stage.phase("job"), JobPhase::Completed, "it had finished by itself");
}

#[test]
fn deleting_a_cluster_ends_its_jobs_and_its_nodes() {
    let mut stage = Stage::with_cluster("pool", 1, 2, 60);
    for job in ["runs", "waits-too", "waits"] {
        stage.submit(job, "pool", 1).expect("accepted");
    }
    stage.provide();
    stage.run("runs");
    let delete = Input::DeleteCluster { workspace: workspace(), name: "POOL".into() };
    let first = stage.say(delete.clone()).expect("accepted");
    assert!(matches!(first, Reply::Deleting { .. }));
    assert_eq!(stage.say(delete.clone()).expect("again"), first, "the same operation");
    assert_eq!(stage.phase("waits"), JobPhase::Canceled);
    assert_eq!(stage.phase("runs"), JobPhase::CancelRequested);
    let refused = stage.submit("more", "pool", 1).expect_err("it is being deleted");
    assert_eq!(refused.kind, RefusalKind::Conflict);
    stage.members_say("runs", AttemptPhase::Ended(Exit::Stopped));
    assert_eq!(stage.phase("runs"), JobPhase::Canceled);
    let still: Vec<_> = ["waits-too"].into_iter().filter(|job| stage.job(job).is_some()).collect();
    for job in still {
        stage.members_say(job, AttemptPhase::Ended(Exit::Stopped));
    }
    stage.provide();
    assert_eq!(stage.world.clusters().count(), 0);
    assert_eq!(stage.say(delete).expect("gone"), Reply::NothingToDelete);
    stage.put_cluster("pool", 0, 1, 60).expect("the name is free again");
}

#[test]
fn failing_creates_are_retried_with_growing_pauses() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    stage.submit("job", "pool", 1).expect("accepted");
    let fail = |stage: &mut Stage| {
        let action = stage.world.effects().find(|e| matches!(e.kind, EffectKind::CreateNode(_)));
        let effect = action.expect("a create call").id;
        let result = Err("no capacity".to_owned());
        stage.say(Input::EffectDone { effect, result }).expect("noted");
        stage.settle_effects(|_| true);
    };
    fail(&mut stage);
    assert_eq!(stage.nodes(), [], "it is not retried at once");
    let job = stage.job("job").expect("it waits").id;
    assert!(matches!(why(&stage.world, job)[0], Reason::CreateFailing { failures: 1, .. }));
    stage.pass_s(2);
    assert_eq!(stage.nodes(), [NodePhase::Requested]);
    fail(&mut stage);
    stage.pass_s(2);
    assert_eq!(stage.nodes(), []);
    stage.pass_s(2);
    stage.provide();
    assert_eq!(stage.phase("job"), JobPhase::Starting);
    assert_eq!(lines(&stage).len(), 0, "a node that never existed costs nothing");
}

#[test]
fn a_node_that_never_boots_is_replaced() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    stage.submit("job", "pool", 1).expect("accepted");
    stage.settle_effects(|_| true);
    stage.pass_s(600);
    assert_eq!(stage.nodes(), [NodePhase::Unusable]);
    stage.settle_effects(|_| true);
    assert_eq!(stage.nodes(), [], "it waits before it retries");
    stage.pass_s(2);
    assert_eq!(stage.nodes(), [NodePhase::Requested]);
}

#[test]
fn a_lowered_maximum_lets_free_nodes_go_and_spares_busy_ones() {
    let mut stage = Stage::with_cluster("pool", 0, 3, 600);
    for job in ["one", "two", "three"] {
        stage.submit(job, "pool", 1).expect("accepted");
    }
    stage.provide();
    stage.run("one");
    stage.run("two");
    stage.run("three");
    stage.finish("three");
    stage.put_cluster("pool", 0, 1, 600).expect("lowered");
    assert_eq!((stage.count(NodePhase::Leased), stage.count(NodePhase::Leaving)), (2, 1));
    stage.finish("two");
    assert_eq!((stage.count(NodePhase::Leased), stage.count(NodePhase::Leaving)), (1, 2));
}

#[test]
fn the_most_recently_used_node_is_used_again() {
    let mut stage = Stage::with_cluster("pool", 0, 2, 600);
    stage.submit("one", "pool", 1).expect("accepted");
    stage.submit("two", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("one");
    stage.run("two");
    let recent = stage.members("one")[0].0;
    stage.finish("two");
    stage.pass_s(10);
    stage.finish("one");
    stage.submit("three", "pool", 1).expect("accepted");
    assert_eq!(stage.members("three")[0].0, recent);
}

#[test]
fn the_same_submit_again_is_the_same_job() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    let first = stage.submit("job", "pool", 1).expect("accepted");
    let Reply::JobAccepted { job, is_new: true } = first else { panic!("{first:?}") };
    let again = stage.submit("JOB", "pool", 1);
    assert!(again.is_err(), "another specification under a taken name");
    let again = stage.submit("job", "pool", 1).expect("accepted");
    assert_eq!(again, Reply::JobAccepted { job, is_new: false }, "the first one's answer");
}

#[test]
fn every_reason_for_waiting_is_given() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    stage.submit("runs", "pool", 1).expect("accepted");
    let reasons = |stage: &Stage, job: &str| why(&stage.world, stage.job(job).expect("live").id);
    assert!(matches!(reasons(&stage, "runs")[..], [Reason::NodesStarting { starting: 1, .. }]));
    stage.provide();
    assert!(matches!(reasons(&stage, "runs")[..], [Reason::Starting { nodes: 1, .. }]));
    stage.run("runs");
    stage.submit("waits", "pool", 1).expect("accepted");
    stage.submit("behind", "pool", 1).expect("accepted");
    assert!(matches!(reasons(&stage, "waits")[..], [Reason::MaximumReached { nodes_max: 1, .. }]));
    assert!(matches!(
        reasons(&stage, "behind")[..],
        [Reason::MaximumReached { .. }, Reason::Behind { jobs: 1, .. }]
    ));
    stage.put_cluster("pool", 0, 0, 60).expect("closed for the night");
    assert!(matches!(reasons(&stage, "waits")[0], Reason::MaximumTooLow { needed: 1, .. }));
    for reason in reasons(&stage, "behind") {
        assert!(reason.to_string().contains(';'), "{reason} has a remedy");
    }
}

#[test]
fn fixed_properties_stay_and_the_rest_merges() {
    let mut stage = Stage::new();
    let wanted = ClusterPatch {
        vm_size: Some("standard_ds12_v2".into()),
        tier: Some(Tier::LowPriority),
        subnet: Some("/subnets/one".into()),
        tags: Some([("team".to_owned(), "a".to_owned())].into()),
        nodes_max: Some(2),
        ..ClusterPatch::default()
    };
    stage.put("pool", wanted).expect("created");
    stage.put("pool", ClusterPatch { nodes_max: Some(5), ..Default::default() }).expect("merged");
    let cluster = stage.world.clusters().next().expect("one");
    assert_eq!(cluster.spec.scale.nodes_max, 5);
    assert_eq!(cluster.spec.subnet.as_deref(), Some("/subnets/one"), "what is omitted is kept");
    assert_eq!(cluster.spec.tags.len(), 1);
    let changes = [
        ClusterPatch { vm_size: Some("STANDARD_DS3_V2".into()), ..Default::default() },
        ClusterPatch { tier: Some(Tier::Dedicated), ..Default::default() },
        ClusterPatch { location: Some("westus".into()), ..Default::default() },
        ClusterPatch { subnet: Some("/subnets/two".into()), ..Default::default() },
    ];
    for wanted in changes {
        let refused = stage.put("pool", wanted.clone()).expect_err("it can never be changed");
        assert!(refused.to_string().contains("cannot be changed"), "{wanted:?}: {refused}");
    }
}

#[test]
fn what_clients_rewrite_when_they_send_back_what_they_read_is_no_change() {
    let mut stage = Stage::new();
    let login = |login| ClusterPatch { remote_login: Some(login), ..Default::default() };
    let (enabled, disabled) = (RemoteLogin::Enabled, RemoteLogin::Disabled);
    stage.put("pool", ClusterPatch { nodes_max: Some(2), ..Default::default() }).expect("created");
    for rewritten in [disabled, enabled, RemoteLogin::NotSpecified] {
        stage.put("pool", login(rewritten)).expect("was not specified");
    }
    stage.put("open", login(enabled)).expect("created");
    stage.put("open", login(RemoteLogin::NotSpecified)).expect("says nothing");
    let refused = stage.put("open", login(disabled)).expect_err("says something else");
    assert_eq!(refused.target, ClusterProperty::RemoteLogin.into());
    let off = ClusterPatch { disable_local_auth: Some(true), ..Default::default() };
    stage.put("pool", off.clone()).expect("a client that lost the account sends this");
    assert_eq!(
        stage.patch("pool", off).expect_err("requested").target,
        ClusterProperty::DisableLocalAuth.into()
    );
}

#[test]
fn a_patch_changes_scale_tags_identity_and_description_only() {
    let mut stage = Stage::new();
    let admin = AdminAccount {
        user_name: "ada".into(),
        ssh_public_key: Some("key".into()),
        password_digest: None,
    };
    let made = ClusterPatch {
        nodes_max: Some(2),
        admin: Some(admin.clone()),
        property_bag: Some(r#"{"a": 1}"#.into()),
        ..Default::default()
    };
    stage.put("pool", made).expect("created");
    let identity = Identity { system_assigned: true, user_assigned: Default::default() };
    let wanted = ClusterPatch {
        nodes_max: Some(5),
        idle_time: Some(Span::seconds(7)),
        tags: Some([("team".to_owned(), "a".to_owned())].into()),
        identity: Some(identity.clone()),
        description: Some("new".into()),
        // The same values as before, as sent back by a client that read them.
        vm_size: Some("standard_ds3_v2".into()),
        admin: Some(AdminAccount { ssh_public_key: None, ..admin.clone() }),
        property_bag: Some(r#"{"a":1}"#.into()),
        ..Default::default()
    };
    stage.patch("POOL", wanted).expect("patched");
    let spec = &stage.world.clusters().next().expect("one").spec;
    assert_eq!((spec.scale.nodes_max, spec.scale.idle_time), (5, Span::seconds(7)));
    assert_eq!((spec.tags.len(), spec.description.as_deref()), (1, Some("new")));
    assert_eq!(spec.identity, Some(identity));

    let none = ClusterPatch::default;
    let password = AdminAccount { password_digest: Some("d".into()), ..admin.clone() };
    let key = AdminAccount { ssh_public_key: Some("other".into()), ..admin };
    for (target, wanted) in [
        (
            ClusterProperty::VmSize,
            ClusterPatch { vm_size: Some("STANDARD_DS12_V2".into()), ..none() },
        ),
        (ClusterProperty::Location, ClusterPatch { location: Some("westus".into()), ..none() }),
        (ClusterProperty::Tier, ClusterPatch { tier: Some(Tier::LowPriority), ..none() }),
        (ClusterProperty::OsType, ClusterPatch { os_type: Some(OsType::Windows), ..none() }),
        (
            ClusterProperty::VirtualMachineImage,
            ClusterPatch { virtual_machine_image: Some("i".into()), ..none() },
        ),
        (ClusterProperty::IsolatedNetwork, ClusterPatch { isolated_network: Some(true), ..none() }),
        (ClusterProperty::Subnet, ClusterPatch { subnet: Some("/subnets/two".into()), ..none() }),
        (ClusterProperty::Admin, ClusterPatch { admin: Some(key), ..none() }),
        (ClusterProperty::Admin, ClusterPatch { admin: Some(password), ..none() }),
        (
            ClusterProperty::EnableNodePublicIp,
            ClusterPatch { enable_node_public_ip: Some(false), ..none() },
        ),
        (ClusterProperty::PropertyBag, ClusterPatch { property_bag: Some("{}".into()), ..none() }),
    ] {
        let refused = stage.patch("pool", wanted.clone()).expect_err("it can never be changed");
        assert_eq!(refused.target, target.into(), "{wanted:?}");
    }
    let two = ClusterPatch { tier: Some(Tier::LowPriority), location: Some("x".into()), ..none() };
    let refused = stage.patch("pool", two).expect_err("both");
    let Rule::Cluster(ClusterRule::Fixed(values)) = refused.rule else { panic!("{refused}") };
    let named: Vec<_> = values.iter().map(|value| value.property).collect();
    assert_eq!(named, [ClusterProperty::Location, ClusterProperty::Tier]);
    let refused = stage.patch("missing", none()).expect_err("nothing to change");
    assert_eq!(refused.kind, RefusalKind::NotFound);
}

#[test]
fn bad_requests_are_refused_with_the_value_and_change_nothing() {
    let mut stage = Stage::with_cluster("pool", 0, 2, 60);
    let seconds = |seconds| Some(Span::seconds(seconds));
    let text = |length| Some("x".repeat(length).into());
    let tags = |count| Some((0..count).map(|tag| (format!("t{tag}"), String::new())).collect());
    let puts: Vec<(&str, ClusterPatch, &str)> = vec![
        ("ab", ClusterPatch::default(), "2 characters"),
        ("has space", ClusterPatch::default(), "' '"),
        ("new", ClusterPatch { nodes_min: Some(9), ..Default::default() }, "9"),
        ("new", ClusterPatch { nodes_max: Some(10_001), ..Default::default() }, "10001"),
        ("new", ClusterPatch { idle_time: seconds(2_592_001), ..Default::default() }, "2592001"),
        (
            "new",
            ClusterPatch { vm_size: Some("Standard_Nope".into()), ..Default::default() },
            "Nope",
        ),
        ("new", ClusterPatch { vm_size: Some("Standard_NC6".into()), ..Default::default() }, "NC6"),
        ("new", ClusterPatch { description: text(5_000), ..Default::default() }, "5000"),
        ("new", ClusterPatch { tags: tags(51), ..Default::default() }, "51"),
        ("new", ClusterPatch { location: Some("".into()), ..Default::default() }, "Location"),
        ("POOL", ClusterPatch { nodes_min: Some(3), ..Default::default() }, "3"),
    ];
    let before = stage.log.len();
    for (name, wanted, expected) in puts {
        let refused = stage.put(name, wanted.clone()).expect_err("refused");
        assert_eq!(refused.kind, RefusalKind::Invalid, "{name} {wanted:?}");
        assert!(refused.to_string().contains(expected), "{name} {wanted:?}: {refused}");
    }
    for (name, compute, nodes, expected) in [
        ("", "pool", 1, "empty"),
        ("a/b", "pool", 1, "'/'"),
        ("job", "nowhere", 1, "nowhere"),
        ("job", "pool", 0, "0"),
        ("job", "pool", 3, "at most 2"),
    ] {
        let refused = stage.submit(name, compute, nodes).expect_err("refused");
        assert!(refused.to_string().contains(expected), "{name} {compute} {nodes}: {refused}");
    }
    assert_eq!(stage.cancel("missing").expect_err("unknown").kind, RefusalKind::NotFound);
    assert_eq!(stage.log.len(), before, "nothing was changed");
}

/// The table of properties says of each whether another value than the default is refused.
#[test]
fn a_property_is_refused_if_and_only_if_the_table_says_so() {
    let windows = ClusterPatch { os_type: Some(OsType::Windows), ..Default::default() };
    let refused: Vec<ClusterProperty> = ClusterProperty::ALL
        .iter()
        .copied()
        .filter(|property| property.effect() == Effect::Refused)
        .collect();
    let found = Stage::new().put("new", windows).expect_err("not Linux");
    assert_eq!(refused, [ClusterProperty::OsType]);
    assert_eq!(found.target, refused[0].into());
    let others = ClusterPatch {
        releases_quota_on_stop: Some(true),
        vm_size: Some("STANDARD_DS12_V2".into()),
        location: Some("westus".into()),
        tier: Some(Tier::LowPriority),
        virtual_machine_image: Some("i".into()),
        isolated_network: Some(true),
        subnet: Some("/subnets/one".into()),
        remote_login: Some(RemoteLogin::Enabled),
        enable_node_public_ip: Some(false),
        disable_local_auth: Some(true),
        property_bag: Some("{}".into()),
        ..Default::default()
    };
    Stage::new().put("new", others).expect("all others are accepted");
}

#[test]
fn a_refusal_is_the_field_the_rule_the_value_and_the_limit() {
    let mut stage = Stage::with_cluster("pool", 0, 2, 60);
    let mut put = |wanted: ClusterPatch| {
        let refused = stage.put("pool", wanted).expect_err("refused");
        (refused.target, refused.rule)
    };
    let many = ClusterPatch { nodes_max: Some(10_001), ..Default::default() };
    let rule = ClusterRule::TooManyNodes { nodes: 10_001, max: 10_000 };
    assert_eq!(put(many), (ClusterProperty::NodesMax.into(), rule.into()));
    let above = ClusterPatch { nodes_min: Some(7), ..Default::default() };
    let rule = ClusterRule::MinimumAboveMaximum { min: 7, max: 2 };
    assert_eq!(put(above), (ClusterProperty::NodesMin.into(), rule.into()));
    let long = ClusterPatch { description: Some("x".repeat(5_000).into()), ..Default::default() };
    let rule = Rule::TooLong { bytes: 5_000, max: 4_096 };
    assert_eq!(put(long), (ClusterProperty::Description.into(), rule));
    let refused = stage.submit("wide", "pool", 3).expect_err("refused");
    let compute = ClusterName::new("pool").expect("a name");
    let rule = JobRule::LargerThanCompute { nodes: 3, compute: compute.clone(), max: 2 };
    assert_eq!((&refused.target, &refused.rule), (&JobField::Nodes.into(), &rule.into()));
    let raise = Remedy::SetMaximum { cluster: compute, nodes_max: 3 };
    assert_eq!(support::remedy(&refused), raise);
}

#[test]
fn a_rebooted_node_is_not_trusted_with_what_it_held() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    stage.submit("job", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("job");
    let (node, epoch) = stage.members("job")[0];
    let node = stage.world.node(node).expect("a member").name.to_string();
    // Its journal has an attempt that an earlier boot had accepted.
    let phase = AttemptPhase::Ended(Exit::Stopped);
    let report = muster_core::agent::Report {
        boot_id: "another boot".into(),
        address: "10.0.0.4".into(),
        floor: epoch,
        attempts: vec![muster_core::agent::AttemptReport::new(epoch, phase)],
        waiting: Vec::new(),
    };
    let Ok(Reply::Desired(desired)) = stage.say(Input::Report { node, report }) else { panic!() };
    assert!(desired.end);
    assert_eq!(stage.phase("job"), JobPhase::Queued);
    let state = &stage.world.nodes().next().expect("being deleted").state;
    assert!(matches!(state, NodeState::Unusable { .. }));
}

/// Found by seed 373: a delayed report of an earlier boot was mistaken for a reboot, and the job was given to another
/// node while the current boot still ran it.
#[test]
fn a_report_of_another_boot_alone_does_not_end_what_a_node_runs() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    stage.submit("job", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("job");
    let node = stage.world.nodes().next().expect("one").name.to_string();
    let report = muster_core::agent::Report {
        boot_id: "another boot".into(),
        address: "10.0.0.4".into(),
        floor: Epoch(0),
        attempts: Vec::new(),
        waiting: Vec::new(),
    };
    let Ok(Reply::Desired(desired)) = stage.say(Input::Report { node, report }) else { panic!() };
    assert!(desired.end, "whichever boot it is, it is not the one that holds the lease");
    assert_eq!(stage.phase("job"), JobPhase::Running);
    stage.silence(Span::seconds(71));
    stage.say(Input::Tick).expect("a tick");
    assert_eq!(stage.phase("job"), JobPhase::Queued, "no other report arrived: the lease is over");
}

#[test]
fn an_end_that_was_journalled_counts_even_after_a_reboot() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 60);
    stage.submit("job", "pool", 1).expect("accepted");
    stage.provide();
    stage.run("job");
    let (node, epoch) = stage.members("job")[0];
    let node = stage.world.node(node).expect("a member").name.to_string();
    let phase = AttemptPhase::Ended(Exit::Code(0));
    let report = muster_core::agent::Report {
        boot_id: "another boot".into(),
        address: "10.0.0.4".into(),
        floor: epoch,
        attempts: vec![muster_core::agent::AttemptReport::new(epoch, phase)],
        waiting: Vec::new(),
    };
    stage.say(Input::Report { node, report }).expect("answered");
    assert_eq!(stage.phase("job"), JobPhase::Completed);
    assert_eq!(stage.nodes(), [NodePhase::Unusable]);
}
