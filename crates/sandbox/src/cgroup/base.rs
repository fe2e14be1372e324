//! Finds where in a hierarchy we can create groups, and what can be limited there.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::files::{read, write};
use super::layout::{Controller, Hierarchy, Version};
use crate::context::cannot;

/// A folder in which we may create groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) version: Version,
    /// The controllers that work below `folder`.
    pub(super) controllers: Vec<Controller>,
    pub(super) folder: PathBuf,
    /// Where the hierarchy is mounted.
    pub(super) hierarchy: PathBuf,
}

/// Why a controller does not work here.
pub(super) type Refusals = Vec<(Controller, String)>;

/// Finds the folder in which most of the `wanted` controllers work: the top of the hierarchy, or the parent of our own
/// group. Our own group is possible in v1 only, because v2 enables no controllers below a group that has processes.
pub(super) fn find(
    hierarchy: &Hierarchy,
    wanted: &[Controller],
    enable: Enable,
) -> (Option<Base>, Refusals) {
    let mut folders = vec![hierarchy.at.clone()];
    if let Some(own) = hierarchy.own.as_ref().filter(|own| **own != hierarchy.at) {
        folders.extend(own.parent().map(Path::to_owned));
        folders.extend((hierarchy.version == Version::One).then(|| own.clone()));
    }
    folders.dedup();
    let mut best: Option<Base> = None;
    let mut refusals = Refusals::new();
    for folder in folders {
        let (controllers, refused) = match check_folder(&folder) {
            Ok(()) if hierarchy.version == Version::Two => hand_down(&folder, wanted, enable),
            Ok(()) => (hierarchy.controllers.clone(), Refusals::new()),
            Err(text) => {
                // The last folder is the one nearest to us, so its reason is the most useful.
                refusals = wanted.iter().map(|controller| (*controller, text.clone())).collect();
                continue;
            }
        };
        refusals = refused;
        let is_better = best.as_ref().is_none_or(|best| best.controllers.len() < controllers.len());
        if is_better {
            let (version, at) = (hierarchy.version, hierarchy.at.clone());
            best = Some(Base { version, controllers, folder, hierarchy: at });
        }
        if refusals.is_empty() {
            break;
        }
    }
    if let Some(best) = &best {
        refusals.retain(|(controller, _)| !best.controllers.contains(controller));
    }
    (best, refusals)
}

fn check_folder(folder: &Path) -> Result<(), String> {
    for slot in [folder.to_owned(), folder.join("cgroup.procs")] {
        // Checks our effective user, not the user who started us.
        accessat(CWD, &slot, Access::WRITE_OK, AtFlags::EACCESS).map_err(|error| {
            let error = io::Error::from(error);
            let slot = slot.display();
            format!("{slot} is not writable ({error}): run as root, or have the folder delegated")
        })?;
    }
    Ok(())
}

/// Enables a v2 controller for the groups in a folder, or only checks whether that would work.
pub(super) type Enable = fn(&Path, Controller) -> io::Result<()>;

pub(super) fn enable(folder: &Path, controller: Controller) -> io::Result<()> {
    write(&folder.join("cgroup.subtree_control"), &format!("+{}", controller.name()))
}

/// Predicts the result of [`enable`] as far as possible, without changing anything.
pub(super) fn could_enable(folder: &Path, _: Controller) -> io::Result<()> {
    let switch = folder.join("cgroup.subtree_control");
    accessat(CWD, &switch, Access::WRITE_OK, AtFlags::EACCESS).map_err(|error| {
        cannot(format_args!("write {}", switch.display()), io::Error::from(error))
    })?;
    // The root group is the only one without a type, and it may enable controllers although it has processes.
    let is_top = !folder.join("cgroup.type").exists();
    if !is_top && !words(&folder.join("cgroup.procs")).is_empty() {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    Ok(())
}

/// Enables v2 controllers for the groups in `folder`.
pub(super) fn hand_down(
    folder: &Path,
    wanted: &[Controller],
    enable: Enable,
) -> (Vec<Controller>, Refusals) {
    let (mut held, mut refusals) = (Vec::new(), Refusals::new());
    let offered = words(&folder.join("cgroup.controllers"));
    let enabled = words(&folder.join("cgroup.subtree_control"));
    for controller in wanted {
        let name = controller.name();
        if !offered.iter().any(|offer| offer == name) {
            refusals.push((
                *controller,
                format!("{} does not have the controller {name}", folder.display()),
            ));
        } else if enabled.iter().any(|enabled| enabled == name) {
            held.push(*controller);
        } else {
            match enable(folder, *controller) {
                Ok(()) => held.push(*controller),
                Err(error) => refusals.push((*controller, explain(folder, &error))),
            }
        }
    }
    (held, refusals)
}

fn explain(folder: &Path, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::ResourceBusy {
        return format!(
            "{} has processes of its own, so it cannot enable controllers: start in a group below it \
             (systemd: Delegate=yes with DelegateSubgroup=)",
            folder.display()
        );
    }
    error.to_string()
}

fn words(path: &Path) -> Vec<String> {
    let text = read(path).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn group(folder: &Path, offered: &str, enabled: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("cgroup.controllers"), offered).unwrap();
        fs::write(folder.join("cgroup.subtree_control"), enabled).unwrap();
        fs::write(folder.join("cgroup.procs"), "").unwrap();
    }

    const WANTED: [Controller; 3] = [Controller::Cpu, Controller::Memory, Controller::Pids];

    #[test]
    fn beside_our_own_group_when_the_top_offers_less() {
        let top = tempfile::tempdir().unwrap();
        let slice = top.path().join("app.slice");
        group(top.path(), "cpuset\n", "\n");
        group(&slice, "cpu memory pids\n", "memory pids\n");
        group(&slice.join("run.scope"), "memory pids\n", "\n");
        let hierarchy = Hierarchy {
            version: Version::Two,
            controllers: Vec::new(),
            at: top.path().into(),
            own: Some(slice.join("run.scope")),
        };
        let (base, refusals) = find(&hierarchy, &WANTED, enable);
        let base = base.unwrap();
        assert_eq!((base.folder, base.controllers), (slice.clone(), WANTED.to_vec()));
        assert_eq!(refusals, []);
        let written = fs::read_to_string(slice.join("cgroup.subtree_control")).unwrap();
        assert!(written.starts_with("+cpu"), "{written}");
    }

    #[test]
    fn a_controller_that_cannot_be_enabled_is_reported() {
        let top = tempfile::tempdir().unwrap();
        group(top.path(), "memory pids\n", "memory\n");
        fs::remove_file(top.path().join("cgroup.subtree_control")).unwrap();
        let (held, refusals) = hand_down(top.path(), &WANTED, enable);
        assert_eq!(held, []);
        assert!(refusals[0].1.ends_with("does not have the controller cpu"), "{refusals:?}");
        assert!(refusals[1].1.starts_with("cannot write \"+memory\""), "{refusals:?}");
        let busy = io::Error::from(io::ErrorKind::ResourceBusy);
        assert!(explain(top.path(), &busy).contains("DelegateSubgroup="));
    }

    #[test]
    fn a_look_changes_nothing_and_sees_what_would_be_refused() {
        let top = tempfile::tempdir().unwrap();
        group(top.path(), "cpu memory pids\n", "memory\n");
        fs::write(top.path().join("cgroup.procs"), "1\n").unwrap();
        let (held, refusals) = hand_down(top.path(), &WANTED, could_enable);
        assert_eq!((held, refusals), (WANTED.to_vec(), Refusals::new()), "as the root group");
        fs::write(top.path().join("cgroup.type"), "domain\n").unwrap();
        let (held, refusals) = hand_down(top.path(), &WANTED, could_enable);
        assert_eq!(held, [Controller::Memory]);
        assert!(refusals[0].1.contains("has processes of its own"), "{refusals:?}");
        let after = fs::read_to_string(top.path().join("cgroup.subtree_control")).unwrap();
        assert_eq!(after, "memory\n");
    }

    #[test]
    fn a_folder_that_is_no_group_is_refused_with_what_to_do() {
        let top = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy {
            version: Version::One,
            controllers: vec![Controller::Memory],
            at: top.path().join("absent"),
            own: None,
        };
        let (base, refusals) = find(&hierarchy, &[Controller::Memory], enable);
        assert_eq!(base, None);
        assert!(
            refusals[0].1.contains("run as root, or have the folder delegated"),
            "{refusals:?}"
        );
    }
}
