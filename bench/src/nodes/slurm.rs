//! Slurm, from the distribution's packages: its daemons with a key, a configuration and a network of their own.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::keep::{self, Kept};
use super::local::parse_stamp;
use super::network::Network;
use super::{Bulk, Crash, Figures, NO_OP, PATIENCE, STAMP, settle};
use crate::raw::unix_ns;
use crate::report::Samples;

const NAME: &str = "Slurm";
/// Slurm takes long to release a job, so it needs many more slots than cores for its best figures.
const SLOTS: usize = 256;
/// At tens of jobs per second, more would only take longer.
const TASKS_MAX: usize = 1_000;
const RUNS_MAX: usize = 30;
const COMMAND_TIME: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

pub fn measure(folder: &Path, runs: usize, tasks: usize, crash_tasks: usize) -> Result<Figures> {
    for program in ["munged", "slurmctld", "slurmd", "srun"] {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there = std::env::split_paths(&path).any(|folder| folder.join(program).exists());
        ensure!(is_there, "there is no {program}; `make setup-peers` installs it");
    }
    let mut slurm = Slurm::start(folder.join("slurm"))?;
    let mut warm = Samples::default();
    for run in 0..=runs.min(RUNS_MAX) {
        let before = unix_ns();
        let started = parse_stamp(&slurm.run(&["srun", "/bin/sh", "-c", STAMP])?)?;
        if run > 0 {
            warm.add(Duration::from_nanos(started.saturating_sub(before)));
        }
    }
    let tasks = tasks.min(TASKS_MAX);
    let (started, before) = (Instant::now(), slurm.cpu());
    slurm.submit_array(tasks, NO_OP)?;
    slurm.wait_until_empty()?;
    let bulk = Bulk { tasks, took: started.elapsed(), cpu: slurm.cpu().saturating_sub(before) };

    let lines = slurm.folder.join("lines");
    let append = format!("echo $SLURM_ARRAY_TASK_ID >> {}", lines.display());
    slurm.submit_array(crash_tasks, &append)?;
    settle::wait_for_half(&lines, crash_tasks)?;
    keep::signal(slurm.controller.pid, Signal::KILL);
    let started = Instant::now();
    slurm.controller = slurm.daemon(&controller_words(&slurm.folder))?;
    wait_for("its controller", || slurm.queue().is_ok())?;
    let has_more = || slurm.queue().is_ok_and(|queue| !queue.is_empty());
    let crash =
        Some(Crash::of(crash_tasks, &settle::count(&lines, crash_tasks, has_more), started));
    Ok(Figures { name: NAME, warm, bulk, crash })
}

/// The parts are ended in this order.
struct Slurm {
    node: Option<Kept>,
    controller: Kept,
    munge: Kept,
    network: Network,
    folder: PathBuf,
}

impl Slurm {
    fn start(folder: PathBuf) -> Result<Slurm> {
        for part in ["state", "spool"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let key = folder.join("munge.key");
        let mut secret = [0; 128];
        fs::File::open("/dev/urandom")?.read_exact(&mut secret)?;
        fs::write(&key, secret)?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
        fs::write(folder.join("slurm.conf"), configuration(&folder))?;
        let network = Network::make()?;
        let munge = start(&network, &folder, &munge_words(&folder))?;
        wait_for("munged", || folder.join("munge.socket").exists())?;
        let controller = start(&network, &folder, &controller_words(&folder))?;
        let mut slurm = Slurm { node: None, controller, munge, network, folder };
        slurm.node = Some(slurm.daemon(&node_words(&slurm.folder))?);
        wait_for("its node", || {
            slurm
                .run(&["sinfo", "--noheader", "--format=%t"])
                .is_ok_and(|state| state.trim() == "idle")
        })?;
        Ok(slurm)
    }

    fn daemon(&self, words: &[String]) -> Result<Kept> {
        start(&self.network, &self.folder, words)
    }

    fn cpu(&self) -> Duration {
        let node = self.node.as_ref().map_or(Duration::ZERO, Kept::cpu);
        self.controller.cpu() + self.munge.cpu() + node
    }

    fn submit_array(&self, tasks: usize, script: &str) -> Result<()> {
        let (array, wrap) = (format!("--array=1-{tasks}"), format!("--wrap={script}"));
        let quiet = ["--output=/dev/null", "--error=/dev/null"];
        self.run(&["sbatch", &array, quiet[0], quiet[1], &wrap])?;
        Ok(())
    }

    fn queue(&self) -> Result<String> {
        Ok(self.run(&["squeue", "--noheader", "--format=%i"])?.trim().to_owned())
    }

    fn wait_until_empty(&self) -> Result<()> {
        let started = Instant::now();
        while !self.queue()?.is_empty() {
            ensure!(started.elapsed() < PATIENCE, "its queue was not empty in time");
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Runs one of Slurm's commands, and returns its output.
    fn run(&self, words: &[&str]) -> Result<String> {
        let words = self.network.inside(words.iter().map(|word| (*word).to_owned()));
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .env("SLURM_CONF", self.folder.join("slurm.conf"))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut output = child.stdout.take().context("standard output is piped")?;
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            output.read_to_string(&mut text).map(|_| text)
        });
        let started = Instant::now();
        while child.try_wait()?.is_none() {
            if started.elapsed() > COMMAND_TIME {
                child.kill()?;
                child.wait()?;
                bail!("{words:?} did not end");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let text = reader.join().map_err(|_| anyhow::anyhow!("a reader panicked"))??;
        ensure!(child.wait()?.success(), "{words:?} failed");
        Ok(text)
    }
}

fn start(network: &Network, folder: &Path, words: &[String]) -> Result<Kept> {
    Kept::start(&network.inside(words.iter().cloned()), |command| {
        command.env("SLURM_CONF", folder.join("slurm.conf")).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    })
}

fn controller_words(folder: &Path) -> Vec<String> {
    let file = folder.join("slurm.conf").display().to_string();
    ["slurmctld", "-D", "-f", &file].map(str::to_owned).into()
}

fn node_words(folder: &Path) -> Vec<String> {
    let file = folder.join("slurm.conf").display().to_string();
    ["slurmd", "-D", "-N", "localhost", "-f", &file].map(str::to_owned).into()
}

fn munge_words(folder: &Path) -> Vec<String> {
    let parts = ["key-file", "socket", "pid-file", "seed-file", "log-file"];
    let names = ["munge.key", "munge.socket", "munge.pid", "munge.seed", "munge.log"];
    let options = parts.iter().zip(names);
    let options = options.map(|(part, name)| format!("--{part}={}", folder.join(name).display()));
    // It does not trust a folder that only its owner may enter.
    ["munged", "--foreground", "--force"].map(str::to_owned).into_iter().chain(options).collect()
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) -> Result<()> {
    let started = Instant::now();
    while !is_there() {
        ensure!(started.elapsed() < COMMAND_TIME, "{what} did not become ready");
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "ClusterName=bench
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MaxArraySize=100001
MaxJobCount=100001
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1,default_queue_depth=10000
NodeName=localhost NodeAddr=127.0.0.1 CPUs={SLOTS} State=UNKNOWN
PartitionName=main Nodes=localhost Default=YES MaxTime=INFINITE State=UP
"
    )
}
