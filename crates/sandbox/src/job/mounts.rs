//! Sets up the files that a job sees: the node's, read-only, and a few of its own.
//!
//! A new root is assembled from the top-level folders of the old one, which is then detached. Everything that comes
//! from the node is opened first ([`Sources`]), with the rights of the node's agent; the rest is done as the job's
//! user.

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

use super::{CA_BUNDLE, FOLDER, INPUTS, Launch, OWN, TMP_NAME, explain, shown};
use crate::mounts::{self, DEVICE_LINKS, DEVICES, GPU_DEVICES};

const NEW_KERNEL: &str = "Linux 5.12 or newer is required";
/// Enough for a few names and links.
const SMALL: &str = "mode=755,size=1m";
/// Top-level folders that are created anew or contain nothing for a job.
const NOT_TAKEN: [&str; 8] = ["proc", "dev", "tmp", "run", "job", "inputs", "boot", "lost+found"];
/// Entries of `/proc` that are not about processes. For these the kernel checks only for the host's user 0, not for
/// capabilities, and a job may be that user if the node has only one.
const MACHINE_WIDE: [&str; 5] = ["sys", "sysrq-trigger", "irq", "bus", "fs"];
/// `/etc/resolv.conf` often links here. The rest of `/run` contains the sockets of other programs.
const RESOLVER: &str = "/run/systemd/resolve";

/// Mounts that come from the node, opened but not yet in place.
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
        // From here on, changes to the node's mounts do not propagate to us, nor ours to the node.
        set_attributes(Path::new("/"), 0, true, libc::MS_PRIVATE)?;
        let mut devices = Vec::new();
        for name in devices_of(launch) {
            let device = tree(&Path::new("/dev").join(&name), false)?;
            devices.push((name, device));
        }
        // The new root is assembled here. The job's user may not be allowed to walk to this path.
        explain(std::env::set_current_dir(&launch.own_dir), || "chdir".into(), "")?;
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

    /// Assembles the new root and moves into it.
    pub(super) fn enter(self, launch: &Launch) -> Result<(), String> {
        let root = explain(empty_root(), || "fsmount of tmpfs".into(), NEW_KERNEL)?;
        slot(&root, Path::new("."), false)?;
        explain(rustix::process::fchdir(&root), || "fchdir".into(), "")?;
        for (name, entry) in self.system {
            match entry {
                Entry::Tree(tree) => slot(&tree, Path::new(&name), true)?,
                Entry::Link(target) => {
                    explain(symlink(target, &name), || format!("symlink {name:?}"), "")?;
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
        let help = "the node's own /proc must be writable, with nothing mounted inside it";
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        new("proc", Path::new("proc"), flags, "", help)?;
        for name in MACHINE_WIDE {
            seal_in_proc(name)?;
        }
        explain(rustix::process::pivot_root(".", "."), || "pivot_root".into(), "")?;
        // The old root is now mounted on top of the new one.
        explain(unmount(".", UnmountFlags::DETACH), || "umount of the node's root".into(), "")?;
        explain(std::env::set_current_dir(FOLDER), || format!("chdir {FOLDER}"), "")
    }
}

/// Sets up a job that sees its node as it is, except for its own folder and `/tmp`. For the first process of a new
/// mount namespace.
pub(super) fn enter_in_node(launch: &Launch) -> Result<(), String> {
    set_attributes(Path::new("/"), 0, true, libc::MS_PRIVATE)?;
    let (own, tmp) = (tree(&launch.own_dir, false)?, tree(&launch.own_dir.join(TMP_NAME), false)?);
    if let Some(path) = &launch.inputs {
        let inputs = tree(path, false)?;
        slot(&inputs, Path::new(INPUTS), false)?;
        set_attributes(Path::new(INPUTS), libc::MOUNT_ATTR_RDONLY, false, 0)?;
    }
    slot(&own, Path::new(OWN), false)?;
    slot(&tmp, Path::new("/tmp"), false)?;
    explain(std::env::set_current_dir(FOLDER), || format!("chdir {FOLDER}"), "")
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
    for entry in explain(std::fs::read_dir("/"), listing, "")? {
        let entry = explain(entry, listing, "")?;
        let (name, kind) = (entry.file_name(), explain(entry.file_type(), listing, "")?);
        if NOT_TAKEN.iter().any(|not_taken| name == *not_taken) {
            continue;
        }
        if kind.is_symlink() {
            let target = explain(std::fs::read_link(entry.path()), listing, "")?;
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
        explain(symlink(target, dev.join(name)), || format!("symlink dev/{name}"), "")?;
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

/// Covers an existing folder with an empty one.
fn hide(path: &Path) -> Result<(), String> {
    match rustix::fs::stat(path) {
        Err(Errno::NOENT) => Ok(()),
        // The job's user cannot enter the folder either, and it can never become another user.
        Err(Errno::ACCESS) => Ok(()),
        Err(error) => explain(Err(error), || format!("stat {}", shown(path)), ""),
        Ok(_) => new("tmpfs", path, MountFlags::RDONLY, "mode=755,size=4k", ""),
    }
}

fn seal_in_proc(name: &str) -> Result<(), String> {
    let path = Path::new("proc").join(name);
    // Not every kernel has all of these.
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
    explain(made, || format!("mkdir {}", shown(path)), "")
}

fn tree(path: &Path, recursive: bool) -> Result<OwnedFd, String> {
    let how = if recursive { OpenTreeFlags::AT_RECURSIVE } else { OpenTreeFlags::empty() };
    explain(mounts::take_up(path, how), || format!("open_tree {}", shown(path)), NEW_KERNEL)
}

fn file(source: &OwnedFd, path: &Path) -> Result<(), String> {
    explain(File::create(path), || format!("creat {}", shown(path)), "")?;
    slot(source, path, false)
}

fn slot(tree: &OwnedFd, path: &Path, is_new: bool) -> Result<(), String> {
    if is_new {
        make_dir(path)?;
    }
    explain(mounts::put(tree, path), || format!("move_mount to {}", shown(path)), NEW_KERNEL)
}

fn new(kind: &str, on: &Path, flags: MountFlags, data: &str, help: &str) -> Result<(), String> {
    let data = std::ffi::CString::new(data).expect("the data contain no zero byte");
    let mounted = mount(kind, on, kind, flags, Some(data.as_c_str()));
    explain(mounted, || format!("mount of {kind} on {}", shown(on)), help)
}

fn set_attributes(path: &Path, set: u64, recursive: bool, propagation: u64) -> Result<(), String> {
    let done = mounts::set_attributes(path, set, recursive, propagation);
    explain(done, || format!("mount_setattr {}", shown(path)), NEW_KERNEL)
}
