//! Prepares what a node is given: its folder, a disk or a folder of its own, and everything that its first process
//! needs.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::mount::OpenTreeFlags;

use super::disk::{self, Bound};
use super::files::{check_owner, make_dir, read_of, write_whole};
use super::{Doing, NodeError, NodeFactory, address_of, gid_of, gpus, init, root, uid_of};
use crate::cgroup::Folder;
use crate::disk_space::DiskSpace;
use crate::logs;
use crate::mounts::take_up;
use crate::network::Address;
use crate::protocol::NodePlan;
use crate::slirp::{RESOLVER, Slirp};

/// The node's own storage, and the most that a job may write to it.
pub(super) struct Home {
    pub(super) mount: OwnedFd,
    pub(super) job_disk_bytes: u64,
}

impl NodeFactory {
    pub(super) fn prepare(
        &self,
        folder: &Path,
        plan: &NodePlan,
        address: Address,
    ) -> io::Result<()> {
        let given = folder.join("given");
        make_dir(folder, 0o711)?;
        make_dir(&given, 0o755)?;
        let (uid, gid) = self.users.root_of(plan.slot.users);
        let hosts = format!(
            "127.0.0.1 localhost {}\n::1 localhost\n{} {}\n",
            self.server.host,
            address.ip(),
            plan.node
        );
        for (name, text) in [
            ("secret", plan.secret.as_str()),
            ("hosts", &hosts),
            (
                "passwd",
                "root:x:0:0:root:/node:/bin/sh\njob:x:1000:1000:job:/job:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
            ),
            ("group", "root:x:0:\njob:x:1000:\nnogroup:x:65534:\n"),
            ("hostname", &format!("{}\n", plan.node)),
            // Without internet access nothing responds at this address, so the timeouts are short. The agent reads the
            // first line.
            (
                "resolv.conf",
                &format!(
                    "# egress {}\nnameserver {RESOLVER}\noptions timeout:2 attempts:2\n",
                    if plan.has_internet { "on" } else { "off" }
                ),
            ),
        ] {
            write_whole(&given.join(name), text.as_bytes())?;
        }
        let owner = self.config.owner;
        write_whole(&given.join("ca.pem"), &read_of(&self.config.ca_file, owner)?)?;
        if let Some(bundle) = &self.config.ca_bundle {
            write_whole(&given.join("ca-bundle.pem"), &read_of(bundle, owner)?)?;
        }
        let secret = given.join("secret");
        rustix::fs::chown(&secret, Some(uid_of(uid)), Some(gid_of(gid)))?;
        rustix::fs::chmod(&secret, Mode::RUSR)?;
        write_whole(&folder.join("place"), &serde_json::to_vec(&plan.slot)?)
    }

    /// Creates the node's own storage: a disk, or a folder if it cannot have one.
    pub(super) fn home(&self, folder: &Path, plan: &NodePlan) -> Result<Home, NodeError> {
        let (uid, gid) = self.users.root_of(plan.slot.users);
        let (uid, gid) = (uid_of(uid), gid_of(gid));
        let limited = match &self.bound {
            Bound::Disks => Some(disk::make(folder, plan.job_disk_bytes, (uid, gid))?),
            Bound::Quotas { .. } => {
                Some(disk::make_limited(folder, plan.job_disk_bytes, (uid, gid))?)
            }
            Bound::Nothing(_) => None,
        };
        if let Some(disk) = limited {
            return Ok(Home { mount: disk.mount, job_disk_bytes: disk.bytes });
        }
        let home = folder.join(disk::HOME);
        let made = make_dir(&home, 0o700);
        // This cannot be a link: we created it, and only we write to the folder that contains it.
        made.and_then(|()| Ok(rustix::fs::chown(&home, Some(uid), Some(gid))?))
            .doing("cannot create the node's own folder")?;
        let mount = take_up(&home, OpenTreeFlags::AT_SYMLINK_NOFOLLOW)
            .doing("cannot open a mount of the node's own folder")?;
        // The server needs space as well.
        let half = DiskSpace::of(folder).map(|disk| disk.free_bytes / 2);
        let job_disk_bytes = plan.job_disk_bytes.min(half.unwrap_or(u64::MAX));
        Ok(Home { mount, job_disk_bytes })
    }

    /// Opens everything that the new process needs, because it may not walk to any of it itself.
    pub(super) fn inside(
        &self,
        folder: &Path,
        plan: &NodePlan,
        home: Home,
        cgroups: &[Folder],
        leash: OwnedFd,
    ) -> Result<init::Inside, NodeError> {
        let taken = |path: &Path| {
            take_up(path, OpenTreeFlags::AT_SYMLINK_NOFOLLOW)
                .doing(format!("cannot open a mount of {}", path.display()))
        };
        let shown = |path: &PathBuf| {
            let taken = take_up(path, OpenTreeFlags::AT_RECURSIVE);
            let taken = taken.doing(format!("cannot show {}; see node-folders", path.display()))?;
            Ok::<_, NodeError>((path.clone(), taken))
        };
        let relay = taken(&self.config.relays.join(&plan.node))?;
        check_owner(&relay, self.config.owner)
            .doing("cannot use the folder of the node's socket")?;
        // A server that has none yet creates it before it requests the next node.
        let environments = self.config.environments.as_deref();
        let environments = environments.map(|path| path.join(plan.slot.cluster.to_string()));
        let environments = environments.filter(|path| path.is_dir());
        let environments = environments.as_deref().map(&taken).transpose()?;
        if let Some(folder) = &environments {
            check_owner(folder, self.config.owner).doing("cannot show the environments")?;
        }
        let log = logs::open(&folder.join("agent.log")).doing("cannot open the agent's log")?;
        let address = address_of(&plan.slot)?.ip().to_string();
        let disk = home.job_disk_bytes.to_string();
        let gpu_slots = plan.gpu_slots.to_string();
        let gpus = gpus::describe(plan);
        let missing = crate::helper::missing(self);
        let why_no_internet = plan.lacks_internet.then(Slirp::check).and_then(Result::err);
        let mut arguments = vec![
            "muster",
            "agent",
            "--sandboxed",
            "--node",
            &plan.node,
            "--dir",
            root::HOME,
            "--server",
            &self.server.url,
            "--ca",
            root::CA,
            "--secret",
            root::SECRET,
            "--relay",
            root::RELAY,
            "--address",
            &address,
            "--disk",
            &disk,
            "--gpu-slots",
            &gpu_slots,
        ];
        arguments.extend(gpus.iter().flat_map(|gpu| ["--gpu", gpu]));
        arguments.extend(missing.iter().flat_map(|what| ["--not-enforced", what]));
        arguments.extend(why_no_internet.iter().flat_map(|why| ["--why-no-internet", why]));
        if plan.jobs_share {
            arguments.push("--jobs-share");
        }
        if self.config.ca_bundle.is_some() {
            arguments.extend(["--ca-bundle", root::CA_BUNDLE]);
        }
        if environments.is_some() {
            arguments.extend(["--environments", root::ENVIRONMENTS]);
        }
        let argument =
            |text| CString::new(text).expect("checked: no argument contains a zero byte");
        Ok(init::Inside {
            root: root::Root {
                home: home.mount,
                given: taken(&folder.join("given"))?,
                relay,
                binary: taken(&self.config.binary)?,
                cgroups: cgroups
                    .iter()
                    .map(|folder| Ok((folder.hierarchy.clone(), taken(&folder.path)?)))
                    .collect::<Result<_, NodeError>>()?,
                replaced: root::REPLACED
                    .iter()
                    .map(|name| taken(&folder.join("given").join(name)))
                    .collect::<Result<_, _>>()?,
                gpus: gpus::take(&plan.slot.gpus)?,
                environments,
                shown: self.config.shown.iter().map(shown).collect::<Result<_, _>>()?,
            },
            host_name: plan.node.clone(),
            has_ranges: self.users.are_ranges(),
            // The hub exists as long as this is open, whichever process ends first.
            hub: self.hub.namespace().try_clone_to_owned().doing("cannot hold the hub open")?,
            leash,
            claims: Vec::new(),
            log,
            arguments: arguments.into_iter().map(argument).collect(),
        })
    }
}
