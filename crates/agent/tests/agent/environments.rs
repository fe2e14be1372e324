//! The Python of jobs: built while they wait and preferred over the host's own, or missing with a reason.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use muster_agent::AgentError;
use muster_core::ids::Epoch;
use muster_core::model::{Exit, JobEnvironment, JobSpec, Recipe};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::harness::{Harness, spec, timing};

const NAME: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn job(command: &str, recipe: Option<Recipe>) -> JobSpec {
    let notes = vec!["the conda package numpy is installed from PyPI as numpy".into()];
    let variables = [("FROM_IT".to_owned(), "environment".to_owned())].into();
    let environment =
        JobEnvironment { id: "azureml:mine:1".into(), recipe, image: None, notes, variables };
    JobSpec { environment: Some(Box::new(environment)), ..spec(command) }
}

fn recipe() -> Option<Recipe> {
    Some(Recipe::new(None, vec!["numpy".into()]))
}

/// Creates a folder with an environment that prints its name instead of running anything, and a `python` that is only a
/// link.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join(NAME).join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::create_dir_all(folder.path().join(NAME).join("lib/python3.9/site-packages")).unwrap();
    std::fs::write(folder.path().join(NAME).join("pyvenv.cfg"), "home = /usr/bin\n").unwrap();
    std::fs::write(bin.join("python"), "#!/bin/sh\necho made here\n").unwrap();
    std::fs::set_permissions(bin.join("python"), PermissionsExt::from_mode(0o755)).unwrap();
    let plain = folder.path().join("plain/bin");
    std::fs::create_dir_all(&plain).unwrap();
    symlink("/usr/bin/python3", plain.join("python")).unwrap();
    folder
}

fn agent(harness: &Harness, folder: Option<&Path>) -> JoinHandle<Result<(), AgentError>> {
    let mut config = harness.config();
    config.environments = folder.map(PathBuf::from);
    tokio::spawn(muster_agent::run_with_timing(config, None, timing()))
}

/// The job's own layer over the environment.
fn layer(harness: &Harness, epoch: Epoch) -> String {
    harness.home.work(epoch).join(".python").display().to_string()
}

fn reason(exit: Exit) -> String {
    match exit {
        Exit::NotStarted { message } => message.into(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_job_waits_for_its_environment_and_finds_it_first() {
    let harness = Harness::new().await;
    let folder = folder();
    harness.server.change(|book| {
        book.environments = vec![
            json!({"state": "building", "said": ["Resolved 1 package"]}),
            json!({"state": "building"}),
            json!({"state": "ready", "folder": NAME, "notes": ["python 3.8 is not on this host"]}),
        ];
    });
    let agent = agent(&harness, Some(folder.path()));
    let command =
        "python; echo $VIRTUAL_ENV; echo $CONDA_PREFIX; echo $CONDA_DEFAULT_ENV; echo $PATH";
    let epoch = harness.assign_with(1, job(command, recipe()));
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    let log = harness.log(epoch);
    let place = layer(&harness, epoch);
    let lines: Vec<&str> = log.lines().collect();
    let wanted = [
        "muster: the conda package numpy is installed from PyPI as numpy",
        "muster: building environment azureml:mine:1",
        "muster: python 3.8 is not on this host",
        "made here",
        &place,
        &place,
        &place,
    ];
    assert_eq!(lines[..wanted.len()], wanted, "{log}");
    assert!(lines[wanted.len()].starts_with(&format!("{place}/bin:/")), "{log}");
    assert_eq!(harness.server.look().environments_asked_for, 3);
    agent.abort();
}

#[tokio::test]
async fn notes_from_submission_are_in_the_log_once() {
    let harness = Harness::new().await;
    let folder = folder();
    let said = "python 3.8 is not on this host";
    harness.server.change(|book| {
        let notes = json!([said, "another is used"]);
        book.environments = vec![json!({"state": "ready", "folder": NAME, "notes": notes})];
    });
    let agent = agent(&harness, Some(folder.path()));
    let mut job = job("python", recipe());
    job.properties.insert(JobSpec::NOTE.to_owned(), format!("x has no effect; {said}"));
    let epoch = harness.assign_with(1, job);
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    let log = harness.log(epoch);
    assert_eq!(log.matches(said).count(), 1, "{log}");
    assert!(log.contains("muster: another is used\n"), "{log}");
    agent.abort();
}

#[tokio::test]
async fn a_users_own_path_comes_after_the_environments() {
    let harness = Harness::new().await;
    let folder = folder();
    harness.server.change(|book| {
        book.environments = vec![json!({"state": "ready", "folder": NAME})];
    });
    let agent = agent(&harness, Some(folder.path()));
    let mut spec = job("echo $PATH $VIRTUAL_ENV $FROM_IT", recipe());
    let own = [("PATH", "/usr/bin:/bin"), ("VIRTUAL_ENV", "mine"), ("FROM_IT", "job")];
    for (name, value) in own {
        spec.environment_variables.insert(name.to_owned(), value.to_owned());
    }
    let epoch = harness.assign_with(1, spec);
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    let (own, shared) = (layer(&harness, epoch), folder.path().join(NAME));
    let wanted = format!("{own}/bin:{}/bin:/usr/bin:/bin mine job\n", shared.display());
    assert!(harness.log(epoch).ends_with(&wanted), "{}", harness.log(epoch));
    agent.abort();
}

#[tokio::test]
async fn the_hosts_own_python_is_found_by_both_its_names() {
    let harness = Harness::new().await;
    let folder = folder();
    let agent = agent(&harness, Some(folder.path()));
    let epoch = harness.assign_with(1, job("python -c 'print(6 * 7)'; echo $FROM_IT", None));
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    assert!(harness.log(epoch).ends_with("\n42\nenvironment\n"), "{}", harness.log(epoch));
    assert_eq!(harness.server.look().environments_asked_for, 0);
    agent.abort();
}

#[tokio::test]
async fn a_build_that_fails_is_in_the_log_of_a_job_that_never_ran() {
    let harness = Harness::new().await;
    let folder = folder();
    harness.server.change(|book| {
        book.environments = vec![
            json!({"state": "building"}),
            json!({"state": "failed", "message": "uv cannot install its packages: no such package",
                   "said": ["No solution found", "hint: it is not there"]}),
        ];
    });
    let agent = agent(&harness, Some(folder.path()));
    let epoch = harness.assign_with(1, job("echo ran", recipe()));
    let said = reason(harness.ending(epoch).await);
    assert_eq!(
        said,
        "the job's environment azureml:mine:1 is not available: uv cannot install its packages: no such package"
    );
    let log = harness.log(epoch);
    for wanted in ["muster: uv: No solution found\n", "muster: uv: hint: it is not there\n"] {
        assert!(log.contains(wanted), "{log}");
    }
    assert!(
        log.ends_with("cannot be built: uv cannot install its packages: no such package\n"),
        "{log}"
    );
    assert!(!log.contains("ran\n"));
    agent.abort();
}

#[tokio::test]
async fn cancelling_does_not_wait_for_the_build() {
    let harness = Harness::new().await;
    let folder = folder();
    harness.server.change(|book| book.environments = vec![json!({"state": "building"})]);
    let agent = agent(&harness, Some(folder.path()));
    let epoch = harness.assign_with(1, job("echo ran", recipe()));
    harness.until_log_has(epoch, "building environment").await;
    let asked = Instant::now();
    harness.server.change(|book| book.assignments.clear());
    assert_eq!(harness.ending(epoch).await, Exit::Stopped);
    assert!(!harness.log(epoch).contains("ran"));
    assert!(asked.elapsed() < Duration::from_secs(5));
    agent.abort();
}

#[tokio::test]
async fn a_node_without_environments_says_so_and_what_is_no_name_is_no_path() {
    let harness = Harness::new().await;
    let agent = agent(&harness, None);
    let epoch = harness.assign_with(1, job("echo ran", recipe()));
    let said = reason(harness.ending(epoch).await);
    assert!(said.contains("has no folder for environments"), "{said}");
    assert_eq!(harness.server.look().environments_asked_for, 0);
    // The host's own Python needs no folder.
    let epoch = harness.assign_with(2, job("python3 -c 'print(1)'", None));
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    agent.abort();

    for (name, wanted) in [
        ("../../etc", "is not the name of an environment"),
        (&"0".repeat(64), "is not visible on this node"),
    ] {
        let harness = Harness::new().await;
        let folder = folder();
        let answer = json!({"state": "ready", "folder": name});
        harness.server.change(|book| book.environments = vec![answer]);
        let agent = self::agent(&harness, Some(folder.path()));
        let epoch = harness.assign_with(1, job("echo ran", recipe()));
        let said = reason(harness.ending(epoch).await);
        assert!(said.contains(wanted), "{said}");
        agent.abort();
    }
}
