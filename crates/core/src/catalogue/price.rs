//! What an hour of a size costs: listed, estimated, or set by the operator.
//!
//! All amounts are whole micro-USD per hour, so that the cost ledger adds up exactly and a replayed
//! log gives the same bill. An estimate is never mistaken for a listed price, because each
//! price carries its source.

use serde::{Deserialize, Serialize};

/// One million USD an hour. The dearest size listed costs 33, so a price above this is a slip of
/// the unit (micro-USD multiplied twice, or a yearly sum). It also bounds the ledger's sums: a node
/// at this price takes two thousand years to fill a `u64` of micro-USD. (Price times seconds fills
/// one within a year: multiply in `u128`.)
pub const PRICE_MAX_MICRO_USD_PER_HOUR: u64 = 1_000_000 * 1_000_000;

/// A low-priority hour costs one dedicated hour divided by this if no other price is listed: the
/// documents promise a discount of up to 80 %.
const LOW_PRIORITY_DIVISOR: u64 = 5;

/// What one vCPU adds to an estimate. Together with the memory rate it reproduces the listed prices
/// of the compute-optimised F2s_v2 and F72s_v2 to a tenth of a percent.
const VCPU_MICRO_USD_PER_HOUR: u64 = 34_800;

/// What one GiB of memory adds to an estimate: about the difference at list between a general
/// purpose and a memory-optimised size of the same vCPU count, per GiB.
const MEMORY_MICRO_USD_PER_GIB_HOUR: u64 = 3_750;

/// What one whole GPU adds to an estimate, by model. For the models with a listed size the rate is
/// what its price leaves once vCPUs and memory are taken off (rounded, and between its sizes); the
/// others are placed between them by class and age. They are good for comparing sizes and for
/// budgets, not for checking an invoice.
const GPU_MICRO_USD_PER_HOUR: [(&str, u64); 18] = [
    ("A10", 500_000),
    ("A100", 2_400_000),
    ("GB200", 10_000_000),
    ("GB300", 12_000_000),
    ("H100", 6_000_000),
    ("H200", 8_000_000),
    ("K80", 450_000),
    ("M60", 300_000),
    ("MI25", 300_000),
    ("MI300X", 6_000_000),
    ("P100", 1_400_000),
    ("P40", 1_400_000),
    ("RTXPRO6000", 2_000_000),
    ("T4", 280_000),
    ("U250", 650_000),
    ("V100", 2_400_000),
    ("V620", 500_000),
    ("V710", 500_000),
];

/// The rate of a GPU model the table does not know: a V100's, neither the cheapest nor the dearest.
const GPU_UNKNOWN_MICRO_USD_PER_HOUR: u64 = 2_400_000;

/// The families that slice a GPU, with the vCPUs that come with a whole one. Their smaller sizes
/// hold the same share of a GPU as of these vCPUs (`NV6ads_A10_v5`: 6 of 36, a sixth), yet count
/// one device; without this table the smallest size would be charged a whole GPU.
const SHARED_GPU_VCPUS: [(&str, u32); 5] = [
    ("StandardNCdsRTXPRO6000BSEv6XLFamily", 144),
    ("StandardNGADSV620v1Family", 32),
    ("StandardNVADSA10v5Family", 36),
    ("StandardNVadsV710v5Family", 24),
    ("standardNVSv4Family", 32),
];

/// The price of one node-hour of a size, in both tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    pub dedicated_micro_usd_per_hour: u64,
    pub low_priority_micro_usd_per_hour: u64,
    pub source: PriceSource,
}

/// Where a price comes from, which is how far a report may trust it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceSource {
    /// A cloud list price (Linux, pay as you go), built in.
    Listed,
    /// Worked out from vCPUs, memory and GPUs, or a built-in price that an operator's list has
    /// superseded without naming the size.
    Estimated,
    /// Set by the operator of this server.
    Operator,
}

impl Price {
    /// A price of which only the dedicated tier may be known.
    pub(super) fn new(dedicated: u64, low_priority: Option<u64>, source: PriceSource) -> Price {
        Price {
            dedicated_micro_usd_per_hour: dedicated,
            low_priority_micro_usd_per_hour: low_priority
                .unwrap_or(dedicated / LOW_PRIORITY_DIVISOR),
            source,
        }
    }

    /// The assumed price of a size without a list price: a rate per vCPU, per GiB and per GPU.
    /// Within a family, more of any of them never costs less.
    pub(super) fn estimate(
        family: &str,
        vcpus: u32,
        memory_mb: u64,
        gpus: u32,
        gpu_model: Option<&str>,
    ) -> Price {
        let cpu = u64::from(vcpus) * VCPU_MICRO_USD_PER_HOUR;
        let memory = memory_mb.saturating_mul(MEMORY_MICRO_USD_PER_GIB_HOUR) / 1024;
        let gpu_rate = GPU_MICRO_USD_PER_HOUR
            .iter()
            .find(|(model, _)| Some(*model) == gpu_model)
            .map_or(GPU_UNKNOWN_MICRO_USD_PER_HOUR, |(_, rate)| *rate);
        let gpu = match SHARED_GPU_VCPUS.iter().find(|(shared, _)| *shared == family) {
            Some((_, whole)) => {
                let whole = u64::from(*whole);
                gpu_rate * u64::from(vcpus).min(u64::from(gpus) * whole) / whole
            }
            None => gpu_rate * u64::from(gpus),
        };
        let dedicated = cpu.saturating_add(memory).saturating_add(gpu);
        Price::new(dedicated, None, PriceSource::Estimated)
    }
}

/// One entry of an operator's price list. The low-priority price defaults to a fifth of the dedicated one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorPrice {
    pub size: String,
    pub dedicated_micro_usd_per_hour: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_priority_micro_usd_per_hour: Option<u64>,
}

/// Why an operator's price list was rejected. Each error names the entry, counted from 1, and the
/// remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PriceError {
    #[error(
        "price list entry {entry}: there is no VM size '{size}'; {}",
        remedy_of_unknown(.nearest.as_deref())
    )]
    UnknownSize { entry: usize, size: Box<str>, nearest: Option<Box<str>> },

    #[error(
        "price list entry {entry}: VM size '{size}' already has a price in entry {first} (case \
         does not matter); remove one of the two"
    )]
    Duplicate { entry: usize, first: usize, size: Box<str> },

    #[error(
        "price list entry {entry}: the {tier} price of VM size '{size}' is {value} micro-USD an \
         hour, above the limit of {PRICE_MAX_MICRO_USD_PER_HOUR} (1,000,000 USD an hour); give \
         the price of one node-hour in millionths of a USD"
    )]
    TooHigh { entry: usize, size: Box<str>, tier: &'static str, value: u64 },

    #[error(
        "price list entry {entry}: VM size '{size}' costs more at low priority ({low_priority} \
         micro-USD an hour) than dedicated ({dedicated}); lower the low-priority price to at most \
         the dedicated one, or leave it out to have a fifth of it"
    )]
    LowPriorityDearer { entry: usize, size: Box<str>, low_priority: u64, dedicated: u64 },
}

impl OperatorPrice {
    /// The price that this entry sets, if it is plausible.
    pub(super) fn check(&self, entry: usize) -> Result<Price, PriceError> {
        let dedicated = self.dedicated_micro_usd_per_hour;
        let price =
            Price::new(dedicated, self.low_priority_micro_usd_per_hour, PriceSource::Operator);
        let low_priority = price.low_priority_micro_usd_per_hour;
        for (tier, value) in [("dedicated", dedicated), ("low-priority", low_priority)] {
            if value > PRICE_MAX_MICRO_USD_PER_HOUR {
                return Err(PriceError::TooHigh { entry, size: self.shown_size(), tier, value });
            }
        }
        if low_priority > dedicated {
            let size = self.shown_size();
            return Err(PriceError::LowPriorityDearer { entry, size, low_priority, dedicated });
        }
        Ok(price)
    }

    pub(super) fn unknown_size(&self, entry: usize, nearest: Option<&str>) -> PriceError {
        let nearest = nearest.map(Box::from);
        PriceError::UnknownSize { entry, size: self.shown_size(), nearest }
    }

    pub(super) fn duplicate(&self, entry: usize, first: usize) -> PriceError {
        PriceError::Duplicate { entry, first, size: self.shown_size() }
    }

    /// The name as written, truncated to the longest possible size name, so that a broken file does
    /// not end up in the log as a whole.
    fn shown_size(&self) -> Box<str> {
        const SHOWN_CHARS_MAX: usize = 80;
        match self.size.char_indices().nth(SHOWN_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &self.size[..end]).into(),
            None => self.size.as_str().into(),
        }
    }
}

fn remedy_of_unknown(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!("did you mean '{name}'?"),
        None => "use a name from the list of VM sizes, or remove the entry".into(),
    }
}

/// Whether the tables above know everything they need about a size; for the tests of the data.
#[cfg(test)]
pub(super) fn knows_gpu_of(size: &super::VmSize) -> bool {
    let known = |model: &str| GPU_MICRO_USD_PER_HOUR.iter().any(|(name, _)| *name == model);
    size.gpu_model.as_deref().is_none_or(known)
}
