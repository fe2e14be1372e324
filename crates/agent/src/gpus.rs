//! The GPUs of this node, and which attempt has which. No two attempts share one.
//!
//! A node has as many slots as its size has GPUs. On a host with fewer GPUs, the last slots have no device: a job that
//! gets such a slot finds no GPU for it, and its log says so.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use muster_core::model::ShareRequest;

/// A GPU with a device in this node: `NUMBER`, or `NUMBER=UUID` if the driver reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// The number in `/dev/nvidiaN`.
    pub number: u16,
    pub uuid: Option<String>,
}

impl FromStr for Gpu {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Gpu, Self::Err> {
        let (number, uuid) = match text.split_once('=') {
            Some((number, uuid)) => (number, Some(uuid.to_owned())),
            None => (text, None),
        };
        Ok(Gpu { number: number.parse()?, uuid })
    }
}

#[derive(Debug)]
pub(crate) struct Gpus {
    slots: Vec<Option<Gpu>>,
    taken: Mutex<BTreeSet<usize>>,
}

impl Gpus {
    pub(crate) fn new(slots: u32, devices: Vec<Gpu>) -> Gpus {
        let slots = usize::try_from(slots).unwrap_or(usize::MAX).max(devices.len());
        let mut slots: Vec<Option<Gpu>> = vec![None; slots];
        for (slot, gpu) in slots.iter_mut().zip(devices) {
            *slot = Some(gpu);
        }
        Gpus { slots, taken: Mutex::default() }
    }

    /// Grants what is free of the requested GPUs. The server assigns no GPU twice, so this is normally all of them.
    pub(crate) fn grant(&self, share: ShareRequest) -> Grant<'_> {
        let wanted = match share.is_whole() {
            true => self.slots.len(),
            false => share.gpus.map_or(0, |gpus| usize::try_from(gpus).unwrap_or(usize::MAX)),
        };
        let mut taken = self.taken();
        let free = (0..self.slots.len()).filter(|slot| !taken.contains(slot));
        let slots: Vec<usize> = free.take(wanted).collect();
        taken.extend(&slots);
        Grant { gpus: self, slots }
    }

    fn taken(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The GPUs of one attempt, until it is dropped.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    gpus: &'a Gpus,
    slots: Vec<usize>,
}

impl Grant<'_> {
    fn devices(&self) -> impl Iterator<Item = &Gpu> {
        self.slots.iter().filter_map(|slot| self.gpus.slots[*slot].as_ref())
    }

    /// The numbers of their devices.
    pub(crate) fn numbers(&self) -> Vec<u16> {
        self.devices().map(|gpu| gpu.number).collect()
    }

    /// The variables that programs look for. On a node whose size has no GPUs there are none, as on any host without
    /// GPUs.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        if self.gpus.slots.is_empty() {
            return Vec::new();
        }
        let uuids: Option<Vec<String>> = self.devices().map(|gpu| gpu.uuid.clone()).collect();
        // The driver numbers the devices that it finds in the sandbox from 0.
        let count = || (0..self.devices().count()).map(|index| index.to_string()).collect();
        let names: Vec<String> = uuids.unwrap_or_else(count);
        let list = names.join(",");
        // Programs that read the second variable take an empty value for "all".
        let toolkit = if list.is_empty() { "void".to_owned() } else { list.clone() };
        vec![("CUDA_VISIBLE_DEVICES", list), ("NVIDIA_VISIBLE_DEVICES", toolkit)]
    }

    /// A note for the job's log, if some of the GPUs that it was granted have no device.
    pub(crate) fn shortage(&self) -> Option<String> {
        let (granted, there) = (self.slots.len(), self.devices().count());
        (there < granted).then(|| {
            let empty = if there == 0 { "; CUDA_VISIBLE_DEVICES is empty" } else { "" };
            format!(
                "{there} of the {granted} GPUs that this job was given are available: its node's host has no more \
                 (over-commit){empty}"
            )
        })
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        let mut taken = self.gpus.taken();
        for slot in &self.slots {
            taken.remove(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(gpus: u32) -> ShareRequest {
        ShareRequest { vcpus: Some(1), memory_mb: None, gpus: Some(gpus) }
    }

    fn cuda(grant: &Grant<'_>) -> Option<String> {
        let all = grant.variables();
        all.into_iter().find(|(name, _)| *name == "CUDA_VISIBLE_DEVICES").map(|(_, value)| value)
    }

    fn gpus(texts: &[&str]) -> Vec<Gpu> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn jobs_of_a_node_have_different_gpus_and_give_them_back() {
        let node = Gpus::new(4, gpus(&["2=GPU-c", "3=GPU-d", "0=GPU-a", "1=GPU-b"]));
        let first = node.grant(asks(1));
        let second = node.grant(asks(2));
        assert_eq!((first.numbers(), second.numbers()), (vec![2], vec![3, 0]));
        assert_eq!(cuda(&second).as_deref(), Some("GPU-d,GPU-a"));
        drop(first);
        assert_eq!(node.grant(asks(9)).numbers(), [2, 1], "what is free, and no more");
        drop(second);
        let whole = node.grant(ShareRequest::default());
        assert_eq!(whole.numbers(), [2, 3, 0, 1]);
        assert_eq!(whole.shortage(), None);
        let none = node.grant(ShareRequest { vcpus: Some(1), ..ShareRequest::default() });
        assert_eq!((none.numbers(), cuda(&none).as_deref()), (vec![], Some("")));
        assert!(none.variables().contains(&("NVIDIA_VISIBLE_DEVICES", "void".to_owned())));
    }

    #[test]
    fn without_names_they_are_counted_as_the_job_sees_them() {
        let node = Gpus::new(2, gpus(&["4", "5=GPU-f"]));
        let (first, second) = (node.grant(asks(1)), node.grant(asks(1)));
        assert_eq!(cuda(&first).as_deref(), Some("0"));
        assert_eq!(cuda(&second).as_deref(), Some("GPU-f"));
        drop((first, second));
        assert_eq!(cuda(&node.grant(asks(2))).as_deref(), Some("0,1"));
    }

    #[test]
    fn slots_without_devices_are_no_gpus() {
        let node = Gpus::new(3, Vec::new());
        let (first, second) = (node.grant(asks(1)), node.grant(asks(2)));
        assert_eq!((cuda(&first).as_deref(), cuda(&second).as_deref()), (Some(""), Some("")));
        assert!(first.variables().contains(&("NVIDIA_VISIBLE_DEVICES", "void".to_owned())));
        assert!(second.numbers().is_empty());
        let shortage = second.shortage().unwrap();
        assert!(shortage.starts_with("0 of the 2 GPUs"), "{shortage}");
        assert!(shortage.ends_with("CUDA_VISIBLE_DEVICES is empty"), "{shortage}");
        let part = Gpus::new(2, gpus(&["0=GPU-a"]));
        let both = part.grant(ShareRequest::default());
        assert_eq!(cuda(&both).as_deref(), Some("GPU-a"));
        assert!(both.shortage().unwrap().starts_with("1 of the 2 GPUs"));
        let plain = Gpus::new(0, Vec::new());
        assert!(plain.grant(ShareRequest::default()).variables().is_empty());
    }

    #[test]
    fn bad_texts_are_no_gpus() {
        for bad in ["", "=GPU-a", "nvidia0", "-1", "65536"] {
            assert!(bad.parse::<Gpu>().is_err(), "{bad:?}");
        }
    }
}
