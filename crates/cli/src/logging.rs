//! What the parts of Muster log goes to standard error, as much of it as `MUSTER_LOG` asks for. A server's log
//! is configured with the rest of it, and may be JSON.

use std::io::{IsTerminal as _, stderr};

use tracing_subscriber::EnvFilter;

use crate::failure::quoted;
use crate::output;

const VARIABLE: &str = "MUSTER_LOG";
const DEFAULT: &str = "warn";

/// For a server. The filter was checked with the configuration.
pub fn start_server(filter: &str, is_json: bool) {
    let log = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter)).with_writer(stderr);
    if is_json {
        log.json().flatten_event(true).with_span_list(false).with_ansi(false).init();
    } else {
        log.with_ansi(stderr().is_terminal()).init();
    }
}

/// For every other command.
pub fn start() {
    let wanted = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let filter = match wanted.as_deref().map(EnvFilter::try_new) {
        Some(Ok(filter)) => filter,
        Some(Err(why)) => {
            let wanted = quoted(wanted.as_deref().unwrap_or_default());
            output::say(&format!(
                "{VARIABLE} is {wanted}, which is no filter ({why}); using {DEFAULT}. \
                 Write it like info or muster_server=debug"
            ));
            EnvFilter::new(DEFAULT)
        }
        None => EnvFilter::new(DEFAULT),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .init();
}
