//! Confirmation prompts before something is deleted.

use std::io::{IsTerminal as _, Write as _, stdin};

use crate::failure::{CliResult, Failure};

/// Returns `Ok` if the user confirms. `question` describes the deletion, `thing` what is kept if the user declines.
pub fn confirm(question: &str, thing: &str) -> CliResult {
    if !stdin().is_terminal() {
        return Err(Failure::refused(format!(
            "{question}? There is no terminal for the confirmation; add --yes"
        )));
    }
    let mut terminal = anstream::stderr();
    let _ = write!(terminal, "{question}? (y/n): ");
    let _ = terminal.flush();
    let mut answer = String::new();
    let read = stdin().read_line(&mut answer);
    read.map_err(|why| Failure::error(format!("cannot read the answer: {why}")))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::error(format!("{thing} was not deleted"))),
    }
}
