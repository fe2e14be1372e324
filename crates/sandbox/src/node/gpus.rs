//! The GPU devices of a node: its own, and those that all GPUs need, but no others.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, fstat};
use rustix::mount::OpenTreeFlags;

use super::{Doing, NodeError};
use crate::mounts::{GPU_DEVICES, take_up};
use crate::protocol::NodePlan;

const DEVICES: &str = "/dev";

/// Opens the devices by their names. A missing GPU fails the node, because the node was promised it.
pub(super) fn take(numbers: &[u16]) -> Result<Vec<(String, OwnedFd)>, NodeError> {
    let mut taken = Vec::new();
    for number in numbers {
        let name = format!("nvidia{number}");
        let device = device(Path::new(DEVICES), &name);
        let device = device.doing(format!("cannot give the node the GPU /dev/{name}"))?;
        taken.push((name, device));
    }
    for name in GPU_DEVICES.iter().filter(|_| !numbers.is_empty()) {
        match device(Path::new(DEVICES), name) {
            Ok(device) => taken.push(((*name).to_owned(), device)),
            // Not every driver has all of these.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).doing(format!("cannot give the node /dev/{name}"));
            }
        }
    }
    Ok(taken)
}

/// Checks a device that is already open, because a link could lead to a disk.
fn device(folder: &Path, name: &str) -> io::Result<OwnedFd> {
    let device = take_up(&folder.join(name), OpenTreeFlags::AT_SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(fstat(&device)?.st_mode) {
        FileType::CharacterDevice => Ok(device),
        other => Err(io::Error::other(format!("it is not a character device but {other:?}"))),
    }
}

/// Describes the GPUs for the arguments of the node's agent.
pub(super) fn describe(plan: &NodePlan) -> Vec<String> {
    let numbers = plan.slot.gpus.iter().enumerate();
    let described = numbers.map(|(index, number)| match plan.gpu_uuids.get(index) {
        Some(uuid) => format!("{number}={uuid}"),
        None => number.to_string(),
    });
    described.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_character_devices_are_taken() {
        // A user who may not mount is refused before anything is examined.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        assert!(device(Path::new("/dev"), "null").is_ok());
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("nvidia0"), "").unwrap();
        std::os::unix::fs::symlink("/dev/null", dir.path().join("nvidia1")).unwrap();
        std::fs::create_dir(dir.path().join("nvidia2")).unwrap();
        for name in ["nvidia0", "nvidia1", "nvidia2"] {
            let refused = device(dir.path(), name).unwrap_err().to_string();
            assert!(refused.contains("not a character device"), "{name}: {refused}");
        }
        let absent = device(dir.path(), "nvidia3").unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }
}
