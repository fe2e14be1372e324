//! A server that is opened but not started, for tests that need most of one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use muster_core::retention::JobRetention;
use muster_core::time::Span;
use muster_core::{Regions, lease};
use muster_store::EventRetention;
use tempfile::TempDir;
use tokio::sync::watch;

use super::server::{Opened, Server};
use crate::app::App;
use crate::config::{Kept, Limits, ServerConfig};
use crate::environments::Environments;
use crate::nodes::Isolation;
use crate::reserve::ReserveFile;
use crate::state_dir::{StateDir, Workspaces};
use crate::storage::Retention;
use crate::{first_start, http};

pub struct InTest {
    server: Server,
    stop: watch::Sender<bool>,
    folder: TempDir,
}

impl InTest {
    pub async fn open(limits: Limits) -> InTest {
        InTest::open_with(limits, |_| {}).await
    }

    pub async fn open_with(limits: Limits, change: impl FnOnce(&mut ServerConfig)) -> InTest {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state_dir = StateDir::new(folder.path());
        first_start::prepare(&state_dir).expect("the databases are created");
        let reserve = ReserveFile::of(&state_dir);
        let mut config = config(&state_dir, limits);
        change(&mut config);
        let opened = Server::open(config, state_dir, reserve).await;
        let Opened { server, .. } = opened.expect("the server opens");
        InTest { server, stop: watch::Sender::new(false), folder }
    }

    /// The state directory.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The state after a restart: of what an earlier app knew, only what is on disk.
    pub fn app(&self) -> Arc<App> {
        let (node_calls, _) = http::calls();
        self.server.app(self.stop.subscribe(), node_calls)
    }
}

pub fn config(state_dir: &StateDir, limits: Limits) -> ServerConfig {
    let hour = Duration::from_secs(3_600);
    ServerConfig {
        state_dir: state_dir.root().to_owned(),
        listen: "127.0.0.1:0".parse().expect("an address"),
        files_port: 0,
        metrics_listen: None,
        public_host: None,
        certificate: None,
        hangup_reloads: false,
        drain: Duration::ZERO,
        agent_binary: "/nowhere".into(),
        price_file: None,
        location: "eastus".to_owned(),
        workspaces: Workspaces::OnFirstUse,
        may_change_mode: false,
        isolation: Isolation::None,
        helper_socket: None,
        shown: Vec::new(),
        egress: false,
        job_disk_bytes: 1 << 30,
        environments: Environments {
            uv: None,
            table: None,
            indexes: Vec::new(),
            bytes_max: 1 << 30,
            build_within: hour,
        },
        blob_store: None,
        retention: Retention { grace: hour, blocks: hour },
        kept: Kept {
            jobs: JobRetention::default(),
            events: EventRetention { age: Span::seconds(3_600), entries: 100 },
            activity: Span::seconds(3_600),
            history: Default::default(),
        },
        jobs_share: false,
        over_commit: true,
        user_identity: true,
        cluster_names: Default::default(),
        regions: Regions::default(),
        default_limits: Default::default(),
        eviction_grace: Span::seconds(30),
        lease: lease::LEASE_MAX,
        limits,
    }
}
