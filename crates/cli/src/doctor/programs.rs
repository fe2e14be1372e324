//! Programs and devices that jobs may need. The server does not depend on them, so findings are warnings at worst.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use muster_providers::sandboxed::gpus::{self, Gpu, Gpus};
use muster_server::environments::find_uv;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};

use super::finding::{Finding, State};
use crate::failure::brief;

/// How each program is asked for its version, or whether its counterpart is available.
const ASKED: [(&str, &[&str]); 7] = [
    ("podman", &["--version"]),
    ("docker", &["--version"]),
    (DOCKER_SERVER, &["version", "--format", "{{.Server.Version}}"]),
    ("git", &["--version"]),
    ("python3", &["--version"]),
    ("slirp4netns", &["--version"]),
    ("ssh", &["-V"]),
];
/// The docker program again, asked about its server.
const DOCKER_SERVER: &str = "docker server";
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a program printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The program is not installed.
    Absent,
    /// The first line of its output.
    ApiResponse(String),
    /// It failed; this is the first line of its output.
    Failed(String),
    Late,
}

pub struct Answers {
    pub programs: Vec<(&'static str, Said)>,
    /// The version that the kernel part of NVIDIA's driver reports.
    pub nvidia_driver: Option<String>,
    pub gpus: Gpus,
}

/// Programs that run in the background.
pub struct Asked {
    running: Vec<(&'static str, Option<Running>)>,
    deadline: Instant,
}

struct Running {
    child: Child,
    outputs: Vec<File>,
}

/// Starts all programs at once.
pub fn ask(within: Duration) -> Asked {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let started = ASKED.iter().map(|(name, arguments)| {
        let program = find(&folders, name.split(' ').next().unwrap_or(name));
        (*name, program.and_then(|program| start(&program, arguments)))
    });
    Asked { running: started.collect(), deadline: Instant::now() + within }
}

fn find(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    // A relative folder could contain programs of another user.
    let absolute = folders.iter().filter(|folder| folder.is_absolute());
    absolute.map(|folder| folder.join(name)).find(|path| {
        let about = std::fs::metadata(path);
        about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    })
}

/// The program runs in its own process group, so that it can be killed together with its children.
fn start(program: &Path, arguments: &[&str]) -> Option<Running> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let stdout = child.stdout.take().map(|pipe| File::from(std::os::fd::OwnedFd::from(pipe)));
    let stderr = child.stderr.take().map(|pipe| File::from(std::os::fd::OwnedFd::from(pipe)));
    let outputs: Vec<File> = stdout.into_iter().chain(stderr).collect();
    for output in &outputs {
        // A child of the program may hold the pipe open indefinitely.
        if let Ok(flags) = fcntl_getfl(output) {
            let _ = fcntl_setfl(output, flags | OFlags::NONBLOCK);
        }
    }
    Some(Running { child, outputs })
}

impl Asked {
    /// The path may come from a setting, and settings are read later.
    pub fn ask_uv(&mut self, setting: Option<&Path>) {
        let program = find_uv(setting).ok();
        self.running.push(("uv", program.and_then(|program| start(&program, &["--version"]))));
    }

    pub fn answers(self) -> Answers {
        let deadline = self.deadline;
        let answer =
            |running: Option<Running>| running.map_or(Said::Absent, |it| it.answer(deadline));
        let running = self.running.into_iter();
        let driver = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
        Answers {
            programs: running.map(|(name, running)| (name, answer(running))).collect(),
            nvidia_driver: driver.map(|text| first_line(text.as_bytes())),
            gpus: gpus::find(),
        }
    }
}

impl Running {
    fn answer(mut self, deadline: Instant) -> Said {
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK_EVERY),
                Ok(None) | Err(_) => {
                    // The process id is still valid: the process has not been reaped.
                    let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
                    let _ = self.child.wait();
                    return Said::Late;
                }
            }
        };
        let mut bytes = [0; 4096];
        let mut lines = self.outputs.iter().map(|output| {
            let length = rustix::io::read(output, &mut bytes).unwrap_or(0);
            first_line(&bytes[..length])
        });
        let said = lines.find(|line| !line.is_empty()).unwrap_or_default();
        if status.success() { Said::ApiResponse(said) } else { Said::Failed(said) }
    }
}

fn first_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    brief(text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default())
}

impl Answers {
    fn of(&self, name: &str) -> &Said {
        let found = self.programs.iter().find(|(known, _)| *known == name);
        found.map_or(&Said::Absent, |(_, said)| said)
    }
}

pub fn check(answers: &Answers) -> Vec<Finding> {
    let mut findings = vec![engine(answers), gpu(answers)];
    for (name, absent, meaning, fix) in [
        ("git", State::Note, "records the revision of a job's code", "apt install git"),
        (
            "uv",
            State::Warning,
            "builds the Python environments of jobs; without it, jobs that need one fail",
            "pip install uv, and set its path with the setting uv",
        ),
        (
            "python3",
            State::Note,
            "Python jobs need an interpreter on this machine",
            "apt install python3",
        ),
        ("ssh", State::Note, "connects to nodes that allow it", "apt install openssh-client"),
    ] {
        findings.push(program(name, &[(name, answers.of(name))], (absent, meaning, fix)));
    }
    let internet = [("slirp4netns", answers.of("slirp4netns"))];
    let meaning =
        "gives sandboxed nodes internet access if egress is true; without it, jobs have none";
    let fix = "apt install slirp4netns, or set egress = false";
    findings.push(program("internet-access", &internet, (State::Warning, meaning, fix)));
    findings
}

/// Reports the first of these programs that is installed. The tuple is the state if none works, the meaning, and the
/// remedy.
fn program(
    id: &'static str,
    named: &[(&str, &Said)],
    (absent, meaning, fix): (State, &'static str, &str),
) -> Finding {
    match named.iter().find(|(_, said)| **said != Said::Absent) {
        Some((_, Said::ApiResponse(version))) if !version.is_empty() => {
            Finding::ok(id, version, meaning)
        }
        Some((name, Said::Late)) => {
            Finding::note(id, format!("{name} did not report its version in time"), meaning)
        }
        Some((name, Said::Failed(why))) => {
            Finding::new(id, absent, format!("{name} does not work: {why}"), meaning).fix(fix)
        }
        Some((name, _)) => Finding::ok(id, *name, meaning),
        None => {
            let names = named.iter().map(|(name, _)| *name).filter(|name| *name != id);
            let found: Vec<&str> = names.chain(["not found"]).collect();
            Finding::new(id, absent, found.join(" "), meaning).fix(fix)
        }
    }
}

fn engine(answers: &Answers) -> Finding {
    const ID: &str = "container-engine";
    const MEANING: &str = "needed only by jobs whose environment is an image";
    let mut parts: Vec<String> = Vec::new();
    let mut is_usable = false;
    if let Said::ApiResponse(version) = answers.of("podman") {
        parts.push(version.clone());
        is_usable = true;
    }
    match (answers.of("docker"), answers.of(DOCKER_SERVER)) {
        (Said::Absent, _) => {}
        (_, Said::ApiResponse(version)) if !version.is_empty() => {
            parts.push(format!("docker, server {version}"));
            is_usable = true;
        }
        (_, Said::Late) => parts.push("docker, whose server does not respond in time".to_owned()),
        (_, _) => parts.push("docker, whose server cannot be reached".to_owned()),
    }
    let found = parts.join("; ");
    match is_usable {
        true => Finding::ok(ID, found, MEANING),
        false if found.is_empty() => {
            Finding::note(ID, "neither podman nor docker found", MEANING).fix("apt install podman")
        }
        false => Finding::note(ID, found, MEANING)
            .fix("systemctl start docker and usermod -aG docker USER, or apt install podman"),
    }
}

fn gpu(answers: &Answers) -> Finding {
    const ID: &str = "gpu";
    const MEANING: &str = "sizes with GPUs need NVIDIA's driver and devices";
    let Gpus { found, silence } = &answers.gpus;
    match (&answers.nvidia_driver, &found[..], silence) {
        (None, [], _) => Finding::note(ID, "none", MEANING),
        (Some(_), [first, ..], None) => {
            let (count, first) = (found.len(), in_words(first));
            Finding::ok(ID, format!("{count}, the first is {first}"), MEANING)
        }
        (Some(driver), [_, ..], Some(why)) => {
            let why = brief(why);
            let found = format!("{}, driver {driver}; its library fails: {why}", found.len());
            Finding::note(ID, found, MEANING)
                .fix("apt install libnvidia-ml1, in the version of the driver")
        }
        (None, devices, _) => {
            Finding::note(ID, format!("{} devices, but no driver", devices.len()), MEANING)
                .fix("apt install nvidia-driver, and reboot")
        }
        (Some(driver), [], _) => {
            Finding::note(ID, format!("driver {driver}, but no device"), MEANING)
                .fix("nvidia-modprobe -c 0 -u")
        }
    }
}

fn in_words(gpu: &Gpu) -> String {
    let name = brief(gpu.name.as_deref().unwrap_or("unnamed"));
    match gpu.memory_bytes {
        Some(bytes) => format!("{name}, {} MiB", bytes >> 20),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(programs: &[(&'static str, Said)]) -> Answers {
        let gpus = Gpus { found: Vec::new(), silence: None };
        Answers { programs: programs.to_vec(), nvidia_driver: None, gpus }
    }

    fn answer(text: &str) -> Said {
        Said::ApiResponse(text.to_owned())
    }

    #[test]
    fn what_jobs_need_is_a_warning_with_its_remedy_and_the_rest_a_note() {
        for finding in check(&with(&[])) {
            let wanted = match finding.id {
                "uv" | "internet-access" => State::Warning,
                _ => State::Note,
            };
            assert_eq!(finding.state, wanted, "{finding:?}");
            let fix = finding.fix.as_deref().unwrap_or_default();
            assert!(wanted == State::Note || fix.contains(" install "), "{finding:?}");
        }
        let all = ["podman", "docker", "git", "uv", "python3", "slirp4netns", "ssh", DOCKER_SERVER];
        let all: Vec<_> = all.into_iter().map(|name| (name, answer("1.2"))).collect();
        let findings = check(&with(&all));
        let notes = findings.iter().filter(|finding| finding.state != State::Ok);
        assert_eq!(notes.map(|finding| finding.id).collect::<Vec<_>>(), ["gpu"]);
    }

    #[test]
    fn an_engine_is_there_reachable_or_not() {
        let docker = ("docker", answer("Docker version 28"));
        for (programs, state, words) in [
            (vec![("podman", answer("podman version 4"))], State::Ok, "podman version 4"),
            (vec![docker.clone(), (DOCKER_SERVER, answer("20.10"))], State::Ok, "server 20.10"),
            (vec![docker.clone(), (DOCKER_SERVER, Said::Late)], State::Note, "in time"),
            (
                vec![docker, (DOCKER_SERVER, Said::Failed("no daemon".to_owned()))],
                State::Note,
                "cannot be reached",
            ),
            (vec![], State::Note, "neither"),
        ] {
            let finding = engine(&with(&programs));
            assert_eq!(finding.state, state, "{finding:?}");
            assert!(finding.found.contains(words), "{finding:?}");
        }
    }

    #[test]
    fn a_gpu_is_a_driver_and_a_device() {
        let driver = || Some("NVRM version: 550".to_owned());
        let a100 = |number| Gpu {
            number,
            uuid: None,
            name: Some("NVIDIA A100".to_owned()),
            memory_bytes: Some(40 << 30),
        };
        let no_library = || Some("cannot open libnvidia-ml.so.1".to_owned());
        for (nvidia_driver, found, silence, words) in [
            (None, vec![], no_library(), "none"),
            (driver(), vec![a100(0), a100(1)], None, "2, the first is NVIDIA A100, 40960 MiB"),
            (driver(), vec![a100(0)], no_library(), "its library fails: cannot open"),
            (None, vec![a100(0)], no_library(), "1 devices, but no driver"),
            (driver(), vec![], None, "but no device"),
        ] {
            let gpus = Gpus { found, silence };
            let finding = gpu(&Answers { programs: Vec::new(), nvidia_driver, gpus });
            assert!(finding.found.contains(words), "{finding:?}");
        }
    }

    #[test]
    fn a_program_that_hangs_or_fails_is_reported() {
        let shell = Path::new("/bin/sh");
        let run = |script: &str, within| {
            let running = start(shell, &["-c", script]).unwrap();
            running.answer(Instant::now() + within)
        };
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(50));
        assert_eq!(run("echo; echo a b; echo c", long), answer("a b"));
        assert_eq!(run("echo v 1 >&2", long), answer("v 1"));
        assert_eq!(run("echo no; exit 3", long), Said::Failed("no".to_owned()));
        let started = Instant::now();
        assert_eq!(run("sleep 600 & sleep 600", short), Said::Late);
        // A child that still holds the pipe is not waited for.
        assert_eq!(run("echo v; sleep 20 & exit 0", long), answer("v"));
        assert!(started.elapsed() < Duration::from_secs(20));
        let said = |said: Said| program("uv", &[("uv", &said)], (State::Warning, "", "")).found;
        assert_eq!(said(Said::Late), "uv did not report its version in time");
        assert_eq!(said(Said::Failed("broken".to_owned())), "uv does not work: broken");
        assert_eq!(said(answer("")), "uv");
    }

    #[test]
    fn programs_are_looked_for_in_absolute_folders() {
        let folders = [PathBuf::from("."), "bin".into(), "/bin".into()];
        assert_eq!(find(&folders, "sh"), Some("/bin/sh".into()));
        assert_eq!(find(&folders, "no-such-program"), None);
        assert_eq!(find(&[PathBuf::from("/")], "bin"), None, "a folder is not a program");
    }
}
