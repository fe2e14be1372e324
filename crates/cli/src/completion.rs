//! `muster completion`: what a shell needs to complete our commands and flags.

use clap_complete::Shell;

use crate::failure::Outcome;
use crate::output;

/// Print a script that lets a shell complete commands and flags
///
/// For bash: muster completion bash > ~/.local/share/bash-completion/completions/muster; for zsh put it as
/// _muster into a folder of $fpath; for fish: muster completion fish > ~/.config/fish/completions/muster.fish
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: prints the script, and installs nothing.")]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: &Args, command: &mut clap::Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "muster", &mut script);
    output::bytes(&script)
}
