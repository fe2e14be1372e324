//! Log messages go to standard error, as `MUSTER_LOG` filters them. The log of a server is part of its configuration,
//! may be JSON, and may go to a file ([`file`]).

pub mod file;

use std::io::{IsTerminal as _, stderr};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::{MakeWriter, layer};
use tracing_subscriber::prelude::*;

use self::file::LogFile;
use crate::failure::quoted;
use crate::output;

const VARIABLE: &str = "MUSTER_LOG";
const DEFAULT: LevelFilter = LevelFilter::WARN;

/// Parses a filter: levels (`info`) and targets (`muster_server=debug`), separated by commas. Returns `None` for
/// anything else: the library would take much of it for the name of a target, and then log nothing.
pub fn filter(text: &str) -> Option<Targets> {
    let is_target = |target: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        !target.is_empty() && target.chars().all(is_plain)
    };
    let is_good = |part: &&str| {
        let (target, level) = part.rsplit_once('=').map_or((None, *part), |(a, b)| (Some(a), b));
        target.is_none_or(is_target) && level.parse::<LevelFilter>().is_ok()
    };
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let is_filter = !parts.is_empty() && parts.iter().all(is_good);
    is_filter.then(|| parts.join(",").parse().ok()).flatten()
}

/// For a server. The filter has been checked with the configuration.
pub fn start_server(wanted: &str, is_json: bool, file: Option<&LogFile>) {
    match file {
        Some(file) => start_writing(wanted, is_json, file.clone(), false),
        None => start_writing(wanted, is_json, stderr, stderr().is_terminal()),
    }
}

fn start_writing<W>(wanted: &str, is_json: bool, to: W, is_coloured: bool)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let log = tracing_subscriber::registry().with(filter(wanted).unwrap_or_else(default));
    if is_json {
        let json = layer().json().flatten_event(true).with_span_list(false).with_ansi(false);
        log.with(json.with_writer(to)).init();
    } else {
        log.with(layer().with_writer(to).with_ansi(is_coloured)).init();
    }
}

/// For every other command.
pub fn start() {
    let wanted = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let filter = wanted.map_or_else(default, |wanted| {
        filter(&wanted).unwrap_or_else(|| {
            let wanted = quoted(&wanted);
            output::say(&format!(
                "{VARIABLE} is {wanted}, which is not a valid filter; using \"{DEFAULT}\". Give a level (error, warn, \
                 info, debug, trace) or a filter such as \"muster_server=debug,info\""
            ));
            default()
        })
    });
    let lines = layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    tracing_subscriber::registry().with(filter).with(lines).init();
}

fn default() -> Targets {
    Targets::new().with_default(DEFAULT)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_has_levels_and_targets_and_nothing_that_would_silence_everything() {
        let server =
            |text: &str, level| filter(text).map(|it| it.would_enable("muster_server", &level));
        for text in [
            "info",
            "info,",
            " info , other=error",
            "muster_server=info",
            "error, muster_server=info",
        ] {
            assert_eq!(server(text, Level::INFO), Some(true), "{text}");
            assert_eq!(server(text, Level::DEBUG), Some(false), "{text}");
        }
        for text in [
            "",
            ",",
            "=",
            "=info",
            "inof",
            "muster_core[span]=trace",
            "a b",
            "x=loud",
            "info;debug",
            "größe",
        ] {
            assert!(filter(text).is_none(), "{text}");
        }
    }
}
