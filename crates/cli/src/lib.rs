//! The one shipped binary: the server, the agent of a node, and every user command. It is a library so that `fuzz` can
//! call its parsers ([`inputs`]); `main.rs` only adds the allocator.
//!
//! A command parses its flags, finds the server through its state directory, and talks to it as any Azure client would;
//! there is no private API. Standard output carries data only, everything else goes to standard error, and the exit
//! code tells the outcome: 0 success, 1 error, 2 invalid input, 3 not found.
//!
//! * [`failure`]: how a command fails; [`output`]: all printing;
//! * [`defaults`], [`scope`]: which workspace a command acts on;
//! * [`server_location`], [`client`], [`operation`]: find the server, send requests, wait for long-running operations;
//! * one module per command or group of commands.

mod account;
mod agent;
mod asset;
mod backup;
mod client;
mod complete;
mod completion;
mod compute;
mod config;
mod configure;
mod confirm;
mod copies;
mod cost;
mod datastore;
mod defaults;
mod doctor;
mod document;
mod down;
mod dry;
mod env;
mod environment;
mod failure;
mod group;
mod helper;
mod host;
pub mod inputs;
mod job;
mod launcher;
mod lock;
mod logging;
mod login;
mod man;
mod monitor;
mod names;
mod nearest;
mod operation;
mod output;
mod progress;
mod quota;
mod resource;
mod role;
mod scope;
mod serve;
mod server_location;
mod server_process;
mod sim;
mod spelling;
mod status;
mod storage;
mod up;
mod upload;
mod user;
mod values;
mod whatif;
mod whoami;
mod why;
mod workspace;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use muster_wire::unserved::Unserved;

use crate::failure::CliResult;
pub use crate::failure::Failure;

/// Elastic compute clusters on your own machines, with Azure Machine Learning's API
#[derive(Parser)]
#[command(
    name = "muster",
    version,
    after_help = "Exit codes: 0 success, 1 error, 2 invalid input, 3 not found."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(up::Args),
    Serve(serve::Args),
    Status(status::Args),
    Down(down::Args),
    Env(env::Args),
    Configure(configure::Args),
    Login(login::Args),
    Logout(login::LogoutArgs),
    #[command(subcommand)]
    Account(account::Command),
    Whoami(whoami::Args),
    #[command(subcommand)]
    User(user::Command),
    #[command(subcommand)]
    Host(host::Command),
    #[command(subcommand)]
    Role(role::Command),
    #[command(subcommand)]
    Workspace(workspace::Command),
    #[command(subcommand)]
    Compute(compute::Command),
    #[command(subcommand)]
    Job(job::Command),
    #[command(subcommand)]
    Environment(asset::EnvironmentCommand),
    #[command(subcommand)]
    Data(asset::DataCommand),
    #[command(subcommand)]
    Model(asset::ModelCommand),
    #[command(subcommand)]
    Component(asset::ComponentCommand),
    #[command(subcommand)]
    Datastore(datastore::Command),
    #[command(subcommand)]
    Storage(storage::Command),
    #[command(subcommand)]
    Group(group::Command),
    #[command(subcommand)]
    Resource(resource::Command),
    #[command(subcommand)]
    Lock(lock::Command),
    #[command(subcommand)]
    Monitor(monitor::Command),
    Why(why::Args),
    Doctor(doctor::Args),
    Backup(backup::Args),
    Restore(backup::RestoreArgs),
    Cost(cost::Args),
    Whatif(whatif::Args),
    #[command(subcommand)]
    Quota(quota::Command),
    Sim(sim::Args),
    Completion(completion::Args),
    Man(man::Args),
    Agent(agent::Args),
    Helper(helper::Args),
    Launcher(launcher::Args),
}

/// Runs the command that is given on the command line.
pub fn main() -> ExitCode {
    completion::answer(Cli::command);
    if let Err(failure) = refuse_unserved(std::env::args().nth(1).as_deref()) {
        return failure.report();
    }
    let command = Cli::parse().command;
    match command {
        // A server reads its configuration before it sets up logging.
        Command::Up(_) | Command::Serve(_) => copies::use_fast_copies(),
        _ => logging::start(),
    }
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Refuses `az` commands that this version does not have, and names the alternative.
fn refuse_unserved(noun: Option<&str>) -> CliResult {
    match noun.and_then(Unserved::of_noun) {
        Some(thing) => Err(Failure::refused(thing.sentence()).hint(thing.instead)),
        None => Ok(()),
    }
}

fn run(command: Command) -> CliResult {
    match command {
        Command::Up(args) => up::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Status(args) => block_on(status::run(&args)),
        Command::Down(args) => block_on(down::run(&args)),
        Command::Login(args) => block_on(login::run(&args)),
        Command::Logout(args) => login::log_out(&args),
        Command::Account(command) => block_on(account::run(command)),
        Command::Whoami(args) => block_on(whoami::run(&args)),
        Command::User(command) => block_on(user::run(command)),
        Command::Host(command) => block_on(host::run(command)),
        Command::Role(command) => block_on(role::run(command)),
        Command::Env(args) => env::run(&args),
        Command::Configure(args) => configure::run(&args),
        Command::Workspace(command) => block_on(workspace::run(command)),
        Command::Compute(command) => block_on(compute::run(command)),
        Command::Job(command) => block_on(job::run(command)),
        Command::Environment(command) => block_on(asset::environment(command)),
        Command::Data(command) => block_on(asset::data(command)),
        Command::Model(command) => block_on(asset::model(command)),
        Command::Component(command) => block_on(asset::component(command)),
        Command::Datastore(command) => block_on(datastore::run(command)),
        Command::Storage(command) => block_on(storage::run(command)),
        Command::Group(command) => block_on(group::run(command)),
        Command::Resource(command) => block_on(resource::run(command)),
        Command::Lock(command) => block_on(lock::run(command)),
        Command::Monitor(command) => block_on(monitor::run(command)),
        Command::Why(args) => block_on(why::run(&args)),
        Command::Doctor(args) => doctor::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Quota(command) => block_on(quota::run(command)),
        Command::Cost(args) => block_on(cost::run(&args)),
        Command::Whatif(args) => whatif::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Completion(args) => completion::run(&args),
        Command::Man(args) => man::run(&args, Cli::command()),
        Command::Agent(args) => agent::run(args),
        Command::Helper(args) => helper::run(args),
        Command::Launcher(args) => launcher::run(args),
    }
}

/// A client needs only one thread, and a single-threaded runtime starts fastest.
fn block_on<T>(command: impl Future<Output = CliResult<T>>) -> CliResult<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| Failure::error(format!("cannot start: {why}")))?;
    runtime.block_on(command)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Every command without subcommands, with its full path.
    /// Every command and group of commands, with its path.
    fn commands() -> Vec<(String, clap::Command)> {
        fn walk(command: clap::Command, path: String, all: &mut Vec<(String, clap::Command)>) {
            for inner in command.get_subcommands() {
                walk(inner.clone(), format!("{path} {}", inner.get_name()), all);
            }
            all.push((path, command));
        }
        let mut all = Vec::new();
        let mut cli = Cli::command().disable_help_subcommand(true);
        cli.build();
        walk(cli, "muster".to_owned(), &mut all);
        all
    }

    fn leaves() -> Vec<(String, clap::Command)> {
        let mut leaves = commands();
        leaves.retain(|(_, command)| !command.has_subcommands());
        assert!(leaves.len() > 50, "{} commands", leaves.len());
        leaves
    }

    fn help(command: clap::Command) -> String {
        let text = command.term_width(100).render_long_help().to_string();
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// Commands that print or store a key, or that extend a user's permissions.
    const EXPOSING: [&str; 10] = [
        "muster backup",
        "muster env",
        "muster host token",
        "muster lock delete",
        "muster lock update",
        "muster login",
        "muster restore",
        "muster role assignment create",
        "muster user create",
        "muster user rotate-key",
    ];

    #[test]
    fn every_command_says_last_what_it_does_to_the_world() {
        for (path, command) in leaves() {
            let help = help(command);
            let last = help.trim_end().lines().last().unwrap_or_default();
            let kind = last.split_once(':').map_or("", |(kind, _)| kind);
            let mut words = kind.split(", ");
            let first = words.next().unwrap_or_default();
            let is_known = ["Read-only", "Mutating", "Destructive"].contains(&first);
            let rest: Vec<&str> = words.collect();
            let is_valid = rest.iter().all(|word| ["costs money", "exposes"].contains(word));
            assert!(is_known && is_valid, "{path} ends with {last:?}");
            assert_eq!(EXPOSING.contains(&path.as_str()), rest.contains(&"exposes"), "{path}");
        }
    }

    /// Every command that changes something on a server has a dry run, unless it is always refused.
    #[test]
    fn whatever_changes_something_has_a_dry_run() {
        // These run or stop a server or a node, or only write files of the current user.
        let own = [
            "muster backup",
            "muster restore",
            "muster up",
            "muster serve",
            "muster down",
            "muster agent",
            "muster helper",
            "muster launcher",
            "muster man",
            "muster sim",
            "muster whatif",
            "muster login",
            "muster logout",
        ];
        for (path, command) in leaves() {
            let has = command.get_arguments().any(|arg| arg.get_long() == Some("dry-run"));
            let is_read_only = help(command)
                .trim_end()
                .lines()
                .last()
                .is_some_and(|last| last.starts_with("Read-only"));
            assert!(has != is_read_only || own.contains(&path.as_str()), "{path}: {has}");
        }
    }

    /// `muster job show NAME` and `muster job show --name NAME` are the same.
    #[test]
    fn every_name_can_be_given_alone_and_behind_a_flag() {
        // Here the flag names what the command creates or restricts, not its subject.
        let other = ["muster host token", "muster agent", "muster launcher"];
        let mut both = 0;
        for (path, command) in leaves() {
            let has_flag = command.get_arguments().any(|arg| {
                let other = arg.get_visible_aliases().unwrap_or_default();
                arg.get_long() == Some("name") || other.contains(&"name")
            });
            let alone = command.get_positionals().next();
            let names = |arg: &clap::Arg| {
                arg.get_value_names().is_some_and(|n| ["NAME", "HOST"].contains(&n[0].as_str()))
            };
            let has_alone = alone.is_some_and(names);
            assert!(has_flag == has_alone || other.contains(&path.as_str()), "{path}");
            both += usize::from(has_flag && has_alone);
        }
        assert!(both > 60, "{both} commands take a name");
    }

    /// One file per command or group of commands. `MUSTER_GOLDEN=write` rewrites them; review the difference afterwards.
    #[test]
    fn the_help_of_every_command_is_as_it_was() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/golden/help");
        let writes = std::env::var_os("MUSTER_GOLDEN").is_some();
        let mut known = std::collections::BTreeSet::new();
        for (path, command) in commands() {
            let file = folder.join(format!("{}.txt", path.replace(' ', "-")));
            known.insert(file.clone());
            let help = help(command);
            if writes {
                std::fs::write(&file, &help).unwrap();
            }
            let before = std::fs::read_to_string(&file).unwrap_or_default();
            assert_eq!(help, before, "{path}: if this is intended, run with MUSTER_GOLDEN=write");
        }
        let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        let stale: Vec<_> = files.filter(|file| !known.contains(file)).collect();
        assert!(stale.is_empty(), "these commands no longer exist; delete {stale:?}");
    }
}
