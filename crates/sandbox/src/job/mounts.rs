//! What a job sees of files: the node's, read-only, and a few of its own.
//!
//! A new root is put together from the top folders of the old one, then the old one is let go. All that comes from
//! the node is taken hold of first ([`Sources`]), with the rights of whoever runs the node; the rest is done as the
//! job's user.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount, unmount,
};

use super::{CA_BUNDLE, FOLDER, INPUTS, Launch, OWN, TMP_NAME, shown, told};
use crate::mounts::{self, DEVICE_LINKS, DEVICES, GPU_DEVICES};

const NEW_KERNEL: &str = "Linux 5.12 or newer is needed";
/// Enough for names and links, of which there are few.
const SMALL: &str = "mode=755,size=1m";
/// Top folders that are made anew or have nothing for a job.
const NOT_TAKEN: [&str; 8] = ["proc", "dev", "tmp", "run", "job", "inputs", "boot", "lost+found"];
/// In `/proc`, but not of processes. The kernel asks only for the machine's user 0 here, not for capabilities, and where
/// there is one user only he may be a job.
const MACHINE_WIDE: [&str; 5] = ["sys", "sysrq-trigger", "irq", "bus", "fs"];
/// `/etc/resolv.conf` often leads here. The rest of `/run` is other programs' doors.
const RESOLVER: &str = "/run/systemd/resolve";

/// What comes from the node, held but not yet in place.
pub(super) struct Sources {
    own: OwnedFd,
    tmp: OwnedFd,
    system: Vec<(OsString, Entry)>,
    devices: Vec<(String, OwnedFd)>,
    resolver: Option<OwnedFd>,
    ca_bundle: Option<OwnedFd>,
    inputs: Option<OwnedFd>,
}

enum Entry {
    Tree(OwnedFd),
    Link(PathBuf),
}

impl Sources {
    pub(super) fn take(launch: &Launch) -> Result<Sources, String> {
        // Nothing that happens to the node's mounts later reaches us, and the other way round.
        set_attributes(Path::new("/"), 0, true, libc::MS_PRIVATE)?;
        let mut devices = Vec::new();
        for name in devices_of(launch) {
            let device = tree(&Path::new("/dev").join(&name), false)?;
            devices.push((name, device));
        }
        // Where the new root stands at first. The way there may be closed for the job's user.
        told(std::env::set_current_dir(&launch.own_dir), || "chdir".into(), "")?;
        Ok(Sources {
            own: tree(&launch.own_dir, false)?,
            tmp: tree(&launch.own_dir.join(TMP_NAME), false)?,
            system: system()?,
            devices,
            resolver: Path::new(RESOLVER)
                .is_dir()
                .then(|| tree(Path::new(RESOLVER), true))
                .transpose()?,
            ca_bundle: launch.ca_bundle.as_deref().map(|path| tree(path, false)).transpose()?,
            inputs: launch.inputs.as_deref().map(|path| tree(path, false)).transpose()?,
        })
    }

    /// Makes the new root and moves into it.
    pub(super) fn settle(self, launch: &Launch) -> Result<(), String> {
        let root = told(empty_root(), || "fsmount of tmpfs".into(), NEW_KERNEL)?;
        slot(&root, Path::new("."), false)?;
        told(rustix::process::fchdir(&root), || "fchdir".into(), "")?;
        for (name, entry) in self.system {
            match entry {
                Entry::Tree(tree) => slot(&tree, Path::new(&name), true)?,
                Entry::Link(target) => {
                    told(symlink(target, &name), || format!("symlink {name:?}"), "")?;
                }
            }
        }
        for name in ["proc", "dev", "tmp", "run", "job"] {
            make_dir(Path::new(name))?;
        }
        if let Some(tree) = self.resolver {
            slot(&tree, relative(Path::new(RESOLVER)), true)?;
        }
        if let Some(bundle) = self.ca_bundle {
            let path = relative(Path::new(CA_BUNDLE));
            make_dir(path.parent().unwrap_or(path))?;
            file(&bundle, path)?;
        }
        for path in &launch.hidden {
            hide(relative(path))?;
        }
        if let Some(inputs) = self.inputs {
            slot(&inputs, relative(Path::new(INPUTS)), true)?;
        }
        let sealed = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
        set_attributes(Path::new("."), sealed, true, 0)?;
        slot(&self.own, relative(Path::new(OWN)), false)?;
        slot(&self.tmp, Path::new("tmp"), false)?;
        make_dev(&self.devices, launch.limits.shared_memory_bytes)?;
        let help = "the node's own /proc must be writable and nothing mounted inside of it";
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        new("proc", Path::new("proc"), flags, "", help)?;
        for name in MACHINE_WIDE {
            seal_in_proc(name)?;
        }
        told(rustix::process::pivot_root(".", "."), || "pivot_root".into(), "")?;
        // The old root lies on top of the new one now.
        told(unmount(".", UnmountFlags::DETACH), || "umount of the node's root".into(), "")?;
        told(std::env::set_current_dir(FOLDER), || format!("chdir {FOLDER}"), "")
    }
}

/// For a job that sees its node as it is, but for its folder and `/tmp`. For the first process of a new mount namespace.
pub(super) fn settle_in_node(launch: &Launch) -> Result<(), String> {
    set_attributes(Path::new("/"), 0, true, libc::MS_PRIVATE)?;
    let (own, tmp) = (tree(&launch.own_dir, false)?, tree(&launch.own_dir.join(TMP_NAME), false)?);
    if let Some(path) = &launch.inputs {
        let inputs = tree(path, false)?;
        slot(&inputs, Path::new(INPUTS), false)?;
        set_attributes(Path::new(INPUTS), libc::MOUNT_ATTR_RDONLY, false, 0)?;
    }
    slot(&own, Path::new(OWN), false)?;
    slot(&tmp, Path::new("/tmp"), false)?;
    told(std::env::set_current_dir(FOLDER), || format!("chdir {FOLDER}"), "")
}

fn empty_root() -> rustix::io::Result<OwnedFd> {
    let root = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&root, "mode", "755")?;
    fsconfig_set_string(&root, "size", "1m")?;
    fsconfig_create(&root)?;
    fsmount(&root, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

fn system() -> Result<Vec<(OsString, Entry)>, String> {
    let listing = || "reading /".to_owned();
    let mut system = Vec::new();
    for entry in told(std::fs::read_dir("/"), listing, "")? {
        let entry = told(entry, listing, "")?;
        let (name, kind) = (entry.file_name(), told(entry.file_type(), listing, "")?);
        if NOT_TAKEN.iter().any(|not_taken| name == *not_taken) {
            continue;
        }
        if kind.is_symlink() {
            let target = told(std::fs::read_link(entry.path()), listing, "")?;
            system.push((name, Entry::Link(target)));
        } else if kind.is_dir() {
            system.push((name, Entry::Tree(tree(&entry.path(), true)?)));
        }
    }
    Ok(system)
}

fn devices_of(launch: &Launch) -> Vec<String> {
    let mut names: Vec<String> = DEVICES.map(str::to_owned).into();
    if !launch.gpus.is_empty() {
        names.extend(launch.gpus.iter().map(|number| format!("nvidia{number}")));
        let shared = GPU_DEVICES.iter().filter(|name| Path::new("/dev").join(name).exists());
        names.extend(shared.map(|name| (*name).to_owned()));
    }
    names
}

fn make_dev(devices: &[(String, OwnedFd)], shared_memory: Option<u64>) -> Result<(), String> {
    let dev = Path::new("dev");
    new("tmpfs", dev, MountFlags::NOSUID, SMALL, "")?;
    for (name, tree) in devices {
        let path = dev.join(name);
        file(tree, &path)?;
    }
    for (target, name) in DEVICE_LINKS {
        told(symlink(target, dev.join(name)), || format!("symlink dev/{name}"), "")?;
    }
    let size = shared_memory.map(|bytes| format!(",size={bytes}")).unwrap_or_default();
    make_dir(&dev.join("shm"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    new("tmpfs", &dev.join("shm"), flags, &format!("mode=1777{size}"), "")?;
    make_dir(&dev.join("pts"))?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    new("devpts", &dev.join("pts"), flags, "newinstance,ptmxmode=0666,mode=620", "")?;
    set_attributes(dev, libc::MOUNT_ATTR_RDONLY, false, 0)
}

/// Puts an empty folder over one that is there.
fn hide(path: &Path) -> Result<(), String> {
    match rustix::fs::stat(path) {
        Err(Errno::NOENT) => Ok(()),
        // Closed for the job's user too, and for good: it cannot become another one.
        Err(Errno::ACCESS) => Ok(()),
        Err(error) => told(Err(error), || format!("stat {}", shown(path)), ""),
        Ok(_) => new("tmpfs", path, MountFlags::RDONLY, "mode=755,size=4k", ""),
    }
}

fn seal_in_proc(name: &str) -> Result<(), String> {
    let path = Path::new("proc").join(name);
    // Not every kernel has all of them.
    if !path.exists() {
        return Ok(());
    }
    slot(&tree(&path, false)?, &path, false)?;
    set_attributes(&path, libc::MOUNT_ATTR_RDONLY, false, 0)
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn make_dir(path: &Path) -> Result<(), String> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
    told(made, || format!("mkdir {}", shown(path)), "")
}

fn tree(path: &Path, recursive: bool) -> Result<OwnedFd, String> {
    let how = if recursive { OpenTreeFlags::AT_RECURSIVE } else { OpenTreeFlags::empty() };
    told(mounts::take_up(path, how), || format!("open_tree {}", shown(path)), NEW_KERNEL)
}

fn file(source: &OwnedFd, path: &Path) -> Result<(), String> {
    told(File::create(path), || format!("creat {}", shown(path)), "")?;
    slot(source, path, false)
}

fn slot(tree: &OwnedFd, path: &Path, is_new: bool) -> Result<(), String> {
    if is_new {
        make_dir(path)?;
    }
    told(mounts::put(tree, path), || format!("move_mount to {}", shown(path)), NEW_KERNEL)
}

fn new(kind: &str, on: &Path, flags: MountFlags, data: &str, help: &str) -> Result<(), String> {
    let data = std::ffi::CString::new(data).expect("no zero byte in it");
    let mounted = mount(kind, on, kind, flags, Some(data.as_c_str()));
    told(mounted, || format!("mount of {kind} on {}", shown(on)), help)
}

fn set_attributes(path: &Path, set: u64, recursive: bool, propagation: u64) -> Result<(), String> {
    let done = mounts::set_attributes(path, set, recursive, propagation);
    told(done, || format!("mount_setattr {}", shown(path)), NEW_KERNEL)
}
