//! The server: HTTP requests come in, the writer commits changes, and effects carry out the decisions.
//!
//! It contains how requests are authenticated and how changes get to disk. It does not contain how a provider creates a
//! node, how an agent runs a job, or why a decision is made.

mod address;
mod app;
mod artifacts;
pub mod backup;
mod blobs;
mod certificates;
mod check;
mod clock;
mod config;
mod ended;
pub mod environments;
mod feeds;
mod first_start;
mod followers;
mod guesses;
mod http;
mod live;
mod logs;
mod metrics;
mod nodes;
mod orphans;
mod outbox;
pub mod pki;
mod post_mortems;
pub mod prices;
mod rates;
mod readers;
mod refusals;
mod registered;
mod reserve;
mod retention;
mod room;
mod run;
mod secrets;
mod secured;
mod series;
mod services;
mod silence;
mod sizes;
pub mod state_dir;
mod storage;
pub mod tokens;
mod usage;
mod writer;

pub use crate::config::{Kept, Limits, Ready, ServeError, ServerConfig};
pub use crate::environments::Environments;
pub use crate::http::limits::{DESCRIPTORS_MIN, DESCRIPTORS_WANTED};
pub use crate::nodes::Isolation;
pub use crate::rates::RateLimits;
pub use crate::reserve::FREE_BYTES_MIN;
pub use crate::run::run;
pub use crate::state_dir::Workspaces;
pub use crate::storage::Retention;
pub use muster_core::retention::JobRetention;
pub use muster_store::EventRetention;
pub use muster_store::series::Retention as HistoryRetention;
