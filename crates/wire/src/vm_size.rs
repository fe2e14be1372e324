//! The VM sizes of a region in two forms: Azure ML's `vmSizes`, which includes prices, and the one of
//! `Microsoft.Compute`, which `az vm list-sizes` reads.

use muster_core::catalogue::VmSize;
use serde::{Deserialize, Serialize};

use crate::JsonText;
use crate::compute::KINDS;

/// The same for every size, in Azure and here.
const OS_DISK_MB: u64 = 1_047_552;
/// A rule of thumb that is exact for the DSv2 family. Nodes actually use the disk of their host.
const SCRATCH_DISK_PER_MEMORY: u64 = 2;
/// Since this year's api-versions, clients read `value` only.
const VALUE_ONLY_SINCE: u32 = 2021;

/// The list of sizes. Clients of api-version 2020-08-01 look for it under `amlCompute`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmSizeList {
    pub value: Vec<VmSizeInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aml_compute: Option<Vec<VmSizeInfo>>,
    /// Absent on the last page, because azureml-core would follow a null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_link: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "BothSpellings")]
pub struct VmSizeInfo {
    pub name: String,
    pub family: String,
    #[serde(rename = "vCPUs")]
    pub vcpus: u32,
    pub gpus: u32,
    #[serde(rename = "osVhdSizeMB")]
    pub os_vhd_size_mb: u64,
    #[serde(rename = "maxResourceVolumeMB")]
    pub max_resource_volume_mb: u64,
    /// A decimal number, because some sizes have half a gigabyte.
    #[serde(rename = "memoryGB")]
    pub memory_gb: JsonText,
    #[serde(rename = "lowPriorityCapable")]
    pub low_priority_capable: bool,
    #[serde(rename = "premiumIO")]
    pub premium_io: bool,
    #[serde(rename = "estimatedVMPrices")]
    pub estimated_prices: Prices,
    #[serde(rename = "supportedComputeTypes")]
    pub supported_compute_types: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prices {
    pub billing_currency: String,
    pub unit_of_measure: String,
    pub values: Vec<PriceOf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PriceOf {
    /// In US dollars.
    pub retail_price: JsonText,
    pub os_type: String,
    pub vm_tier: String,
}

/// Azure's client copies the keys of a size to attributes that it then reads in snake case. See the nodes of a cluster.
#[derive(Serialize)]
struct BothSpellings {
    name: String,
    family: String,
    #[serde(rename = "vCPUs")]
    vcpus: u32,
    v_cp_us: u32,
    gpus: u32,
    #[serde(rename = "osVhdSizeMB")]
    os_vhd_camel: u64,
    os_vhd_size_mb: u64,
    #[serde(rename = "maxResourceVolumeMB")]
    max_resource_volume_camel: u64,
    max_resource_volume_mb: u64,
    #[serde(rename = "memoryGB")]
    memory_camel: JsonText,
    memory_gb: JsonText,
    #[serde(rename = "lowPriorityCapable")]
    low_priority_camel: bool,
    low_priority_capable: bool,
    #[serde(rename = "premiumIO")]
    premium_camel: bool,
    premium_io: bool,
    #[serde(rename = "estimatedVMPrices")]
    estimated_prices: Prices,
    #[serde(rename = "supportedComputeTypes")]
    supported_camel: Vec<String>,
    /// The list as one text, as older clients format it.
    supported_compute_types: String,
}

impl From<VmSizeInfo> for BothSpellings {
    fn from(size: VmSizeInfo) -> BothSpellings {
        BothSpellings {
            name: size.name,
            family: size.family,
            vcpus: size.vcpus,
            v_cp_us: size.vcpus,
            gpus: size.gpus,
            os_vhd_camel: size.os_vhd_size_mb,
            os_vhd_size_mb: size.os_vhd_size_mb,
            max_resource_volume_camel: size.max_resource_volume_mb,
            max_resource_volume_mb: size.max_resource_volume_mb,
            memory_camel: size.memory_gb.clone(),
            memory_gb: size.memory_gb,
            low_priority_camel: size.low_priority_capable,
            low_priority_capable: size.low_priority_capable,
            premium_camel: size.premium_io,
            premium_io: size.premium_io,
            estimated_prices: size.estimated_prices,
            supported_compute_types: size.supported_compute_types.join(","),
            supported_camel: size.supported_compute_types,
        }
    }
}

/// The sizes that a new compute may have. `compute_type` selects those of one kind of compute; for kinds that cannot be
/// created, the list is empty.
pub fn list<'a>(
    sizes: impl Iterator<Item = &'a VmSize>,
    api_version: Option<&str>,
    compute_type: Option<&str>,
) -> VmSizeList {
    let is_known = |kind: &str| KINDS.iter().any(|(word, _)| word.eq_ignore_ascii_case(kind));
    let is_asked = compute_type.is_none_or(is_known);
    let offered = sizes.filter(|size| is_asked && size.retirement.accepts_creation());
    let value: Vec<VmSizeInfo> = offered.map(info).collect();
    let year = api_version.and_then(|version| version.get(..4)).and_then(|year| year.parse().ok());
    let is_new = year.is_some_and(|year: u32| year >= VALUE_ONLY_SINCE);
    VmSizeList { aml_compute: (!is_new).then(|| value.clone()), value, next_link: None }
}

fn info(size: &VmSize) -> VmSizeInfo {
    let price = |micro_usd, tier: &str| PriceOf {
        retail_price: decimal(micro_usd, 1_000_000),
        os_type: "Linux".to_owned(),
        vm_tier: tier.to_owned(),
    };
    VmSizeInfo {
        name: size.name.to_string(),
        family: size.family.to_string(),
        vcpus: size.vcpus,
        gpus: size.gpus,
        os_vhd_size_mb: OS_DISK_MB,
        max_resource_volume_mb: scratch_disk_mb(size),
        memory_gb: decimal(size.memory_mb, 1_024),
        low_priority_capable: true,
        premium_io: has_premium_disks(&size.name),
        estimated_prices: Prices {
            billing_currency: "USD".to_owned(),
            unit_of_measure: "OneHour".to_owned(),
            values: vec![
                price(size.price.dedicated_micro_usd_per_hour, "Standard"),
                price(size.price.low_priority_micro_usd_per_hour, "LowPriority"),
            ],
        },
        supported_compute_types: KINDS.iter().map(|(word, _)| (*word).to_owned()).collect(),
    }
}

fn scratch_disk_mb(size: &VmSize) -> u64 {
    size.memory_mb.saturating_mul(SCRATCH_DISK_PER_MEMORY)
}

/// Azure marks such sizes with an S among the letters before the first `_`: DS3, D4s, NC24ads.
fn has_premium_disks(name: &str) -> bool {
    let size = name.split_once('_').map_or(name, |(_, size)| size);
    size.split('_').next().is_some_and(|letters| letters.contains(['s', 'S']))
}

/// `units` divided by `per_one`, as a decimal number with at most six places.
fn decimal(units: u64, per_one: u64) -> JsonText {
    const PLACES: u128 = 1_000_000;
    let fraction = u128::from(units % per_one) * PLACES / u128::from(per_one);
    let text = format!("{}.{fraction:06}", units / per_one);
    let text = text.trim_end_matches('0');
    let text = if text.ends_with('.') { format!("{text}0") } else { text.to_owned() };
    JsonText::new(&text).expect("digits around a point are a number")
}

/// A size in the form of `Microsoft.Compute`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineSize {
    pub name: String,
    pub number_of_cores: u32,
    #[serde(rename = "osDiskSizeInMB")]
    pub os_disk_size_in_mb: u64,
    #[serde(rename = "resourceDiskSizeInMB")]
    pub resource_disk_size_in_mb: u64,
    #[serde(rename = "memoryInMB")]
    pub memory_in_mb: u64,
    pub max_data_disk_count: u32,
}

pub fn machine_sizes<'a>(sizes: impl Iterator<Item = &'a VmSize>) -> Vec<MachineSize> {
    let offered = sizes.filter(|size| size.retirement.accepts_creation());
    offered
        .map(|size| MachineSize {
            name: size.name.to_string(),
            number_of_cores: size.vcpus,
            os_disk_size_in_mb: OS_DISK_MB,
            resource_disk_size_in_mb: scratch_disk_mb(size),
            memory_in_mb: size.memory_mb,
            // Nodes have no disks that could be attached.
            max_data_disk_count: 0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use muster_core::catalogue::Catalogue;

    use super::*;

    fn one(name: &str) -> VmSizeInfo {
        info(Catalogue::builtin().get(name).unwrap())
    }

    #[test]
    fn a_size_has_both_spellings_of_every_key() {
        assert_eq!(
            crate::to_json(&one("Standard_DS3_v2")),
            concat!(
                r#"{"name":"Standard_DS3_v2","family":"standardDSv2Family","vCPUs":4,"v_cp_us":4,"gpus":0,"#,
                r#""osVhdSizeMB":1047552,"os_vhd_size_mb":1047552,"maxResourceVolumeMB":28672,"#,
                r#""max_resource_volume_mb":28672,"memoryGB":14.0,"memory_gb":14.0,"lowPriorityCapable":true,"#,
                r#""low_priority_capable":true,"premiumIO":true,"premium_io":true,"estimatedVMPrices":{"#,
                r#""billingCurrency":"USD","unitOfMeasure":"OneHour","values":[{"retailPrice":0.29,"#,
                r#""osType":"Linux","vmTier":"Standard"},{"retailPrice":0.06,"osType":"Linux","#,
                r#""vmTier":"LowPriority"}]},"supportedComputeTypes":["AmlCompute","ComputeInstance"],"#,
                r#""supported_compute_types":"AmlCompute,ComputeInstance"}"#
            )
        );
        assert_eq!(crate::to_json(&one("standard_ds1_v2").memory_gb), "3.5");
        let text = crate::to_json(&one("Standard_NC24ads_A100_v4"));
        let read: VmSizeInfo = crate::from_json(text.as_bytes()).unwrap();
        assert_eq!(read, one("Standard_NC24ads_A100_v4"));
    }

    #[test]
    fn old_clients_find_the_list_under_its_old_key() {
        let catalogue = Catalogue::builtin();
        let keys = |version| {
            let list = list(catalogue.iter(), version, None);
            (list.value.len(), list.aml_compute.map(|sizes| sizes.len()))
        };
        let (count, _) = keys(None);
        assert!(count > 1_000);
        assert_eq!(keys(Some("2020-08-01")), (count, Some(count)));
        assert_eq!(keys(None), (count, Some(count)));
        assert_eq!(keys(Some("2023-08-01-preview")), (count, None));
        // They would follow a null.
        let text = crate::to_json(&list(catalogue.iter(), None, None));
        assert!(!text.contains("nextLink"), "there is no next page");
    }

    #[test]
    fn only_what_a_cluster_can_be_made_of_is_listed() {
        let catalogue = Catalogue::builtin();
        let listed = list(catalogue.iter(), None, Some("amlcompute")).value;
        assert!(listed.iter().any(|size| size.name == "Standard_DS3_v2"));
        assert!(!listed.iter().any(|size| size.name == "Standard_NC6"), "the size is retired");
        assert_eq!(list(catalogue.iter(), None, Some("Kubernetes")).value, []);
        let machines = machine_sizes(catalogue.iter());
        assert_eq!(machines.len(), listed.len());
        let text = crate::to_json(&machines[0]);
        assert!(text.contains("\"resourceDiskSizeInMB\":"), "{text}");
    }

    #[test]
    fn premium_disks_are_recognised_by_the_name() {
        for (name, has) in [
            ("Standard_D4s_v3", true),
            ("Standard_NC24ads_A100_v4", true),
            ("Standard_HC44rs", true),
            ("Standard_D4_v3", false),
            ("Standard_NV12", false),
            ("Basic_A1", false),
        ] {
            assert_eq!(has_premium_disks(name), has, "{name}");
        }
    }

    #[test]
    fn decimals_are_written_as_short_as_they_are() {
        for (units, per_one, text) in
            [(3_584, 1_024, "3.5"), (768, 1_024, "0.75"), (0, 7, "0.0"), (1, 3, "0.333333")]
        {
            assert_eq!(decimal(units, per_one).as_str(), text);
        }
        assert_eq!(decimal(u64::MAX, 1).as_str(), format!("{}.0", u64::MAX));
    }
}
