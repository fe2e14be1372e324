//! If a job failed because it could not look up a name, adds a note to its log that says whether its node has internet
//! access.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use crate::files::note;

/// How much of the end of a log is searched.
const TAIL_BYTES: u64 = 64 << 10;
/// The node's list of name servers. Its first line says whether the node has internet access.
const RESOLVERS: &str = "/etc/resolv.conf";

/// What programs write if no name server responds, and if one reports that the name does not exist. Some write the same
/// in both cases.
const NO_ANSWER: [&str; 3] =
    ["Temporary failure in name resolution", "Temporary failure resolving", "EAI_AGAIN"];
const NO_SUCH_NAME: [&str; 4] =
    ["Name or service not known", "No address associated with hostname", "NXDOMAIN", "ENOTFOUND"];
const EITHER: [&str; 5] = [
    "Could not resolve host",
    "unable to resolve host address",
    "NameResolutionError",
    "Failed to resolve",
    "no such host",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lookup {
    NoAnswer,
    NoSuchName,
    Either,
}

/// The internet access of the node, according to its creator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InternetAccess {
    On,
    Off,
    /// The node shares the network of its host.
    Shared,
}

/// Checks the log of a job that failed. `why_no_internet` is the reason if its node should have internet access but
/// does not.
pub(crate) fn explain(log: &Path, why_no_internet: Option<&str>) {
    let Ok(tail) = tail_of(log) else { return };
    let Some(lookup) = seen(&tail) else { return };
    let resolvers = std::fs::read_to_string(RESOLVERS).unwrap_or_default();
    let is_open = !tail.ends_with('\n');
    if is_open
        && File::options().append(true).open(log).and_then(|mut log| log.write_all(b"\n")).is_err()
    {
        return;
    }
    match why_no_internet {
        Some(why) => note(log, &format!("a name could not be looked up: {why}")),
        None => note(log, &words(lookup, internet(&resolvers))),
    }
}

fn tail_of(log: &Path) -> std::io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn seen(text: &str) -> Option<Lookup> {
    let has = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
    if has(&NO_ANSWER) {
        return Some(Lookup::NoAnswer);
    }
    if has(&NO_SUCH_NAME) {
        return Some(Lookup::NoSuchName);
    }
    has(&EITHER).then_some(Lookup::Either)
}

fn internet(resolvers: &str) -> InternetAccess {
    let said = |word: &str| resolvers.lines().any(|line| line.trim() == format!("# egress {word}"));
    match (said("on"), said("off")) {
        (true, _) => InternetAccess::On,
        (false, true) => InternetAccess::Off,
        (false, false) => InternetAccess::Shared,
    }
}

fn words(lookup: Lookup, internet: InternetAccess) -> String {
    let rest = match (internet, lookup) {
        (InternetAccess::Off, _) => {
            "egress is off, so this node only reaches its cluster and the server. Provide what the job needs as code or \
             inputs, or have the operator set egress = true; `muster doctor` reports whether the host supports that"
        }
        (InternetAccess::On, Lookup::NoAnswer) => {
            "egress is on, but it is broken: no name server responded. Have the operator look up a name on the node's \
             host, with `getent hosts NAME`"
        }
        (InternetAccess::On, Lookup::NoSuchName) => {
            "egress is on, but there is no such name; check its spelling"
        }
        (InternetAccess::On, Lookup::Either) => {
            "egress is on: either there is no such name, or no name server responds to the node's host, which \
             `getent hosts NAME` there would show"
        }
        (InternetAccess::Shared, _) => {
            "this node shares the network of its host, so egress is on; check the name, and that the host itself \
             can look it up, with `getent hosts NAME`"
        }
    };
    format!("a name could not be looked up: {rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_write_is_known() {
        for (text, wanted) in [
            ("curl: (6) Could not resolve host: example.com", Some(Lookup::Either)),
            (
                "socket.gaierror: [Errno -3] Temporary failure in name resolution",
                Some(Lookup::NoAnswer),
            ),
            ("socket.gaierror: [Errno -2] Name or service not known", Some(Lookup::NoSuchName)),
            ("wget: unable to resolve host address 'x'", Some(Lookup::Either)),
            ("ValueError: the rate is too high", None),
        ] {
            assert_eq!(seen(text), wanted, "{text}");
        }
    }

    #[test]
    fn the_note_says_whether_egress_is_on_off_or_broken() {
        assert_eq!(internet("# egress off\nnameserver 10.0.0.1\n"), InternetAccess::Off);
        assert_eq!(internet("# egress on\nnameserver 10.0.0.1\n"), InternetAccess::On);
        assert_eq!(internet("nameserver 10.0.0.1\n"), InternetAccess::Shared);
        assert!(words(Lookup::NoAnswer, InternetAccess::Off).contains("egress is off"));
        assert!(
            words(Lookup::NoAnswer, InternetAccess::On).contains("egress is on, but it is broken")
        );
        assert!(words(Lookup::NoSuchName, InternetAccess::On).contains("there is no such name"));
    }

    #[test]
    fn a_note_follows_a_line_that_has_not_ended() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        std::fs::write(&log, "one\nName or service not known").unwrap();
        explain(&log, None);
        let text = std::fs::read_to_string(&log).unwrap();
        assert!(
            text.lines().last().is_some_and(|line| line.starts_with("muster: a name")),
            "{text}"
        );
        explain(&log, Some("slirp4netns is missing"));
        let text = std::fs::read_to_string(&log).unwrap();
        assert!(text.ends_with("looked up: slirp4netns is missing\n"), "{text}");
        std::fs::write(&log, "one\n").unwrap();
        explain(&log, Some("slirp4netns is missing"));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "one\n");
    }
}
