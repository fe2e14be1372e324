//! The victims of a storm of kills, and how the processes on this machine are told apart.

use std::path::Path;

use super::sandbox::processes;

/// Numbers drawn from a seed: the same seed gives the same numbers.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// Weyl's sequence, mixed.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let number = self.below(all.len().max(1) as u64);
        all.get(usize::try_from(number).expect("small"))
    }

    /// Jobs are hit most often, because there are most of them.
    pub fn victim(&mut self) -> Victim {
        match self.below(10) {
            0 => Victim::Server,
            1 | 2 => Victim::Helper,
            3 | 4 => Victim::Agent,
            5 | 6 => Victim::Node,
            _ => Victim::Job,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    Server,
    Helper,
    Agent,
    /// The first process of a node.
    Node,
    /// Any process of a job.
    Job,
}

impl Victim {
    pub const ALL: [Victim; 5] =
        [Victim::Server, Victim::Helper, Victim::Agent, Victim::Node, Victim::Job];

    /// All processes of this kind, each with its job, if it belongs to one.
    pub fn find(self, mark: &str, state: &str) -> Vec<(u32, Option<String>)> {
        // A node's first process and the slirp process have the helper's command line, and names of their own.
        let helpers = |wanted| {
            processes(&["helper", state]).into_iter().filter(move |pid| name(*pid) == wanted)
        };
        let found: Vec<u32> = match self {
            Victim::Server => Vec::new(),
            Victim::Helper => helpers("muster").collect(),
            Victim::Node => helpers("muster-node").collect(),
            Victim::Agent => agents(mark).filter(|pid| depth(*pid, mark) < 2).collect(),
            Victim::Job => {
                let all = Marks::of_all(mark).into_iter();
                return all.map(|marks| (marks.pid, Some(marks.job))).collect();
            }
        };
        found.into_iter().map(|pid| (pid, None)).collect()
    }
}

/// Everything with an agent's command line: the agent itself, the process that starts its jobs, and the first process
/// of each job.
fn agents(mark: &str) -> impl Iterator<Item = u32> {
    processes(&["agent", "--sandboxed", &format!("--node {mark}-")]).into_iter()
}

/// How many of its parents are agents, too: none for an agent itself, one for the process that starts its jobs.
fn depth(pid: u32, mark: &str) -> usize {
    let is_agent = |pid: &u32| agents(mark).any(|agent| agent == *pid);
    std::iter::successors(parent(pid), |pid| parent(*pid)).take_while(is_agent).count()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The first process of the job that this one belongs to, unless it has just ended.
pub fn first_of_job(pid: u32, mark: &str) -> Option<u32> {
    let first = std::iter::successors(Some(pid), |pid| parent(*pid)).nth(1)?;
    (depth(first, mark) == 2).then_some(first)
}

/// What the variables of a job's process say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marks {
    pub pid: u32,
    pub job: String,
    pub epoch: String,
}

impl Marks {
    fn of(pid: u32) -> Option<Marks> {
        let variables = variables(pid)?;
        let value = |name| value(&variables, name);
        Some(Marks { pid, job: value("MUSTER_JOB_NAME")?, epoch: value("MUSTER_EPOCH")? })
    }

    /// The processes of all jobs whose names begin with this prefix.
    pub fn of_all(mark: &str) -> Vec<Marks> {
        let all = pids().filter_map(Marks::of);
        all.filter(|marks| marks.job.starts_with(mark)).collect()
    }

    /// Whether it is still the same process. A process that has ended shows no variables.
    pub fn lives(&self) -> bool {
        Marks::of(self.pid).is_some_and(|now| now == *self)
    }
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn name(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

fn variables(pid: u32) -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{pid}/environ")).ok()
}

fn value(variables: &[u8], name: &str) -> Option<String> {
    let mut entries = variables.split(|byte| *byte == 0);
    let value = entries
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
        .map(<[u8]>::to_vec)?;
    String::from_utf8(value).ok()
}

/// Every process that was started with this folder or this mark in its command line or its variables, except the one
/// that asks.
pub fn ours(state: &Path, mark: &str) -> Vec<u32> {
    let state = state.display().to_string();
    let is_named = |pid: &u32, file: &str| {
        let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.contains(&state) || text.contains(mark)
    };
    let others = pids().filter(|pid| *pid != std::process::id());
    others.filter(|pid| is_named(pid, "cmdline") || is_named(pid, "environ")).collect()
}
