//! The services of a running job that users can open: their addresses and states.

use std::collections::BTreeMap;

use muster_wire::job::{ServiceInstance, ServiceInstances};
use muster_wire::{HistoryRoute, Route};
use serde::Serialize;

use super::Target;
use crate::failure::{CliResult, printable};
use crate::output::{self, Print};

const HEADER: [&str; 5] = ["Service", "Type", "Status", "Port", "Endpoint"];

/// List the services of a running job, such as JupyterLab, TensorBoard and custom ports
///
/// The endpoint opens in a browser: it is signed for you and valid for an hour. Anyone who has it can act as you in
/// that service, so do not share it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct Args {
    /// Show the services on this node of the job, counted from 0
    #[arg(short = 'i', long, value_name = "INDEX", default_value_t = 0)]
    node_index: u32,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// The fields that az prints.
#[derive(Debug, Serialize)]
struct Service {
    #[serde(rename = "type")]
    kind: String,
    port: Option<u16>,
    status: Option<String>,
    error: Option<String>,
    endpoint: Option<String>,
    properties: BTreeMap<String, String>,
}

pub async fn run(args: &Args) -> CliResult {
    let workspace = args.target.scope.workspace()?;
    let client = args.target.scope.connect().await?;
    let (run, node) = (args.target.name.as_str().into(), args.node_index.to_string().into());
    let route = Route::History(HistoryRoute::RunServices { workspace, run, node });
    let found: ServiceInstances = client.get(&route).await?;
    let shown: BTreeMap<String, Service> =
        found.instances.into_iter().map(|(name, one)| (name, entity(one))).collect();
    args.print.show(&shown, || {
        output::table(&HEADER, shown.iter().map(row).collect(), "no services on this node")?;
        let notes = shown.iter().filter_map(|(name, service)| {
            let error = service.error.as_deref()?;
            Some(format!("{name}: {}\n", printable(error)))
        });
        output::bytes(notes.collect::<String>().as_bytes())
    })
}

fn entity(service: ServiceInstance) -> Service {
    Service {
        kind: service.kind,
        port: service.port,
        status: service.status,
        error: service.error.map(|error| error.error.message),
        endpoint: service.endpoint,
        properties: service.properties,
    }
}

fn row((name, service): (&String, &Service)) -> Vec<String> {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let port = service.port.map(|port| port.to_string());
    vec![
        name.clone(),
        service.kind.clone(),
        or_dash(&service.status),
        or_dash(&port),
        or_dash(&service.endpoint),
    ]
}
