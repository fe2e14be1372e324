//! Azure's APIs as types and conversions: paths, errors, long-running operations, computes, jobs, run history, and the
//! few endpoints that are Muster's own.
//!
//! This crate only converts: bytes and text on one side, the types of `muster-core` on the other. It does no IO, knows
//! no store, and untyped JSON (`serde_json::Value`) does not leave it. Every document is a typed struct that can be
//! serialised and deserialised, because our own command line reads the same responses as Azure's clients.
//!
//! * [`routes`]: the table of routes; [`path`]: the path and the query of a request, normalised once, as a [`Route`];
//! * [`error`]: errors in ARM's form;
//! * [`compute`], [`job`], [`workspace`], [`operation`], [`quota`], [`vm_size`], [`cost`], [`why`]: the resources;
//! * [`event`]: what happens in a workspace, for those who follow it;
//! * [`post_mortem`]: what is recorded about nodes that failed or were lost;
//! * [`environment`]: substitute environments, and how environments were built;
//! * [`datastore`]: names for places that hold blobs;
//! * [`asset`]: versioned assets, which refer to datastores;
//! * [`blob`]: the blob storage's protocol, including its XML;
//! * [`manager`], [`resources`]: resource manager's own resources, and lists of resources of any type;
//! * [`deployment`]: templates, turned into the resources to create;
//! * [`access`]: users, keys and roles; [`lock`], [`activity`]: locks and the activity log;
//! * [`cloud`], [`login`]: what a client reads before it requests its first resource;
//! * [`yaml`]: files that users write.

#![recursion_limit = "256"]

pub mod access;
pub mod activity;
pub mod asset;
pub mod blob;
pub mod cloud;
pub mod compute;
pub mod compute_history;
pub mod cost;
pub mod datastore;
pub mod deployment;
pub mod diagnosis;
pub mod duration;
pub mod environment;
pub mod error;
pub mod event;
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
pub mod routes;
pub mod spelling;
pub mod storage_size;
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
pub use path::{ComputeAction, HostAction, Query, Request};
pub use routes::{
    AccessRoute, AssetRoute, DeploymentRoute, GovernanceRoute, HistoryRoute, HostRoute, Login,
    Manager, Route, StorageRoute, V1Route,
};
pub use system_data::SystemData;
