//! The VM sizes of a region, and the usage of its quotas.

use muster_wire::quota::Usage;
use muster_wire::vm_size::VmSizeInfo;
use muster_wire::workspace::WorkspaceResource;
use muster_wire::{Page, Route};
use serde::Serialize;

use super::price;
use crate::client::Client;
use crate::complete;
use crate::defaults::Setting;
use crate::failure::CliResult;
use crate::output::{self, Print};
use crate::scope::Scope;
use crate::values::{self, ComputeType};

const SIZE_HEADER: [&str; 6] = ["Name", "Family", "vCPUs", "Memory GB", "GPUs", "USD per hour"];
const USAGE_HEADER: [&str; 4] = ["Name", "Reserved", "Limit", "Unit"];

/// List the available VM sizes, with their prices
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct SizesArgs {
    /// List only sizes for this type of compute
    #[arg(short = 't', long = "type", value_enum, ignore_case = true, value_name = "TYPE")]
    compute_type: Option<ComputeType>,
    #[command(flatten)]
    region: Region,
    #[command(flatten)]
    print: Print,
}

/// List how much of a region's quotas is in use, in vCPUs
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct UsageArgs {
    #[command(flatten)]
    region: Region,
    #[command(flatten)]
    print: Print,
}

#[derive(Debug, clap::Args)]
struct Region {
    /// Region [default: as configured, or the workspace's]
    #[arg(short, long, value_name = "REGION", value_parser = values::name, add = complete::locations())]
    location: Option<String>,
    #[command(flatten)]
    scope: Scope,
}

impl Region {
    async fn location(&self, client: &Client) -> CliResult<String> {
        if let Some(location) = Setting::Location.value(self.location.as_deref())? {
            return Ok(location);
        }
        let route = Route::Workspace(self.scope.workspace()?);
        Ok(client.get::<WorkspaceResource>(&route).await?.location)
    }
}

/// The fields that az prints, and the price.
#[derive(Debug, Serialize)]
struct Size {
    name: String,
    family: String,
    v_cp_us: u32,
    gpus: u32,
    memory_gb: muster_wire::JsonText,
    os_vhd_size_mb: u64,
    max_resource_volume_mb: u64,
    low_priority_capable: bool,
    premium_io: bool,
    supported_compute_types: Vec<String>,
    usd_per_hour: Option<String>,
    usd_per_hour_low_priority: Option<String>,
}

impl Size {
    fn of(size: VmSizeInfo) -> Size {
        Size {
            usd_per_hour: price::of(&size, false).map(price::usd),
            usd_per_hour_low_priority: price::of(&size, true).map(price::usd),
            name: size.name,
            family: size.family,
            v_cp_us: size.vcpus,
            gpus: size.gpus,
            memory_gb: size.memory_gb,
            os_vhd_size_mb: size.os_vhd_size_mb,
            max_resource_volume_mb: size.max_resource_volume_mb,
            low_priority_capable: size.low_priority_capable,
            premium_io: size.premium_io,
            supported_compute_types: size.supported_compute_types,
        }
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.family.clone(),
            self.v_cp_us.to_string(),
            self.memory_gb.as_str().to_owned(),
            self.gpus.to_string(),
            self.usd_per_hour.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    }
}

/// The fields that az prints.
#[derive(Debug, Serialize)]
struct UsageLine {
    id: String,
    name: UsageName,
    aml_workspace_location: Option<String>,
    #[serde(rename = "type")]
    kind: String,
    unit: String,
    current_value: u64,
    limit: i64,
}

#[derive(Debug, Serialize)]
struct UsageName {
    value: String,
    localized_value: Option<String>,
}

impl UsageLine {
    fn of(usage: Usage) -> UsageLine {
        UsageLine {
            id: usage.id,
            name: UsageName {
                value: usage.name.value,
                localized_value: usage.name.localized_value,
            },
            aml_workspace_location: usage.aml_workspace_location,
            kind: usage.kind,
            unit: usage.unit,
            current_value: usage.current_value,
            limit: usage.limit,
        }
    }

    fn row(&self) -> Vec<String> {
        let limit = if self.limit < 0 { "none".to_owned() } else { self.limit.to_string() };
        vec![self.name.value.clone(), self.current_value.to_string(), limit, self.unit.clone()]
    }
}

pub async fn sizes(args: &SizesArgs) -> CliResult {
    let client = args.region.scope.connect().await?;
    let location = args.region.location(&client).await?;
    let subscription = args.region.scope.workspace()?.subscription;
    let mut sizes = price::sizes(&client, &subscription, &location).await?;
    if let Some(kind) = args.compute_type {
        let fits = |known: &String| known.eq_ignore_ascii_case(kind.as_str());
        sizes.retain(|size| size.supported_compute_types.iter().any(fits));
    }
    let sizes: Vec<_> = sizes.into_iter().map(Size::of).collect();
    args.print.show(&sizes, || {
        let rows = sizes.iter().map(Size::row).collect();
        output::table(&SIZE_HEADER, rows, "no sizes for this type of compute")
    })
}

pub async fn usage(args: &UsageArgs) -> CliResult {
    let client = args.region.scope.connect().await?;
    let location = args.region.location(&client).await?.into();
    let subscription = args.region.scope.workspace()?.subscription;
    let page: Page<Usage> = client.get(&Route::Usages { subscription, location }).await?;
    let lines: Vec<_> = page.value.into_iter().map(UsageLine::of).collect();
    args.print.show(&lines, || {
        let rows = lines.iter().map(UsageLine::row).collect();
        output::table(&USAGE_HEADER, rows, "no limits")
    })
}
