//! `muster configure`: defaults for the scope flags.

use clap::ArgGroup;
use serde::Serialize;

use crate::defaults::{self, Defaults, Setting};
use crate::dry::DryRun;
use crate::failure::{CliResult, Failure, quoted};
use crate::output::{self, Print};
use crate::values;

const HEADER: [&str; 3] = ["Name", "Value", "Source"];

/// Set or list the defaults for the resource group, workspace, subscription and region
///
/// Flags take precedence over environment variables, and variables over defaults. The defaults of a user are stored in
/// defaults.json in $MUSTER_CONFIG_DIR, $XDG_CONFIG_HOME/muster or ~/.config/muster.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mutating: --defaults changes the current user's defaults file; no request is sent to a server.",
    group = ArgGroup::new("what").args(["defaults", "list_defaults"]).required(true)
)]
pub struct Args {
    /// Defaults to set: group=, workspace=, subscription= and location=; an empty value removes a default
    #[arg(short, long, value_name = "NAME=VALUE", num_args = 1.., value_parser = pair)]
    defaults: Vec<Pair>,
    /// List the values that apply without flags, and where each was set
    #[arg(short, long)]
    list_defaults: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
}

#[derive(Debug, Clone)]
struct Pair {
    setting: Setting,
    /// `None` if the default is to be removed.
    value: Option<String>,
}

#[derive(Debug, Serialize)]
struct Line {
    name: &'static str,
    source: String,
    value: String,
}

pub fn run(args: &Args) -> CliResult {
    if args.list_defaults {
        return list(&args.print);
    }
    let path = defaults::path()?;
    let mut defaults = Defaults::read(&path)?;
    for (index, Pair { setting, value }) in args.defaults.iter().enumerate() {
        if args.defaults[..index].iter().any(|earlier| earlier.setting == *setting) {
            let text = format!("--defaults sets {} twice; give it once", setting.name());
            return Err(Failure::refused(text));
        }
        defaults.slot(*setting).clone_from(value);
    }
    if args.dry.dry_run {
        output::say(&format!("dry run: {} is not written", path.display()));
        let set = Setting::ALL.map(|one| (one.name(), defaults.slot(one).clone()));
        return args.print.show(&defaults, || {
            let row = |(name, value): (&str, Option<String>)| Some(vec![name.to_owned(), value?]);
            let rows = set.into_iter().filter_map(row).collect();
            output::table(&HEADER[..2], rows, "no default would be set")
        });
    }
    defaults.write(&path)?;
    output::say(&format!("saved the defaults in {}", path.display()));
    Ok(())
}

fn list(print: &Print) -> CliResult {
    let mut lines = Vec::new();
    for setting in Setting::ALL {
        if let Some(found) = setting.find()? {
            lines.push(Line { name: setting.name(), source: found.source, value: found.value });
        }
    }
    print.show(&lines, || {
        let row = |line: &Line| vec![line.name.to_owned(), line.value.clone(), line.source.clone()];
        output::table(&HEADER, lines.iter().map(row).collect(), "no defaults are set")
    })
}

fn pair(text: &str) -> Result<Pair, String> {
    let example = "give NAME=VALUE, such as group=my-group";
    let (name, value) = text.split_once('=').ok_or_else(|| example.to_owned())?;
    let setting = Setting::ALL.into_iter().find(|setting| setting.name() == name);
    let setting = setting.ok_or_else(|| {
        let known = Setting::ALL.map(Setting::name).join(", ");
        format!("unknown default {}; the defaults are {known}; {example}", quoted(name))
    })?;
    let value = Some(value).filter(|value| !value.is_empty()).map(values::name).transpose()?;
    Ok(Pair { setting, value })
}
