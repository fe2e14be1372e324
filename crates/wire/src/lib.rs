//! Azure's dialects as types and conversions: paths, errors, long-running operations, compute, jobs, run
//! history, and the few endpoints that are our own.
//!
//! It only converts: bytes and text on one side, the types of `muster-core` on the other. It does no IO,
//! knows no store, and untyped JSON (`serde_json::Value`) does not leave it. Every document is a typed
//! struct that serialises and deserialises, because our own command line reads the same answers that
//! Azure's clients read.
//!
//! * [`path`]: a request's path and query, normalised once, as a [`Route`];
//! * [`error`]: whatever went wrong, as an ARM error;
//! * [`compute`], [`job`], [`workspace`], [`operation`], [`quota`], [`vm_size`], [`cost`], [`why`]: the
//!   resources;
//! * [`post_mortem`]: what became of nodes that are gone;
//! * [`environment`]: what stands in for environments, and how they were built;
//! * [`datastore`]: names of places where blobs are; [`asset`]: what is kept in versions, and refers to them; [`blob`]: the blob storage's dialect, XML and all;
//! * [`manager`], [`resources`]: what resource manager says about itself, and lists of any resources;
//! * [`deployment`]: templates, read into what is to be made;
//! * [`access`]: users, keys and roles; [`lock`], [`activity`]: locks and who changed what;
//! * [`cloud`], [`login`]: what a client reads before it asks for the first resource;
//! * [`yaml`]: files that users write.

pub mod access;
pub mod activity;
pub mod asset;
pub mod blob;
pub mod cloud;
pub mod compute;
pub mod cost;
pub mod datastore;
pub mod deployment;
pub mod diagnosis;
pub mod duration;
pub mod environment;
pub mod error;
pub mod host;
pub mod job;
mod json;
pub mod lock;
pub mod login;
pub mod manager;
pub mod notes;
mod odata;
pub mod operation;
mod page;
pub mod path;
pub mod post_mortem;
pub mod quota;
pub mod resources;
mod system_data;
pub mod timestamp;
pub mod trees;
pub mod unserved;
pub mod vm_size;
pub mod why;
pub mod workspace;
pub mod workspace_usage;
pub mod yaml;

pub use error::ArmError;
pub use json::{JsonText, Unreadable, from_json, to_json};
pub use page::{Page, page_size};
pub use path::{
    AccessRoute, AssetRoute, ComputeAction, DeploymentRoute, GovernanceRoute, HistoryRoute,
    HostAction, HostRoute, Login, Manager, Query, Request, Route, StorageRoute, V1Route,
    WorkspaceAction,
};
pub use system_data::SystemData;
