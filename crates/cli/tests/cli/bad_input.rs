//! Every kind of bad input: a message that names the value and the remedy, the right exit code, and nothing is written.

use crate::support::{Site, done};
use muster_store::{Reader as _, Revision, SqliteReader};

/// What is asked, the exit code, and what the message must contain: the value and the remedy.
type Case = (&'static str, &'static [&'static str], i32, &'static [&'static str]);

/// Errors of the command line itself: the server is not even contacted.
const USAGE: &[Case] = &[
    ("no command", &[], 2, &["Usage: muster <COMMAND>"]),
    ("unknown command", &["frob"], 2, &["'frob'", "Usage"]),
    ("unknown flag", &["compute", "list", "--frob"], 2, &["'--frob'", "--help"]),
    (
        "unknown format",
        &["compute", "list", "-o", "xml"],
        2,
        &["'xml'", "json, jsonc, yaml, yamlc, table, tsv, none"],
    ),
    ("extra word", &["compute", "show", "cpu", "more"], 2, &["'more'", "--help"]),
    ("no name", &["compute", "create"], 2, &["<NAME>"]),
    ("empty name", &["compute", "create", "-n", ""], 2, &["''", "give a name"]),
    ("a dot", &["compute", "delete", "-y", "-n", "."], 2, &["'.'", "letters and digits"]),
    ("two dots", &["compute", "delete", "-y", "-n", ".."], 2, &["'..'", "letters and digits"]),
    ("not AmlCompute", &["compute", "create", "-n", "bad", "-t", "Vm"], 2, &["'Vm'", "AmlCompute"]),
    ("minus", &["compute", "create", "-n", "bad", "--min-instances", "-4"], 2, &["'-4'", "from 0"]),
    (
        "word",
        &["compute", "create", "-n", "bad", "--max-instances", "four"],
        2,
        &["'four'", "whole"],
    ),
    (
        "fraction",
        &["compute", "create", "-n", "bad", "--max-instances", "1.5"],
        2,
        &["'1.5'", "whole"],
    ),
    (
        "huge number",
        &["compute", "create", "-n", "bad", "--max-instances", "99999999999999999999"],
        2,
        &["'99999999999999999999'", "4294967295"],
    ),
    ("idle time", &["compute", "create", "-n", "bad", "-d", "PT2M"], 2, &["'PT2M'", "seconds"]),
    ("tier", &["compute", "create", "-n", "bad", "--tier", "spot"], 2, &["'spot'", "low_priority"]),
    (
        "boolean",
        &["compute", "create", "-n", "bad", "-p", "maybe"],
        2,
        &["'maybe'", "true or false"],
    ),
    (
        "password without a user",
        &["compute", "create", "-n", "bad", "--admin-password", "x"],
        2,
        &["--admin-username"],
    ),
    (
        "network without subnet",
        &["compute", "create", "-n", "bad", "--vnet-name", "v"],
        2,
        &["--subnet"],
    ),
    (
        "subnet without network",
        &["compute", "create", "-n", "bad", "--subnet", "s"],
        2,
        &["'s'", "--vnet-name"],
    ),
    (
        "identity type",
        &["compute", "create", "-n", "bad", "--identity-type", "Robot"],
        2,
        &["'Robot'", "SystemAssigned"],
    ),
    (
        "identity without ids",
        &["compute", "create", "-n", "bad", "--identity-type", "UserAssigned"],
        2,
        &["'UserAssigned'", "agree"],
    ),
    (
        "tag without value",
        &["compute", "create", "-n", "bad", "--tags", "x"],
        2,
        &["'x'", "key=value"],
    ),
    (
        "tag without key",
        &["compute", "create", "-n", "bad", "--tags", "=x"],
        2,
        &["'=x'", "key=value"],
    ),
    (
        "tag twice",
        &["compute", "create", "-n", "bad", "--tags", "a=1", "a=2"],
        2,
        &["'a'", "'1'", "'2'", "once"],
    ),
    ("scale-up", &["compute", "update", "-n", "cpu", "--scale-up", "later"], 2, &["predictive"]),
    ("a limit", &["quota", "update", "-l", "x", "-n", "y", "--limit", "-1"], 2, &["or none"]),
    ("both kinds", &["why", "x", "--job", "--compute"], 2, &["--compute"]),
    ("delete without asking", &["compute", "delete", "-n", "cpu"], 2, &["'cpu'", "--yes"]),
    ("job without command", &["job", "create", "--compute", "cpu"], 2, &["--command"]),
    ("job without anything", &["job", "create"], 2, &["--command", "--file"]),
    (
        "timeout",
        &["job", "create", "--compute", "cpu", "--command", "true", "--timeout", "soon"],
        2,
        &["'soon'", "seconds"],
    ),
    (
        "variable",
        &["job", "create", "--compute", "cpu", "--command", "true", "--env", "A"],
        2,
        &["'A'", "key=value"],
    ),
    ("no jobs", &["job", "list", "-r", "0"], 2, &["'0'", "from 1"]),
    ("no run", &["job", "stream", "-n", ""], 2, &["''", "give a name"]),
    ("empty workspace", &["job", "list", "-w", ""], 2, &["''", "give a name"]),
    ("empty directory", &["cost", "--state-dir", ""], 2, &["--state-dir"]),
    ("shell", &["env", "--shell", "csh"], 2, &["'csh'", "sh, fish, powershell, json"]),
    ("address", &["up", "--listen", "here"], 2, &["'here'", "127.0.0.1:7443"]),
    ("everyone", &["up", "--listen", "0.0.0.0:0"], 2, &["0.0.0.0:0", "--trusted-users"]),
    ("seed", &["sim", "--seed", "-1"], 2, &["'-1'", "whole number"]),
    ("days", &["sim", "--seed", "1", "--days", "0"], 2, &["'0'", "from 1 to 365"]),
    ("batch", &["sim", "--seed", "1", "--batch", "65"], 2, &["'65'", "from 1 to 64"]),
    ("agent", &["agent", "--node", "n"], 2, &["--dir", "--server", "--ca"]),
];

/// Errors that only the server can detect.
const ASKED: &[Case] = &[
    ("short name", &["compute", "create", "-n", "ab"], 2, &["ab", "3 to 24"]),
    ("long name", &["compute", "create", "-n", "abcdefghijklmnopqrstuvwxy"], 2, &["25", "3 to 24"]),
    ("digit first", &["compute", "create", "-n", "1abc"], 2, &["1abc", "letter"]),
    ("dash last", &["compute", "create", "-n", "abc-"], 2, &["abc-", "add one"]),
    ("slash", &["compute", "create", "-n", "a/b"], 2, &["a/b", "cannot contain"]),
    ("control", &["compute", "create", "-n", "a\nb"], 2, &["a\u{fffd}b", "remove it"]),
    ("prefix", &["compute", "show", "-n", "azureml:"], 2, &["azureml:", "give a name"]),
    (
        "minimum above maximum",
        &["compute", "create", "-n", "bad", "--min-instances", "7", "--max-instances", "3"],
        2,
        &["7", "3", "lower"],
    ),
    (
        "too many",
        &["compute", "create", "-n", "bad", "--max-instances", "10001"],
        2,
        &["10001", "10000", "lower it"],
    ),
    (
        "too idle",
        &["compute", "create", "-n", "bad", "-d", "2592001"],
        2,
        &["2592001", "2592000", "shorten"],
    ),
    (
        "size",
        &["compute", "create", "-n", "bad", "--size", "STANDARD_DS3_V9"],
        2,
        &["STANDARD_DS3_V9", "did you mean"],
    ),
    ("location", &["compute", "create", "-n", "bad", "-l", ""], 2, &["location", "eastus"]),
    (
        "administrator",
        &["compute", "create", "-n", "bad", "--admin-username", "Root!"],
        2,
        &["Root!", "1 to 32"],
    ),
    (
        "subnet id",
        &["compute", "create", "-n", "bad", "--subnet", "/no/subnet"],
        2,
        &["/no/subnet", "give the id"],
    ),
    (
        "another size",
        &["compute", "create", "-n", "cpu", "--size", "STANDARD_DS4_V2"],
        2,
        &["STANDARD_DS4_V2", "delete"],
    ),
    (
        "another tier",
        &["compute", "create", "-n", "cpu", "--tier", "low_priority"],
        2,
        &["LowPriority", "delete"],
    ),
    (
        "update beyond",
        &["compute", "update", "-n", "cpu", "--min-instances", "9"],
        2,
        &["9", "lower"],
    ),
    (
        "update no-such",
        &["compute", "update", "-n", "no-such", "-d", "9"],
        3,
        &["no-such", "create it"],
    ),
    ("show no-such", &["compute", "show", "-n", "no-such"], 3, &["no-such", "check the name"]),
    ("nodes of no-such", &["compute", "list-nodes", "-n", "no-such"], 3, &["no-such", "check"]),
    (
        "delete no-such",
        &["compute", "delete", "-y", "-n", "no-such"],
        3,
        &["no-such", "compute list"],
    ),
    (
        "bad workspace",
        &["compute", "create", "-n", "bad", "-w", "a b"],
        2,
        &["a b", "only letters"],
    ),
    ("bad group", &["compute", "create", "-n", "bad", "-g", "a/b"], 2, &["a/b", "cannot contain"]),
    (
        "no command",
        &["job", "create", "--compute", "cpu", "--command", " "],
        2,
        &["command is empty", "say what to run"],
    ),
    (
        "no compute",
        &["job", "create", "--compute", "no-such", "--command", "true"],
        2,
        &["no-such", "compute list"],
    ),
    (
        "compute id",
        &["job", "create", "--compute", "a/b", "--command", "true"],
        2,
        &["'a/b'", "only the cluster's name"],
    ),
    (
        "job name",
        &["job", "create", "--compute", "cpu", "--command", "true", "-n", "a b"],
        2,
        &["a b", "allowed"],
    ),
    (
        "no nodes",
        &["job", "create", "--compute", "cpu", "--command", "true", "--instance-count", "0"],
        2,
        &["--instance-count is 0", "at least 1"],
    ),
    (
        "too many nodes",
        &["job", "create", "--compute", "cpu", "--command", "true", "--instance-count", "9"],
        2,
        &["9", "--max-instances 9"],
    ),
    (
        "no time",
        &["job", "create", "--compute", "cpu", "--command", "true", "--timeout", "0"],
        2,
        &["0 s", "leave it out"],
    ),
    (
        "another job",
        &["job", "create", "--compute", "cpu", "--command", "false", "-n", "taken"],
        2,
        &["taken", "choose another name"],
    ),
    ("show no job", &["job", "show", "-n", "nothing"], 3, &["nothing", "list"]),
    ("stream no job", &["job", "stream", "-n", "nothing"], 3, &["nothing", "list"]),
    ("cancel no job", &["job", "cancel", "-n", "nothing"], 3, &["nothing", "job list"]),
    ("cancel the past", &["job", "cancel", "-n", "taken"], 2, &["taken", "has already ended"]),
];

fn check(site: &Site, cases: &[Case]) {
    for (what, arguments, code, parts) in cases {
        let done = site.run(arguments);
        assert_eq!(done.code, *code, "{what}: {}", done.stderr);
        assert!(done.stdout.is_empty(), "{what}: messages on standard output");
        for part in *parts {
            assert!(done.stderr.contains(part), "{what}: {part:?} in {}", done.stderr);
        }
    }
}

/// How many changes the event log has, without the records of refused requests in the activity log.
fn changes(site: &Site) -> usize {
    let mut reader = SqliteReader::open(site.state().join("muster.db")).expect("a store");
    let (mut last, mut count) = (Revision(0), 0);
    loop {
        let events = reader.events(last, 1_000).expect("events");
        let Some(newest) = events.last() else { return count };
        last = newest.revision;
        let is_refusal = |change: &str| {
            change.starts_with(r#"{"ActivityNoted""#) && change.contains(r#""Refused""#)
        };
        count += events.iter().filter(|event| !is_refusal(&event.change)).count();
    }
}

#[test]
fn nothing_that_is_refused_leaves_a_trace() {
    let site = Site::start();
    site.text(&["compute", "create", "-n", "cpu", "--max-instances", "2", "-d", "3600"]);
    site.text(&["job", "create", "--compute", "cpu", "--command", "true", "-n", "taken", "-s"]);
    let lists = || [&["compute", "list"], &["job", "list"]].map(|list| site.json(list));
    let (before, known) = (lists(), changes(&site));
    assert!(known > 0);
    check(&site, USAGE);
    check(&site, ASKED);
    check_long_values(&site);
    check_variables(&site);
    assert_eq!(lists(), before);
    assert_eq!(changes(&site), known, "the event log has grown");
    assert!(USAGE.len() + ASKED.len() >= 40);
}

fn check_long_values(site: &Site) {
    let (name, command) = ("a".repeat(9_000), "x".repeat(120_001));
    let tags: Vec<String> = (0..51).map(|tag| format!("t{tag}=x")).collect();
    let mut many = vec!["compute", "create", "-n", "bad", "--tags"];
    many.extend(tags.iter().map(String::as_str));
    let long_tag = format!("a={}", "x".repeat(257));
    let cases: [(&[&str], &str); 4] = [
        (&["compute", "show", "-n", &name], "8192"),
        (&["job", "create", "--compute", "cpu", "--command", &command], "120000"),
        (&many, "50"),
        (&["compute", "create", "-n", "bad", "--tags", &long_tag], "256"),
    ];
    for (arguments, limit) in cases {
        let done = site.run(arguments);
        assert_eq!(done.code, 2, "{limit}: {}", done.stderr);
        assert!(done.stderr.contains(limit), "{limit} in {}", done.stderr);
        assert!(done.stderr.len() < 1_000, "the message repeats all of it");
    }
}

fn check_variables(site: &Site) {
    let with = |name: &str, value: &str| {
        let mut command = site.command(&["compute", "list"]);
        done(command.env(name, value).output().expect("the binary runs"))
    };
    let dots = with("AZURE_DEFAULTS_WORKSPACE", "..");
    assert_eq!(dots.code, 2);
    assert!(dots.stderr.contains("AZURE_DEFAULTS_WORKSPACE is '..'"), "{}", dots.stderr);
    assert_eq!(with("AZURE_DEFAULTS_GROUP", "").code, 0, "empty is unset");
    let filter = with("MUSTER_LOG", "a=b=c");
    assert_eq!(filter.code, 0, "a bad log filter does not make the command fail");
    assert!(filter.stderr.contains("'a=b=c'"), "{}", filter.stderr);
}
