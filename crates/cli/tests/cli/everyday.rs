//! Everyday use: names in both forms, logs, lists by state, the account, jobs without a compute, and the messages about
//! things that do not exist.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{CLUSTER, PATIENCE, Site, done};

fn job(site: &Site, name: &str, command: &str) {
    site.text(&["job", "create", name, "--compute", "cpu", "--command", command]);
}

fn ended(site: &Site, name: &str) {
    site.wait_for_job(name, |job| {
        ["Completed", "Failed"].contains(&job["status"].as_str().unwrap_or_default())
    });
}

#[test]
fn names_are_given_alone_or_behind_a_flag() {
    let site = Site::start();
    site.text(&["compute", "create", "cpu", "--max-instances", "1"]);
    for both in [
        [&["compute", "show", "cpu"][..], &["compute", "show", "--name", "cpu"]],
        [&["compute", "list-nodes", "cpu"], &["compute", "list-nodes", "-n", "cpu"]],
        [&["workspace", "show", "default"], &["workspace", "show", "-n", "default"]],
        [&["host", "show", "local"], &["host", "show", "--name", "local"]],
        [&["why", "cpu", "-o", "json"], &["why", "-n", "cpu", "-o", "json"]],
        [&["group", "show", "default"], &["group", "show", "-g", "default"]],
    ] {
        assert_eq!(site.json(both[0]), site.json(both[1]), "{both:?}");
    }
    let twice = site.run(&["compute", "show", "cpu", "--name", "cpu"]);
    assert_eq!(twice.code, 2, "{}", twice.stderr);
    let none = site.run(&["compute", "show"]);
    assert!(none.code == 2 && none.stderr.contains("--name <NAME>"), "{}", none.stderr);
}

#[test]
fn logs_are_printed_whole_from_their_end_and_as_they_grow() {
    let site = Site::start();
    site.text(&CLUSTER);
    job(&site, "lines", "seq 1 20000; printf end");
    ended(&site, "lines");
    let whole = site.text(&["job", "logs", "lines"]);
    assert_eq!((whole.lines().count(), whole.ends_with("\n20000\nend")), (20_001, true));
    assert_eq!(site.text(&["job", "logs", "-n", "lines", "--tail", "2"]), "20000\nend");
    assert_eq!(site.text(&["job", "logs", "lines", "--tail", "0"]), "");
    assert_eq!(site.text(&["job", "logs", "lines", "--tail", "30000"]), whole);
    assert_eq!(site.text(&["job", "logs", "lines", "--attempt", "1", "--tail", "1"]), "end");
    let followed = site.run(&["job", "logs", "lines", "--follow", "--tail", "1"]);
    assert_eq!((followed.code, followed.stdout.as_slice()), (0, b"end".as_slice()));
    for (flags, said) in
        [(["--rank", "1"], "has no process 1; it has 1"), (["--attempt", "2"], "has no attempt 2")]
    {
        let refused = site.run(&[&["job", "logs", "lines"][..], &flags].concat());
        assert_eq!(refused.code, 3, "{}", refused.stderr);
        assert!(refused.stderr.contains(said), "{}", refused.stderr);
    }
    job(&site, "slow", "echo one; until test -e go; do sleep 0.05; done; echo two; exit 3");
    site.wait_for_job("slow", |job| job["status"] == "Running");
    let mut follow = site.command(&["job", "logs", "slow", "-f"]);
    let follow = follow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let started = Instant::now();
    while site.text(&["job", "logs", "slow"]) != "one\n" {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
    site.text(&["job", "cancel", "slow"]);
    let followed = done(follow.wait_with_output().expect("a child of ours"));
    assert_eq!((followed.code, followed.stdout.as_slice()), (1, b"one\n".as_slice()));
}

#[test]
fn jobs_are_listed_by_their_states() {
    let site = Site::start();
    site.text(&CLUSTER);
    job(&site, "good", "true");
    job(&site, "bad", "false");
    ended(&site, "good");
    ended(&site, "bad");
    let names = |status: &[&str]| {
        let list = ["job", "list", "--query", "sort([].name)", "--status"];
        site.json(&[&list[..], status].concat())
    };
    assert_eq!(names(&["failed"]), serde_json::json!(["bad"]));
    assert_eq!(names(&["Completed", "Failed"]), serde_json::json!(["bad", "good"]));
    assert_eq!(names(&["Running"]), serde_json::json!([]));
    let wrong = site.run(&["job", "list", "--status", "Run"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("did you mean Running?"), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("CancelRequested"), "{}", wrong.stderr);
}

#[test]
fn the_account_is_shown_and_chosen() {
    let site = Site::start();
    site.text(&["workspace", "create", "--subscription", "research", "-g", "lab", "-n", "vision"]);
    let shown = site.json(&["account", "show"]);
    assert_eq!(shown["id"], "00000000-0000-0000-0000-000000000000");
    assert_eq!((&shown["environmentName"], &shown["isDefault"]), (&"Muster".into(), &true.into()));
    let unknown = site.run(&["account", "set", "--subscription", "researc"]);
    assert_eq!(unknown.code, 3);
    assert!(unknown.stderr.contains("did you mean 'research'?"), "{}", unknown.stderr);
    site.text(&["account", "set", "-s", "Research"]);
    assert_eq!(site.json(&["account", "show"])["id"], "research");
    assert_eq!(site.json(&["workspace", "show", "-g", "lab", "-n", "vision"])["name"], "vision");
    let listed = site.text(&["account", "list", "-o", "table"]);
    assert!(
        listed.lines().any(|line| line.starts_with("research") && line.ends_with("True")),
        "{listed}"
    );
}

#[test]
fn a_job_needs_no_compute() {
    let site = Site::start();
    let create = ["job", "create", "alone", "--command", "echo on $MUSTER_NODE", "--stream"];
    let ran = site.run(&create);
    let said = String::from_utf8(ran.stdout).expect("text");
    assert_eq!(ran.code, 0, "{said}{}", ran.stderr);
    assert!(said.starts_with("on serverless-ds3-v2-"), "{said}");
    let table = site.text(&["job", "list", "-o", "table"]);
    assert!(table.contains("serverless"), "{table}");
    let size = ["job", "create", "--command", "true", "--instance-type", "Standard_DS3_v3"];
    let refused = site.run(&size);
    assert!(refused.code == 2 && refused.stderr.contains("Standard_DS3_v2"), "{}", refused.stderr);
    let nothing = site.run(&["job", "create"]);
    assert_eq!(nothing.code, 2);
    for flag in ["--file", "--command"] {
        assert!(nothing.stderr.contains(flag), "{flag}: {}", nothing.stderr);
    }
}

#[test]
fn a_node_has_one_name() {
    let site = Site::start();
    site.text(&CLUSTER);
    job(&site, "fails", "echo $MUSTER_NODE; exit 7");
    ended(&site, "fails");
    let name = site.text(&["job", "logs", "fails"]);
    let failure = site.json(&["job", "show", "fails"])["failure"].as_str().map(str::to_owned);
    let wanted = format!("exit code 7 on node {};", name.trim());
    assert!(failure.as_ref().is_some_and(|failure| failure.contains(&wanted)), "{failure:?}");
    let nodes = site.json(&["compute", "list-nodes", "cpu", "--query", "[].node_id"]);
    assert_eq!(nodes, serde_json::json!([name.trim()]));
}

/// Reads the messages of a stream until one contains the words.
fn says(talk: &mut impl std::io::BufRead, words: &str) -> String {
    let mut line = String::new();
    while talk.read_line(&mut line).expect("messages are text") > 0 {
        if line.contains(words) {
            return line;
        }
        line.clear();
    }
    panic!("it never printed {words:?}");
}

#[test]
fn a_stream_says_when_the_reason_changes() {
    let site = Site::start();
    site.text(&["compute", "create", "none", "--max-instances", "0"]);
    site.text(&["job", "create", "waits", "--compute", "none", "--command", "true"]);
    let mut stream = site.command(&["job", "stream", "waits"]);
    let stream = stream.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut stream = stream.expect("the binary starts");
    let mut talk = std::io::BufReader::new(stream.stderr.take().expect("piped"));
    let first = says(&mut talk, "waits: Queued: ");
    site.text(&["host", "cordon", "local"]);
    site.text(&["compute", "update", "none", "--max-instances", "1"]);
    let second = says(&mut talk, "waits: Queued: ");
    assert_ne!(first, second);
    site.text(&["host", "uncordon", "local"]);
    says(&mut talk, "waits: Completed");
    assert!(stream.wait().expect("a child of ours").success());
}

#[test]
fn tables_fit_a_terminal() {
    let site = Site::start();
    site.text(&CLUSTER);
    site.text(&["lock", "create", "keep", "-t", "CanNotDelete", "-g", "default"]);
    assert_eq!(site.run(&["compute", "delete", "cpu", "--yes"]).code, 2);
    site.text(&["lock", "delete", "keep", "-g", "default"]);
    let log = site.text(&["monitor", "activity-log", "list", "-o", "table"]);
    assert!(log.lines().count() >= 6, "{log}");
    for line in log.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for words in ["ScopeLocked", "computes/write", "default/cpu", "owner"] {
        assert!(log.contains(words), "{words} in {log}");
    }
}

#[test]
fn a_token_comes_with_a_command_and_a_warning_where_it_would_not_work() {
    let site = Site::start();
    let made = site.run(&["host", "token"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let token: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
    let token = token["token"].as_str().expect("a token");
    assert!(made.stderr.contains("which other machines cannot reach"), "{}", made.stderr);
    let command =
        made.stderr.lines().find(|line| line.starts_with("  muster agent --join https://"));
    assert!(command.is_some_and(|line| line.contains(token)), "{}", made.stderr);
}

#[test]
fn what_this_version_does_not_have_is_named_with_what_to_do() {
    let site = Site::empty();
    for (noun, said) in [
        ("schedule", "schedules are not supported in this version"),
        ("online-endpoint", "online endpoints and deployments are not supported in this version"),
        ("batch-deployment", "batch endpoints and deployments are not supported in this version"),
        ("registry", "registries are not supported in this version"),
        ("connection", "connections are not supported in this version"),
        ("feature-store", "feature stores are not supported in this version"),
    ] {
        let refused = site.run(&[noun, "create", "--file", "x.yml", "-g", "lab"]);
        assert_eq!(refused.code, 2, "{noun}: {}", refused.stderr);
        assert!(
            refused.stderr.contains(said) && refused.stderr.contains("hint: "),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn a_file_for_another_command_is_known() {
    let site = Site::start();
    let schema = "$schema: https://azuremlschemas.azureedge.net/latest/";
    let file = |name: &str, text: &str| {
        let path = site.folder().join(name);
        std::fs::write(&path, text).expect("a writable folder");
        path.display().to_string()
    };
    let compute = file("compute.yml", "name: cpu\ntype: amlcompute\nmax_instances: 2\n");
    let schedule = file(
        "schedule.yml",
        &format!("{schema}schedule.schema.json\nname: nightly\ntrigger: {{}}\n"),
    );
    let component =
        file("component.yml", &format!("{schema}commandComponent.schema.json\ncommand: 'true'\n"));
    let environment = file("environment.yml", "name: torch\nimage: python:3.11\n");
    let pipeline = file("pipeline.yml", "type: pipeline\njobs: {}\n");
    let collect_garbage =
        file("sweep.yml", &format!("{schema}sweepJob.schema.json\ntrial: {{command: x}}\n"));
    let job = file("job.yml", "command: echo hello\n");
    let endpoint = file("endpoint.yml", "name: e\nauth_mode: key\n");
    for (noun, path, said) in [
        ("job", &compute, format!("use `muster compute create --file {compute}`")),
        ("job", &component, format!("use `muster component create --file {component}`")),
        ("job", &environment, format!("use `muster environment create --file {environment}`")),
        ("job", &schedule, "schedules are not supported in this version".to_owned()),
        ("job", &pipeline, "pipeline jobs are not supported in this version".to_owned()),
        ("job", &collect_garbage, "sweep jobs are not supported in this version".to_owned()),
        ("job", &endpoint, "online endpoints and deployments are not supported".to_owned()),
        ("compute", &job, format!("use `muster job create --file {job}`")),
        ("environment", &compute, format!("use `muster compute create --file {compute}`")),
        ("data", &job, format!("use `muster job create --file {job}`")),
        ("component", &schedule, "schedules are not supported in this version".to_owned()),
        (
            "datastore",
            &environment,
            format!("use `muster environment create --file {environment}`"),
        ),
    ] {
        let refused = site.run(&[noun, "create", "--file", path]);
        assert_eq!(refused.code, 2, "{noun} {path}: {}", refused.stderr);
        assert!(refused.stderr.contains(&said), "{noun} {path}: {}", refused.stderr);
    }
}

#[test]
fn a_server_says_how_another_shell_finds_it() {
    let mut site = Site::empty();
    let file = site.start_heard("up", &[]);
    let started = Instant::now();
    let mut said = String::new();
    while !said.contains(")\"\n") {
        assert!(started.elapsed() < PATIENCE, "{said}");
        std::thread::sleep(Duration::from_millis(20));
        said = std::fs::read_to_string(&file).expect("its output");
    }
    let (_, command) = said.split_once("eval \"$(").expect("a command");
    let (command, _) = command.split_once(')').expect("the whole command");
    // As in a shell with other programs, in another folder.
    let mut shell = std::process::Command::new("sh");
    let ran = shell.args(["-c", command]).env("PATH", "/usr/bin:/bin").current_dir("/").output();
    let ran = done(ran.expect("a shell"));
    assert_eq!(ran.code, 0, "{command}: {}", ran.stderr);
    let variables = String::from_utf8(ran.stdout).expect("text");
    assert!(variables.contains("MUSTER_STATE_DIR"), "{variables}");
}
