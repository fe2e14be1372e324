//! The known regions: Azure's, and those that the operator adds.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::nearest;

/// Azure's regions by their short names, in alphabetical order.
const KNOWN: [&str; 69] = [
    "australiacentral",
    "australiacentral2",
    "australiaeast",
    "australiasoutheast",
    "austriaeast",
    "belgiumcentral",
    "brazilsouth",
    "brazilsoutheast",
    "canadacentral",
    "canadaeast",
    "centralindia",
    "centralus",
    "centraluseuap",
    "chilecentral",
    "chinaeast",
    "chinaeast2",
    "chinaeast3",
    "chinanorth",
    "chinanorth2",
    "chinanorth3",
    "eastasia",
    "eastus",
    "eastus2",
    "eastus2euap",
    "francecentral",
    "francesouth",
    "germanynorth",
    "germanywestcentral",
    "indonesiacentral",
    "israelcentral",
    "italynorth",
    "japaneast",
    "japanwest",
    "jioindiacentral",
    "jioindiawest",
    "koreacentral",
    "koreasouth",
    "malaysiawest",
    "mexicocentral",
    "newzealandnorth",
    "northcentralus",
    "northeurope",
    "norwayeast",
    "norwaywest",
    "polandcentral",
    "qatarcentral",
    "southafricanorth",
    "southafricawest",
    "southcentralus",
    "southeastasia",
    "southindia",
    "spaincentral",
    "swedencentral",
    "swedensouth",
    "switzerlandnorth",
    "switzerlandwest",
    "uaecentral",
    "uaenorth",
    "uksouth",
    "ukwest",
    "usgovarizona",
    "usgovtexas",
    "usgovvirginia",
    "westcentralus",
    "westeurope",
    "westindia",
    "westus",
    "westus2",
    "westus3",
];

/// The known regions. Names are compared without case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Regions {
    /// The added regions, in lower case.
    added: Arc<BTreeSet<Box<str>>>,
}

impl Regions {
    /// Azure's regions and these.
    pub fn with<'a>(added: impl IntoIterator<Item = &'a str>) -> Regions {
        let added = added.into_iter().map(|name| name.to_ascii_lowercase().into());
        Regions { added: Arc::new(added.collect()) }
    }

    pub fn contains(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        KNOWN.binary_search(&name.as_str()).is_ok() || self.added.contains(name.as_str())
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        self.added.iter().map(|name| &**name).chain(KNOWN)
    }

    /// The text of the refusal of an unknown region, with the remedy.
    pub(crate) fn refusal(&self, name: &str, shown: &str) -> String {
        let hint = nearest::suggestion(name, self.iter())
            .unwrap_or_else(|| "use one of Azure's, such as eastus.".to_owned());
        format!(
            "the region '{shown}' is not known; {hint} To use it anyway, add it to the server's configuration: \
             regions = \"{shown}\""
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_in_order_and_found_without_case() {
        assert!(KNOWN.is_sorted());
        let regions = Regions::with(["On-Prem"]);
        for name in KNOWN.into_iter().chain(["EastUS", "on-prem", "ON-PREM"]) {
            assert!(regions.contains(name), "{name}");
        }
        assert!(!regions.contains("nowhere") && !Regions::default().contains("on-prem"));
    }

    #[test]
    fn a_slip_gets_the_nearest_and_the_way_to_add_one() {
        let said = Regions::default().refusal("eastsu", "eastsu");
        assert_eq!(
            said,
            "the region 'eastsu' is not known; did you mean 'eastus'? To use it anyway, add it to the server's \
             configuration: regions = \"eastsu\""
        );
        let said = Regions::with(["on-prem"]).refusal("onprem", "onprem");
        assert!(said.contains("did you mean 'on-prem'?"), "{said}");
        let said = Regions::default().refusal("mars", "mars");
        assert!(said.contains("such as eastus. To use"), "{said}");
    }
}
