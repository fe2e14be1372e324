//! One finding, and how findings are printed.

use anstyle::{AnsiColor, Style};
use muster_server::Isolation;
use serde::Serialize;

use crate::output;

/// Ordered from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Ok,
    /// For information; nothing is wrong.
    Note,
    /// It works, but not as well as it could.
    Warning,
    /// Nodes or the server cannot work.
    Failure,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Note => "note",
            State::Warning => "warning",
            State::Failure => "failure",
        }
    }

    fn style(self) -> Style {
        match self {
            State::Ok => AnsiColor::Green.on_default(),
            State::Note => AnsiColor::Cyan.on_default(),
            State::Warning => AnsiColor::Yellow.on_default().bold(),
            State::Failure => AnsiColor::Red.on_default().bold(),
        }
    }

    /// The state for a missing part of the sandbox: it prevents nodes only if the setting demands sandboxes.
    pub fn of_missing_sandbox(isolation: Isolation) -> State {
        match isolation {
            Isolation::Sandbox => State::Failure,
            Isolation::Auto => State::Warning,
            Isolation::None => State::Note,
        }
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    pub id: &'static str,
    pub state: State,
    pub found: String,
    pub meaning: &'static str,
    /// The remedy: a command or a setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    pub fn new(
        id: &'static str,
        state: State,
        found: impl Into<String>,
        meaning: &'static str,
    ) -> Finding {
        Finding { id, state, found: found.into(), meaning, fix: None }
    }

    pub fn ok(id: &'static str, found: impl Into<String>, meaning: &'static str) -> Finding {
        Finding::new(id, State::Ok, found, meaning)
    }

    pub fn note(id: &'static str, found: impl Into<String>, meaning: &'static str) -> Finding {
        Finding::new(id, State::Note, found, meaning)
    }

    pub fn warning(id: &'static str, found: impl Into<String>, meaning: &'static str) -> Finding {
        Finding::new(id, State::Warning, found, meaning)
    }

    pub fn failure(id: &'static str, found: impl Into<String>, meaning: &'static str) -> Finding {
        Finding::new(id, State::Failure, found, meaning)
    }

    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Finding {
        self.fix = Some(fix.into());
        self
    }
}

/// Prints all findings in a table, then the meaning and the remedy of the bad ones.
pub fn text(findings: &[Finding], is_coloured: bool) -> String {
    let row = |finding: &Finding| {
        vec![finding.state.name().to_owned(), finding.id.to_owned(), finding.found.clone()]
    };
    let table = output::table_text(&["State", "Id", "Found"], findings.iter().map(row).collect());
    let mut lines: Vec<String> = table.lines().map(str::to_owned).collect();
    let heading = lines.len() - findings.len();
    for (line, finding) in lines[heading..].iter_mut().zip(findings) {
        paint(line, finding.state, is_coloured);
    }
    for finding in findings.iter().filter(|finding| finding.state >= State::Warning) {
        let mut line = format!("{} {}: {}", finding.state.name(), finding.id, finding.meaning);
        paint(&mut line, finding.state, is_coloured);
        lines.extend([String::new(), line]);
        lines.extend(
            finding.fix.iter().map(|fix| format!("  fix: {}", crate::failure::printable(fix))),
        );
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Colours the state, which is the first word of a line.
fn paint(line: &mut String, state: State, is_coloured: bool) {
    if is_coloured {
        let (name, style) = (state.name(), state.style());
        line.replace_range(..name.len(), &format!("{style}{name}{style:#}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_a_table_and_what_to_do_about_the_bad_ones() {
        let findings = [
            Finding::ok("kernel", "6.1", "everything is available"),
            Finding::failure("fsync", "no\u{1b}", "commits are not stored").fix("use a disk"),
        ];
        let wanted = "\
State    Id      Found
-------- ------- ------
ok       kernel  6.1
failure  fsync   no\u{fffd}

failure fsync: commits are not stored
  fix: use a disk
";
        assert_eq!(text(&findings, false), wanted);
        let coloured = text(&findings, true);
        assert!(coloured.contains("\u{1b}[32mok\u{1b}[0m       kernel"), "{coloured:?}");
        assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), wanted);
    }

    #[test]
    fn only_required_sandboxes_cause_failures() {
        let states = [Isolation::Sandbox, Isolation::Auto, Isolation::None];
        let states = states.map(State::of_missing_sandbox);
        assert_eq!(states, [State::Failure, State::Warning, State::Note]);
    }
}
