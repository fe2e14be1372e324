//! Progress of something that takes a while: a spinner on a terminal, a line per state elsewhere.

use std::io::{IsTerminal as _, stderr};
use std::time::Duration;

use indicatif::ProgressBar;

use crate::output;

const TICK: Duration = Duration::from_millis(100);

pub struct Progress {
    what: String,
    state: Option<String>,
    /// Created only when there is something to wait for: most operations are done at the first check.
    spinner: Option<ProgressBar>,
}

impl Progress {
    pub fn new(what: String) -> Progress {
        Progress { what, state: None, spinner: None }
    }

    pub fn state(&mut self, state: &str) {
        if self.state.as_deref() == Some(state) {
            return;
        }
        self.state = Some(state.to_owned());
        let line = format!("{}: {state}", self.what);
        if !stderr().is_terminal() {
            output::say(&line);
            return;
        }
        let spinner = self.spinner.get_or_insert_with(|| {
            let spinner = ProgressBar::new_spinner();
            spinner.enable_steady_tick(TICK);
            spinner
        });
        spinner.set_message(line);
    }

    /// The final message, which remains on the screen.
    pub fn done(mut self, state: &str) {
        self.clear();
        output::say(&format!("{}: {state}", self.what));
    }

    fn clear(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
