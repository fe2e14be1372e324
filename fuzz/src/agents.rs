//! What a node says, and what it is told.

use muster_core::Input;
use muster_core::agent::{Desired, Report};

use crate::core::Stage;

/// Whatever a node makes up, it harms nobody but itself.
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

pub fn desired(data: &[u8]) {
    let Ok(desired) = serde_json::from_slice::<Desired>(data) else { return };
    let again = serde_json::to_vec(&desired).expect("plain data");
    assert_eq!(serde_json::from_slice::<Desired>(&again).expect("our own JSON"), desired);
}
