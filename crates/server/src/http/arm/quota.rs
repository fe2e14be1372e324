//! The VM sizes and limits of a region, and how much of them is used.

use axum::http::StatusCode;
use axum::response::Response;
use muster_core::ids::WorkspaceId;
use muster_core::model::{QuotaScope, WorkspaceKey};
use muster_core::{Input, Reply};
use muster_store::storage::Stored;
use muster_wire::error::ArmError;
use muster_wire::quota::{self, Region};
use muster_wire::workspace_usage::WorkspaceFigures;
use muster_wire::{Page, vm_size};

use super::{Call, Failed, unexpected};
use crate::app::App;
use crate::blobs::Figures;
use crate::http::respond::document;
use crate::http::trees;

pub async fn usages(call: &Call, subscription: &str, location: &str) -> Result<Response, Failed> {
    call.check_region(location).await?;
    let region = Region { subscription, location };
    let figures =
        call.app.writer.quota(&call.caller, QuotaScope::new(subscription, location)).await?;
    let value = figures.iter().map(|figures| quota::usage(region, figures)).collect();
    Ok(document(StatusCode::OK, &Page::whole(value)))
}

pub async fn quotas(call: &Call, subscription: &str, location: &str) -> Result<Response, Failed> {
    call.check_region(location).await?;
    let region = Region { subscription, location };
    let figures =
        call.app.writer.quota(&call.caller, QuotaScope::new(subscription, location)).await?;
    let value = figures.iter().map(|figures| quota::quota(region, figures)).collect();
    Ok(document(StatusCode::OK, &Page::whole(value)))
}

pub async fn update(call: &Call, subscription: &str, location: &str) -> Result<Response, Failed> {
    let region = Region { subscription, location };
    let limits = quota::parse_update(&call.body, region)?;
    let scope = QuotaScope::new(subscription, location);
    let input = Input::SetQuota { scope, limits };
    let reply = call.submit(input).await?;
    let Reply::Quota { quota, verdicts } = reply else { return Err(unexpected(&reply)) };
    let defaults = call.app.default_limits;
    let updated = verdicts.iter().map(|(name, verdict)| {
        // A limit that was not set is unchanged.
        let limit = quota.limits.get(name).copied().or_else(|| defaults.of(name));
        quota::updated(region, name, limit, *verdict)
    });
    Ok(document(StatusCode::OK, &Page::whole(updated.collect())))
}

/// How much of its limits a workspace uses; a workspace that does not exist yet uses nothing.
pub async fn of_workspace(call: &Call, key: WorkspaceKey) -> Result<Response, Failed> {
    let workspace = call.app.readers.look_up(|reader| reader.workspace(&key))?.map(|it| it.id);
    let queued = call.app.writer.queued(&call.caller, workspace).await?;
    let (stored, counted) = match workspace {
        Some(workspace) => stored(&call.app, workspace).await?,
        None => (Stored::default(), call.app.blobs.no_figures()),
    };
    // The largest number means that there is no limit.
    let limit = |most: u32| Some(most).filter(|most| *most < u32::MAX);
    let figures = WorkspaceFigures {
        stored_bytes: counted.bytes,
        stored_bytes_max: counted.limit,
        blob_bytes: stored.blob_bytes,
        uncommitted_bytes: stored.uncommitted_bytes,
        log_bytes: counted.also_bytes,
        queued_jobs: queued.in_workspace,
        queued_jobs_max: limit(queued.in_workspace_max),
        own_queued_jobs: queued.own,
        own_queued_jobs_max: limit(queued.own_max),
    };
    Ok(document(StatusCode::OK, &Page::whole(figures.rows())))
}

/// Counting takes longer the more a workspace has, so each workspace is counted once at a time. Other workspaces do not
/// wait.
async fn stored(app: &App, workspace: WorkspaceId) -> Result<(Stored, Figures), Failed> {
    let _turn = app.usage_turns.turn(workspace).await;
    let stored = app.storage.readers.read(move |reader| reader.stored(workspace)).await?;
    let blobs = app.blobs.clone();
    let counted = tokio::task::spawn_blocking(move || blobs.figures(workspace)).await;
    let counted = counted.map_err(|_| ArmError::internal("usage"))?;
    Ok((stored, counted.map_err(|failed| trees::refusal(&failed))?))
}

/// The same in every region, because the catalogue does not distinguish regions.
pub fn vm_sizes(call: &Call) -> Response {
    let sizes = call.app.catalogue.iter();
    let kind = call.query.get("compute-type");
    document(StatusCode::OK, &vm_size::list(sizes, call.query.api_version(), kind))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Limits;
    use crate::run::in_test::InTest;

    /// Counting a workspace with many files takes long.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn counting_one_workspace_holds_up_no_other() {
        let server = InTest::open(Limits::default()).await;
        let app = server.app();
        let [slow, other] = [1, 2].map(WorkspaceId);
        let _counting = app.usage_turns.turn(slow).await;
        let patience = Duration::from_secs(5);
        let counted = tokio::time::timeout(patience, stored(&app, other)).await;
        assert!(counted.expect("the other workspace does not wait").is_ok());
    }
}
