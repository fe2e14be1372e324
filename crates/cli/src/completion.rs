//! `muster completion`: what a shell needs to complete commands, flags and names.
//!
//! The script calls this binary for every word that is to be completed, so that names come from the server as
//! it is now. There is no other script: one without names would be a second way to the same.

use clap_complete::CompleteEnv;
use clap_complete::env::Shells;

use crate::failure::{CliResult, Failure};
use crate::output;

/// By this variable the script calls this binary, with the shell's name in it.
const VARIABLE: &str = "MUSTER_COMPLETE";

/// When zsh loads the script from a folder of $fpath, it runs it to complete the first word. The script of clap_complete only
/// registers its function then, so without this the first Tab in each shell would do nothing.
const ZSH_FIRST_CALL: &str = r#"if [[ $funcstack[1] == _muster ]]; then
    _clap_dynamic_completer_muster "$@"
fi
"#;

/// Print a script that lets a shell complete commands, flags and names
///
/// For bash: muster completion bash > ~/.local/share/bash-completion/completions/muster; for zsh put it as
/// _muster into a folder of $fpath; for fish: muster completion fish > ~/.config/fish/completions/muster.fish.
/// Names of clusters, jobs and the like come from the server, if it answers at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: prints the script, and installs nothing.")]
pub struct Args {
    /// The shell
    #[arg(value_parser = ["bash", "elvish", "fish", "powershell", "zsh"])]
    shell: String,
}

pub fn run(args: &Args) -> CliResult {
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell).expect("the parser knows the shells");
    let mut script = Vec::new();
    let written = shell.write_registration(VARIABLE, "muster", "muster", "muster", &mut script);
    written.map_err(|why| Failure::error(format!("cannot write the script: {why}")))?;
    if args.shell == "zsh" {
        script.extend_from_slice(ZSH_FIRST_CALL.as_bytes());
    }
    output::bytes(&script)
}

/// Answers a shell, and ends the process, if it was one that called.
pub fn answer(command: fn() -> clap::Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}
