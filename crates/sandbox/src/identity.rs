//! Identifies processes. A PID alone is not enough, because the kernel reuses it.
//!
//! A process is identified by its PID, the clock tick at which it started and the boot in which it started. Signals are
//! sent through a pidfd that was compared with all three, so they can never reach an unrelated process.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, test_kill_process};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    /// Clock ticks from boot until the process started.
    pub start_ticks: u64,
    /// The kernel's id of the boot.
    pub boot: Box<str>,
}

impl Identity {
    pub fn own() -> io::Result<Identity> {
        Identity::of(std::process::id())?.ok_or_else(|| io::Error::other("/proc does not show us"))
    }

    /// Identifies the process that has this PID now. `None` if there is none, or if it is a zombie.
    pub fn of(pid: u32) -> io::Result<Option<Identity>> {
        let Some(stat) = Stat::of(pid).filter(Stat::is_alive) else { return Ok(None) };
        Ok(Some(Identity { pid, start_ticks: stat.start_ticks, boot: boot_id()? }))
    }

    /// Reads a recorded identity. A record that cannot be parsed counts as absent: it can only come from a host that
    /// lost power, and that ended the process too.
    pub fn read(path: &Path) -> io::Result<Option<Identity>> {
        match std::fs::read(path) {
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Records the identity atomically. The file is not synced: it means nothing after a reboot, and until then the
    /// page cache outlives every process.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let temporary = self.write_beside(path)?;
        std::fs::rename(temporary, path)
    }

    /// Like [`write`](Self::write), but keeps an existing record. Returns true if it wrote one.
    pub fn write_if_absent(&self, path: &Path) -> io::Result<bool> {
        let temporary = self.write_beside(path)?;
        let linked = std::fs::hard_link(&temporary, path);
        std::fs::remove_file(temporary)?;
        match linked {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn write_beside(&self, path: &Path) -> io::Result<std::path::PathBuf> {
        // The name contains the writer's PID because an agent and its provider may write at the same time.
        let temporary = path.with_extension(format!("{}.new", std::process::id()));
        std::fs::write(&temporary, serde_json::to_vec(self)?)?;
        Ok(temporary)
    }

    pub fn is_alive(&self) -> bool {
        Stat::of(self.pid)
            .is_some_and(|stat| stat.is_alive() && stat.start_ticks == self.start_ticks)
            && boot_id().is_ok_and(|boot| boot == self.boot)
    }

    /// Returns true if the process has certainly ended. `/proc` can hide other users' processes, so one that is not
    /// visible may still be alive.
    ///
    /// Containers mount an id of their own over the kernel's boot id, and systemd hides that mount from some services.
    /// So a different boot id proves nothing about a process that exists.
    pub fn has_surely_ended(&self) -> bool {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return true };
        match Stat::of(self.pid) {
            Some(stat) => !stat.is_alive() || stat.start_ticks != self.start_ticks,
            None => {
                boot_id().is_ok_and(|boot| boot != self.boot)
                    || test_kill_process(pid) == Err(rustix::io::Errno::SRCH)
            }
        }
    }

    /// Waits until the process [has surely ended](Self::has_surely_ended). Returns true if it ended in time.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(true);
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            // Compared after opening, as below.
            Ok(fd) if !self.has_surely_ended() => Handle { fd }.wait(at_most),
            Ok(_) | Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a handle to exactly this process, if it is still alive.
    pub fn open(&self) -> io::Result<Option<Handle>> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            // Compared after opening: if the process is alive now, the pidfd refers to it.
            Ok(fd) => Ok(self.is_alive().then_some(Handle { fd })),
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A handle to one process. It can never refer to another one.
#[derive(Debug)]
pub struct Handle {
    fd: OwnedFd,
}

impl Handle {
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.fd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the process to end. Returns true if it ended in time.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + at_most;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The parts of `/proc/PID/stat` that we need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    state: char,
    pub group: u32,
    pub session: u32,
    start_ticks: u64,
}

impl Stat {
    pub fn of(pid: u32) -> Option<Stat> {
        Stat::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The name of the command is in parentheses and may itself contain anything, even parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Stat {
            state: fields.first()?.chars().next()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            start_ticks: fields.get(19)?.parse().ok()?,
        })
    }

    /// Returns false for a zombie, which runs nothing any more.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

pub fn boot_id() -> io::Result<Box<str>> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_named_like_a_stat_line_does_not_confuse() {
        let line = "42 (a) Z 1 (b) S 1 7 9 0 -1 1 2 3 4 5 6 7 8 9 10 11 12 13 4711 15 16";
        let expected = Stat { state: 'S', group: 7, session: 9, start_ticks: 4711 };
        assert_eq!(Stat::parse(line), Some(expected));
        assert_eq!(Stat::parse("42 (short) S 1"), None);
    }

    #[test]
    fn a_process_is_known_by_more_than_its_pid() {
        let own = Identity::own().unwrap();
        assert!(own.is_alive());
        assert!(own.open().unwrap().is_some());
        let later = Identity { start_ticks: own.start_ticks + 1, ..own.clone() };
        assert!(!later.is_alive() && later.has_surely_ended() && !own.has_surely_ended());
        assert!(later.open().unwrap().is_none());
        let other_boot = Identity { boot: "other".into(), ..own.clone() };
        assert!(other_boot.open().unwrap().is_none());
        // The kernel never assigns a PID this large.
        let none = Identity { pid: 1 << 30, ..own };
        assert!(none.has_surely_ended() && none.wait(Duration::ZERO).unwrap());
    }

    #[test]
    fn in_a_container_with_two_boot_ids_a_process_that_exists_has_not_ended() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let seen = Identity::of(child.id()).unwrap().unwrap();
        let recorded = Identity { boot: "the container's own".into(), ..seen };
        assert!(!recorded.has_surely_ended() && !recorded.wait(Duration::ZERO).unwrap());
        child.kill().unwrap();
        assert!(recorded.wait(Duration::from_secs(10)).unwrap() && recorded.has_surely_ended());
        child.wait().unwrap();
        assert!(recorded.wait(Duration::ZERO).unwrap() && recorded.has_surely_ended());
    }

    #[test]
    fn a_record_is_kept_replaced_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.pid");
        let own = Identity::own().unwrap();
        let other = Identity { start_ticks: 1, ..own.clone() };
        assert_eq!(Identity::read(&path).unwrap(), None);
        assert!(own.write_if_absent(&path).unwrap());
        assert!(!other.write_if_absent(&path).unwrap());
        assert_eq!(Identity::read(&path).unwrap(), Some(own));
        other.write(&path).unwrap();
        assert_eq!(Identity::read(&path).unwrap(), Some(other));
        std::fs::write(&path, "{\"pid\":").unwrap();
        assert_eq!(Identity::read(&path).unwrap(), None);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_end_of_a_process_is_noticed() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap().unwrap();
        let handle = identity.open().unwrap().unwrap();
        assert!(!handle.wait(Duration::from_millis(1)).unwrap());
        handle.signal(Signal::KILL).unwrap();
        assert!(handle.wait(Duration::from_secs(10)).unwrap());
        // The process has not been collected yet, but it is dead.
        assert!(!identity.is_alive());
        child.wait().unwrap();
        handle.signal(Signal::KILL).unwrap();
    }
}
