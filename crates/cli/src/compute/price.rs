//! What a cluster can cost per hour, according to the server's prices.

use muster_core::ClusterPatch;
use muster_core::model::{ComputeKind, Tier};
use muster_wire::Route;
use muster_wire::compute::SeenCompute;
use muster_wire::vm_size::{VmSizeInfo, VmSizeList};
use muster_wire::workspace::WorkspaceResource;

use crate::client::Client;
use crate::failure::CliResult;

/// The server's defaults for a new cluster.
const SIZE_DEFAULT: &str = "STANDARD_DS3_V2";
const NODES_MAX_DEFAULT: u32 = 4;
const LOCATION_DEFAULT: &str = "eastus";

/// The maximum cost of a cluster after a change, with all nodes running all the time. `None` for a size without a
/// price.
pub async fn usd_per_hour_max(
    client: &Client,
    route: &Route,
    patch: &ClusterPatch,
) -> CliResult<Option<String>> {
    let Route::Compute { workspace, .. } = route else { return Ok(None) };
    let now: Option<SeenCompute> = client.find(route).await?;
    let aml = now.as_ref().map(|now| &now.properties.properties);
    let size = patch.vm_size.as_deref().or(aml.map(|aml| aml.vm_size.as_str()));
    let is_instance = patch.kind == Some(ComputeKind::Instance);
    let nodes = match is_instance {
        true => Some(1),
        false => patch
            .nodes_max
            .or(aml.and_then(|aml| Some(aml.scale_settings.as_ref()?.max_node_count))),
    };
    let is_low_priority = match patch.tier {
        Some(tier) => tier == Tier::LowPriority,
        None => aml.is_some_and(|aml| aml.vm_priority.as_deref() == Some("LowPriority")),
    };
    let location = match &patch.location {
        Some(location) => location.to_string(),
        None => match now.as_ref().and_then(|now| now.location.clone()) {
            Some(location) => location,
            None => {
                let route = Route::Workspace(workspace.clone());
                match client.find::<WorkspaceResource>(&route).await? {
                    Some(workspace) => workspace.location,
                    // Prices depend on the region; this is the one that a new workspace would have.
                    None => LOCATION_DEFAULT.to_owned(),
                }
            }
        },
    };
    let sizes = sizes(client, &workspace.subscription, &location).await?;
    let wanted = size.unwrap_or(SIZE_DEFAULT);
    let found = sizes.iter().find(|size| size.name.eq_ignore_ascii_case(wanted));
    let price = found.and_then(|size| of(size, is_low_priority));
    let nodes = u64::from(nodes.unwrap_or(NODES_MAX_DEFAULT));
    Ok(price.map(|micro| usd(micro.saturating_mul(nodes))))
}

pub async fn sizes(
    client: &Client,
    subscription: &str,
    location: &str,
) -> CliResult<Vec<VmSizeInfo>> {
    let route = Route::VmSizes { subscription: subscription.into(), location: location.into() };
    let list: VmSizeList = client.get(&route).await?;
    Ok(list.value)
}

/// Millionths of a dollar per hour.
pub fn of(size: &VmSizeInfo, is_low_priority: bool) -> Option<u64> {
    let tier = if is_low_priority { "LowPriority" } else { "Standard" };
    let price = size.estimated_prices.values.iter().find(|price| price.vm_tier == tier)?;
    let (whole, fraction) = price.retail_price.as_str().split_once('.')?;
    let fraction: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction)
}

pub fn usd(micro: u64) -> String {
    let text = format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000);
    // Always with cents, and with more digits only if they are not zero.
    let cents = text.len() - 4;
    let (start, rest) = text.split_at(cents);
    format!("{start}{}", rest.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    #[test]
    fn dollars_have_cents_and_what_is_below_them() {
        for (micro, text) in
            [(0, "0.00"), (290_000, "0.29"), (84_600, "0.0846"), (1_160_000, "1.16")]
        {
            assert_eq!(super::usd(micro), text);
        }
    }
}
