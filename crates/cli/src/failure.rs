//! How a command fails: the message, the hint and the exit code.

use std::error::Error;
use std::fmt::Write as _;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use muster_core::ErrorChain;
use muster_wire::error::ErrorDetail;

use crate::output::{self, is_command};
use crate::spelling;

pub type CliResult<T = ()> = Result<T, Failure>;

const ERROR: u8 = 1;
const REFUSED: u8 = 2;
const NOT_FOUND: u8 = 3;
const INCOMPLETE: u8 = 4;
/// The exit code that a shell reports for a command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// The longest part of a user's value that a message repeats.
const SHOWN_CHARS_MAX: usize = 80;
/// The longest part of a parser's message, which may contain a user's value, that a message repeats.
const WORDS_CHARS_MAX: usize = 300;

#[derive(Debug)]
pub enum Failure {
    /// The reader of our output has closed it (`muster … | head`): this is not an error.
    OutputClosed,
    /// The user stopped watching; the job keeps running.
    Interrupted,
    ReportedFailure(Box<ReportedFailure>),
}

#[derive(Debug)]
pub struct ReportedFailure {
    exit: u8,
    message: String,
    hint: Option<String>,
    /// The server could not be reached; the request may be sent again.
    is_passing: bool,
    /// The HTTP status of the server's response, if there was one.
    status: Option<u16>,
    /// The part of the request that the response is about, if it names one.
    target: Option<String>,
}

impl Failure {
    fn new(exit: u8, message: impl Into<String>) -> Failure {
        let reported = ReportedFailure {
            exit,
            message: message.into(),
            hint: None,
            is_passing: false,
            status: None,
            target: None,
        };
        Failure::ReportedFailure(Box::new(reported))
    }

    pub fn error(message: impl Into<String>) -> Failure {
        Failure::new(ERROR, message)
    }

    /// The request cannot be carried out as given.
    pub fn refused(message: impl Into<String>) -> Failure {
        Failure::new(REFUSED, message)
    }

    pub fn not_found(message: impl Into<String>) -> Failure {
        Failure::new(NOT_FOUND, message)
    }

    /// The command finished, but its result is incomplete.
    pub fn incomplete(message: impl Into<String>) -> Failure {
        Failure::new(INCOMPLETE, message)
    }

    /// An error with its causes, on one line.
    pub fn of(error: &dyn Error) -> Failure {
        Failure::error(printable(&ErrorChain(error).to_string()))
    }

    /// The server's own message after its error code, in the form that Azure's command line uses.
    pub fn answered(status: u16, detail: &ErrorDetail) -> Failure {
        let mut text = format!("({}) {}", printable(&detail.code), spelling::of_error(detail));
        for part in &detail.details {
            write!(text, "; ({}) {}", printable(&part.code), spelling::of_error(part))
                .expect("writing to a string cannot fail");
        }
        let mut failure = match status {
            404 => Failure::not_found(text),
            // These depend on the caller or on the time, not on the content of the request.
            401 | 403 => Failure::error(text),
            408 | 429 => Failure::error(text).passing(),
            400..=499 => Failure::refused(text),
            _ => Failure::error(text).passing(),
        };
        if let Failure::ReportedFailure(reported) = &mut failure {
            reported.status = Some(status);
            reported.target.clone_from(&detail.target);
        }
        failure
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        if let Failure::ReportedFailure(reported) = &mut self {
            reported.hint = Some(hint.into());
        }
        self
    }

    #[must_use]
    pub fn passing(mut self) -> Failure {
        if let Failure::ReportedFailure(reported) = &mut self {
            reported.is_passing = true;
        }
        self
    }

    pub fn is_passing(&self) -> bool {
        matches!(self, Failure::ReportedFailure(reported) if reported.is_passing)
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Failure::ReportedFailure(reported) if reported.exit == NOT_FOUND)
    }

    /// The subject of the request does not exist, or has changed in the meantime.
    pub fn is_too_late(&self) -> bool {
        matches!(self, Failure::ReportedFailure(reported) if matches!(reported.status, Some(404 | 409)))
    }

    /// The server refused exactly this property.
    pub fn is_about(&self, property: &str) -> bool {
        let last = |target: &String| target.rsplit('.').next() == Some(property);
        matches!(self, Failure::ReportedFailure(reported) if reported.target.as_ref().is_some_and(last))
    }

    pub fn is_refused(&self) -> bool {
        matches!(self, Failure::ReportedFailure(reported) if reported.exit == REFUSED)
    }

    pub fn hinted(&self) -> Option<&str> {
        match self {
            Failure::ReportedFailure(reported) => reported.hint.as_deref(),
            Failure::OutputClosed | Failure::Interrupted => None,
        }
    }

    /// Prints the message and the hint to standard error.
    pub fn report(&self) -> ExitCode {
        match self {
            Failure::OutputClosed => ExitCode::SUCCESS,
            Failure::Interrupted => ExitCode::from(INTERRUPTED),
            Failure::ReportedFailure(reported) => {
                let bold = |colour: AnsiColor| Style::new().bold().fg_color(Some(colour.into()));
                let (red, cyan) = (bold(AnsiColor::Red), bold(AnsiColor::Cyan));
                output::say(&format!("{red}error:{red:#} {}", reported.message));
                if let Some(hint) = &reported.hint {
                    output::say(&format!("{cyan}hint:{cyan:#} {hint}"));
                }
                ExitCode::from(reported.exit)
            }
        }
    }
}

/// The message alone, for a progress line about something that is retried.
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::OutputClosed => f.write_str("the output was closed"),
            Failure::Interrupted => f.write_str("interrupted"),
            Failure::ReportedFailure(reported) => f.write_str(&reported.message),
        }
    }
}

/// Makes foreign text safe for one line of a terminal: tabs and line ends become spaces, other control characters are
/// marked.
pub fn printable(text: &str) -> String {
    let safe = |c: char| match c {
        '\t' | '\n' | '\r' => ' ',
        c if is_command(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.trim_end_matches(['\n', '\r']).chars().map(safe).collect()
}

/// The same, but keeps lines and tabs. Lines after the first are indented, so that none can pass for one of ours.
pub fn message(text: &str) -> String {
    let line = |line: &str| -> String {
        let safe = |c: char| if is_command(c) && c != '\t' { '\u{fffd}' } else { c };
        line.trim_end_matches('\r').chars().map(safe).collect()
    };
    text.trim_end().split('\n').map(line).collect::<Vec<_>>().join("\n  ")
}

/// A user's value for a message: printable, quoted and not too long.
pub fn quoted(value: &str) -> String {
    // Inside quotes, a space would make it look like another value.
    let escaped = value.replace('\n', "\\n").replace('\t', "\\t").replace('\r', "\\r");
    format!("'{}'", cut(&escaped, SHOWN_CHARS_MAX))
}

/// A parser's message about user input, or a part of one: printable and not too long.
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
            Failure::ReportedFailure(reported) => reported.exit,
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
        // Characters that change the direction of the text are marked too.
        assert_eq!(printable("a\u{202e}b\u{2066}c"), "a\u{fffd}b\u{fffd}c");
        assert_eq!(message("a\u{202e}b\u{2066}c"), "a\u{fffd}b\u{fffd}c");
        assert_eq!(quoted(&"é".repeat(100)), format!("'{}…'", "é".repeat(80)));
        assert_eq!(brief(&"\u{1b}".repeat(301)), format!("{}…", "\u{fffd}".repeat(300)));
    }
}
