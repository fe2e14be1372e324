//! Everyday operation: `muster status` shows whether a server runs, and `muster down` stops it and nothing else.

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::broken_state::Client;
use crate::support::{CLUSTER, Site, done, ends, signal};

/// Commands use the server in MUSTER_URL, and so does this one, whatever the state directory contains.
#[test]
fn a_status_is_about_the_server_that_other_commands_talk_to() {
    let (here, there) = (Site::start(), Site::start());
    let key = std::fs::read_to_string(there.state().join("keys/owner.key")).expect("a key");
    let user = there.json(&["user", "create", "-n", "ada"]);
    let user = user["key"].as_str().expect("it is shown once").to_owned();
    let status = |url: &str, key: &str, more: &[&str]| {
        let mut command = here.command(&[&["status", "-o", "json"], more].concat());
        let ca = there.state().join("pki/ca.pem");
        command.env("MUSTER_URL", url).env("MUSTER_API_KEY", key).env("MUSTER_CA_FILE", ca);
        let done = done(command.output().expect("the binary runs"));
        let shown: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
        (done.code, shown, done.stderr)
    };
    let (code, shown, _) = status(&there.url(), key.trim_end(), &[]);
    assert_eq!((code, &shown["state"]), (0, &"running".into()), "{shown}");
    assert_eq!((&shown["url"], &shown["chosen_by"]), (&there.url().into(), &"MUSTER_URL".into()));
    assert_eq!((&shown["clusters"], shown["state_dir"].is_null()), (&0.into(), true), "{shown}");
    // Without the right to read everything, it is only known whether the server runs.
    let (code, shown, said) = status(&there.url(), &user, &[]);
    assert_eq!((code, &shown["state"]), (0, &"running".into()), "{said}");
    assert!(
        shown["clusters"].is_null() && said.contains("may not read the server's figures"),
        "{said}"
    );
    let (code, shown, said) = status("https://localhost:1", key.trim_end(), &[]);
    assert_eq!((code, &shown["state"]), (1, &"not_responding".into()), "{shown}");
    assert!(said.contains("the server at https://localhost:1 does not respond"), "{said}");
    // A directory that is named takes precedence.
    let own = here.state().display().to_string();
    let (code, shown, _) = status(&there.url(), key.trim_end(), &["--state-dir", &own]);
    assert_eq!((code, &shown["url"]), (0, &here.url().into()), "{shown}");
}

#[test]
fn a_status_says_whether_a_server_runs_and_what_it_does() {
    let mut site = Site::empty();
    for command in [&["status"][..], &["status", "-o", "json"]] {
        let done = site.run(command);
        assert_eq!(done.code, 3, "{}", done.stderr);
        let hint = format!("hint: start one: muster up --state-dir {}\n", site.state().display());
        assert!(done.stderr.contains(&hint), "{}", done.stderr);
        let said = String::from_utf8(done.stdout).expect("text");
        assert!(said.contains("stopped"), "{said}");
    }
    let down = site.run(&["down"]);
    assert_eq!((down.code, down.stdout.len()), (0, 0), "{}", down.stderr);
    assert!(down.stderr.contains("nothing to stop"), "{}", down.stderr);
    assert!(!site.state().exists(), "looking created the folder");

    site.start_with(&["--isolation", "none"]);
    site.text(&CLUSTER);
    let job = ["job", "create", "--compute", "cpu", "--command", "sleep 60", "-n", "long"];
    site.text(&job);
    site.wait_for_job("long", |job| job["status"] == "Running");
    let status = site.json(&["status", "-o", "json"]);
    assert_eq!(status["state"], "running", "{status}");
    assert_eq!(status["url"], site.url().as_str());
    assert_eq!(status["pid"], site.server_pid());
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    let figures = ["clusters", "nodes", "jobs_running", "jobs_queued"].map(|key| &status[key]);
    assert_eq!(figures, [1, 1, 1, 0]);
    let disk = ["disk_free_bytes", "disk_bytes"].map(|key| status[key].as_u64().expect("a number"));
    assert!(0 < disk[0] && disk[0] <= disk[1], "{status}");
    assert!(status["started_at"].as_str().expect("text").starts_with("20"), "{status}");
    let table = site.text(&["status"]);
    for row in ["State            running", "Jobs running     1"] {
        assert!(table.contains(row), "{table}");
    }

    // What keeps running is listed, and the next start finds it.
    let mut server = site.take_server();
    let down = site.run(&["down"]);
    assert_eq!((down.code, down.stdout.len()), (0, 0), "{}", down.stderr);
    assert!(down.stderr.contains(": stopped\n"), "{}", down.stderr);
    assert!(
        down.stderr.contains("Still running without the server: 1 node, 1 job."),
        "{}",
        down.stderr
    );
    assert!(server.wait().expect("a child of ours").success());
    assert_eq!(site.run(&["status"]).code, 3);
    let again = site.run(&["down"]);
    assert_eq!(again.code, 0);
    assert!(again.stderr.contains("nothing to stop"), "{}", again.stderr);
    site.start_with(&["--isolation", "none"]);
    let attempts = site.json(&["job", "list-attempts", "-n", "long"]);
    assert_eq!(attempts.as_array().map(Vec::len), Some(1), "{attempts}");
}

#[test]
fn a_number_in_a_file_is_no_reason_to_stop_a_process() {
    let mut site = Site::start_plain();
    site.kill();
    let mut stranger = Command::new("sleep");
    let mut stranger = stranger.arg("600").stdin(Stdio::null()).spawn().expect("sleep is there");
    let file = site.state().join("connection.json");
    let text = std::fs::read_to_string(&file).expect("it was ready");
    let mut connection: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    connection["pid"] = stranger.id().into();
    std::fs::write(&file, connection.to_string()).expect("ours");
    let down = site.run(&["down", "--force"]);
    assert_eq!(down.code, 0, "{}", down.stderr);
    assert!(down.stderr.contains("nothing to stop"), "{}", down.stderr);
    assert!(stranger.try_wait().expect("a child of ours").is_none(), "it was stopped");
    assert_eq!(site.run(&["status"]).code, 3);

    // A running server is found whatever the file says.
    site.start_with(&["--isolation", "none"]);
    std::fs::write(&file, {
        let text = std::fs::read_to_string(&file).expect("it is ready");
        let mut connection: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        connection["pid"] = stranger.id().into();
        connection.to_string()
    })
    .expect("ours");
    let mut server = site.take_server();
    assert_eq!(site.run(&["down"]).code, 0);
    assert!(server.wait().expect("a child of ours").success());
    assert!(stranger.try_wait().expect("a child of ours").is_none(), "it was stopped");
    stranger.kill().expect("it runs");
    stranger.wait().expect("it was killed");
}

#[test]
fn a_server_that_hangs_is_killed_only_by_force() {
    let mut site = Site::start_plain();
    let mut server = site.take_server();
    signal("-STOP", &server);
    let status = site.run(&["status", "-o", "json"]);
    assert_eq!(status.code, 1, "{}", status.stderr);
    assert!(String::from_utf8_lossy(&status.stdout).contains("not_responding"));
    let down = site.run(&["down", "--timeout", "1"]);
    assert_eq!(down.code, 1, "{}", down.stderr);
    assert!(down.stderr.contains("has not stopped within 1 seconds"), "{}", down.stderr);
    assert!(down.stderr.contains("--force"), "{}", down.stderr);
    assert!(server.try_wait().expect("a child of ours").is_none());
    let down = site.run(&["down", "--timeout", "0", "--force"]);
    assert_eq!(down.code, 0, "{}", down.stderr);
    assert!(ends(&mut server));
    site.start_with(&["--isolation", "none"]);
}

/// Starts to send something and does not continue.
fn stall(site: &Site) -> std::thread::JoinHandle<()> {
    let client = Client::of(site);
    let (token, _) = client.token(site);
    let group = "subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/slow";
    let url = format!("{}/{group}?api-version=2022-09-01", site.url());
    let (sender, begun) = mpsc::channel();
    let body = futures_util::stream::unfold(0, move |piece| {
        let sender = sender.clone();
        async move {
            if piece == 1 {
                sender.send(()).expect("the test waits");
                std::future::pending::<()>().await;
            }
            Some((Ok::<_, std::io::Error>("{"), piece + 1))
        }
    });
    let request = client.http.put(url).bearer_auth(token);
    let request = request.header("content-type", "application/json");
    let request = request.body(reqwest::Body::wrap_stream(body));
    let sending = std::thread::spawn(move || {
        let refused = client.runtime.block_on(request.send());
        assert!(refused.is_err(), "the server ended first: {refused:?}");
    });
    begun.recv_timeout(Duration::from_secs(30)).expect("it is being sent");
    sending
}

#[test]
fn a_server_that_waits_for_a_client_ends_when_its_drain_time_is_over() {
    let mut site = Site::empty();
    site.start_with(&["--isolation", "none", "--drain-seconds", "6"]);
    let sending = stall(&site);
    let mut server = site.take_server();
    let down = site.run(&["down", "--timeout", "1"]);
    assert_eq!(down.code, 1, "{}", down.stderr);
    assert!(down.stderr.contains("has not stopped within 1 seconds"), "{}", down.stderr);
    assert!(down.stderr.contains("it stops when"), "{}", down.stderr);
    assert!(server.try_wait().expect("a child of ours").is_none(), "it did not wait");
    let status = site.run(&["status", "-o", "json"]);
    assert_eq!(status.code, 1, "{}", status.stderr);
    assert!(String::from_utf8_lossy(&status.stdout).contains("not_responding"));
    // Asking again does no harm, and it ends by itself.
    let down = site.run(&["down"]);
    assert_eq!(down.code, 0, "{}", down.stderr);
    assert!(down.stderr.contains(": stopped\n"), "{}", down.stderr);
    assert!(server.wait().expect("a child of ours").success());
    sending.join().expect("it was cut off");
    assert_eq!(site.run(&["status"]).code, 3);
}
