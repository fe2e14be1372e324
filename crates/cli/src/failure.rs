//! How a command ends badly: what is said, and with which exit code.

use std::error::Error;
use std::fmt::Write as _;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use muster_core::ErrorChain;
use muster_wire::error::ErrorDetail;

use crate::output::{self, is_command};

pub type CliResult<T = ()> = Result<T, Failure>;

const ERROR: u8 = 1;
const REFUSED: u8 = 2;
const NOT_FOUND: u8 = 3;
const INCOMPLETE: u8 = 4;
/// What a shell reports of a command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// How much of a user's value a message repeats.
const SHOWN_CHARS_MAX: usize = 80;
/// How much of what a parser says, which may repeat a value too.
const WORDS_CHARS_MAX: usize = 300;

#[derive(Debug)]
pub enum Failure {
    /// Nobody reads our output any more (`muster … | head`): enough was written, nothing is wrong.
    OutputClosed,
    /// The user left; the job did not end.
    Interrupted,
    ReportedFailure(Box<ReportedFailure>),
}

#[derive(Debug)]
pub struct ReportedFailure {
    exit: u8,
    message: String,
    hint: Option<String>,
    /// The server could not be asked: asking again may work.
    is_passing: bool,
    /// What the server answered with, if it did.
    status: Option<u16>,
    /// What of the request the answer is about, if it says so.
    target: Option<String>,
}

impl Failure {
    fn new(exit: u8, message: impl Into<String>) -> Failure {
        let told = ReportedFailure {
            exit,
            message: message.into(),
            hint: None,
            is_passing: false,
            status: None,
            target: None,
        };
        Failure::ReportedFailure(Box::new(told))
    }

    pub fn error(message: impl Into<String>) -> Failure {
        Failure::new(ERROR, message)
    }

    /// What was asked for cannot be done as it was asked.
    pub fn refused(message: impl Into<String>) -> Failure {
        Failure::new(REFUSED, message)
    }

    pub fn not_found(message: impl Into<String>) -> Failure {
        Failure::new(NOT_FOUND, message)
    }

    /// It was done, but something is missing in what came of it.
    pub fn incomplete(message: impl Into<String>) -> Failure {
        Failure::new(INCOMPLETE, message)
    }

    /// An error with its causes, on one line.
    pub fn of(error: &dyn Error) -> Failure {
        Failure::error(printable(&ErrorChain(error).to_string()))
    }

    /// The server's own words, after its code as Azure's command line shows it.
    pub fn answered(status: u16, detail: &ErrorDetail) -> Failure {
        let mut text = format!("({}) {}", printable(&detail.code), message(&detail.message));
        for part in &detail.details {
            write!(text, "; ({}) {}", printable(&part.code), message(&part.message))
                .expect("writing to a string cannot fail");
        }
        let mut failure = match status {
            404 => Failure::not_found(text),
            // About who asks, or when: not about what was asked for.
            401 | 403 => Failure::error(text),
            408 | 429 => Failure::error(text).passing(),
            400..=499 => Failure::refused(text),
            _ => Failure::error(text).passing(),
        };
        if let Failure::ReportedFailure(told) = &mut failure {
            told.status = Some(status);
            told.target.clone_from(&detail.target);
        }
        failure
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        if let Failure::ReportedFailure(told) = &mut self {
            told.hint = Some(hint.into());
        }
        self
    }

    #[must_use]
    pub fn passing(mut self) -> Failure {
        if let Failure::ReportedFailure(told) = &mut self {
            told.is_passing = true;
        }
        self
    }

    pub fn is_passing(&self) -> bool {
        matches!(self, Failure::ReportedFailure(told) if told.is_passing)
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Failure::ReportedFailure(told) if told.exit == NOT_FOUND)
    }

    /// What it was about is not there, or not as it was any more.
    pub fn is_too_late(&self) -> bool {
        matches!(self, Failure::ReportedFailure(told) if matches!(told.status, Some(404 | 409)))
    }

    /// The server refused this property, and no other.
    pub fn is_about(&self, property: &str) -> bool {
        let last = |target: &String| target.rsplit('.').next() == Some(property);
        matches!(self, Failure::ReportedFailure(told) if told.target.as_ref().is_some_and(last))
    }

    pub fn is_refused(&self) -> bool {
        matches!(self, Failure::ReportedFailure(told) if told.exit == REFUSED)
    }

    pub fn hinted(&self) -> Option<&str> {
        match self {
            Failure::ReportedFailure(told) => told.hint.as_deref(),
            Failure::OutputClosed | Failure::Interrupted => None,
        }
    }

    /// Says it on standard error.
    pub fn tell(&self) -> ExitCode {
        match self {
            Failure::OutputClosed => ExitCode::SUCCESS,
            Failure::Interrupted => ExitCode::from(INTERRUPTED),
            Failure::ReportedFailure(told) => {
                let bold = |colour: AnsiColor| Style::new().bold().fg_color(Some(colour.into()));
                let (red, cyan) = (bold(AnsiColor::Red), bold(AnsiColor::Cyan));
                output::say(&format!("{red}error:{red:#} {}", told.message));
                if let Some(hint) = &told.hint {
                    output::say(&format!("{cyan}hint:{cyan:#} {hint}"));
                }
                ExitCode::from(told.exit)
            }
        }
    }
}

/// The message alone, for a line of talk about something that is tried again.
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::OutputClosed => f.write_str("nobody reads the output"),
            Failure::Interrupted => f.write_str("interrupted"),
            Failure::ReportedFailure(told) => f.write_str(&told.message),
        }
    }
}

/// What others wrote, made safe for a terminal and on one line: tabs and ends of lines are spaces, other control characters
/// are marked.
pub fn printable(text: &str) -> String {
    let safe = |c: char| match c {
        '\t' | '\n' | '\r' => ' ',
        c if is_command(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.trim_end_matches(['\n', '\r']).chars().map(safe).collect()
}

/// The same with its lines and tabs. Lines after the first are set in, so that none can be taken for one of ours.
pub fn message(text: &str) -> String {
    let line = |line: &str| -> String {
        let safe = |c: char| if is_command(c) && c != '\t' { '\u{fffd}' } else { c };
        line.trim_end_matches('\r').chars().map(safe).collect()
    };
    text.trim_end().split('\n').map(line).collect::<Vec<_>>().join("\n  ")
}

/// A user's value in a message: printable, quoted and not too long.
pub fn quoted(value: &str) -> String {
    // Inside of quotes a space would be another value.
    let escaped = value.replace('\n', "\\n").replace('\t', "\\t").replace('\r', "\\r");
    format!("'{}'", cut(&escaped, SHOWN_CHARS_MAX))
}

/// A parser's words about what a user wrote, or a part of that: printable and not too long.
pub fn brief(words: &str) -> String {
    cut(words, WORDS_CHARS_MAX)
}

fn cut(text: &str, chars_max: usize) -> String {
    let mut shown: String = printable(text).chars().take(chars_max).collect();
    if text.chars().count() > chars_max {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit_of(failure: &Failure) -> u8 {
        match failure {
            Failure::ReportedFailure(told) => told.exit,
            Failure::OutputClosed => 0,
            Failure::Interrupted => INTERRUPTED,
        }
    }

    #[test]
    fn the_status_of_an_answer_decides_the_exit_code() {
        let detail = ErrorDetail::new("Code", "words");
        let cases = [
            (400, 2, false),
            (401, 1, false),
            (403, 1, false),
            (404, 3, false),
            (405, 2, false),
            (409, 2, false),
            (413, 2, false),
            (429, 1, true),
            (500, 1, true),
            (503, 1, true),
        ];
        for (status, exit, is_passing) in cases {
            let failure = Failure::answered(status, &detail);
            assert_eq!(exit_of(&failure), exit, "{status}");
            assert_eq!(failure.is_passing(), is_passing, "{status}");
            assert_eq!(failure.to_string(), "(Code) words");
        }
    }

    #[test]
    fn what_others_wrote_cannot_reach_the_terminal_as_commands() {
        let detail = ErrorDetail::new("Code", "a\u{1b}[2Jb\nc");
        assert_eq!(Failure::answered(400, &detail).to_string(), "(Code) a\u{fffd}[2Jb\n  c");
        assert_eq!(quoted("x\ty\n"), "'x\\ty\\n'");
        assert_eq!(printable("a\tb\r\nc\u{7}\n"), "a b  c\u{fffd}");
        assert_eq!(message("Traceback:\r\n\tline\u{1b}\n"), "Traceback:\n  \tline\u{fffd}");
        // Nor turn the direction of what follows.
        assert_eq!(printable("a\u{202e}b\u{2066}c"), "a\u{fffd}b\u{fffd}c");
        assert_eq!(message("a\u{202e}b\u{2066}c"), "a\u{fffd}b\u{fffd}c");
        assert_eq!(quoted(&"é".repeat(100)), format!("'{}…'", "é".repeat(80)));
        assert_eq!(brief(&"\u{1b}".repeat(301)), format!("{}…", "\u{fffd}".repeat(300)));
    }
}
