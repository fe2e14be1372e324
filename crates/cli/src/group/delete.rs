//! Deleting a resource group, after listing its content.

use muster_wire::resources::GenericResource;
use muster_wire::{Manager, Route};

use super::Target;
use crate::confirm::confirm;
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, quoted};
use crate::operation;
use crate::output::{self, Print};

/// How many resources are listed by name; the others are counted.
const NAMED_MAX: usize = 10;

/// Delete a resource group with all its workspaces, computes and jobs
#[derive(Debug, clap::Args)]
#[command(after_help = "Destructive: ends every job in it and deletes everything except costs.")]
pub struct Args {
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Do not wait until the deletion has finished
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: &Args) -> CliResult {
    let name = &args.target.name;
    let route = args.target.route_to_change()?;
    let client = args.target.connect().await?;
    // Reports a misspelt name before asking for confirmation.
    let _: serde_json::Value = client.get(&route).await?;
    let subscription = args.target.scope.id()?.into();
    let content = Manager::ResourcesOfGroup { subscription, name: name.as_str().into() };
    let content: Vec<GenericResource> = client.list(&Route::Manager(content), None).await?;
    if !content.is_empty() {
        output::say(&format!("it contains {}", named(&content)));
    }
    if args.dry.dry_run {
        return Plan::new("DELETE", &route, "").show(&client, &args.print).await;
    }
    if !args.yes {
        let thing = format!("resource group {}", quoted(name));
        confirm(&format!("delete {thing} with {}", counted(&content)), &thing)?;
    }
    let answer = client.delete(&route).await?;
    if args.no_wait {
        return Ok(());
    }
    operation::follow(&client, &answer, format!("deleting {name}")).await
}

fn named(content: &[GenericResource]) -> String {
    let names = content.iter().take(NAMED_MAX).map(|one| quoted(&one.name));
    let mut text = names.collect::<Vec<_>>().join(", ");
    if let Some(more @ 1..) = content.len().checked_sub(NAMED_MAX) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// `2 workspaces and 1 compute`.
fn counted(content: &[GenericResource]) -> String {
    let is_compute =
        |one: &&GenericResource| one.resource_type.to_ascii_lowercase().ends_with("/computes");
    let computes = content.iter().filter(is_compute).count();
    let words = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    };
    let workspaces = words(content.len() - computes, "workspace");
    match content.len() {
        0 => "nothing in it".to_owned(),
        _ => format!("{workspaces} and {}", words(computes, "compute")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_is_counted_and_named() {
        let one = |name: String, kind: &str| {
            let resource = serde_json::json!({
                "id": name, "name": name, "location": "eastus",
                "type": format!("Microsoft.MachineLearningServices/{kind}")});
            serde_json::from_value::<GenericResource>(resource).unwrap()
        };
        let mut content = vec![one("w".to_owned(), "workspaces")];
        assert_eq!(counted(&content), "1 workspace and 0 computes");
        content.extend((0..11).map(|index| one(format!("w/c{index}"), "workspaces/computes")));
        assert_eq!(counted(&content), "1 workspace and 11 computes");
        let text = named(&content);
        assert!(text.starts_with("'w', 'w/c0'") && text.ends_with("'w/c8' and 2 more"), "{text}");
        assert_eq!(counted(&[]), "nothing in it");
    }
}
