//! The operator's price file.

use std::path::{Path, PathBuf};

use muster_core::catalogue::{Catalogue, OperatorPrice, PriceError};
use serde::Deserialize;

use crate::pki::files::{self, FileError};

/// Far more than one line per size.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// `[{"size": "Standard_DS3_v2", "usd_per_hour": "0.31", "low_priority_usd_per_hour": "0.06"}]`. Amounts are text, so
/// that they are parsed exactly.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    size: String,
    usd_per_hour: String,
    low_priority_usd_per_hour: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum PriceFileError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the price file {} does not exist; check --prices", path.display())]
    Missing { path: PathBuf },
    #[error("the price file {} is not a list of {{size, usd_per_hour}}: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
    #[error(
        "{got:?} is not a price for {size}: give dollars per hour as text with at most six decimals, \
         such as \"0.29\""
    )]
    Amount { size: String, got: String },
    #[error(transparent)]
    Refused(#[from] PriceError),
}

/// The built-in sizes with the prices of this file.
pub fn read(path: &Path) -> Result<Catalogue, PriceFileError> {
    let text = files::read(path, FILE_BYTES_MAX)?
        .ok_or_else(|| PriceFileError::Missing { path: path.to_owned() })?;
    parse(&text, path)
}

/// The same for the contents of a file.
pub fn parse(text: &[u8], path: &Path) -> Result<Catalogue, PriceFileError> {
    let entries: Vec<Entry> = serde_json::from_slice(text).map_err(|why| {
        PriceFileError::Malformed { path: path.to_owned(), why: shown(&why.to_string()) }
    })?;
    let mut prices = Vec::with_capacity(entries.len());
    for Entry { size, usd_per_hour, low_priority_usd_per_hour } in entries {
        let amount = |text: &str| {
            micro_usd(text)
                .ok_or_else(|| PriceFileError::Amount { size: shown(&size), got: shown(text) })
        };
        prices.push(OperatorPrice {
            dedicated_micro_usd_per_hour: amount(&usd_per_hour)?,
            low_priority_micro_usd_per_hour: match &low_priority_usd_per_hour {
                Some(text) => Some(amount(text)?),
                None => None,
            },
            // A name that cannot be printed as it is does not belong to a built-in size.
            size: shown(&size),
        });
    }
    Ok(Catalogue::builtin().with_prices(&prices)?)
}

/// Text of the file for a message: as much as a person would read, without control characters for a terminal.
fn shown(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let shown: String = text.chars().take(CHARS_MAX).map(plain).collect();
    if shown.len() < text.len() && text.chars().count() > CHARS_MAX { shown + "…" } else { shown }
}

/// "0.29" → 290000, exactly.
fn micro_usd(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 6 || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let micro: u64 = format!("{fraction:0<6}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micro)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_amounts_exactly() {
        assert_eq!(micro_usd("0.29"), Some(290_000));
        assert_eq!(micro_usd("12"), Some(12_000_000));
        assert_eq!(micro_usd("0.000001"), Some(1));
        for bad in ["", ".5", "-1", "1e3", "0.0000001", "1,5", "99999999999999999999"] {
            assert_eq!(micro_usd(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_operators_prices_replace_the_built_in_ones() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("prices.json");
        std::fs::write(&path, r#"[{"size": "standard_ds3_v2", "usd_per_hour": "1.5"}]"#)
            .expect("io");
        let catalogue = read(&path).expect("the file is valid");
        let price = &catalogue.get("Standard_DS3_v2").expect("known").price;
        assert_eq!(price.dedicated_micro_usd_per_hour, 1_500_000);
        for bad in ["{}", r#"[{"size": "nope", "usd_per_hour": "1"}]"#, "[", r#"[{"size":"x"}]"#] {
            std::fs::write(&path, bad).expect("io");
            assert!(read(&path).is_err(), "{bad}");
        }
        assert!(read(&dir.path().join("missing.json")).is_err());
    }
}
