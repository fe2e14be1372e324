//! If there is a choice, a host that already has a job's Python environment is preferred.

use std::collections::BTreeMap;

use std::sync::Arc;

use crate::support::{Stage, Wants, request};
use muster_core::Input;
use muster_core::model::{Capacity, HOST_ENVIRONMENTS_MAX, HostName, JobEnvironment, Recipe};

fn nodes(count: u32) -> Capacity {
    Capacity { gpus: 0, vcpus: 4 * count, memory_mb: 14_336 * u64::from(count) }
}

fn recipe(package: &str) -> Recipe {
    Recipe::new(None, vec![package.into()])
}

fn submit_with(stage: &mut Stage, name: &str, package: &str, nodes: u32) {
    let mut request = request(name, "pool", Wants { nodes, ..Wants::default() });
    let (id, recipe) = (package.into(), Some(recipe(package)));
    let (notes, variables) = (Vec::new(), BTreeMap::new());
    let environment = JobEnvironment { id, recipe, image: None, notes, variables };
    Arc::make_mut(&mut request.spec).environment = Some(Box::new(environment));
    stage.say(Input::SubmitJob(Box::new(request))).expect("accepted");
}

fn host_of(stage: &Stage, job: &str) -> String {
    let (node, _) = stage.members(job)[0];
    stage.world.node(node).expect("a member").host.to_string()
}

/// Two hosts. The narrow one is preferred if nothing else matters. `numpy` has been built on the wide one.
fn two_hosts(idle_s: u64) -> Stage {
    let mut stage = Stage::with_cluster("pool", 0, 9, idle_s);
    stage.join_host("wide", nodes(4));
    stage.join_host("narrow", nodes(2));
    for name in ["one", "two"] {
        stage.submit(name, "pool", 1).expect("accepted");
    }
    submit_with(&mut stage, "first", "numpy", 1);
    stage.provide();
    for name in ["first", "one", "two"] {
        stage.run(name);
    }
    assert_eq!(
        (host_of(&stage, "first"), host_of(&stage, "one")),
        ("wide".into(), "narrow".into())
    );
    // The nodes of the narrow host were used last.
    for name in ["first", "one", "two"] {
        stage.finish(name);
        stage.pass_s(1);
    }
    stage
}

#[test]
fn an_idle_node_of_such_a_host_is_taken_first() {
    let mut stage = two_hosts(600);
    stage.submit("plain", "pool", 1).expect("accepted");
    assert_eq!(host_of(&stage, "plain"), "narrow", "the most recently used");
    submit_with(&mut stage, "other", "pandas", 1);
    assert_eq!(host_of(&stage, "other"), "narrow", "no host has it");
    submit_with(&mut stage, "same", "numpy", 1);
    assert_eq!(host_of(&stage, "same"), "wide");
}

#[test]
fn without_a_choice_it_runs_where_there_is_room() {
    let mut stage = two_hosts(600);
    submit_with(&mut stage, "same", "numpy", 1);
    submit_with(&mut stage, "again", "numpy", 1);
    assert_eq!(host_of(&stage, "same"), "wide");
    assert_eq!(host_of(&stage, "again"), "narrow", "it does not wait for the other host");
}

#[test]
fn a_new_node_is_created_on_such_a_host() {
    let mut stage = two_hosts(2);
    stage.pass_s(60);
    stage.provide();
    assert_eq!(stage.world.nodes().len(), 0, "all have been deleted");
    submit_with(&mut stage, "same", "numpy", 1);
    submit_with(&mut stage, "other", "pandas", 1);
    let hosts: Vec<&str> = stage.world.nodes().map(|node| node.host.as_str()).collect();
    assert!(hosts.contains(&"wide"), "{hosts:?}");
    stage.provide();
    assert_eq!(host_of(&stage, "same"), "wide");
}

#[test]
fn the_nodes_of_a_gang_go_there_together() {
    let mut stage = two_hosts(2);
    stage.pass_s(60);
    stage.provide();
    submit_with(&mut stage, "gang", "numpy", 2);
    stage.provide();
    stage.provide();
    assert_eq!(host_of(&stage, "gang"), "wide");
}

#[test]
fn a_host_remembers_the_last_ones() {
    let mut stage = Stage::with_cluster("pool", 0, 1, 600);
    stage.join_host("box", nodes(1));
    let most = HOST_ENVIRONMENTS_MAX + 3;
    for number in 0..most {
        let name = format!("job-{number}");
        submit_with(&mut stage, &name, &format!("package-{number}"), 1);
        stage.provide();
        stage.run(&name);
        stage.finish(&name);
    }
    let name = HostName::new("box").expect("a name");
    let host = stage.world.hosts().host(&name).expect("it joined");
    assert_eq!(host.environments.len(), HOST_ENVIRONMENTS_MAX);
    assert!(!host.has_environment(recipe("package-2").mark()));
    assert!(host.has_environment(recipe(&format!("package-{}", most - 1)).mark()));
}
