//! The messages from and to a node, and the requests to the helper that creates nodes.

use std::path::Component;

use muster_core::Input;
use muster_core::agent::{Desired, MEASURED_MAX, NodeUsage, Report};
use muster_sandbox::cgroup::layout;
use muster_sandbox::network::Address;
use muster_sandbox::protocol::{MESSAGE_MAX, Request};

use crate::core::Stage;

/// Whatever a node reports, it harms only itself.
pub fn report(data: &[u8]) {
    let Ok(report) = serde_json::from_slice::<Report>(data) else { return };
    let again = serde_json::to_vec(&report).expect("plain data");
    assert_eq!(serde_json::from_slice::<Report>(&again).expect("our own JSON"), report);
    let mut stage = Stage::running();
    let node = stage.first_node();
    stage.say(Input::Report { node: node.clone(), report: report.clone() });
    stage.say(Input::Report { node, report });
    stage.say(Input::Tick);
}

/// Whatever a node reports about its resource use, the accepted figures are bounded, and figures that make no sense are
/// dropped.
pub fn usage(data: &[u8]) {
    let Ok(said) = serde_json::from_slice::<NodeUsage>(data) else { return };
    let taken = said.clone().bounded();
    assert!(taken.gpus.len() <= MEASURED_MAX && taken.attempts.len() <= MEASURED_MAX);
    assert!(taken.gpus.iter().all(|gpu| gpu.busy_percent.is_none_or(|percent| percent <= 100)));
    assert_eq!(taken.millicores_since(&taken), None, "no time has passed");
    let start = NodeUsage { at_us: 0, ..taken.clone() };
    assert!(taken.millicores_since(&start).is_none_or(|millicores| millicores == 0));
    let again = serde_json::to_vec(&said).expect("plain data");
    assert_eq!(serde_json::from_slice::<NodeUsage>(&again).expect("our own JSON"), said);
}

pub fn desired(data: &[u8]) {
    let Ok(desired) = serde_json::from_slice::<Desired>(data) else { return };
    let again = serde_json::to_vec(&desired).expect("plain data");
    assert_eq!(serde_json::from_slice::<Desired>(&again).expect("our own JSON"), desired);
}

/// Every message to the helper is either a request within its limits or is refused with a clear message: no name is a
/// path, and nothing is accepted that would be read differently when it is written again.
pub fn helper_request(data: &[u8]) {
    match Request::parse(data) {
        Ok(request) => {
            let again = serde_json::to_vec(&request).expect("plain data");
            assert!(
                again.len() <= MESSAGE_MAX || data.len() > MESSAGE_MAX,
                "the message does not grow"
            );
            assert_eq!(Request::parse(&again).expect("our own JSON"), request);
            if let Request::Make(plan) = &request {
                assert!(
                    Address::of(plan.slot.network, plan.slot.host).is_ok(),
                    "the node has a slot"
                );
                assert!(!plan.node.contains(['/', '.']), "{:?} is not a path", plan.node);
            }
        }
        Err(refusal) => {
            let words = refusal.to_string();
            assert!(!words.is_empty() && !words.contains(char::is_control), "{words:?}");
        }
    }
}

/// What the kernel says about cgroups, both lists in one: their paths may contain anything, and our own group is never
/// searched outside of the place where its hierarchy is mounted.
pub fn cgroup_layout(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (mounts, memberships) = (layout::parse_mounts(text), layout::parse_memberships(text));
    for hierarchy in layout::hierarchies(&mounts, &memberships) {
        if let Some(own) = &hierarchy.own {
            let below = own.strip_prefix(&hierarchy.at).expect("the group is within its hierarchy");
            assert!(below.components().all(|part| part != Component::ParentDir), "{own:?}");
        }
    }
}
