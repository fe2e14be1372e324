//! The agent against a real HTTPS server that can be told to misbehave.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod eviction;
mod gang;
mod harness;
mod jobs;
mod lease;
mod logs;
mod restart;
mod server;

use muster_agent::AgentConfig;

/// Not a test of its own: the tests run their binary again, as an agent that they can kill.
#[test]
fn agent_process() {
    let Ok(config) = std::env::var(harness::PROCESS_VARIABLE) else { return };
    let [node, dir, server, ca_file] = config.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let config = AgentConfig {
        node: node.into(),
        dir: dir.into(),
        server: server.into(),
        ca_file: ca_file.into(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = runtime.block_on(muster_agent::run_with_habits(config, harness::habits()));
    result.unwrap();
}
