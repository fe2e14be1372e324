//! Tests against the real kernel, as root or with a delegated group.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use muster_core::model::Exit;
use rustix::process::Pid;

use super::super::Watch;
use super::*;

const SHARE: Capacity = Capacity { vcpus: 1, memory_mb: 64, gpus: 0 };

/// A node's group, which is removed when the test ends.
struct Node {
    groups: Option<Arc<JobGroups>>,
    group: Group,
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.groups.take());
        self.group.kill().unwrap();
        self.group.remove().unwrap();
    }
}

impl Node {
    fn take(&self, name: &str, share: Capacity) -> JobGroup {
        self.groups.as_ref().unwrap().take(name, &share).unwrap().unwrap()
    }
}

fn node(test: &str) -> Option<Node> {
    let groups = Groups::find();
    let enforced = groups.enforced();
    if let Err(why) = enforced.cpu.and(enforced.memory).and(enforced.pids) {
        muster_testing::skip_or_fail(&why);
        return None;
    }
    let instance = format!("test-{}-{test}", std::process::id());
    let limits = Limits { millicores: 2000, memory_bytes: 256 << 20, pids: 200 };
    let group = groups.make(&instance, "n1", &limits).unwrap();
    let node = NodeGroup {
        group: group.clone(),
        millicores: Some(limits.millicores),
        memory_bytes: Some(limits.memory_bytes),
    };
    Some(Node { groups: Some(Arc::new(JobGroups::below(Some(node)))), group })
}

/// Starts a shell that runs the script once it is in the group.
fn start(group: &JobGroup, script: &str) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("read go; {script}")]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    group.group().add(Pid::from_child(&child)).unwrap();
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    child
}

fn read(group: &JobGroup, name: &str) -> String {
    let files = group.folders().into_iter().map(|folder| folder.join(name));
    let text = files.filter_map(|file| std::fs::read_to_string(file).ok()).next();
    text.unwrap_or_else(|| panic!("no {name}")).trim().to_owned()
}

#[test]
fn a_group_is_used_again_for_the_same_limits_only_and_is_removed_in_the_end() {
    let Some(node) = node("again") else { return };
    let first = node.take("1", SHARE);
    let folders = first.folders();
    start(&first, "true").wait().unwrap();
    let second = node.take("2", SHARE);
    assert_ne!(second.folders(), folders, "the first job still runs");
    drop(first);
    let larger = node.take("3", Capacity { memory_mb: 128, ..SHARE });
    assert_ne!(larger.folders(), folders, "it has other limits");
    let again = node.take("4", SHARE);
    assert_eq!(again.folders(), folders);
    assert!(again.group().is_empty().unwrap());
    assert_eq!(again.group().millicores(), Some(1000));
    let limit = again.group().shortage().unwrap().unwrap().limit_bytes;
    assert_eq!(limit, Some(64 << 20));
    assert_eq!(read(&again, "pids.max"), PROCESSES_MAX.to_string());
    [again, second, larger].into_iter().for_each(drop);
    let groups = node.groups.clone().unwrap();
    assert_eq!(lock(&groups.kept).len(), 3);
    // The oldest ones are removed if there are too many.
    let many: Vec<_> = (5..5 + KEPT_MAX).map(|name| node.take(&name.to_string(), SHARE)).collect();
    drop(many);
    assert_eq!(lock(&groups.kept).len(), KEPT_MAX);
    groups.remove_older_than(KEPT_FOR);
    assert_eq!(lock(&groups.kept).len(), KEPT_MAX, "they are not old");
    groups.remove_older_than(Duration::ZERO);
    assert_eq!(lock(&groups.kept).len(), 0);
    assert!(folders.iter().all(|folder| !folder.exists()));
}

#[test]
fn the_next_job_starts_with_nothing_used_and_nothing_killed() {
    let Some(node) = node("counters") else { return };
    let first = node.take("1", SHARE);
    let folders = first.folders();
    let bomb = "ulimit -v 1000000; x=0123456789; while :; do x=$x$x; done";
    let watch = || Watch::new(PathBuf::from("/"), None, Some(first.memory()));
    let watched = watch();
    start(&first, bomb).wait().unwrap();
    let over = |exit: Exit| matches!(exit, Exit::OverLimit { .. });
    assert!(over(watched.explained(Exit::Signal(9))));
    // The agent starts to watch a job after it has started, when it may already have been killed.
    assert!(over(watch().explained(Exit::Signal(9))));
    assert!(first.used_us() > 0);
    drop(first);
    let second = node.take("2", SHARE);
    assert_eq!(second.folders(), folders);
    assert_eq!(second.used_us(), 0);
    let watched = Watch::new(PathBuf::from("/"), None, Some(second.memory()));
    assert!(!over(watched.explained(Exit::Signal(9))), "another job was killed");
}

impl JobGroup {
    fn used_us(&self) -> u64 {
        self.group.cpu_us().unwrap().unwrap() - self.cpu_before_us
    }
}

#[test]
fn a_group_in_which_something_is_left_is_not_used_again() {
    let Some(node) = node("left") else { return };
    let first = node.take("1", SHARE);
    let folders = first.folders();
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let fill = format!("exec head -c 16777216 /dev/zero > {}", file.path().display());
    assert!(start(&first, &fill).wait().unwrap().success());
    drop(first);
    assert!(folders.iter().all(|folder| !folder.exists()), "memory is left");
    let second = node.take("2", SHARE);
    let mut child = start(&second, "exec sleep 1000");
    assert!(!is_as_new(second.group(), &second.limits), "a process is left");
    child.kill().unwrap();
    assert!(!is_as_new(second.group(), &second.limits), "a process is not reaped");
    child.wait().unwrap();
    assert!(is_as_new(second.group(), &second.limits));
}
