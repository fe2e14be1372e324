//! `muster why`: why a job is waiting, or why a cluster has its current size.

use clap::ArgGroup;
use muster_core::model::WorkspaceKey;
use muster_core::read_only::StoreTrouble;
use muster_wire::Route;
use muster_wire::why::{WhyDocument, WhyReason};

use crate::client::Client;
use crate::failure::{CliResult, Failure, message, printable, quoted};
use crate::names::{self, Name};
use crate::output::{self, PrintForPeople};
use crate::scope::Scope;

/// Explain why a job is waiting, or why a cluster has its current size
///
/// Lists every reason, most fundamental first, with the limit, its current value, the value that would be needed, and a
/// command that changes it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Read-only: changes nothing.",
    group = ArgGroup::new("kind").args(["job", "compute"])
)]
pub struct Args {
    #[command(flatten)]
    name: Name<names::Waiting>,
    /// NAME is a job
    #[arg(long)]
    job: bool,
    /// NAME is a cluster
    #[arg(long)]
    compute: bool,
    #[command(flatten)]
    print: PrintForPeople,
    #[command(flatten)]
    scope: Scope,
}

pub async fn run(args: &Args) -> CliResult {
    let workspace = args.scope.workspace()?;
    let client = args.scope.connect().await?;
    let mut document = ask(args, &client, workspace).await?;
    add_place(&mut document, &args.scope.flags());
    args.print.show(&document, || output::bytes(text(&document).as_bytes()))
}

/// Commands must act on the same workspace. If the store has a problem, the command is for the server's machine.
fn add_place(document: &mut WhyDocument, flags: &str) {
    let has_place = |reason: &&mut WhyReason| StoreTrouble::of_code(&reason.code).is_none();
    for reason in document.value.iter_mut().filter(has_place) {
        reason.command.push_str(flags);
    }
}

async fn ask(args: &Args, client: &Client, workspace: WorkspaceKey) -> CliResult<WhyDocument> {
    let name: Box<str> = args.name.as_str().into();
    let job = Route::WhyJob { workspace: workspace.clone(), name: name.clone() };
    let compute = Route::WhyCompute { workspace: workspace.clone(), name };
    if args.job {
        return client.get(&job).await;
    }
    if args.compute {
        return client.get(&compute).await;
    }
    let no_job = match client.get(&job).await {
        Err(failure) if failure.is_not_found() => failure,
        answered => return answered,
    };
    match client.get(&compute).await {
        Err(no_compute) if no_compute.is_not_found() => {
            let hint = no_compute.hinted().or(no_job.hinted()).unwrap_or(
                "list them with `muster job list -o table` and `muster compute list -o table`",
            );
            let text = format!(
                "there is no job or cluster {} in workspace {}",
                quoted(&args.name),
                quoted(&workspace.name)
            );
            Err(Failure::not_found(text).hint(hint))
        }
        answered => answered,
    }
}

fn text(document: &WhyDocument) -> String {
    let mut text = String::new();
    if let Some(words) = &document.message {
        text.push_str(&message(words));
        text.push('\n');
    }
    for (index, reason) in document.value.iter().enumerate() {
        text.push_str(&reason_text(index + 1, reason));
    }
    for note in &document.notes {
        text.push_str(&format!("note: {}\n", printable(note)));
    }
    text
}

fn reason_text(number: usize, reason: &WhyReason) -> String {
    let class = reason.class.as_ref().map(|class| format!(" ({})", printable(class)));
    let ask = reason.ask.as_ref().map(|ask| format!("     ({})\n", printable(ask)));
    format!(
        "{number}. {}{}: {}\n   {} is {}; {} would be needed\n     {}\n{}",
        printable(&reason.code),
        class.unwrap_or_default(),
        message(&reason.message),
        printable(&reason.limit),
        reason.value,
        reason.needed,
        printable(&reason.command),
        ask.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_numbered_and_their_commands_stand_alone() {
        let reason = |code: &str, value, needed| WhyReason {
            code: code.to_owned(),
            class: (code == "One").then(|| "provision".to_owned()),
            message: "too small; raise it".to_owned(),
            limit: "max_instances".to_owned(),
            value,
            needed,
            command: "muster compute update --name cpu".to_owned(),
            ask: (code == "Two").then(|| "you may not; ask ada".to_owned()),
        };
        let value = vec![reason("One", 2, 3), reason("Two", 0, 1)];
        let shown = text(&WhyDocument { value, message: None, notes: Vec::new() });
        assert_eq!(
            shown,
            "1. One (provision): too small; raise it\n   max_instances is 2; 3 would be needed\n     \
             muster compute update --name cpu\n2. Two: too small; raise it\n   \
             max_instances is 0; 1 would be needed\n     muster compute update --name cpu\n     \
             (you may not; ask ada)\n"
        );
        let value = vec![reason("One", 2, 3), reason("StoreReadOnly", 0, 1)];
        let mut document = WhyDocument { value, message: None, notes: Vec::new() };
        add_place(&mut document, " -w home");
        let commands: Vec<&str> = document.value.iter().map(|one| &*one.command).collect();
        let command = "muster compute update --name cpu";
        assert_eq!(commands, [&format!("{command} -w home"), command]);
        let message = Some("job 'a' completed".to_owned());
        let notes = vec!["x has no effect".to_owned()];
        let shown = text(&WhyDocument { value: Vec::new(), message, notes });
        assert_eq!(shown, "job 'a' completed\nnote: x has no effect\n");
    }
}
