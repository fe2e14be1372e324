//! Every parser of external input, as a function of bytes that panics when a promise is broken.
//!
//! The promises are stronger than "no panic": what is read can be written and reads back as the same, what is refused
//! is refused with a short and clear message, and what is accepted can be passed to the core, whose state remains
//! consistent. `tests/corpus.rs` runs them over `corpus/` and seeded mutations of it; `make fuzz` runs them under
//! libFuzzer.

mod agents;
mod answers;
mod assets;
mod blobs;
mod bodies;
mod commands;
mod core;
mod environments;
mod files;
mod hosts;
mod mutate;
mod oracle;
mod templates;
mod texts;
mod tokens;

pub use mutate::{Random, changed};

/// A parser, by the name of its folder in `corpus/`.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

pub const TARGETS: &[Target] = &[
    target("activity_filter", texts::activity_filter),
    target("agent_desired", agents::desired),
    target("agent_report", agents::report),
    target("agent_usage", agents::usage),
    target("answers", answers::documents),
    target("asset", assets::asset),
    target("asset_container", assets::container),
    target("asset_place", assets::place),
    target("asset_reference", assets::reference),
    target("blob_address", blobs::blob_address),
    target("blob_batch", blobs::blob_batch),
    target("blob_headers", blobs::blob_headers),
    target("blob_range", blobs::blob_range),
    target("blob_sas", blobs::blob_sas),
    target("block_list", blobs::block_list),
    target("certificate", files::certificate),
    target("cgroup_layout", agents::cgroup_layout),
    target("compute_file", commands::compute_file),
    target("compute_patch", bodies::compute_patch),
    target("compute_put", bodies::compute_put),
    target("config", commands::config),
    target("conda_file", environments::conda_file),
    target("datastore", blobs::datastore),
    target("defaults", commands::defaults),
    target("deployment", templates::deployment),
    target("dockerfile", environments::dockerfile),
    target("duration", texts::duration),
    target("environment_table", environments::environment_table),
    target("flag_values", commands::flag_values),
    target("group", bodies::group),
    target("helper_request", agents::helper_request),
    target("host_join", hosts::join),
    target("host_report", hosts::report),
    target("host_wanted", hosts::wanted),
    target("ignore_file", commands::ignore_file),
    target("job", bodies::job),
    target("job_file", commands::job_file),
    target("ledger_query", texts::ledger_query),
    target("lock", bodies::lock),
    target("login_file", commands::login_file),
    target("login_form", texts::login_form),
    target("packed_file", files::packed_file),
    target("path", texts::path),
    target("prices", files::prices),
    target("query", commands::query),
    target("quota", bodies::quota),
    target("requirements", environments::requirements),
    target("resources_query", texts::resources_query),
    target("role_assignment", bodies::role_assignment),
    target("role_filter", texts::role_filter),
    target("timestamp", texts::timestamp),
    target("token", tokens::token),
    target("trace", files::trace),
    target("tree", files::tree),
    target("user", bodies::user),
    target("workspace", bodies::workspace),
    target("workspace_file", commands::workspace_file),
];
