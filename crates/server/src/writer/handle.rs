//! The interface of the writer for the rest of the server, and the errors when the writer cannot do its work.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_core::ids::{ClusterId, JobId, WorkspaceId};
use muster_core::model::{Caller, QuotaName, QuotaScope};
use muster_core::read_only::StoreTrouble;
use muster_core::why::{self, Reason};
use muster_core::{Input, InputResult, Refused, World, check_region};
use muster_store::StoreError;
use muster_store::controller::NotDone;
use muster_wire::quota::QuotaFigures;
use tokio::sync::oneshot;

use super::lanes::{LANE_MAX, Lane, LaneSender, QUEUE_MAX};
use super::{Message, RETRY_PAUSE_MIN};
use crate::metrics::Present;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error(
        "the server has {QUEUE_MAX} requests waiting, the most that it accepts; try again in a moment"
    )]
    Busy,
    #[error(
        "{LANE_MAX} of your requests are waiting, the most that one user may have; try again in a moment, with fewer at once"
    )]
    TooMany,
    /// It is certain that nothing was changed.
    #[error(
        "the server's disk is full, so nothing can be changed; free space on it (`muster doctor` shows how much is \
         free), then try again"
    )]
    Full,
    /// It is certain that nothing was changed.
    #[error(
        "the server's disk is full, and the rest is reserved for cancelling, deleting and ending jobs; delete what is \
         not needed or free space on the disk (`muster doctor` shows how much is free), then try again"
    )]
    OnReserve,
    /// It is certain that nothing was changed.
    #[error(
        "the server's file system is read-only, so nothing can be changed; see the kernel's log for the reason (`dmesg`), \
         repair the disk if it has errors, mount it again with write access, then try again"
    )]
    ReadOnly,
    /// It is certain that nothing was changed.
    #[error(
        "the server cannot read its store, so this was not done; try again in a moment, and see the server's log if that \
         does not help"
    )]
    Unreadable,
    /// It is certain that nothing was changed.
    #[error(
        "the server cannot write to its store, so nothing can be changed; see its log, then try again"
    )]
    Failing,
    /// It is certain that nothing was changed.
    #[error(
        "the server has just started and is still checking its store for damage, so nothing can be changed yet; \
         try again in a moment"
    )]
    Unchecked,
    #[error("the change could not be confirmed on disk; check the current state, then try again")]
    Unconfirmed,
    #[error("the server is stopping; try again when it is running again")]
    Stopping,
}

impl Unavailable {
    /// The error for callers while the store accepts no writes.
    pub fn because_of(failed: &StoreError) -> Unavailable {
        NotDone::because_of(failed).into()
    }
}

impl From<NotDone> for Unavailable {
    fn from(why: NotDone) -> Unavailable {
        match why {
            NotDone::Full => Unavailable::Full,
            NotDone::ReadOnly => Unavailable::ReadOnly,
            NotDone::Failing => Unavailable::Failing,
            NotDone::Unconfirmed => Unavailable::Unconfirmed,
        }
    }
}

/// A handle to the writer. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(super) entrance: Arc<LaneSender<Message>>,
}

impl Handle {
    /// Sends an input and waits until its changes are on disk.
    pub async fn submit(&self, input: Input) -> Result<InputResult, Unavailable> {
        let (reply, answer) = oneshot::channel();
        let lane = Lane::of(&input);
        self.entrance.push(lane, Message::Submit { input: Box::new(input), reply })?;
        answer.await.unwrap_or(Err(Unavailable::Stopping))
    }

    /// Answers as soon as the writer has processed earlier messages.
    pub async fn is_there(&self) -> Result<(), Unavailable> {
        self.ask(Lane::Anonymous, |_| ()).await
    }

    /// Why a job waits, according to the current World.
    pub async fn why(&self, by: &Caller, job: JobId) -> Result<Vec<Reason>, Unavailable> {
        self.ask(caller(by), move |world| why::why(world, job)).await
    }

    /// The same for several jobs.
    pub async fn why_each(
        &self,
        by: &Caller,
        jobs: Vec<JobId>,
    ) -> Result<Vec<Vec<Reason>>, Unavailable> {
        let each = move |world: &World| jobs.iter().map(|job| why::why(world, *job)).collect();
        self.ask(caller(by), each).await
    }

    /// Why a cluster has its current size. Empty for a cluster that has been deleted.
    pub async fn why_cluster(
        &self,
        by: &Caller,
        cluster: ClusterId,
    ) -> Result<Vec<Reason>, Unavailable> {
        self.ask(caller(by), move |world| why::why_cluster(world, cluster)).await
    }

    /// The limits of a region and how much of them is used: the totals, then every family in the catalogue.
    pub async fn quota(
        &self,
        by: &Caller,
        scope: QuotaScope,
    ) -> Result<Vec<QuotaFigures>, Unavailable> {
        self.ask(caller(by), move |world| quota_figures(world, &scope)).await
    }

    /// The jobs that wait in a workspace, and those of the caller in all workspaces.
    pub async fn queued(
        &self,
        by: &Caller,
        workspace: Option<WorkspaceId>,
    ) -> Result<Queued, Unavailable> {
        let own = by.object_id.clone();
        let count = move |world: &World| Queued {
            in_workspace: workspace.map_or(0, |workspace| world.queued_in(workspace)),
            in_workspace_max: world.settings.queued_per_workspace_max,
            own: world.principal_id(&own).map_or(0, |own| world.queued_of(own)),
            own_max: world.settings.queued_per_principal_max,
        };
        self.ask(caller(by), count).await
    }

    /// Checks that a region exists.
    pub async fn check_region(
        &self,
        by: &Caller,
        location: &str,
    ) -> Result<Result<(), Refused>, Unavailable> {
        let location = location.to_owned();
        self.ask(caller(by), move |world| check_region(world, &location)).await
    }

    /// The ids of all clusters.
    pub async fn clusters(&self) -> Result<BTreeSet<ClusterId>, Unavailable> {
        let ids = |world: &World| world.clusters().map(|cluster| cluster.id).collect();
        self.ask(Lane::Server, ids).await
    }

    /// Why the store accepts no new work, if it does not.
    pub async fn store_trouble(&self) -> Result<Option<StoreTrouble>, Unavailable> {
        self.ask(Lane::Anonymous, World::store_trouble).await
    }

    /// The current state, for `/metrics`.
    pub async fn present(&self) -> Result<Present, Unavailable> {
        self.ask(Lane::Anonymous, Present::of).await
    }

    /// The answer leaves the writer's thread, but World does not: keep it small.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        lane: Lane,
        question: impl FnOnce(&World) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let (reply, answer) = oneshot::channel();
        let question = move |world: Result<&World, Unavailable>| {
            let _ = reply.send(world.map(question)); // The caller may no longer be waiting.
        };
        self.entrance.push(lane, Message::Ask(Box::new(question)))?;
        answer.await.unwrap_or(Err(Unavailable::Stopping))
    }

    /// Reports that the store has been checked and is intact, so that it may be written to.
    pub fn checked(&self) {
        // A full queue is drained in a moment, and then there is room.
        while self.entrance.push(Lane::Server, Message::Checked) == Err(Unavailable::Busy) {
            std::thread::sleep(RETRY_PAUSE_MIN);
        }
    }

    /// Stops the writer; earlier messages are still processed.
    pub fn stop(&self) {
        self.entrance.close();
    }
}

/// The number of waiting jobs, and the maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    pub in_workspace: u32,
    pub in_workspace_max: u32,
    pub own: u32,
    pub own_max: u32,
}

fn caller(by: &Caller) -> Lane {
    Lane::Caller(by.object_id.clone())
}

fn quota_figures(world: &World, scope: &QuotaScope) -> Vec<QuotaFigures> {
    let uses = world.quota_uses(scope);
    let families: BTreeSet<_> = world.catalogue.iter().map(|size| size.family.clone()).collect();
    let totals = [QuotaName::Region, QuotaName::LowPriority];
    let figures = |name: QuotaName| {
        let taken = uses.and_then(|uses| uses.get(&name)).copied().unwrap_or_default();
        QuotaFigures {
            limit: world.quota_limit(scope, &name),
            reserved: taken.reserved,
            used: taken.used,
            name,
        }
    };
    totals.into_iter().chain(families.into_iter().map(QuotaName::Family)).map(figures).collect()
}
