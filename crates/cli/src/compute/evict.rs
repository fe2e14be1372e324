//! `muster compute evict`: rehearses evictions of low-priority nodes.

use std::time::Duration;

use clap::ArgGroup;
use muster_core::model::WorkspaceKey;
use muster_wire::Route;
use muster_wire::compute::{Eviction, NodeState, SeenCompute};
use serde::Serialize;

use crate::client::Client;
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, Failure};
use crate::names::{self, Name};
use crate::output::{self, Print};
use crate::scope::Scope;
use crate::values;

const HEADER: [&str; 2] = ["Node", "Seconds"];
/// How often nodes are selected when a rate is given.
const ROUND: Duration = Duration::from_secs(10);
const ROUNDS_PER_HOUR: f64 = 360.0;

/// Evict low-priority nodes, to rehearse a real eviction
///
/// Processes on the node get SIGTERM and the file that MUSTER_EVICTION_NOTICE names, and SIGKILL after 30 seconds;
/// the job is queued again. With --rate, nodes are evicted at random for as long as this command runs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Destructive: stops what runs on the node. Dedicated nodes are never evicted.",
    group = ArgGroup::new("which").args(["node", "rate"]).required(true)
)]
pub struct Args {
    #[command(flatten)]
    name: Name<names::Cluster>,
    /// Node to evict
    #[arg(long, value_parser = values::name)]
    node: Option<String>,
    /// How often each node is evicted, such as 0.2/h; until the command is interrupted
    #[arg(long, value_parser = parse_rate)]
    rate: Option<f64>,
    /// Seed for the random choice: the same seed selects the same nodes
    #[arg(long, default_value_t = 0, requires = "rate")]
    seed: u64,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

#[derive(Debug, Serialize)]
struct Evicted {
    node: String,
    /// How long processes on the node can keep running.
    seconds: u64,
}

pub async fn run(args: &Args) -> CliResult {
    let workspace = args.scope.workspace_to_change()?;
    let client = args.scope.connect().await?;
    let Some(rate) = args.rate else {
        let route = args.route(&workspace, args.node.as_deref().unwrap_or_default());
        if args.dry.dry_run {
            let subject = super::route(workspace, &args.name);
            let plan = Plan { subject: Some(&subject), ..Plan::new("POST", &route, "") };
            return plan.show(&client, &args.print).await;
        }
        let evicted = evict(&client, &route).await?;
        let row = || vec![vec![evicted.node.clone(), evicted.seconds.to_string()]];
        return args.print.show(&evicted, || output::table(&HEADER, row(), ""));
    };
    if args.dry.dry_run {
        return Err(Failure::refused("--dry-run shows a single request; use it with --node"));
    }
    rehearse(args, rate, &client, &workspace).await
}

impl Args {
    fn route(&self, workspace: &WorkspaceKey, node: &str) -> Route {
        let compute = self.name.as_str().into();
        Route::EvictNode { workspace: workspace.clone(), compute, node: node.into() }
    }
}

async fn evict(client: &Client, route: &Route) -> CliResult<Evicted> {
    let Eviction { node_id, seconds } = client.post(route).await?.document()?;
    Ok(Evicted { node: node_id, seconds })
}

/// Evicts nodes in endless rounds. In each round, every node that is up is evicted with the probability that
/// corresponds to the rate.
async fn rehearse(args: &Args, rate: f64, client: &Client, workspace: &WorkspaceKey) -> CliResult {
    let cluster: SeenCompute = client.get(&super::route(workspace.clone(), &args.name)).await?;
    if cluster.properties.properties.vm_priority.as_deref() != Some("LowPriority") {
        let name = &args.name;
        return Err(Failure::refused(format!(
            "compute '{name}' is dedicated, and only low-priority nodes can be evicted"
        )));
    }
    output::say("evicting nodes at random until you press Ctrl-C");
    let route =
        Route::ComputeNodes { workspace: workspace.clone(), name: args.name.as_str().into() };
    for round in 0u64.. {
        let nodes = super::all_nodes(client, &route).await?;
        let up = nodes.iter().filter(|node| match node.node_state {
            NodeState::Idle | NodeState::Running => true,
            NodeState::Preparing
            | NodeState::Unusable
            | NodeState::Leaving
            | NodeState::Preempted => false,
        });
        for node in up.filter(|node| draw(args.seed, round, &node.node_id) < rate / ROUNDS_PER_HOUR)
        {
            let evicted = evict(client, &args.route(workspace, &node.node_id)).await;
            if let Some(evicted) = unless_gone(evicted)? {
                output::say(&format!("{} is evicted within {} s", evicted.node, evicted.seconds));
            }
        }
        tokio::time::sleep(ROUND).await;
    }
    Ok(())
}

/// A node that was deleted after it was listed cannot be evicted any more; the rehearsal continues.
fn unless_gone(evicted: CliResult<Evicted>) -> CliResult<Option<Evicted>> {
    match evicted {
        Err(failure) if failure.is_too_late() => Ok(None),
        evicted => evicted.map(Some),
    }
}

/// A number from 0 to 1, always the same for the same node and round.
fn draw(seed: u64, round: u64, node: &str) -> f64 {
    let mix = |state: u64, next: u64| {
        let mut mixed = (state ^ next).wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    };
    let drawn = node.bytes().map(u64::from).fold(mix(mix(0, seed), round), mix);
    // A fraction holds 53 bits.
    (drawn >> 11) as f64 / (1u64 << 53) as f64
}

/// `0.2/h`: evictions per node and hour, at most one per round.
fn parse_rate(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix("/h").and_then(|number| number.trim().parse().ok());
    number.filter(|rate: &f64| *rate > 0.0 && *rate <= ROUNDS_PER_HOUR).ok_or_else(|| {
        format!("write it as 0.2/h; it must be more than 0 and at most {ROUNDS_PER_HOUR}")
    })
}

#[cfg(test)]
mod tests {
    use muster_wire::error::ErrorDetail;

    use super::*;

    #[test]
    fn a_rate_is_per_hour() {
        assert_eq!(parse_rate("0.2/h"), Ok(0.2));
        for wrong in ["0.2", "0/h", "-1/h", "NaN/h", "inf/h", "361/h", "/h", "x/h"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_a_node_that_has_left_is_passed_over() {
        let detail = ErrorDetail::new("Code", "words");
        let answered = |status| unless_gone(Err(Failure::answered(status, &detail)));
        for status in [404, 409] {
            assert!(answered(status).is_ok_and(|evicted| evicted.is_none()), "{status}");
        }
        for status in [400, 401, 403, 500] {
            assert!(answered(status).is_err(), "{status}");
        }
        let evicted = Evicted { node: "spot-1".into(), seconds: 30 };
        assert!(unless_gone(Ok(evicted)).is_ok_and(|evicted| evicted.is_some()));
    }

    #[test]
    fn draws_are_the_same_again_and_come_to_the_rate() {
        assert_eq!(draw(1, 2, "spot-1").to_bits(), draw(1, 2, "spot-1").to_bits());
        assert_ne!(draw(1, 2, "spot-1").to_bits(), draw(2, 2, "spot-1").to_bits());
        let struck = (0..36_000).filter(|round| draw(7, *round, "spot-1") < 2.0 / ROUNDS_PER_HOUR);
        let struck = struck.count();
        assert!((150..250).contains(&struck), "{struck} in 100 hours at 2/h");
    }
}
