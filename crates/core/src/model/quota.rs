//! Quota: how many vCPUs may be reserved, and used, in one region of one subscription.
//!
//! There are two figures, which are never mixed. Clusters *reserve* vCPUs (maximum × vCPUs) when they are created or
//! when their maximum is raised; a reservation that does not fit is refused. Nodes *use* vCPUs while they start, run or
//! are being deleted; if there are too few, jobs wait. If no limit was set, the operator's default applies; if there is
//! no default, nothing is limited.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Tier;

/// The region of a subscription that a quota applies to. In lower case, because Azure ignores case in both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QuotaScope {
    pub subscription: Arc<str>,
    pub location: Arc<str>,
}

impl QuotaScope {
    pub fn new(subscription: &str, location: &str) -> QuotaScope {
        QuotaScope {
            subscription: subscription.to_ascii_lowercase().into(),
            location: location.to_ascii_lowercase().into(),
        }
    }
}

/// The result for one requested limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaVerdict {
    Set,
    UnknownFamily,
    /// The minimums of the clusters already require this many vCPUs.
    BelowMinimum {
        minimum: u64,
    },
    TooLarge {
        most: u64,
    },
}

/// What a limit counts within a scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaName {
    /// Dedicated vCPUs of one family of sizes, as the catalogue spells it.
    Family(Arc<str>),
    /// All dedicated vCPUs of the region.
    Region,
    /// All low-priority vCPUs of the region, whatever their family.
    LowPriority,
}

impl QuotaName {
    const REGION: &'static str = "TotalDedicatedCores";
    const LOW_PRIORITY: &'static str = "TotalLowPriorityCores";

    /// The limits that a cluster of this tier and family counts towards.
    pub fn of(tier: Tier, family: &Arc<str>) -> Vec<QuotaName> {
        match tier {
            Tier::Dedicated => vec![QuotaName::Family(Arc::clone(family)), QuotaName::Region],
            Tier::LowPriority => vec![QuotaName::LowPriority],
        }
    }

    pub fn parse(text: &str) -> QuotaName {
        if text.eq_ignore_ascii_case(Self::REGION) {
            QuotaName::Region
        } else if text.eq_ignore_ascii_case(Self::LOW_PRIORITY) {
            QuotaName::LowPriority
        } else {
            QuotaName::Family(text.into())
        }
    }
}

impl fmt::Display for QuotaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuotaName::Family(family) => family,
            QuotaName::Region => Self::REGION,
            QuotaName::LowPriority => Self::LOW_PRIORITY,
        })
    }
}

impl Serialize for QuotaName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for QuotaName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<QuotaName, D::Error> {
        String::deserialize(deserializer).map(|text| QuotaName::parse(&text))
    }
}

/// The limits in each region of each subscription if none were set, in vCPUs. `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DefaultLimits {
    pub region: Option<u64>,
    /// The limit for each family.
    pub family: Option<u64>,
    pub low_priority: Option<u64>,
}

impl DefaultLimits {
    pub fn of(&self, name: &QuotaName) -> Option<u64> {
        match name {
            QuotaName::Family(_) => self.family,
            QuotaName::Region => self.region,
            QuotaName::LowPriority => self.low_priority,
        }
    }
}

/// The limits that were set in one scope, in vCPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    pub scope: QuotaScope,
    pub limits: BTreeMap<QuotaName, u64>,
}
