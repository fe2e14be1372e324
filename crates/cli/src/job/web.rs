//! `--web`: the page that shows a job.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, stderr};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::failure::printable;
use crate::output;

/// All that is read of a job for this.
#[derive(Debug, Deserialize)]
pub struct Page {
    properties: Properties,
}

#[derive(Debug, Deserialize)]
struct Properties {
    #[serde(default)]
    services: BTreeMap<String, Service>,
}

#[derive(Debug, Deserialize)]
struct Service {
    #[serde(default)]
    endpoint: Option<String>,
}

/// Opens it where somebody sits before a screen; prints it everywhere.
pub fn show(job: &Page) {
    let page = job.properties.services.get("Studio").and_then(|page| page.endpoint.as_deref());
    let Some(page) = page.filter(|page| page.starts_with("https://")) else {
        output::say("note: the server has no page for jobs; `muster job show` says what there is");
        return;
    };
    output::say(&format!("the job's page: {}", printable(page)));
    let has_screen = std::env::var_os("DISPLAY").or(std::env::var_os("WAYLAND_DISPLAY")).is_some();
    if has_screen && stderr().is_terminal() {
        let mut open = Command::new("xdg-open");
        open.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Its address was printed: whoever has no browser goes there by other means.
        let _ = open.spawn();
    }
}
