//! `muster completion`: shell completion of commands, flags and names.
//!
//! The script calls this binary for every word to be completed, so that names come from the running server. There is
//! no static script: it could not complete names.

use clap_complete::CompleteEnv;
use clap_complete::env::Shells;

use crate::failure::{CliResult, Failure};
use crate::output;

/// The script sets this variable to the name of the shell when it calls this binary.
const VARIABLE: &str = "MUSTER_COMPLETE";

/// When zsh loads the script from a folder of $fpath, it runs it to complete the first word. The script of
/// clap_complete only registers its function then, so without this the first Tab in each shell would do nothing.
const ZSH_FIRST_CALL: &str = r#"if [[ $funcstack[1] == _muster ]]; then
    _clap_dynamic_completer_muster "$@"
fi
"#;

/// Print a shell completion script
///
/// For bash: muster completion bash > ~/.local/share/bash-completion/completions/muster. For zsh: save the script as
/// _muster in a folder of $fpath. For fish: muster completion fish > ~/.config/fish/completions/muster.fish.
/// Names of clusters, jobs and so on come from the server, if it responds at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: prints the script and installs nothing.")]
pub struct Args {
    /// Shell to print the script for
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

/// If a shell called this process for completions, prints them and exits.
pub fn answer(command: fn() -> clap::Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}
