//! Tests the agent against a real HTTPS server that can be made to misbehave.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod batches;
mod environments;
mod eviction;
mod gang;
mod harness;
mod isolation;
mod jobs;
mod lease;
mod logs;
mod restart;
mod server;

use muster_agent::AgentConfig;
use muster_sandbox::job::Spawner;

/// Not a test itself: the tests run their binary again, as an agent that they can kill.
#[test]
fn agent_process() {
    let Ok(config) = std::env::var(harness::PROCESS_VARIABLE) else { return };
    // Before the runtime, as in the real agent.
    let spawner = std::env::var_os(harness::SANDBOX_VARIABLE).map(|_| Spawner::start().unwrap());
    let [node, dir, server, ca_file] = config.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let config = AgentConfig {
        node: node.into(),
        dir: dir.into(),
        server: server.into(),
        ca_file: ca_file.into(),
        ca_bundle: None,
        hidden: Vec::new(),
        environments: None,
        disk_bytes: None,
        log_bytes: muster_core::agent::LOG_BYTES_MAX,
        full_server: muster_agent::FullServer::default(),
        jobs_share: false,
        not_enforced: Vec::new(),
        why_no_internet: None,
        secret_file: None,
        relay: None,
        address: None,
        gpu_slots: 0,
        gpus: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let agent = muster_agent::run_with_timing(config, spawner, harness::timing());
    runtime.block_on(agent).unwrap();
}
