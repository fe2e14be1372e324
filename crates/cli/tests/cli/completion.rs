//! Completion as a shell does it: by calling the binary that the script calls.

use std::time::{Duration, Instant};

use crate::support::{CLUSTER, Site, done};

/// A delay that people do not notice, doubled for a busy machine.
const PATIENCE: Duration = Duration::from_millis(200);

fn candidates(site: &Site, shell: &str, words: &[&str]) -> Vec<String> {
    let mut command = site.command(&[&["--", "muster"], words].concat());
    command.env("MUSTER_COMPLETE", shell);
    command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).env("_CLAP_IFS", "\n");
    let done = done(command.output().expect("the binary runs"));
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{shell} {words:?}");
    let text = String::from_utf8(done.stdout).expect("text");
    let name = |line: &str| line.split(['\t', ':']).next().unwrap_or_default().to_owned();
    text.lines().map(name).collect()
}

#[test]
fn names_come_from_the_server() {
    let site = Site::start();
    site.text(&CLUSTER);
    site.text(&["compute", "create", "-n", "gpu"]);
    site.text(&["workspace", "create", "-n", "vision", "-g", "lab"]);
    site.text(&["user", "create", "-n", "ada"]);
    site.text(&["lock", "create", "-n", "keep", "-t", "CanNotDelete", "-g", "lab"]);
    site.text(&[
        "job",
        "create",
        "-n",
        "my-job",
        "--compute",
        "cpu",
        "--command",
        "true",
        "--stream",
    ]);
    for shell in ["bash", "zsh", "fish"] {
        // On a busy machine the server may be too slow for a completion, which then shows nothing.
        let complete = |words: &[&str]| {
            let mut tries = (0..10).map(|_| candidates(&site, shell, words));
            tries.find(|found| !found.is_empty()).unwrap_or_default()
        };
        assert_eq!(complete(&["compute", "show", "--name", ""]), ["cpu", "gpu"], "{shell}");
        assert_eq!(complete(&["compute", "show", "-n", "G"]), ["gpu"], "{shell}");
        assert_eq!(complete(&["compute", "watch", "c"]), ["cpu"], "{shell}");
        assert_eq!(complete(&["job", "show", "--name", "my"]), ["my-job"], "{shell}");
        assert_eq!(complete(&["user", "show", "--name", ""]), ["ada"], "{shell}");
        assert_eq!(complete(&["compute", "list", "-w", "v"]), ["vision"], "{shell}");
        assert_eq!(complete(&["compute", "list", "-g", ""]), ["default", "lab"], "{shell}");
        assert_eq!(complete(&["group", "show", "-n", "l"]), ["lab"], "{shell}");
        assert_eq!(complete(&["lock", "show", "-g", "lab", "-n", ""]), ["keep"], "{shell}");
        assert!(complete(&["lock", "show", "-g", "default", "-n", ""]).is_empty(), "{shell}");
        let elsewhere = ["compute", "show", "-g", "lab", "-w", "vision", "-n", ""];
        assert!(complete(&elsewhere).is_empty(), "{shell}");
        let sizes = complete(&["compute", "create", "--size", "standard_ds3"]);
        assert!(sizes.contains(&"Standard_DS3_v2".to_owned()), "{shell}: {sizes:?}");
        let regions = complete(&["compute", "create", "--location", "eastus"]);
        assert!(regions.contains(&"eastus".to_owned()), "{shell}: {regions:?}");
        assert!(complete(&["compute", "lis"]).contains(&"list-nodes".to_owned()), "{shell}");
        let flags = complete(&["compute", "create", "--max"]);
        assert_eq!(flags, ["--max-instances"], "{shell}");
    }
}

#[test]
fn an_unreachable_server_causes_no_delay_and_no_error() {
    let mut site = Site::start();
    site.text(&CLUSTER);
    site.kill();
    let fastest = (0..5)
        .map(|_| {
            let started = Instant::now();
            assert!(candidates(&site, "bash", &["compute", "show", "-n", ""]).is_empty());
            started.elapsed()
        })
        .min();
    assert!(fastest < Some(PATIENCE), "{fastest:?}");
    assert!(candidates(&Site::empty(), "bash", &["job", "show", "-n", ""]).is_empty());
    site.up();
    let fastest = (0..5)
        .map(|_| {
            let started = Instant::now();
            let _ = candidates(&site, "bash", &["compute", "show", "-n", ""]);
            started.elapsed()
        })
        .min();
    assert!(fastest < Some(PATIENCE), "{fastest:?}");
}

#[test]
fn every_shell_gets_a_script_that_calls_us() {
    let site = Site::empty();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = site.text(&["completion", shell]);
        assert!(script.contains("MUSTER_COMPLETE"), "{shell}: {script}");
    }
    assert_eq!(site.run(&["completion", "tcsh"]).code, 2);
    // zsh loads a file of $fpath by its first line, and runs it for the first word that is completed.
    let script = site.text(&["completion", "zsh"]);
    assert!(script.starts_with("#compdef muster\n"), "{script}");
    let call = "if [[ $funcstack[1] == _muster ]]; then\n    _clap_dynamic_completer_muster";
    assert!(script.contains(call), "{script}");
}

/// What bash does when tab is pressed after these words.
const TAB: &str = r#"
tab() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _clap_complete_muster muster "${@: -1}" "${@: -2:1}"; printf '%s\n' "${COMPREPLY[@]}"; }
tab muster compute li
tab muster compute list --qu
"#;

#[test]
fn bash_itself_completes_words() {
    let site = Site::empty();
    let script = site.text(&["completion", "bash"]) + TAB;
    let file = site.folder().join("completion.bash");
    std::fs::write(&file, script).expect("it can be written");
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_muster")).parent().expect("a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut bash = std::process::Command::new("bash");
    let completed = done(bash.arg(file).env("PATH", path).output().expect("bash runs"));
    let text = String::from_utf8(completed.stdout).expect("text");
    assert_eq!(
        text, "list\nlist-nodes\nlist-post-mortems\nlist-sizes\nlist-usage\n--query\n",
        "{}",
        completed.stderr
    );
}
