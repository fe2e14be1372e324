//! What a job requests besides its nodes: a priority, and a share of each node instead of all of it.

use muster_core::model::{JobSpec, JobTier, OnEviction, Priority, ShareRequest, TreeId};
use serde::{Deserialize, Serialize};

use crate::error::ArmError;
use crate::json::{Field, shorten};

/// The numbers that azure-ai-ml sends.
const PRIORITIES: [(u8, Priority); 3] =
    [(1, Priority::Low), (2, Priority::Medium), (3, Priority::High)];
const JOB_TIERS: [(&str, JobTier); 5] = [
    ("Null", JobTier::Null),
    ("Spot", JobTier::Spot),
    ("Basic", JobTier::Basic),
    ("Standard", JobTier::Standard),
    ("Premium", JobTier::Premium),
];
const MB_PER_GB: u64 = 1_024;
/// More than any host has.
const SHARED_MEMORY_MB_MAX: u64 = 64 << 20;

/// `queueSettings`, which is omitted for the default priority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSettings {
    #[serde(default, rename = "jobTier", skip_serializing_if = "Option::is_none")]
    pub job_tier: Option<String>,
    #[serde(default)]
    pub priority: Option<u8>,
}

impl QueueSettings {
    pub(super) fn of(spec: &JobSpec) -> Option<QueueSettings> {
        let found = PRIORITIES.into_iter().find(|(_, known)| *known == spec.priority);
        let number = found.map(|(number, _)| number);
        let word = |tier| JOB_TIERS.into_iter().find(|(_, known)| *known == tier);
        let job_tier = spec.job_tier.and_then(word).map(|(word, _)| word.to_owned());
        let is_usual = spec.priority == Priority::default() && job_tier.is_none();
        (!is_usual).then_some(QueueSettings { job_tier, priority: number })
    }

    pub fn priority(&self) -> Option<Priority> {
        let found = PRIORITIES.into_iter().find(|(number, _)| Some(*number) == self.priority);
        found.map(|(_, priority)| priority)
    }
}

/// Muster's own keys in `resources.properties`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShare {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// For example `4GB` or `512MB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
}

impl NodeShare {
    pub(super) fn of(share: ShareRequest) -> NodeShare {
        let memory = share.memory_mb.map(format_memory);
        NodeShare { cpus: share.vcpus, memory, gpus: share.gpus }
    }

    pub fn is_whole(&self) -> bool {
        *self == NodeShare::default()
    }
}

pub(super) fn parse_priority(field: &Field<'_>) -> Result<Priority, ArmError> {
    let Some(text) = field.number_or_text()? else { return Ok(Priority::default()) };
    let found = PRIORITIES.into_iter().find(|(number, priority)| {
        text.eq_ignore_ascii_case(priority.as_str()) || text == number.to_string()
    });
    found.map(|(_, priority)| priority).ok_or_else(|| {
        field.invalid(format!(
            "{} is '{}'; give 1 (low), 2 (medium) or 3 (high)",
            field.path,
            shorten(&text)
        ))
    })
}

pub(super) fn parse_job_tier(field: &Field<'_>) -> Result<Option<JobTier>, ArmError> {
    field.choice(&JOB_TIERS)
}

/// The spelling that users write.
const ON_EVICTION: [(&str, OnEviction); 2] =
    [("requeue", OnEviction::Requeue), ("fail", OnEviction::Fail)];

/// `None` for the default.
pub(super) fn on_eviction_text(wanted: OnEviction) -> Option<&'static str> {
    let found = ON_EVICTION.into_iter().find(|(_, known)| *known == wanted);
    found.map(|(text, _)| text).filter(|_| wanted != OnEviction::default())
}

pub(super) fn parse_on_eviction(field: &Field<'_>) -> Result<OnEviction, ArmError> {
    let Some(text) = field.string()? else { return Ok(OnEviction::default()) };
    let found = ON_EVICTION.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(text));
    found
        .map(|(_, wanted)| wanted)
        .ok_or_else(|| field.unknown(text, &ON_EVICTION.map(|(known, _)| known)))
}

pub(super) fn parse_code(field: &Field<'_>) -> Result<Option<TreeId>, ArmError> {
    let Some(text) = field.string()? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        let shown = shorten(text);
        field.invalid(format!(
            "{} is '{shown}'; give the id of files that were uploaded before, 64 hex digits",
            field.path
        ))
    })
}

pub(super) fn parse_share(field: &Field<'_>) -> Result<ShareRequest, ArmError> {
    let count = |key: &str| {
        let field = field.get(key)?;
        let Some(text) = field.number_or_text()? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            let shown = shorten(&text);
            field.invalid(format!(
                "{} is '{shown}'; give a whole number, or leave it out",
                field.path
            ))
        })
    };
    let memory = field.get("memory")?;
    let memory_mb = match memory.number_or_text()? {
        None => None,
        Some(text) => Some(parse_memory(&text).ok_or_else(|| {
            let shown = shorten(&text);
            memory.invalid(format!("{} is '{shown}'; write it like 4GB or 512MB", memory.path))
        })?),
    };
    Ok(ShareRequest { vcpus: count("cpus")?, memory_mb, gpus: count("gpus")? })
}

/// In Docker's notation: `2g`, `512m`.
pub(super) fn parse_shared_memory(field: &Field<'_>) -> Result<Option<u64>, ArmError> {
    let Some(text) = field.number_or_text()?.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let parsed = parse_memory(&text).filter(|mb| (1..=SHARED_MEMORY_MB_MAX).contains(mb));
    parsed.map(Some).ok_or_else(|| {
        let shown = shorten(&text);
        field.invalid(format!("{} is '{shown}'; write it like 2g or 512m", field.path))
    })
}

pub(super) fn shared_memory_text(mb: u64) -> String {
    format!("{mb}m")
}

/// `4GB`, `512MB`, `4g`, or megabytes without a unit. A GB is 1024 MB.
pub fn parse_memory(text: &str) -> Option<u64> {
    let folded = text.trim().to_ascii_lowercase();
    let digits = folded.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = folded.split_at(digits);
    let count: u64 = count.parse().ok()?;
    match unit.trim_start() {
        "" | "m" | "mb" | "mib" => Some(count),
        "g" | "gb" | "gib" => count.checked_mul(MB_PER_GB),
        _ => None,
    }
}

fn format_memory(mb: u64) -> String {
    match mb % MB_PER_GB {
        0 if mb > 0 => format!("{}GB", mb / MB_PER_GB),
        _ => format!("{mb}MB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_the_usual_spellings() {
        for (text, mb) in
            [("4GB", 4_096), ("4g", 4_096), ("512MB", 512), ("1 GiB", 1_024), ("7", 7)]
        {
            assert_eq!(parse_memory(text), Some(mb), "{text}");
        }
        for bad in ["", "GB", "4TB", "-1GB", "1.5GB", "99999999999999999999GB", "4GBs"] {
            assert_eq!(parse_memory(bad), None, "{bad}");
        }
        for text in ["4GB", "512MB", "1025MB"] {
            assert_eq!(parse_memory(text).map(format_memory).as_deref(), Some(text));
        }
    }
}
