//! Assembles the root of a node: the programs of this host, read-only, and what belongs to the node.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, unmount,
};

use super::{Doing, NodeError};
use crate::mounts::{DEVICE_LINKS, DEVICES, make_read_only, put, set_attributes};

/// Paths inside the node.
pub(super) const HOME: &str = "/node";
pub(super) const BINARY: &str = "/run/muster/muster";
pub(super) const CA: &str = "/run/muster/given/ca.pem";
pub(super) const CA_BUNDLE: &str = "/run/muster/given/ca-bundle.pem";
pub(super) const SECRET: &str = "/run/muster/given/secret";
pub(super) const RELAY: &str = "/run/muster/relay";
/// Where nodes and their jobs find Python environments.
pub const ENVIRONMENTS: &str = "/environments";
const GIVEN: &str = "/run/muster/given";
/// Where cgroups are mounted on every host.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Programs and what they need to run, on all distributions.
const SYSTEM: [&str; 9] =
    ["/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/sbin", "/usr"];
/// Files in `/etc` that are the node's own instead of the host's.
pub(super) const REPLACED: [&str; 5] = ["hosts", "hostname", "passwd", "group", "resolv.conf"];
/// The new root is assembled here. Nothing in this namespace needs what it covers.
const SITE: &str = "/tmp";

/// The descriptors are detached mounts; see [`crate::mounts::take_up`].
pub(super) struct Root {
    pub home: OwnedFd,
    pub given: OwnedFd,
    pub relay: OwnedFd,
    pub binary: OwnedFd,
    /// Each with the path of its hierarchy, which is the same on the host and in the node.
    pub cgroups: Vec<(PathBuf, OwnedFd)>,
    /// In the order of [`REPLACED`].
    pub replaced: Vec<OwnedFd>,
    /// The devices of its GPUs, by their names in `/dev`.
    pub gpus: Vec<(String, OwnedFd)>,
    /// Becomes [`ENVIRONMENTS`].
    pub environments: Option<OwnedFd>,
    /// Additional paths of the host, each at the same path in the node.
    pub shown: Vec<(PathBuf, OwnedFd)>,
}

impl Root {
    /// Assembles the root and moves into it. For the first process of new PID and mount namespaces.
    pub fn enter(&self) -> Result<(), NodeError> {
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
            .doing("cannot make our mounts private")?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", SITE, "tmpfs", flags, c"mode=755,size=4m").doing("cannot mount a root")?;
        self.system()?;
        devices(&self.gpus)?;
        self.own()?;
        let flags = flags | MountFlags::NOEXEC;
        mount("proc", &at("/proc")?, "proc", flags, None).doing(
            "cannot mount /proc; inside a container it has to be unmasked (--security-opt unmask=ALL)",
        )?;
        let sys = at("/sys")?;
        // Without /sys, programs count cores by other means.
        let _ = mount("sysfs", &sys, "sysfs", flags | MountFlags::RDONLY, None);
        self.groups()?;
        let tmp = at("/tmp")?;
        mount("tmpfs", &tmp, "tmpfs", flags - MountFlags::NOEXEC, c"mode=1777,size=256m")
            .doing("cannot mount /tmp")?;
        at("/var")?;
        symlink("/tmp", Path::new(SITE).join("var/tmp")).doing("cannot create /var/tmp")?;
        if let Some(folder) = &self.environments {
            let slot = at(ENVIRONMENTS)?;
            put(folder, &slot).doing("cannot mount the environments")?;
            let sealed = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
            set_attributes(&slot, sealed, false, 0).doing("cannot protect the environments")?;
        }
        for (path, folder) in &self.shown {
            let slot = at(path)?;
            put(folder, &slot).doing(format!("cannot mount {}", path.display()))?;
            make_read_only(&slot, true).doing(format!("cannot protect {}", path.display()))?;
        }
        move_in()
    }

    /// The descriptors that must be open until then.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let all = [&self.home, &self.given, &self.relay, &self.binary];
        let cgroups = self.cgroups.iter().chain(&self.shown).map(|(_, mount)| mount);
        let gpus = self.gpus.iter().map(|(_, device)| device);
        all.into_iter()
            .chain(cgroups)
            .chain(gpus)
            .chain(&self.environments)
            .chain(&self.replaced)
            .map(AsRawFd::as_raw_fd)
            .collect()
    }

    fn system(&self) -> Result<(), NodeError> {
        for path in SYSTEM.map(Path::new) {
            let Ok(found) = std::fs::symlink_metadata(path) else { continue };
            if found.is_symlink() {
                let target = std::fs::read_link(path).doing("cannot read a link")?;
                let slot = below(path);
                symlink(target, slot).doing(format!("cannot create {}", path.display()))?;
            } else if found.is_dir() {
                let slot = at(path)?;
                mount_bind_recursive(path, &slot)
                    .doing(format!("cannot mount {}", path.display()))?;
                make_read_only(&slot, true).doing(format!("cannot protect {}", path.display()))?;
            }
        }
        for (name, file) in REPLACED.iter().zip(&self.replaced) {
            let mut slot = below(Path::new("/etc")).join(name);
            let found = std::fs::symlink_metadata(&slot);
            if found.as_ref().is_ok_and(|found| found.is_symlink()) {
                // The link usually leads into /run, which is empty in here.
                let target = std::fs::read_link(&slot).doing("cannot read a link")?;
                slot = at(Path::new("/etc").join(&target).parent().unwrap_or(Path::new("/")))?
                    .join(target.file_name().unwrap_or_default());
                touch(&slot).doing(format!("cannot create a mount point for /etc/{name}"))?;
            } else if !found.is_ok_and(|found| found.is_file()) {
                // If the host does not have the file, there is no mount point for ours.
                continue;
            }
            put(file, &slot).doing(format!("cannot replace /etc/{name}"))?;
            make_read_only(&slot, false).doing(format!("cannot protect /etc/{name}"))?;
        }
        Ok(())
    }

    /// Mounts the node's own groups where programs expect cgroups, so that it can create more below them.
    fn groups(&self) -> Result<(), NodeError> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let is_split = self.cgroups.iter().any(|(hierarchy, _)| hierarchy != Path::new(CGROUPS));
        if is_split {
            mount("tmpfs", &at(CGROUPS)?, "tmpfs", flags, c"mode=755,size=64k")
                .doing("cannot mount a folder for cgroups")?;
        }
        for (hierarchy, group) in &self.cgroups {
            put(group, &at(hierarchy)?)
                .doing(format!("cannot mount the cgroup {}", hierarchy.display()))?;
        }
        Ok(())
    }

    fn own(&self) -> Result<(), NodeError> {
        at("/run")?;
        at("/job")?;
        at("/inputs")?;
        let folder = |source: &OwnedFd, path: &str| {
            let slot = at(path)?;
            put(source, &slot).doing(format!("cannot mount {path}"))?;
            Ok::<_, NodeError>(slot)
        };
        at("/run/muster")?;
        folder(&self.home, HOME)?;
        folder(&self.relay, RELAY)?;
        let given = folder(&self.given, GIVEN)?;
        make_read_only(&given, false).doing("cannot protect the node's given files")?;
        // Jobs that share the node's sandbox find the bundle here.
        let bundle = below(Path::new(CA_BUNDLE));
        if bundle.exists() {
            let slot = below(Path::new(crate::job::CA_BUNDLE));
            touch(&slot).doing("cannot create a mount point for the CA bundle")?;
            mount_bind(&bundle, &slot).doing("cannot mount the CA bundle")?;
            make_read_only(&slot, false).doing("cannot protect the CA bundle")?;
        }
        let binary = below(Path::new(BINARY));
        touch(&binary).doing("cannot create a mount point for the program")?;
        put(&self.binary, &binary).doing("cannot mount the program")?;
        make_read_only(&binary, false).doing("cannot protect the program")
    }
}

fn devices(gpus: &[(String, OwnedFd)]) -> Result<(), NodeError> {
    let dev = at("/dev")?;
    for name in DEVICES {
        let (source, slot) = (Path::new("/dev").join(name), dev.join(name));
        touch(&slot).doing(format!("cannot create a mount point for /dev/{name}"))?;
        mount_bind(&source, &slot).doing(format!("cannot mount /dev/{name}"))?;
    }
    for (name, device) in gpus {
        let slot = dev.join(name);
        touch(&slot).doing(format!("cannot create a mount point for /dev/{name}"))?;
        put(device, &slot).doing(format!("cannot mount /dev/{name}"))?;
    }
    let (pts, shm) = (at("/dev/pts")?, at("/dev/shm")?);
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("devpts", &pts, "devpts", flags, c"newinstance,ptmxmode=0666,mode=620")
        .doing("cannot mount /dev/pts")?;
    mount("tmpfs", &shm, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=1777")
        .doing("cannot mount /dev/shm")?;
    for (target, name) in DEVICE_LINKS {
        symlink(target, dev.join(name)).doing(format!("cannot create /dev/{name}"))?;
    }
    Ok(())
}

/// Moves into the new root and detaches the old one, to which there is no way back.
fn move_in() -> Result<(), NodeError> {
    let what = "cannot move into the new root";
    rustix::process::chdir(SITE).doing(what)?;
    rustix::process::pivot_root(".", ".").doing(what)?;
    unmount(".", UnmountFlags::DETACH).doing("cannot leave the old root")?;
    rustix::process::chdir("/").doing(what)?;
    make_read_only(Path::new("/"), false).doing("cannot protect the root")
}

fn below(path: &Path) -> PathBuf {
    Path::new(SITE).join(path.strip_prefix("/").unwrap_or(path))
}

/// Creates a folder in the new root, with its parents.
fn at(path: impl AsRef<Path>) -> Result<PathBuf, NodeError> {
    let slot = below(path.as_ref());
    std::fs::create_dir_all(&slot).doing(format!("cannot create {}", path.as_ref().display()))?;
    Ok(slot)
}

fn touch(path: &Path) -> io::Result<()> {
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::RUSR)?;
    Ok(())
}
