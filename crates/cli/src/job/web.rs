//! `--web`: opens the web page of a job.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, stderr};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::failure::printable;
use crate::output;

/// The part of a job document that is needed for this.
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

/// Prints the address, and opens it if there is a display.
pub fn show(job: &Page) {
    let page = job.properties.services.get("Studio").and_then(|page| page.endpoint.as_deref());
    let Some(page) = page.filter(|page| page.starts_with("https://")) else {
        output::say("note: the server has no web page for jobs; use `muster job show`");
        return;
    };
    output::say(&format!("the job's page: {}", printable(page)));
    let has_screen = std::env::var_os("DISPLAY").or(std::env::var_os("WAYLAND_DISPLAY")).is_some();
    if has_screen && stderr().is_terminal() {
        let mut open = Command::new("xdg-open");
        open.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // The address has been printed, so it does not matter if there is no browser.
        let _ = open.spawn();
    }
}
