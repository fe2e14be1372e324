//! Tests every part of a sandbox once, each in its own child process, because the kernel may support a feature and
//! still forbid it here. Everything ends with the child; no file is written and no group is created.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, geteuid, kill_process, waitpid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::helper::hub::own_users;
use crate::job::filter::Filter;
use crate::mounts;
use crate::node::trial;

/// An error explains to the operator why it does not work.
pub type Tried = Result<(), String>;

/// The result for every part of a node's sandbox, and for a whole node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub users: Tried,
    pub processes: Tried,
    pub mounts: Tried,
    pub network: Tried,
    pub ipc: Tried,
    pub host_name: Tried,
    /// Making mounts read-only as a whole: `open_tree` and `mount_setattr`, since Linux 5.12.
    pub protected_mounts: Tried,
    /// The system-call filter that every job gets.
    pub seccomp: Tried,
    /// Everything at once, as the helper does it.
    pub node: Tried,
}

/// Runs the tests. It takes at most `within`, and a few milliseconds if everything works. It forks, so call it before
/// any thread is started.
pub fn run(within: Duration) -> Probe {
    let deadline = Instant::now() + within;
    let namespace = |flag| attempt(deadline, || unshared(flag));
    Probe {
        users: attempt(deadline, own_users),
        processes: attempt(deadline, processes),
        mounts: namespace(UnshareFlags::NEWNS),
        network: namespace(UnshareFlags::NEWNET),
        ipc: namespace(UnshareFlags::NEWIPC),
        host_name: namespace(UnshareFlags::NEWUTS),
        protected_mounts: attempt(deadline, protected_mounts),
        seccomp: attempt(deadline, seccomp),
        node: attempt(deadline, || {
            trial::make().map_err(|failed| io::Error::other(failed.describe()))
        }),
    }
}

/// Without root, every other namespace has to be inside a user namespace of ours.
fn unshared(flag: UnshareFlags) -> io::Result<()> {
    if !geteuid().is_root() {
        own_users()?;
    }
    // SAFETY: this process has one thread, and no descriptors are unshared.
    Ok(unsafe { unshare_unsafe(flag) }?)
}

/// A PID namespace applies to children, so only a child shows that it works.
fn processes() -> io::Result<()> {
    unshared(UnshareFlags::NEWPID)?;
    let (report_in, report_out) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: there is one thread, and the child only makes system calls.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let is_first = rustix::process::getpid().as_raw_nonzero().get() == 1;
            let _ = rustix::io::write(&report_out, if is_first { b"1" } else { b"0" });
            // SAFETY: as above.
            unsafe { libc::_exit(0) }
        }
        _ => {
            drop(report_out);
            let mut said = String::new();
            File::from(report_in).read_to_string(&mut said)?;
            match said.as_str() {
                "1" => Ok(()),
                _ => Err(io::Error::other("its first process does not have PID 1")),
            }
        }
    }
}

fn protected_mounts() -> io::Result<()> {
    use rustix::mount::{MountPropagationFlags, OpenTreeFlags, mount_change};
    unshared(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let taken = mounts::take_up("/usr".as_ref(), OpenTreeFlags::empty())?;
    mounts::put(&taken, "/tmp".as_ref())?;
    mounts::make_read_only("/tmp".as_ref(), true)
}

/// Applies the filter of jobs, under which the child can still report the result.
fn seccomp() -> io::Result<()> {
    Filter::new().and_then(|filter| filter.apply()).map_err(io::Error::other)
}

/// Runs `act` in a child, which is killed when the time is up.
fn attempt(deadline: Instant, act: impl FnOnce() -> io::Result<()>) -> Tried {
    let failed = |error: &dyn std::fmt::Display| format!("cannot be tested: {error}");
    let (report_in, report_out) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(&io::Error::from(error)))?;
    // SAFETY: the caller guarantees that there is only one thread, so the child may do anything that its parent may.
    let pid = unsafe { libc::fork() };
    let child = match Pid::from_raw(pid) {
        Some(child) if pid > 0 => child,
        Some(_) => return Err(failed(&io::Error::last_os_error())),
        None => {
            drop(report_in);
            // SAFETY: no memory is passed. The child is killed if its parent dies.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let said = act().map_or_else(|error| error.to_string(), |()| String::new());
            let _ = rustix::io::write(&report_out, said.as_bytes());
            // SAFETY: exits the child without running its parent's cleanup.
            unsafe { libc::_exit(i32::from(!said.is_empty())) }
        }
    };
    drop(report_out);
    let heard = read_until_closed(report_in, deadline);
    if heard.is_none() {
        let _ = kill_process(child, Signal::KILL);
    }
    let ended = waitpid(Some(child), WaitOptions::empty());
    let is_well = matches!(ended, Ok(Some((_, status))) if status.exit_status() == Some(0));
    match heard {
        None => Err("timed out".to_owned()),
        Some(said) if said.is_empty() && is_well => Ok(()),
        Some(said) if said.is_empty() => Err("the child that tested it was killed".to_owned()),
        Some(said) => Err(said),
    }
}

/// Reads until every process has closed the other end. Returns `None` on a timeout.
fn read_until_closed(report: OwnedFd, deadline: Instant) -> Option<String> {
    let mut said = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok()?;
        let mut waited = [PollFd::new(&report, PollFlags::IN)];
        match poll(&mut waited, Some(&left)) {
            Ok(0) => return None,
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return None,
            Ok(_) => {}
        }
        let mut piece = [0; 512];
        match rustix::io::read(&report, &mut piece) {
            Ok(0) => return Some(String::from_utf8_lossy(&said).into_owned()),
            Ok(length) => said.extend_from_slice(&piece[..length]),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn the_report_of_a_child_is_read_and_nothing_of_it_remains() {
        let before = std::fs::read_link("/proc/self/ns/uts").unwrap();
        assert_eq!(attempt(soon(), || Ok(())), Ok(()));
        assert_eq!(attempt(soon(), || Err(io::Error::other("no"))), Err("no".to_owned()));
        let tried = run(Duration::from_secs(60));
        // If one namespace does not work, a whole node cannot be created either.
        let all = [&tried.users, &tried.processes, &tried.mounts, &tried.network, &tried.ipc];
        if let Some(Err(why)) = all.into_iter().find(|tried| tried.is_err()) {
            muster_testing::skip_or_fail(&format!("no sandboxes here: {why}"));
            assert!(tried.node.is_err(), "{tried:?}");
        }
        if geteuid().is_root() && tried.users.is_ok() {
            assert_eq!(tried.mounts, Ok(()), "{tried:?}");
        }
        assert_eq!(std::fs::read_link("/proc/self/ns/uts").unwrap(), before);
        assert!(!std::path::Path::new("/tmp/share/doc").exists(), "a mount is visible outside");
    }

    #[test]
    fn a_child_that_hangs_times_out_and_is_killed() {
        let started = Instant::now();
        let tried = attempt(started + Duration::from_millis(50), || {
            std::thread::sleep(Duration::from_secs(600));
            Ok(())
        });
        assert_eq!(tried, Err("timed out".to_owned()));
        assert!(started.elapsed() < Duration::from_secs(300));
    }

    #[test]
    fn a_killed_child_is_reported() {
        let tried = attempt(soon(), || {
            rustix::process::kill_process(rustix::process::getpid(), Signal::KILL)?;
            Ok(())
        });
        assert_eq!(tried, Err("the child that tested it was killed".to_owned()));
    }
}
