//! A job trace: what was requested, when, and how long it ran.
//!
//! The file is CSV with a header. It may come from anywhere, so everything about it is checked on input, and each error
//! names the line, the column, the value and the remedy.

use std::collections::BTreeMap;

use muster_core::limits::CLUSTER_NODES_MAX;
use muster_core::time::Span;

use super::csv;

/// A century. A longer trace must be in other units.
const TIME_S_MAX: u64 = 100 * 366 * 24 * 3_600;
/// Many times the largest public trace. Each job takes about forty bytes here.
const JOBS_MAX: usize = 20_000_000;
const USER_BYTES_MAX: usize = 256;
const GPUS_MAX: u64 = 1_000_000;
/// How much of a wrong value a message repeats.
const SHOWN_CHARS_MAX: usize = 60;

/// Jobs in the order of their submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    jobs: Vec<TraceJob>,
    users: Vec<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceJob {
    /// The time since the trace began.
    pub submit: Span,
    pub duration: Span,
    pub nodes: u32,
    /// Index into the trace's users.
    pub user: u32,
    /// The line in the file.
    pub line: u32,
}

/// What is wrong with a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    #[error("the trace is empty; its first line must be the header {HEADER}")]
    Empty,
    #[error("line 1: the header has no column {column}; begin the file with {HEADER}")]
    ColumnMissing { column: &'static str },
    #[error("line 1: the header has the column {column} twice; remove one")]
    ColumnTwice { column: String },
    #[error("line 1: the header has the column {column}; the columns are {HEADER}")]
    ColumnUnknown { column: String },
    #[error("line {line}: it is not UTF-8 text; save the file as UTF-8")]
    NotText { line: usize },
    #[error("line {line}: a quote is not closed or has text after it; double quotes within quotes")]
    Quotes { line: usize },
    #[error("line {line}: it has {got} values, the header has {wanted} columns; make them agree")]
    Width { line: usize, got: usize, wanted: usize },
    #[error("line {line}, column {column}: {value} is {problem}; {remedy}")]
    Value {
        line: usize,
        column: &'static str,
        value: String,
        problem: &'static str,
        remedy: String,
    },
    #[error(
        "line {line}, column submit_s: {value} is earlier than the line before; sort the rows by submit_s"
    )]
    Unsorted { line: usize, value: String },
    #[error("line {line}: a trace has at most {JOBS_MAX} jobs; cut it into several")]
    TooLong { line: usize },
    #[error("the trace has a header but no jobs; add a row per job")]
    NoJobs,
}

const HEADER: &str = "submit_s,duration_s,nodes,gpus_per_node,user,group";

/// The columns by their position in the file. `group` may be anything, because it is not used.
struct Columns {
    count: usize,
    submit: usize,
    duration: usize,
    nodes: usize,
    gpus: Option<usize>,
    user: Option<usize>,
}

impl Trace {
    pub fn parse(bytes: &[u8]) -> Result<Trace, TraceError> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut lines = csv::lines(bytes);
        let (_, header) = lines.next().ok_or(TraceError::Empty)?;
        let mut fields = Vec::new();
        csv::split(text(header, 1)?, &mut fields).ok_or(TraceError::Quotes { line: 1 })?;
        let columns = Columns::of(&fields)?;
        let mut trace = Trace { jobs: Vec::new(), users: Vec::new() };
        let mut users = BTreeMap::new();
        for (line, bytes) in lines {
            let mut fields = Vec::with_capacity(columns.count);
            csv::split(text(bytes, line)?, &mut fields).ok_or(TraceError::Quotes { line })?;
            trace.take_in(line, &fields, &columns, &mut users)?;
        }
        if trace.jobs.is_empty() {
            return Err(TraceError::NoJobs);
        }
        Ok(trace)
    }

    /// A trace from jobs, which must be in the order of their submit.
    pub fn of_jobs(jobs: Vec<TraceJob>, users: Vec<Box<str>>) -> Trace {
        assert!(jobs.is_sorted_by_key(|job| job.submit), "jobs come in the order of submission");
        assert!(jobs.iter().all(|job| (job.user as usize) < users.len()), "every user is named");
        Trace { jobs, users }
    }

    pub fn jobs(&self) -> &[TraceJob] {
        &self.jobs
    }

    /// The users who submitted jobs. A name is empty if the trace does not give one.
    pub fn users(&self) -> &[Box<str>] {
        &self.users
    }

    fn take_in(
        &mut self,
        line: usize,
        fields: &[csv::Field<'_>],
        columns: &Columns,
        users: &mut BTreeMap<Box<str>, u32>,
    ) -> Result<(), TraceError> {
        if fields.len() != columns.count {
            return Err(TraceError::Width { line, got: fields.len(), wanted: columns.count });
        }
        if self.jobs.len() >= JOBS_MAX {
            return Err(TraceError::TooLong { line });
        }
        let submit = seconds(line, "submit_s", &fields[columns.submit])?;
        let duration = seconds(line, "duration_s", &fields[columns.duration])?;
        let nodes = &fields[columns.nodes];
        let nodes = whole(line, "nodes", nodes, 1, u64::from(CLUSTER_NODES_MAX))?;
        if let Some(gpus) = columns.gpus {
            // Jobs take whole nodes, so it has no effect; but text here means that columns were shifted.
            whole(line, "gpus_per_node", &fields[gpus], 0, GPUS_MAX)?;
        }
        if self.jobs.last().is_some_and(|before| before.submit > submit) {
            return Err(TraceError::Unsorted { line, value: shown(&fields[columns.submit]) });
        }
        let user = columns.user.map_or("", |user| fields[user].as_ref());
        let user = self.user(line, user, users)?;
        let nodes = u32::try_from(nodes).expect("checked against a limit of that type");
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        self.jobs.push(TraceJob { submit, duration, nodes, user, line });
        Ok(())
    }

    fn user(
        &mut self,
        line: usize,
        user: &str,
        users: &mut BTreeMap<Box<str>, u32>,
    ) -> Result<u32, TraceError> {
        if let Some(known) = users.get(user) {
            return Ok(*known);
        }
        if user.len() > USER_BYTES_MAX {
            let remedy = format!("use at most {USER_BYTES_MAX} bytes");
            return Err(bad(line, "user", user, "too long", remedy));
        }
        let id = u32::try_from(self.users.len()).expect("fewer users than jobs");
        self.users.push(user.into());
        users.insert(user.into(), id);
        Ok(id)
    }
}

impl Columns {
    fn of(header: &[csv::Field<'_>]) -> Result<Columns, TraceError> {
        const NAMES: [&str; 6] =
            ["submit_s", "duration_s", "nodes", "gpus_per_node", "user", "group"];
        let mut places = [None; NAMES.len()];
        for (place, column) in header.iter().enumerate() {
            let known = NAMES.iter().position(|name| *name == column.trim());
            let known = known.ok_or_else(|| TraceError::ColumnUnknown { column: shown(column) })?;
            if places[known].replace(place).is_some() {
                return Err(TraceError::ColumnTwice { column: shown(column) });
            }
        }
        let [submit, duration, nodes, gpus, user, _group] = places;
        let needed =
            |place: Option<usize>, column| place.ok_or(TraceError::ColumnMissing { column });
        Ok(Columns {
            count: header.len(),
            submit: needed(submit, NAMES[0])?,
            duration: needed(duration, NAMES[1])?,
            nodes: needed(nodes, NAMES[2])?,
            gpus,
            user,
        })
    }
}

fn text(bytes: &[u8], line: usize) -> Result<&str, TraceError> {
    std::str::from_utf8(bytes).map_err(|_| TraceError::NotText { line })
}

/// Seconds as digits, optionally with decimals. Anything finer than a microsecond is cut off.
fn seconds(line: usize, column: &'static str, value: &str) -> Result<Span, TraceError> {
    let remedy = || format!("give seconds from 0 to {TIME_S_MAX}, such as 90 or 90.5");
    let parts = value.split_once('.');
    let (digits, decimals) = parts.unwrap_or((value, "0"));
    if !is_digits(digits) || !is_digits(decimals) {
        return Err(bad(line, column, value, "not a plain number of seconds", remedy()));
    }
    // More digits than a u64 holds are out of range, like any other large number.
    let whole = digits.parse::<u64>().ok().filter(|seconds| *seconds <= TIME_S_MAX);
    let whole = whole.ok_or_else(|| bad(line, column, value, "out of range", remedy()))?;
    let places = decimals.bytes().chain(std::iter::repeat(b'0')).take(6);
    let fraction = places.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Ok(Span(whole * 1_000_000 + fraction))
}

fn whole(
    line: usize,
    column: &'static str,
    value: &str,
    min: u64,
    max: u64,
) -> Result<u64, TraceError> {
    let remedy = || format!("give a whole number from {min} to {max}");
    if !is_digits(value) {
        return Err(bad(line, column, value, "not a whole number", remedy()));
    }
    let number = value.parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| bad(line, column, value, "out of range", remedy()))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn bad(
    line: usize,
    column: &'static str,
    value: &str,
    problem: &'static str,
    remedy: String,
) -> TraceError {
    TraceError::Value { line, column, value: shown(value), problem, remedy }
}

/// A value in a message: quoted, without control characters, not too long.
fn shown(value: &str) -> String {
    let mut shown: String = value
        .chars()
        .take(SHOWN_CHARS_MAX)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if value.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push('…');
    }
    format!("'{shown}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(rows: &str) -> Result<Trace, TraceError> {
        Trace::parse(format!("{HEADER}\n{rows}").as_bytes())
    }

    fn message(rows: &str) -> String {
        parse(rows).expect_err(rows).to_string()
    }

    #[test]
    fn rows_are_read_to_the_microsecond() {
        let trace = parse("0,90.5,1,8,ann,a\r\n2.0000019,3,16,1,,\n\n").unwrap();
        let [one, two] = trace.jobs() else { panic!("two jobs: {trace:?}") };
        assert_eq!((one.submit, one.duration, one.nodes), (Span::ZERO, Span(90_500_000), 1));
        assert_eq!((two.submit, two.duration, two.nodes), (Span(2_000_001), Span(3_000_000), 16));
        assert_eq!(trace.users(), ["ann".into(), "".into()]);
        assert_eq!((one.line, two.line), (2, 3));
    }

    #[test]
    fn columns_are_found_by_name_and_may_be_quoted() {
        let trace =
            Trace::parse(b"\xef\xbb\xbfnodes,\"user\",submit_s,duration_s\n2,\"a,\"\"b\",0,5\n");
        let trace = trace.unwrap();
        assert_eq!(trace.jobs()[0].nodes, 2);
        assert_eq!(trace.users(), ["a,\"b".into()]);
    }

    #[test]
    fn a_wrong_value_is_named_with_its_place_and_the_remedy() {
        let cases = [
            (
                "x,1,1,1,,",
                "line 2, column submit_s: 'x' is not a plain number of seconds; give seconds",
            ),
            ("0,1,1,1,,\n1,-5,1,1,,", "line 3, column duration_s: '-5' is not a plain number"),
            ("0,1e3,1,1,,", "'1e3' is not a plain number of seconds"),
            ("0,1.,1,1,,", "'1.' is not a plain number of seconds"),
            ("0,.5,1,1,,", "'.5' is not a plain number of seconds"),
            ("0,nan,1,1,,", "'nan'"),
            ("0,99999999999999999999,1,1,,", "is out of range; give seconds from 0 to"),
            ("0,1,0,1,,", "column nodes: '0' is out of range; give a whole number from 1 to 10000"),
            ("0,1,1.5,1,,", "column nodes: '1.5' is not a whole number"),
            ("0,1,1,gpu,,", "column gpus_per_node: 'gpu' is not a whole number"),
            (
                "5,1,1,1,,\n4,1,1,1,,",
                "line 3, column submit_s: '4' is earlier than the line before",
            ),
            ("0,1,1", "line 2: it has 3 values, the header has 6 columns"),
            ("0,1,1,1,\"a,", "line 2: a quote is not closed"),
            ("", "no jobs"),
            ("0,\u{1b}[2J,1,1,,", "'\u{fffd}[2J'"),
        ];
        for (rows, wanted) in cases {
            let message = message(rows);
            assert!(message.contains(wanted), "{rows:?}: {message}");
        }
        let long = message(&format!("0,1,1,1,{},", "u".repeat(300)));
        assert!(long.contains("column user") && long.contains("at most 256 bytes"), "{long}");
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn a_wrong_header_is_named() {
        let message = |text: &[u8]| Trace::parse(text).expect_err("a wrong header").to_string();
        assert!(message(b"").contains("first line must be the header submit_s,"));
        assert!(message(b"0,1,1,1,,\n").contains("has the column '0'"));
        assert!(message(b"submit_s,duration_s\n").contains("has no column nodes"));
        assert!(message(b"nodes,nodes\n").contains("'nodes' twice"));
        assert!(message(b"submit_s,\xff\n").contains("line 1: it is not UTF-8"));
    }
}
