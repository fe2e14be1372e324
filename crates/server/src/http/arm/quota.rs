//! What a region offers: sizes, limits, and what is taken of them.

use axum::http::StatusCode;
use axum::response::Response;
use muster_core::model::QuotaScope;
use muster_core::{Input, Reply};
use muster_wire::quota::{self, Region};
use muster_wire::{Page, vm_size};

use super::{Call, Failed, unexpected};
use crate::http::respond::document;

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
    let reply = call.tell(input).await?;
    let Reply::Quota { quota, verdicts } = reply else { return Err(unexpected(&reply)) };
    let defaults = call.app.default_limits;
    let updated = verdicts.iter().map(|(name, verdict)| {
        // What was not set is as it was.
        let limit = quota.limits.get(name).copied().or_else(|| defaults.of(name));
        quota::updated(region, name, limit, *verdict)
    });
    Ok(document(StatusCode::OK, &Page::whole(updated.collect())))
}

/// The same in every region: the catalogue knows none.
pub fn vm_sizes(call: &Call) -> Response {
    let sizes = call.app.catalogue.iter();
    let kind = call.query.get("compute-type");
    document(StatusCode::OK, &vm_size::list(sizes, call.query.api_version(), kind))
}
