//! `muster man`: the manual pages, generated from the same definitions as `--help`.
//!
//! It is part of the binary because a second program would have to contain all of it: `make package` would link for
//! minutes longer, and the pages could be of another version.

use std::path::{Path, PathBuf};

use clap::ValueHint;
use clap_mangen::Man;

use crate::failure::{CliResult, Failure};

/// Write the manual pages of all commands to a folder
///
/// Packages already contain these pages. For a binary that you built, write them to /usr/local/share/man/man1.
#[derive(Debug, clap::Args)]
#[command(hide = true, after_help = "Mutating: writes files named muster*.1 to the folder.")]
pub struct Args {
    /// Existing folder to write to
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

pub fn run(args: &Args, cli: clap::Command) -> CliResult {
    let mut cli = cli.disable_help_subcommand(true);
    // A command knows its full name only once the whole command line is built.
    cli.build();
    let source = format!("muster {}", cli.get_version().unwrap_or_default());
    write(cli, &source, &args.folder)
}

fn write(command: clap::Command, source: &str, folder: &Path) -> CliResult {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write(inner.clone(), source, folder)?;
    }
    let page = Man::new(command).source(source).manual("Muster");
    page.generate_to(folder).map(drop).map_err(|why| {
        Failure::error(format!(
            "cannot write {}: {why}",
            folder.join(page.get_filename()).display()
        ))
    })
}
