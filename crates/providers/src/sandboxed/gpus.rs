//! The GPUs of this host that have a device which can be given to a node, and what is known about them.

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

const DEVICES: &str = "/dev";
const DRIVER: &str = "/proc/driver/nvidia/gpus";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// The number in `/dev/nvidiaN`.
    pub number: u16,
    /// The driver's permanent name of the GPU.
    pub uuid: Option<String>,
    pub name: Option<String>,
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpus {
    pub found: Vec<Gpu>,
    /// Why the driver's library reported nothing, if so.
    pub silence: Option<String>,
}

/// The driver's library knows the most. Without it the driver's own folder is read, and without that there are only
/// devices.
pub fn find() -> Gpus {
    let (reported, silence) = match by_library() {
        Ok(reported) => (reported, None),
        Err(error) => (by_folder(Path::new(DRIVER)), Some(error.to_string())),
    };
    Gpus { found: with_device(reported, &devices(Path::new(DEVICES))), silence }
}

/// A GPU without a device cannot be given to a node; a device that is not reported may be a leftover.
fn with_device(mut reported: Vec<Gpu>, devices: &[u16]) -> Vec<Gpu> {
    if reported.is_empty() {
        let unknown =
            |number: &u16| Gpu { number: *number, uuid: None, name: None, memory_bytes: None };
        return devices.iter().map(unknown).collect();
    }
    reported.retain(|gpu| devices.contains(&gpu.number));
    reported.sort_by_key(|gpu| gpu.number);
    reported.dedup_by_key(|gpu| gpu.number);
    reported
}

/// The library is loaded when this is called, and not before.
fn by_library() -> Result<Vec<Gpu>, NvmlError> {
    let library = Nvml::init()?;
    let mut gpus = Vec::new();
    for index in 0..library.device_count()? {
        // A broken GPU does not hide the others.
        match read_from_library(&library, index) {
            Ok(gpu) => gpus.extend(gpu),
            Err(error) => tracing::warn!(index, %error, "a GPU does not respond and is not used"),
        }
    }
    Ok(gpus)
}

fn read_from_library(library: &Nvml, index: u32) -> Result<Option<Gpu>, NvmlError> {
    let device = library.device_by_index(index)?;
    let number = u16::try_from(device.minor_number()?);
    Ok(number.ok().map(|number| Gpu {
        number,
        uuid: device.uuid().ok(),
        name: device.name().ok(),
        memory_bytes: device.memory_info().ok().map(|memory| memory.total),
    }))
}

/// Reads a folder for each GPU, with a file of `Name: value` lines.
fn by_folder(driver: &Path) -> Vec<Gpu> {
    let entries = std::fs::read_dir(driver).into_iter().flatten().flatten();
    let texts = entries.map(|entry| std::fs::read_to_string(entry.path().join("information")));
    texts.flatten().filter_map(|text| parse_gpu(&text)).collect()
}

fn parse_gpu(text: &str) -> Option<Gpu> {
    let value = |name: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let found = lines.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim());
        found.map(str::to_owned).next()
    };
    let number = value("Device Minor")?.parse().ok()?;
    // Until a program has used the GPU, the driver shows question marks.
    let uuid = value("GPU UUID").filter(|uuid| !uuid.contains('?'));
    Some(Gpu { number, uuid, name: value("Model"), memory_bytes: None })
}

fn devices(folder: &Path) -> Vec<u16> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let devices = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_char_device()));
    let mut numbers: Vec<u16> =
        devices.filter_map(|device| number_of(device.file_name().to_str()?)).collect();
    numbers.sort_unstable();
    numbers
}

/// Parses `nvidia0`, `nvidia1`, …, as the kernel writes numbers.
fn number_of(name: &str) -> Option<u16> {
    let number = name.strip_prefix("nvidia")?.parse::<u16>().ok()?;
    (name == format!("nvidia{number}")).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_known_by_its_name() {
        let names =
            ["nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia", "nvidia01", "sda1"];
        let numbers: Vec<u16> = names.into_iter().filter_map(number_of).collect();
        assert_eq!(numbers, [0, 12]);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("nvidia0"), "").unwrap();
        assert!(devices(dir.path()).is_empty(), "a plain file is not a device");
        assert!(devices(&dir.path().join("nothing")).is_empty());
    }

    #[test]
    fn the_drivers_folder_lists_gpus() {
        let dir = tempfile::tempdir().unwrap();
        for (folder, text) in [
            (
                "0000:81:00.0",
                "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-b\nBus Location: \t 0000:81:00.0\nDevice Minor: \t 1\n",
            ),
            ("0000:01:00.0", "Model: Tesla T4\nGPU UUID: GPU-????-????\nDevice Minor: 0\n"),
            ("0000:02:00.0", "nothing that we know\n"),
        ] {
            let folder = dir.path().join(folder);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("information"), text).unwrap();
        }
        let reported = by_folder(dir.path());
        let gpus = with_device(reported.clone(), &[0, 1, 2]);
        let shown: Vec<_> = gpus.iter().map(|gpu| (gpu.number, gpu.uuid.as_deref())).collect();
        assert_eq!(shown, [(0, None), (1, Some("GPU-b"))]);
        assert_eq!(gpus[1].name.as_deref(), Some("NVIDIA A100"));
        assert_eq!(
            with_device(reported, &[1]).len(),
            1,
            "a GPU without a device cannot be given away"
        );
        assert_eq!(with_device(Vec::new(), &[3, 4]).len(), 2, "devices alone are enough");
    }
}
