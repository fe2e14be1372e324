//! The routes that are not at Azure's paths, in the same form as the table of `wire/src/routes.rs`: a row has the description of
//! the route, its path, the handler of each method, who may call it, and the name of a change in the activity log or why it is
//! not there. The routers and a part of docs/reference/arm.md are made from these rows.
//!
//! What no row names is passed on: to the table of `wire` on the port of the API, and to the blobs on the port of files.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::MethodRouter;
use muster_providers::joined::protocol::BODY_BYTES_MAX as HOST_BYTES_MAX;
use muster_trees::MANIFEST_BYTES_MAX;
use muster_wire::path::table::{Log, Method};

use muster_core::agent::REPORTED_LOGS_BYTES_MAX;

use super::agent::LOG_CHUNK_BYTES_MAX;
use super::{
    agent, agent_data, agent_environments, agent_run, agent_services, agent_trees, blob, body,
    health, host, host_relay, log_files, metrics, service, studio, tree_files,
};
use crate::app::App;

/// The maximum size of a report; a node holds a handful of attempts.
const REPORT_BYTES_MAX: usize = 256 << 10;
/// The same with the logs that travel with it. In JSON, a byte of a log takes up to six.
const REPORT_WITH_LOGS_BYTES_MAX: usize = REPORT_BYTES_MAX + 6 * REPORTED_LOGS_BYTES_MAX;

/// Who may call a route, and with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Anyone,
    /// A node, with the secret that is derived from its name.
    Node,
    /// A joined host, with its key.
    Host,
    /// A machine with a join token in the body.
    JoinToken,
    /// A user with the right to read everything, with a key or a token.
    Reader,
    /// The holder of a signed address.
    Link,
    /// The holder of a signed address, or a caller with a token for storage.
    LinkOrToken,
    /// A user who may run jobs in the workspace of the service, with a token, or with the cookie of a browser that was let in.
    ServiceUser,
}

impl From {
    #[cfg(test)]
    fn as_str(self) -> &'static str {
        match self {
            From::Anyone => "anyone",
            From::Node => "a node, with its secret",
            From::Host => "a joined host, with its key",
            From::JoinToken => "a machine, with a join token",
            From::Reader => "a user who may read everything, with a key or a token",
            From::Link => "the holder of a signed address",
            From::LinkOrToken => {
                "the holder of a signed address, or a caller with a token for storage"
            }
            From::ServiceUser => {
                "a user who may run jobs in its workspace, with a token or a cookie"
            }
        }
    }
}

pub struct Row {
    pub path: &'static str,
    pub methods: &'static [Method],
    pub from: From,
    pub log: Log,
    #[cfg(test)]
    documentation: &'static str,
}

impl Row {
    /// Fails to compile if a row with changes says nothing about the activity log.
    const fn checked(self) -> Row {
        self.log.check(self.methods);
        self
    }

    #[cfg(test)]
    fn allow(&self) -> String {
        self.methods.iter().map(|method| method.as_str()).collect::<Vec<_>>().join(", ")
    }
}

macro_rules! routes {
    (
        $(#[$meta:meta])* $router:ident, $rows:ident;
        $(
            $(#[doc = $doc:literal])+
            $path:literal => {
                [$($method:ident: $handler:path $(, body $bytes:expr)?);*] $(any $any:path)?,
                from $from:ident $(, log $log:literal)? $(, no log $why:literal)? $(,)?
            }
        )*
        $(fallback
            $(#[doc = $other_doc:literal])+
            $other_path:literal => {
                [$($other_method:ident),+] any $other:path,
                from $other_from:ident $(, log $other_log:literal)? $(, no log $other_why:literal)? $(,)?
            }
        )?
    ) => {
        pub static $rows: &[Row] = &[
            $(Row {
                path: $path,
                methods: routes!(@methods [$($method)*] $($any)?),
                from: From::$from,
                log: routes!(@log $($log)? $(no $why)?),
                #[cfg(test)]
                documentation: concat!($($doc),+),
            }.checked(),)*
            $(Row {
                path: $other_path,
                methods: routes!(@methods [$($other_method)+]),
                from: From::$other_from,
                log: routes!(@log $($other_log)? $(no $other_why)?),
                #[cfg(test)]
                documentation: concat!($($other_doc),+),
            }.checked(),)?
        ];

        $(#[$meta])*
        pub fn $router() -> Router<Arc<App>> {
            Router::new()
                $(.route($path, MethodRouter::new()
                    $(.merge(
                        MethodRouter::new().$method($handler)$(.layer(from_fn(body::arrived::<{ $bytes }>)))?
                    ))*
                    $(.fallback($any))?
                ))*
                $(.fallback($other))?
        }
    };
    (@methods [$($method:ident)+]) => { &[$(routes!(@method $method)),+] };
    (@methods [] $any:path) => { &Method::ALL };
    (@method get) => { Method::Get };
    (@method head) => { Method::Head };
    (@method put) => { Method::Put };
    (@method post) => { Method::Post };
    (@method delete) => { Method::Delete };
    (@log) => { Log::OnlyReads };
    (@log $log:literal) => { Log::As($log) };
    (@log no $why:literal) => { Log::Not($why) };
}

routes! {
    /// On the port of the API, before the routes at Azure's paths.
    api, API;
    /// Answers as long as the process does.
    "/healthz" => { [get: health::healthz], from Anyone }
    /// Answers as long as requests can be served, and otherwise returns 503.
    "/readyz" => { [get: health::readyz], from Anyone }
    /// Returns the metrics for Prometheus.
    "/metrics" => { [get: metrics::with_key], from Reader }
    /// Returns the page of a job that `studio_url` leads to. It contains nothing that is not in its own address.
    "/studio/runs/{run}" => { [get: studio::page], from Anyone }
    /// Returns the certificate of the authority, which a join token identifies.
    "/host/v1/ca" => { [get: host::ca], from Anyone }
    /// Lets a machine join.
    "/host/v1/join" => {
        [post: host::join, body HOST_BYTES_MAX], from JoinToken, log "Muster.Hosts/hosts/join/action"
    }
    /// Exchanges the states of a host and of the server, by long poll.
    "/host/v1/sync" => {
        [post: host::sync, body HOST_BYTES_MAX], from Host, no log "the event log has what hosts report"
    }
    /// Connects a node of a joined host.
    "/host/v1/relay" => { [get: host_relay::relay], from Host }
    /// Exchanges the states of a node and of the server, by long poll.
    "/agent/v1/sync" => {
        [post: agent::sync, body REPORT_WITH_LOGS_BYTES_MAX], from Node, no log "the event log has what nodes report"
    }
    /// Returns the specification of a job.
    "/agent/v1/specs/{hash}" => { [get: agent::spec], from Node }
    /// Appends to the log of an attempt.
    "/agent/v1/logs/{epoch}" => {
        [post: agent::log, body LOG_CHUNK_BYTES_MAX], from Node, no log "jobs write it, not users"
    }
    /// Stores the state of the services of an attempt, and waits for calls to them.
    "/agent/v1/services/{epoch}" => {
        [post: agent_services::report, body REPORT_BYTES_MAX], from Node, no log "it is kept in memory only"
    }
    /// Takes or refuses a call to a service.
    "/agent/v1/services/{epoch}/{call}" => {
        [get: agent_services::take; delete: agent_services::refuse], from Node,
        no log "it is kept in memory only"
    }
    /// Lists the folders that earlier attempts left.
    "/agent/v1/trees/{epoch}" => { [get: agent_trees::left], from Node }
    /// A list of files that an attempt uses or leaves.
    "/agent/v1/trees/{epoch}/{tree}" => {
        [get: agent_trees::tree; put: agent_trees::put_tree, body MANIFEST_BYTES_MAX], from Node,
        no log "the event log has what attempts leave"
    }
    /// Returns one file of a list.
    "/agent/v1/trees/{epoch}/{tree}/{digest}" => { [get: agent_trees::file], from Node }
    /// The bytes of a file that an attempt leaves.
    "/agent/v1/blobs/{epoch}/{digest}" => {
        [put: agent_trees::put_file], from Node, no log "it has no effect by itself"
    }
    /// Lists the blobs of an input.
    "/agent/v1/data/{epoch}/{what}" => { [get: agent_data::list], from Node }
    /// Returns one blob of an input.
    "/agent/v1/data/{epoch}/{what}/file" => { [get: agent_data::file], from Node }
    /// Returns the environment of an attempt, once it is built.
    "/agent/v1/environments/{epoch}" => { [get: agent_environments::environment], from Node }
    /// Returns what the programs of a job learn about it, with its token.
    "/agent/v1/runs/{epoch}" => { [get: agent_run::facts], from Node }
}

routes! {
    /// On the port of files, where every response forbids scripts. What is neither a log nor a tree is a blob.
    files, FILES;
    /// Returns one log of a job.
    "/logs/{job}/{file}" => { [get: log_files::get], from Link }
    /// Returns a list of files that a job left.
    "/trees/{workspace}/{tree}" => { [get: tree_files::tree], from Link }
    /// Returns one file of such a list.
    "/trees/{workspace}/{tree}/{digest}" => { [get: tree_files::file], from Link }
    fallback
    /// A blob, or a container of blobs ([storage.md](storage.md)).
    "/muster/{container}/{*blob}" => {
        [get, head, put, post, delete] any blob::handle, from LinkOrToken,
        no log "as on Azure, it has no changes of blobs"
    }
}

routes! {
    /// Also on the port of files. The pages of services run scripts, with their own protection.
    services, SERVICES;
    /// A service of a running job ([services.md](services.md)).
    "/services/{*path}" => {
        [] any service::handle, from ServiceUser, no log "the service answers, not the server"
    }
}

routes! {
    /// On the port of metrics, if there is one.
    scrapes, METRICS;
    /// Returns the metrics for Prometheus.
    "/metrics" => { [get: metrics::open], from Anyone }
}

/// The row of a path as it is in the table.
pub fn row(path: &str) -> Option<&'static Row> {
    [API, FILES, SERVICES, METRICS].into_iter().flatten().find(|row| row.path == path)
}

/// The operation of a route in the activity log.
pub fn operation(path: &str) -> &'static str {
    match row(path).map(|row| row.log) {
        Some(Log::As(operation)) => operation,
        _ => panic!("{path} has no name in the activity log"),
    }
}

#[cfg(test)]
mod tests;
