//! The catalogue of VM sizes: what a size name means in vCPUs, memory, GPUs and money.
//!
//! A user names a size (`Standard_DS3_v2`) when creating a cluster; every later decision (does the
//! job fit, how many cores does it take from the quota, what does the hour cost) reads the size's
//! figures from here. The figures are those of the cloud, so that a cluster definition written for
//! Azure ML means the same on a Muster server. The catalogue does not know which sizes a provider
//! can deliver, nor any region; it deliberately reads no file and no network: the data is compiled
//! in, and an operator's own prices come in as values (`Catalogue::with_prices`).
//!
//! Invariants, held by the tests beside the parser: names are unique ignoring case; a size has a
//! GPU model exactly when it has GPUs; a low-priority hour never costs more than a dedicated one.
//!
//! Two conventions of the source data are kept. A constrained size (`Standard_DS11-1_v2`) counts
//! all the vCPUs of its machine, as the quota does. A size that holds a share of a GPU
//! (`Standard_NV6ads_A10_v5` has a sixth of one) counts 1, because one device is what its jobs see;
//! the three FPGA sizes (`Standard_NP10s` and larger, model `U250`) are counted the same way.

mod price;
mod rows;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::model::Capacity;
pub use price::{OperatorPrice, PRICE_MAX_MICRO_USD_PER_HOUR, Price, PriceError, PriceSource};

/// One machine size that a cluster can be made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmSize {
    /// The name in the cloud's own spelling, which is also how it is shown.
    pub name: Box<str>,
    /// The quota family, spelled as the cloud's quota API spells it (some have spaces).
    pub family: Arc<str>,
    pub vcpus: u32,
    /// Memory in MiB, so that the half-gigabyte sizes stay whole numbers.
    pub memory_mb: u64,
    pub gpus: u32,
    /// The short model name (`V100`); `Some` exactly when `gpus` is above 0.
    pub gpu_model: Option<Box<str>>,
    pub price: Price,
    pub retirement: Retirement,
}

impl VmSize {
    pub fn capacity(&self) -> Capacity {
        Capacity { gpus: self.gpus, vcpus: self.vcpus, memory_mb: self.memory_mb }
    }
}

/// Whether the cloud still offers a size, and what Muster makes of it.
///
/// The two kinds of retirement differ in what users still rely on: the documents that Muster follows
/// still create NCv3 clusters, but tell owners of the older series to recreate their clusters with
/// another size. The dates are ISO 8601 calendar dates for display; nothing compares them with a
/// clock, so a decision never depends on the day it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retirement {
    Current,
    /// Retired by the cloud only: Muster still accepts the size, and flags it.
    Announced {
        on: Box<str>,
    },
    /// Creation is refused; clusters that already exist are flagged.
    Retired {
        on: Box<str>,
    },
}

impl Retirement {
    /// Whether a new cluster may name the size.
    pub fn accepts_creation(&self) -> bool {
        match self {
            Retirement::Current | Retirement::Announced { .. } => true,
            Retirement::Retired { .. } => false,
        }
    }
}

/// All known sizes, found by name ignoring case, in the order of their lower-cased names.
///
/// Cloning is cheap: the sizes are shared until `with_prices` changes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue {
    sizes: Arc<BTreeMap<Box<str>, Entry>>,
}

/// A size as it stands, and the price it has when no operator's list is in force. The latter makes
/// a second price list replace the first instead of adding to it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    size: VmSize,
    builtin_price: Price,
}

/// The compiled-in data is parsed once per process, because a simulation creates thousands of worlds.
static BUILTIN: LazyLock<Catalogue> =
    LazyLock::new(|| match rows::parse(include_str!("catalogue/sizes.tsv")) {
        Ok(sizes) => Catalogue::from_sizes(sizes),
        Err(error) => panic!("the compiled-in size data is checked by every_row_parses: {error}"),
    });

impl Catalogue {
    /// The catalogue Muster ships with, at built-in prices.
    pub fn builtin() -> Catalogue {
        BUILTIN.clone()
    }

    /// The size called `name`, ignoring case as the cloud does (`STANDARD_DS3_V2` is common).
    pub fn get(&self, name: &str) -> Option<&VmSize> {
        self.sizes.get(key(name).as_str()).map(|entry| &entry.size)
    }

    /// The family of this name as it is spelled here, ignoring case.
    pub fn family(&self, name: &str) -> Option<Arc<str>> {
        let mut families = self.iter().map(|size| &size.family);
        families.find(|family| family.eq_ignore_ascii_case(name)).map(Arc::clone)
    }

    /// All sizes, retired ones too, in the order of their lower-cased names.
    pub fn iter(&self) -> impl Iterator<Item = &VmSize> {
        self.sizes.values().map(|entry| &entry.size)
    }

    /// The size a user who wrote `name` most likely meant, for "did you mean …": the closest name
    /// by edit distance among the sizes a cluster may be created with.
    ///
    /// `None` when nothing is close: a wrong suggestion costs more than none. Forgetting the
    /// `Standard_` counts as no mistake. Of equally close names the first in catalogue order wins,
    /// so that the same mistake always gets the same answer.
    pub fn nearest(&self, name: &str) -> Option<&str> {
        let open = self.iter().filter(|size| size.retirement.accepts_creation());
        crate::nearest::nearest(name, open.map(|size| &*size.name))
    }

    /// The same sizes at an operator's prices.
    ///
    /// A list that has entries replaces the built-in price list, and any operator's list given
    /// before. A size it names costs what it says (source `Operator`; 0 is a price, for machines
    /// that are not charged for). A size it does not name has no list price any more, so its
    /// built-in price stays as an estimate only (source `Estimated`): it must not become free, as
    /// budgets would then never stop it and "the cheapest size" would always be the one the
    /// operator forgot; and it must not look listed, as the operator's bill would then silently
    /// mix two price lists. A report that should not contain estimates can recognise them by their source.
    /// The empty list means that the operator has none, and restores the built-in prices.
    ///
    /// Retired sizes may be priced, because clusters with them may still run. The list is accepted
    /// as a whole or not at all: the first invalid entry is the error.
    pub fn with_prices(self, prices: &[OperatorPrice]) -> Result<Catalogue, PriceError> {
        let mut listed: BTreeMap<String, (usize, Price)> = BTreeMap::new();
        for (index, operator_price) in prices.iter().enumerate() {
            // Operators count from 1.
            let position = index + 1;
            let key = key(&operator_price.size);
            if self.get(&key).is_none() {
                let nearest = self.nearest(&operator_price.size);
                return Err(operator_price.unknown_size(position, nearest));
            }
            let price = operator_price.check(position)?;
            if let Some((first, _)) = listed.insert(key, (position, price)) {
                return Err(operator_price.duplicate(position, first));
            }
        }

        let mut sizes = self.sizes;
        for (key, entry) in Arc::make_mut(&mut sizes) {
            entry.size.price = match listed.get(&**key) {
                Some((_, price)) => *price,
                None if prices.is_empty() => entry.builtin_price,
                None => Price { source: PriceSource::Estimated, ..entry.builtin_price },
            };
        }
        Ok(Catalogue { sizes })
    }

    fn from_sizes(sizes: Vec<VmSize>) -> Catalogue {
        let entries = sizes.into_iter().map(|size| {
            let builtin_price = size.price;
            (key(&size.name).into_boxed_str(), Entry { size, builtin_price })
        });
        Catalogue { sizes: Arc::new(entries.collect()) }
    }
}

/// The key under which a size is found. Names are ASCII, so ASCII case is all that needs folding.
fn key(name: &str) -> String {
    name.to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
