//! Azure's quota calls: `…/locations/{location}/usages`, `/quotas` and `/updateQuotas`.
//!
//! Quotas apply to a region of a subscription, in vCPUs. Azure also has quotas of a single workspace; those are refused
//! rather than treated as quotas of the region.

use std::collections::BTreeMap;

use muster_core::model::{QuotaName, QuotaVerdict};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::ArmError;
use crate::json::{Field, parse_object, shorten};
use crate::path::quota_id;

/// A hundred quotas with the longest names take a tenth of it.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// Azure's notation for "no limit", and in an update for "use the default again".
const NO_LIMIT: i64 = -1;
const UNIT: &str = "Count";

/// One quota of a region and its use, in vCPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaFigures {
    pub name: QuotaName,
    /// `None` if there is no limit.
    pub limit: Option<u64>,
    /// The maximum size of all clusters together.
    pub reserved: u64,
    /// The vCPUs of the nodes that exist or are being created.
    pub used: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "BothSpellings", rename_all = "camelCase")]
pub struct Usage {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub unit: String,
    /// The vCPUs that clusters have reserved. As in Azure, this includes nodes that a cluster may still get.
    pub current_value: u64,
    /// Muster's own: the vCPUs of the nodes that exist now.
    #[serde(default)]
    pub used_value: u64,
    /// -1 if there is no limit.
    pub limit: i64,
    pub name: UsageName,
    #[serde(default)]
    pub aml_workspace_location: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageName {
    pub value: String,
    #[serde(default)]
    pub localized_value: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub unit: String,
    pub limit: i64,
    pub name: UsageName,
    #[serde(default)]
    pub aml_workspace_location: Option<String>,
}

/// Azure's client copies the keys of a usage to attributes that it then reads in snake case. See the nodes of a
/// cluster.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BothSpellings {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    unit: String,
    current_value: u64,
    #[serde(rename = "current_value")]
    current_value_snake: u64,
    used_value: u64,
    limit: i64,
    name: UsageName,
    aml_workspace_location: Option<String>,
    #[serde(rename = "aml_workspace_location")]
    aml_workspace_location_snake: Option<String>,
}

impl From<Usage> for BothSpellings {
    fn from(usage: Usage) -> BothSpellings {
        BothSpellings {
            id: usage.id,
            kind: usage.kind,
            unit: usage.unit,
            current_value: usage.current_value,
            current_value_snake: usage.current_value,
            used_value: usage.used_value,
            limit: usage.limit,
            name: usage.name,
            aml_workspace_location: usage.aml_workspace_location.clone(),
            aml_workspace_location_snake: usage.aml_workspace_location,
        }
    }
}

/// A usage in the form of `Microsoft.Compute`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineUsage {
    pub unit: String,
    pub current_value: u64,
    /// -1 if there is no limit.
    pub limit: i64,
    pub name: UsageName,
}

/// One quota in the response to `updateQuotas`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdatedQuota {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub limit: i64,
    pub unit: String,
    /// `Success`, or Azure's word for why it was not set.
    pub status: String,
    /// Muster's own: the reason and the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The region that quotas apply to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region<'a> {
    pub subscription: &'a str,
    pub location: &'a str,
}

impl Region<'_> {
    fn id(&self, what: &str, name: &str) -> String {
        quota_id(self.subscription, self.location, what, name)
    }
}

fn name_of(name: &QuotaName) -> UsageName {
    let localized = match name {
        QuotaName::Family(family) => format!("{family} Cluster Dedicated vCPUs"),
        QuotaName::Region => "Total Cluster Dedicated Regional vCPUs".to_owned(),
        QuotaName::LowPriority => "Total Cluster LowPriority Regional vCPUs".to_owned(),
    };
    UsageName { value: name.to_string(), localized_value: Some(localized) }
}

fn kind_of(name: &QuotaName, what: &str) -> String {
    let kind = match name {
        QuotaName::Family(_) => "vmFamily",
        QuotaName::Region => "dedicatedCores",
        QuotaName::LowPriority => "lowPriorityCores",
    };
    format!("Microsoft.MachineLearningServices/{kind}/{what}")
}

pub(crate) fn wire_limit(limit: Option<u64>) -> i64 {
    limit.map_or(NO_LIMIT, |limit| i64::try_from(limit).unwrap_or(i64::MAX))
}

pub fn usage(region: Region<'_>, figures: &QuotaFigures) -> Usage {
    let name = name_of(&figures.name);
    Usage {
        id: region.id("usages", &name.value),
        kind: kind_of(&figures.name, "usages"),
        unit: UNIT.to_owned(),
        current_value: figures.reserved,
        used_value: figures.used,
        limit: wire_limit(figures.limit),
        name,
        aml_workspace_location: Some(region.location.to_owned()),
    }
}

/// Machines count once they exist, unlike clusters, which count with their maximum size.
pub fn machine_usage(figures: &QuotaFigures) -> MachineUsage {
    let (value, localized) = match &figures.name {
        QuotaName::Family(family) => (family.to_string(), format!("{family} vCPUs")),
        QuotaName::Region => ("cores".to_owned(), "Total Regional vCPUs".to_owned()),
        QuotaName::LowPriority => {
            ("lowPriorityCores".to_owned(), "Total Regional Low-priority vCPUs".to_owned())
        }
    };
    MachineUsage {
        unit: UNIT.to_owned(),
        current_value: figures.used,
        limit: wire_limit(figures.limit),
        name: UsageName { value, localized_value: Some(localized) },
    }
}

pub fn quota(region: Region<'_>, figures: &QuotaFigures) -> ResourceQuota {
    let name = name_of(&figures.name);
    ResourceQuota {
        id: region.id("quotas", &name.value),
        kind: kind_of(&figures.name, "quotas"),
        unit: UNIT.to_owned(),
        limit: wire_limit(figures.limit),
        name,
        aml_workspace_location: Some(region.location.to_owned()),
    }
}

/// Azure has more words, for cases that do not occur here: quotas of single sizes (`OperationNotSupportedForSku`),
/// regions without quotas (`OperationNotEnabledForRegion`), and unspecific failures (`Failure`, `Undefined`).
fn status(name: &QuotaName, verdict: QuotaVerdict) -> (&'static str, Option<String>) {
    match verdict {
        QuotaVerdict::Set => ("Success", None),
        QuotaVerdict::UnknownFamily => (
            "InvalidVMFamilyName",
            Some(format!(
                "the VM family '{}' does not exist; `muster quota list --location REGION` lists the families, and {} and {} \
                 are the totals of a region",
                shorten(&name.to_string()),
                QuotaName::Region,
                QuotaName::LowPriority
            )),
        ),
        QuotaVerdict::BelowMinimum { minimum } => (
            "InvalidQuotaBelowClusterMinimum",
            Some(format!(
                "the clusters that {name} applies to need at least {minimum} vCPUs; give {minimum} or more, \
                 or lower their --min-instances first"
            )),
        ),
        QuotaVerdict::TooLarge { most } => (
            "InvalidQuotaExceedsSubscriptionLimit",
            Some(format!(
                "{name} can be at most {most} vCPUs; give less, or -1 for the server's default"
            )),
        ),
    }
}

pub fn updated(
    region: Region<'_>,
    name: &QuotaName,
    limit: Option<u64>,
    verdict: QuotaVerdict,
) -> UpdatedQuota {
    let (status, message) = status(name, verdict);
    UpdatedQuota {
        id: region.id("quotas", &name.to_string()),
        kind: kind_of(name, "quotas"),
        limit: wire_limit(limit),
        unit: UNIT.to_owned(),
        status: status.to_owned(),
        message,
    }
}

/// Reads the body of `updateQuotas`: the limits by name, `None` for those that are reset to the default.
pub fn parse_update(
    body: &[u8],
    region: Region<'_>,
) -> Result<BTreeMap<QuotaName, Option<u64>>, ArmError> {
    let value = parse_object(body, BODY_BYTES_MAX)?;
    let list = Field::root(&value).get("value")?;
    let items = list.items()?.unwrap_or_default();
    if items.is_empty() {
        return Err(list.missing("list at least one limit, as {\"id\": …, \"limit\": …}"));
    }
    let mut limits = BTreeMap::new();
    for item in items {
        let id = item.get("id")?;
        let name = parse_name(&id, region)?;
        let field = item.get("limit")?;
        let limit = match field.whole()? {
            None => return Err(field.missing("give vCPUs, or -1 for the server's default")),
            Some(NO_LIMIT) => None,
            Some(limit) => Some(u64::try_from(limit).map_err(|_| {
                field.invalid(format!(
                    "{} is {limit}; give 0 or more vCPUs, or -1 for the server's default",
                    field.path
                ))
            })?),
        };
        if limits.insert(name.clone(), limit).is_some() {
            let message = format!("{} names {name} a second time; give each limit once", id.path);
            return Err(id.invalid(message));
        }
    }
    Ok(limits)
}

/// The name at the end of an id, or the name alone.
fn parse_name(field: &Field<'_>, region: Region<'_>) -> Result<QuotaName, ArmError> {
    let Some(id) = field.string()?.filter(|id| !id.is_empty()) else {
        return Err(field.missing("give the id of a quota, as the list of quotas shows it"));
    };
    if !id.contains('/') {
        return Ok(QuotaName::parse(id));
    }
    if id.to_ascii_lowercase().contains("/workspaces/") {
        return Err(ArmError::not_supported(
            &field.path,
            format!(
                "{} is '{}', a limit of a single workspace, which is not supported yet; set the limit of the region, {}",
                field.path,
                shorten(id),
                region.id("quotas", "<name>")
            ),
        ));
    }
    let prefix = region.id("quotas", "");
    let name = id.get(..prefix.len()).filter(|start| start.eq_ignore_ascii_case(&prefix));
    let name = name.map(|_| &id[prefix.len()..]).filter(|name| !name.is_empty());
    name.map(QuotaName::parse).ok_or_else(|| {
        field.invalid(format!(
            "{} is '{}'; give a quota of the region in the request, {}",
            field.path,
            shorten(id),
            region.id("quotas", "<name>")
        ))
    })
}

/// The body of `updateQuotas` that sets one limit.
pub fn update_json(region: Region<'_>, name: &str, limit: Option<u64>) -> String {
    let quota = json!({
        "id": region.id("quotas", name),
        "type": "Microsoft.MachineLearningServices/quotas",
        "limit": wire_limit(limit),
        "unit": UNIT,
    });
    json!({ "value": [quota] }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: Region<'_> = Region { subscription: "S", location: "eastus" };

    #[test]
    fn a_usage_has_azures_form() {
        let name = QuotaName::Family("standardDSv2Family".into());
        let figures = QuotaFigures { name, limit: Some(24), reserved: 16, used: 4 };
        let usage = usage(REGION, &figures);
        assert_eq!(
            crate::to_json(&usage),
            concat!(
                r#"{"id":"/subscriptions/S/providers/Microsoft.MachineLearningServices/locations/eastus/"#,
                r#"usages/standardDSv2Family","type":"Microsoft.MachineLearningServices/vmFamily/usages","#,
                r#""unit":"Count","currentValue":16,"current_value":16,"usedValue":4,"limit":24,"name":{"value":"#,
                r#""standardDSv2Family","localizedValue":"standardDSv2Family Cluster Dedicated vCPUs"},"#,
                r#""amlWorkspaceLocation":"eastus","aml_workspace_location":"eastus"}"#
            )
        );
        let text = crate::to_json(&usage);
        assert_eq!(crate::from_json::<Usage>(text.as_bytes()).unwrap(), usage);
        let machines = machine_usage(&figures);
        assert_eq!((machines.current_value, machines.limit), (4, 24));
        assert_eq!(machines.name.value, "standardDSv2Family");
        let region = QuotaFigures { name: QuotaName::Region, limit: None, ..figures };
        assert_eq!(machine_usage(&region).name.value, "cores");
        assert_eq!(quota(REGION, &region).limit, -1);
    }

    #[test]
    fn an_update_reads_back() {
        for (name, limit) in [
            ("TotalDedicatedCores", Some(8)),
            ("a family", None),
            ("TotalLowPriorityCores", Some(0)),
        ] {
            let body = update_json(REGION, name, limit);
            let other_case = Region { subscription: "s", location: "EastUS" };
            let limits = parse_update(body.as_bytes(), other_case).unwrap();
            assert_eq!(limits, BTreeMap::from([(QuotaName::parse(name), limit)]));
        }
        let alone = br#"{"value":[{"id":"totaldedicatedcores","limit":3}]}"#;
        let limits = parse_update(alone, REGION).unwrap();
        assert_eq!(limits, BTreeMap::from([(QuotaName::Region, Some(3))]));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let workspace = "/subscriptions/S/resourceGroups/g/providers/\
                         Microsoft.MachineLearningServices/workspaces/w/quotas/x";
        for (body, target, code) in [
            ("{}".to_owned(), "value", "InvalidPropertyValue"),
            (r#"{"value":[]}"#.to_owned(), "value", "InvalidPropertyValue"),
            (r#"{"value":[{"limit":3}]}"#.to_owned(), "value[0].id", "InvalidPropertyValue"),
            (r#"{"value":[{"id":"x"}]}"#.to_owned(), "value[0].limit", "InvalidPropertyValue"),
            (
                r#"{"value":[{"id":"x","limit":-2}]}"#.to_owned(),
                "value[0].limit",
                "InvalidPropertyValue",
            ),
            (
                r#"{"value":[{"id":"x","limit":1},{"id":"x","limit":2}]}"#.to_owned(),
                "value[1].id",
                "InvalidPropertyValue",
            ),
            (
                r#"{"value":[{"id":"/subscriptions/T/quotas/x","limit":1}]}"#.to_owned(),
                "value[0].id",
                "InvalidPropertyValue",
            ),
            (
                format!(r#"{{"value":[{{"id":"{workspace}","limit":1}}]}}"#),
                "value[0].id",
                "NotSupported",
            ),
        ] {
            let error = parse_update(body.as_bytes(), REGION).unwrap_err();
            assert_eq!((error.target(), error.code()), (Some(target), code), "{body}");
        }
    }
}
