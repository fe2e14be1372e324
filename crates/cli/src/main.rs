//! The one shipped binary: the server, a node's agent, and every command of a user.
//!
//! A command reads its flags, finds the server by its state directory, and speaks to it as any of Azure's
//! clients would; it has no door of its own. Standard output carries data and nothing else, standard error
//! carries all talk, and the exit code says what happened: 0 done, 1 an error, 2 refused as it was asked
//! for, 3 not found.
//!
//! * [`failure`]: how a command ends badly; [`output`]: where everything that is printed goes;
//! * [`defaults`], [`scope`]: which workspace a command is about;
//! * [`place`], [`client`], [`operation`]: finding the server, asking it, waiting for what takes long;
//! * one module per command or group of commands.

mod agent;
mod client;
mod completion;
mod compute;
mod configure;
mod confirm;
mod cost;
mod defaults;
mod env;
mod failure;
mod job;
mod logging;
mod login;
mod nearest;
mod operation;
mod output;
mod place;
mod progress;
mod quota;
mod role;
mod scope;
mod serve;
mod sim;
mod up;
mod user;
mod values;
mod whatif;
mod whoami;
mod why;
mod workspace;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::failure::{Failure, Outcome};

/// Decisions allocate much and briefly: with the system's allocator a start with many jobs takes twice as long.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Elastic compute clusters on your own machines, with Azure Machine Learning's API
#[derive(Parser)]
#[command(
    name = "muster",
    version,
    after_help = "Exit codes: 0 done, 1 error, 2 refused input, 3 not found."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(up::Args),
    Serve(serve::Args),
    Env(env::Args),
    Configure(configure::Args),
    Login(login::Args),
    Logout(login::LogoutArgs),
    Whoami(whoami::Args),
    #[command(subcommand)]
    User(user::Command),
    #[command(subcommand)]
    Role(role::Command),
    #[command(subcommand)]
    Workspace(workspace::Command),
    #[command(subcommand)]
    Compute(compute::Command),
    #[command(subcommand)]
    Job(job::Command),
    Why(why::Args),
    Cost(cost::Args),
    Whatif(whatif::Args),
    #[command(subcommand)]
    Quota(quota::Command),
    Sim(sim::Args),
    Completion(completion::Args),
    Agent(agent::Args),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    logging::start();
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(),
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Up(args) => up::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Login(args) => block_on(login::run(&args)),
        Command::Logout(args) => login::log_out(&args),
        Command::Whoami(args) => block_on(whoami::run(&args)),
        Command::User(command) => block_on(user::run(command)),
        Command::Role(command) => block_on(role::run(command)),
        Command::Env(args) => env::run(&args),
        Command::Configure(args) => configure::run(&args),
        Command::Workspace(command) => block_on(workspace::run(command)),
        Command::Compute(command) => block_on(compute::run(command)),
        Command::Job(command) => block_on(job::run(command)),
        Command::Why(args) => block_on(why::run(&args)),
        Command::Quota(command) => block_on(quota::run(command)),
        Command::Cost(args) => block_on(cost::run(&args)),
        Command::Whatif(args) => whatif::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Completion(args) => completion::run(&args, &mut Cli::command()),
        Command::Agent(args) => block_on(agent::run(args)),
    }
}

/// One thread is enough for a client, and is there at once.
fn block_on(command: impl Future<Output = Outcome>) -> Outcome {
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

    #[test]
    fn every_command_says_last_what_it_does_to_the_world() {
        fn check(command: &mut clap::Command, path: &str) {
            let mut leaves: Vec<_> = command.get_subcommands_mut().collect();
            if leaves.is_empty() {
                let help = command.render_long_help().to_string();
                let last = help.trim_end().lines().last().unwrap_or_default().to_owned();
                let first = last.split([':', ',']).next().unwrap_or_default();
                assert!(
                    ["Read-only", "Mutating", "Destructive"].contains(&first),
                    "{path} ends with {last:?}"
                );
                return;
            }
            for leaf in &mut leaves {
                let path = format!("{path} {}", leaf.get_name());
                check(leaf, &path);
            }
        }
        check(&mut Cli::command().term_width(80), "muster");
    }
}
