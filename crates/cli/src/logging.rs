//! What the parts of Muster log goes to standard error, as much of it as `MUSTER_LOG` asks for. A server's log
//! is configured with the rest of it, and may be JSON.

use std::io::{IsTerminal as _, stderr};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::layer;
use tracing_subscriber::prelude::*;

use crate::failure::quoted;
use crate::output;

const VARIABLE: &str = "MUSTER_LOG";
const DEFAULT: LevelFilter = LevelFilter::WARN;

/// What a filter is like; both levels and parts of the program may be named, with commas between them.
pub fn filter(text: &str) -> Option<Targets> {
    text.parse().ok()
}

/// For a server. The filter was checked with the configuration.
pub fn start_server(wanted: &str, is_json: bool) {
    let log = tracing_subscriber::registry().with(filter(wanted).unwrap_or_else(default));
    if is_json {
        let json = layer().json().flatten_event(true).with_span_list(false).with_ansi(false);
        log.with(json.with_writer(stderr)).init();
    } else {
        log.with(layer().with_writer(stderr).with_ansi(stderr().is_terminal())).init();
    }
}

/// For every other command.
pub fn start() {
    let wanted = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let filter = wanted.map_or_else(default, |wanted| {
        filter(&wanted).unwrap_or_else(|| {
            let wanted = quoted(&wanted);
            output::say(&format!(
                "{VARIABLE} is {wanted}, which is no filter; using {DEFAULT}. \
                 Write it like info or muster_server=debug"
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
