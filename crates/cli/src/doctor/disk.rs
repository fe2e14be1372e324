//! The file system of the state directory: whether it exists, has space, and stores reliably.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use muster_sandbox::disk_space::DiskSpace;
use muster_sandbox::node::disk::Bound;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, fsync, open, statfs};
use rustix::io::Errno;

use super::finding::Finding;

const MIB: u64 = 1 << 20;
/// The next large commit would use up less than this.
const FREE_MIN: u64 = 64 * MIB;
const FREE_WANTED: u64 = 1024 * MIB;
/// A node needs a handful of files, the environment of a job tens of thousands.
const INODES_MIN: u64 = 1_000;
const INODES_WANTED: u64 = 100_000;
/// Every commit waits for a sync.
const SYNC_SLOW: Duration = Duration::from_millis(100);
/// A state directory has about a dozen entries.
const ENTRIES_MAX: usize = 1_000;

pub struct Disk {
    pub dir: PathBuf,
    /// The directory, or its nearest ancestor that exists.
    pub nearest: PathBuf,
    pub writable: Result<(), String>,
    pub free: u64,
    /// `None` if the file system creates inodes on demand.
    pub free_inodes: Option<u64>,
    /// The kernel's number for the type of file system.
    pub kind: u64,
    pub sync: Result<Duration, String>,
    /// The most recently written entry of the directory, and its time.
    pub newest: Option<(PathBuf, SystemTime)>,
    /// How the disk space of nodes would be limited.
    pub node_disks: Bound,
}

/// Runs on its own thread: a file server that is unreachable blocks its callers indefinitely.
pub fn look(dir: &Path, within: Duration) -> Result<Disk, String> {
    let (sender, receiver) = mpsc::channel();
    let looked = dir.to_owned();
    // The receiver may have given up waiting.
    std::thread::spawn(move || drop(sender.send(examine(&looked))));
    receiver.recv_timeout(within).unwrap_or_else(|_| {
        Err(format!("{} did not respond within {} ms", dir.display(), within.as_millis()))
    })
}

fn examine(dir: &Path) -> Result<Disk, String> {
    let nearest = dir.ancestors().find(|path| path.is_dir());
    let nearest = nearest.ok_or_else(|| format!("no folder above {} exists", dir.display()))?;
    let failed = |error: Errno| format!("{}: {}", nearest.display(), std::io::Error::from(error));
    let about = statfs(nearest).map_err(failed)?;
    let space = DiskSpace::of(nearest).map_err(|why| format!("{}: {why}", nearest.display()))?;
    let access = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    Ok(Disk {
        dir: dir.to_owned(),
        nearest: nearest.to_owned(),
        writable: accessat(CWD, nearest, access, AtFlags::EACCESS).map_err(failed),
        free: space.free_bytes,
        free_inodes: (about.f_files > 0).then_some(about.f_ffree),
        // The number has 32 bits, whatever the type of the field.
        kind: (about.f_type as u64) & 0xffff_ffff,
        sync: sync(nearest).map_err(failed),
        newest: newest(dir),
        node_disks: Bound::of(nearest),
    })
}

/// Writes to an unnamed file, which vanishes when it is closed; where these are not supported, syncs the directory
/// only.
fn sync(dir: &Path) -> Result<Duration, Errno> {
    let started = Instant::now();
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    match open(dir, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => {
            rustix::io::write(&file, b"muster doctor\n")?;
            fsync(&file)?;
        }
        Err(error @ (Errno::IO | Errno::NOSPC | Errno::DQUOT | Errno::ROFS)) => return Err(error),
        Err(_) => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            fsync(open(dir, flags, Mode::empty())?)?;
        }
    }
    Ok(started.elapsed())
}

fn newest(dir: &Path) -> Option<(PathBuf, SystemTime)> {
    let entries = std::fs::read_dir(dir).ok()?.flatten().take(ENTRIES_MAX);
    let dated =
        entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.modified().ok()?)));
    dated.max_by_key(|(_, modified)| *modified)
}

pub fn check(disk: &Result<Disk, String>) -> Vec<Finding> {
    match disk {
        Ok(disk) => {
            let node_disks = node_disks(&disk.node_disks);
            let own = [directory(disk), space(disk), inodes(disk), file_system(disk), synced(disk)];
            own.into_iter().chain([node_disks]).collect()
        }
        Err(why) => vec![
            Finding::failure("state-directory", why, "the server stores everything there")
                .fix("mount the file system again, or choose another directory with --state-dir"),
        ],
    }
}

fn directory(disk: &Disk) -> Finding {
    const ID: &str = "state-directory";
    const MEANING: &str = "the server stores everything there";
    let (dir, is_there) = (disk.dir.display(), disk.dir == disk.nearest);
    match &disk.writable {
        Err(why) => Finding::failure(ID, why, MEANING).fix(format!(
            "sudo install -d -m 700 -o $(id -u) -g $(id -g) {}, or choose another directory with --state-dir",
            crate::env::shell_quoted(&disk.dir.to_string_lossy())
        )),
        Ok(()) if is_there => Finding::ok(ID, dir.to_string(), MEANING),
        Ok(()) => Finding::note(ID, format!("{dir} does not exist; it can be created"), MEANING)
            .fix("muster up or muster serve creates it"),
    }
}

fn space(disk: &Disk) -> Finding {
    const ID: &str = "disk-space";
    const MEANING: &str = "a full disk blocks every change; jobs write their logs there too";
    let free = disk.free / MIB;
    let found = format!("{free} MiB are free at {}", disk.nearest.display());
    match disk.free {
        free if free < FREE_MIN => Finding::failure(ID, found, MEANING),
        free if free < FREE_WANTED => Finding::warning(ID, found, MEANING),
        _ => return Finding::ok(ID, found, MEANING),
    }
    .fix(format!(
        "delete what is not needed (`du -xh --max-depth=2 {} | sort -h | tail` shows the largest folders, and `muster storage \
         gc` deletes files that no blob references any more), or choose a directory on a larger disk with --state-dir",
        mount_point(&disk.nearest)
    ))
}

fn inodes(disk: &Disk) -> Finding {
    const ID: &str = "disk-inodes";
    const MEANING: &str = "every file and folder uses one inode, however small it is";
    let found = |free| format!("room for {free} more files");
    match disk.free_inodes {
        None => return Finding::ok(ID, "limited only by disk space", MEANING),
        Some(free) if free < INODES_MIN => Finding::failure(ID, found(free), MEANING),
        Some(free) if free < INODES_WANTED => Finding::warning(ID, found(free), MEANING),
        Some(free) => return Finding::ok(ID, found(free), MEANING),
    }
    .fix(format!(
        "`du --inodes -x --max-depth=2 {} | sort -n | tail` shows where the files are, and `muster storage gc` deletes files \
         that no blob references any more; the number of inodes is fixed when a file system is created",
        mount_point(&disk.nearest)
    ))
}

/// The highest folder above this one that is on the same file system, quoted for a shell: `du -x` does not leave the
/// file system of the folder that it starts with.
fn mount_point(dir: &Path) -> String {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|found| found.dev());
    let own = device(dir);
    let above = dir.ancestors().take_while(|path| device(path) == own);
    let top = above.last().unwrap_or(dir);
    crate::env::shell_quoted(&top.to_string_lossy())
}

/// What a file system does with files.
enum Kind {
    Disk(&'static str),
    Network(&'static str),
    Memory(&'static str),
    /// A layer of a container, which is deleted with the container.
    Layer(&'static str),
    Other,
}

fn kind_of(number: u64) -> Kind {
    match number {
        0xef53 => Kind::Disk("ext4"),
        0x5846_5342 => Kind::Disk("xfs"),
        0x9123_683e => Kind::Disk("btrfs"),
        0x2fc1_2fc1 => Kind::Disk("zfs"),
        0xf2f5_2010 => Kind::Disk("f2fs"),
        0x6969 => Kind::Network("nfs"),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => Kind::Network("smb"),
        0x0102_1997 => Kind::Network("9p"),
        0x5346_414f | 0x6b41_4653 => Kind::Network("afs"),
        0x00c3_6400 => Kind::Network("ceph"),
        0x0bd0_0bd0 => Kind::Network("lustre"),
        0x4750_4653 => Kind::Network("gpfs"),
        0x0116_1970 => Kind::Network("gfs2"),
        0x7461_636f => Kind::Network("ocfs2"),
        0x6573_5546 => Kind::Network("fuse"),
        0x0102_1994 | 0x8584_58f6 => Kind::Memory("tmpfs"),
        0x794c_7630 => Kind::Layer("overlay"),
        _ => Kind::Other,
    }
}

fn file_system(disk: &Disk) -> Finding {
    const ID: &str = "file-system";
    match kind_of(disk.kind) {
        Kind::Disk(name) => Finding::ok(ID, name, "a disk of this machine"),
        Kind::Network(name) => Finding::warning(
            ID,
            format!("{name}, which may be on a network"),
            "the database's locks and shared memory may not work there, and a second server may not be detected",
        )
        .fix("choose a directory on a disk of this machine with --state-dir or MUSTER_STATE_DIR"),
        Kind::Memory(name) => Finding::warning(
            ID,
            format!("{name}: in memory"),
            "everything is lost when the machine restarts, including keys and jobs",
        )
        .fix("choose a directory on a disk with --state-dir or MUSTER_STATE_DIR"),
        Kind::Layer(name) => Finding::note(
            ID,
            format!("{name}: a layer of a container"),
            "everything is lost when the container is removed",
        )
        .fix("mount a volume, and select it with --state-dir or MUSTER_STATE_DIR"),
        Kind::Other => Finding::note(
            ID,
            format!("unknown type (0x{:x})", disk.kind),
            "it must support locks, shared memory and fsync, as every Linux disk does",
        ),
    }
}

fn synced(disk: &Disk) -> Finding {
    const ID: &str = "fsync";
    const MEANING: &str = "acknowledged changes must be on the disk, so every change waits for it";
    let fix = "use a local disk that stores what it acknowledges";
    match &disk.sync {
        Err(_) if disk.writable.is_err() => {
            Finding::note(ID, "not tested: the directory is not writable", MEANING)
        }
        Err(why) => Finding::failure(ID, why, MEANING).fix(fix),
        Ok(took) if *took >= SYNC_SLOW => {
            Finding::warning(ID, format!("works, but took {} ms", took.as_millis()), MEANING)
                .fix(fix)
        }
        Ok(took) => Finding::ok(ID, format!("works, in {} ms", took.as_millis()), MEANING),
    }
}

fn node_disks(bound: &Bound) -> Finding {
    const ID: &str = "node-disks";
    const MEANING: &str =
        "with a disk of fixed size for each node, no job can fill this machine's disk";
    match bound {
        Bound::Disks => Finding::ok(ID, "each node has its own disk", MEANING),
        Bound::Quotas { no_disks } => Finding::note(
            ID,
            format!("nodes have project quotas, because they cannot have their own disks: {no_disks}"),
            "no job can fill this machine's disk, but space that a node has not used yet is not reserved for it",
        )
        .fix("to give each node its own disk: apt install e2fsprogs; modprobe loop (in a container: --privileged)"),
        Bound::Nothing(why) => Finding::warning(ID, why, MEANING).fix(
            "start the server with sudo, on a machine with mkfs.ext4 (apt install e2fsprogs) and loop devices (modprobe \
             loop; in a container: --privileged), and a state directory on ext4, xfs or btrfs; or use project quotas: mount \
             the file system of the state directory with -o prjquota (ext4 needs tune2fs -O project,quota first)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    fn good() -> Disk {
        Disk {
            dir: "/var/lib/muster".into(),
            nearest: "/var/lib/muster".into(),
            writable: Ok(()),
            free: 100 << 30,
            free_inodes: Some(1 << 20),
            kind: 0xef53,
            sync: Ok(Duration::from_millis(2)),
            newest: None,
            node_disks: Bound::Disks,
        }
    }

    fn bad(disk: Disk) -> Vec<(&'static str, State)> {
        let findings = check(&Ok(disk));
        for finding in &findings {
            let is_bad = finding.state >= State::Warning;
            assert!(finding.fix.is_some() || !is_bad, "{finding:?}");
        }
        let bad = findings.iter().filter(|finding| finding.state != State::Ok);
        bad.map(|finding| (finding.id, finding.state)).collect()
    }

    #[test]
    fn every_bad_disk_is_reported() {
        fn no<T>() -> Result<T, String> {
            Err("Input/output error (os error 5)".to_owned())
        }
        let by_quotas = || Bound::Quotas { no_disks: "mkfs.ext4 is not installed".into() };
        assert!(node_disks(&by_quotas()).found.contains("project quotas"));
        assert_eq!(bad(good()), []);
        assert_eq!(bad(Disk { free_inodes: None, ..good() }), []);
        for (disk, id, state) in [
            (Disk { free: 10 * MIB, ..good() }, "disk-space", State::Failure),
            (Disk { free: 500 * MIB, ..good() }, "disk-space", State::Warning),
            (Disk { free_inodes: Some(0), ..good() }, "disk-inodes", State::Failure),
            (Disk { free_inodes: Some(50_000), ..good() }, "disk-inodes", State::Warning),
            (Disk { kind: 0x6969, ..good() }, "file-system", State::Warning),
            (Disk { kind: 0x0102_1994, ..good() }, "file-system", State::Warning),
            (Disk { kind: 0x794c_7630, ..good() }, "file-system", State::Note),
            (Disk { kind: 1, ..good() }, "file-system", State::Note),
            (Disk { sync: no(), ..good() }, "fsync", State::Failure),
            (
                Disk { node_disks: Bound::Nothing("no".into()), ..good() },
                "node-disks",
                State::Warning,
            ),
            (Disk { node_disks: by_quotas(), ..good() }, "node-disks", State::Note),
            (Disk { sync: Ok(SYNC_SLOW), ..good() }, "fsync", State::Warning),
            (Disk { nearest: "/var/lib".into(), ..good() }, "state-directory", State::Note),
            (Disk { writable: no(), ..good() }, "state-directory", State::Failure),
        ] {
            assert_eq!(bad(disk), [(id, state)]);
        }
        let both = Disk { writable: no(), sync: no(), ..good() };
        assert_eq!(bad(both), [("state-directory", State::Failure), ("fsync", State::Note)]);
        let away = check(&Err("no answer".to_owned()));
        assert_eq!((away.len(), away[0].state), (1, State::Failure));
    }

    #[test]
    fn what_to_remove_is_looked_for_on_the_file_system_of_the_directory() {
        // A separate file system on every Linux.
        assert_eq!(mount_point(Path::new("/proc/self/fd")), "/proc");
        let full = Disk { nearest: "/proc/self".into(), free: 0, free_inodes: Some(0), ..good() };
        for finding in [space(&full), inodes(&full)] {
            let fix = finding.fix.expect("there is one");
            assert!(fix.contains("--max-depth=2 /proc |"), "{fix}");
            assert!(fix.contains("muster storage gc"), "{fix}");
        }
    }

    #[test]
    fn a_real_directory_is_looked_at_and_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let absent = dir.path().join("a/b");
        let patience = Duration::from_secs(60);
        let seen = look(&absent, patience).unwrap();
        assert_eq!((seen.nearest.as_path(), seen.newest), (dir.path(), None));
        assert!(seen.sync.is_ok() && seen.writable.is_ok());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        std::fs::write(dir.path().join("muster.db"), "x").unwrap();
        let (newest, _) = look(dir.path(), patience).unwrap().newest.unwrap();
        assert_eq!(newest, dir.path().join("muster.db"));
    }
}
