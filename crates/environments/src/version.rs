//! Versions of Python packages and conditions on them, according to PEP 440.

use std::str::FromStr as _;

use pep440_rs::Version;
pub use pep440_rs::VersionSpecifier as Specifier;

const VERSION_BYTES_MAX: usize = 128;

/// One condition, such as `>=1.2`.
pub fn specifier(text: &str) -> Option<Specifier> {
    let is_short = text.trim().len() <= VERSION_BYTES_MAX;
    is_short.then(|| Specifier::from_str(text).ok()).flatten()
}

/// Parses a list such as `>=1.2, <2`. The result is sorted, without duplicates.
pub fn specifiers(text: &str) -> Option<Vec<Specifier>> {
    text.split(',').map(specifier).collect::<Option<Vec<_>>>().map(sorted)
}

pub fn sorted(mut all: Vec<Specifier>) -> Vec<Specifier> {
    all.sort_by_cached_key(Specifier::to_string);
    // By their texts: `~=1.0` and `~=1.0.0` have equal versions and mean different ones.
    all.dedup_by_key(|one| one.to_string());
    all
}

pub fn joined(all: &[Specifier]) -> String {
    all.iter().map(Specifier::to_string).collect::<Vec<_>>().join(",")
}

/// Whether it is a version: `1.2`, `1!2.0rc1`, `1.0.post2.dev3+cpu`, and the same in looser spellings.
pub fn is_version(text: &str) -> bool {
    let is_plain = text.len() <= VERSION_BYTES_MAX && !text.contains(char::is_whitespace);
    is_plain && Version::from_str(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_distinguished_from_other_texts() {
        for good in [
            "1",
            "1.2",
            "2024.1.0",
            "1.0a1",
            "1.0.alpha-1",
            "1.0rc",
            "1.0-1",
            "1.0.post2",
            "1.0-r4",
            "1.0.dev3",
            "1!2.0",
            "v1.0",
            "1.0+cu118",
            "1.0+ubuntu-1.2",
            "1.0RC1",
            "1.0b2.post345.dev456",
        ] {
            assert!(is_version(good), "{good}");
        }
        for bad in [
            "",
            "a",
            "1.",
            ".1",
            "1..2",
            "1.0x",
            "1.0+",
            "1.0+a..b",
            "1.0 ",
            "1 .0",
            "1.*",
            "ä",
            "1.0post post",
            "1!",
            "!1",
            "1,2",
            "2020_06",
            "9e",
            "$(x)",
            &"1".repeat(129),
        ] {
            assert!(!is_version(bad), "{bad}");
        }
    }

    #[test]
    fn conditions_are_sorted_and_checked() {
        for (text, wanted) in [
            ("<2, >=1.2", Some("<2,>=1.2")),
            (">=1.2,<2,<2", Some("<2,>=1.2")),
            ("==1.2.*", Some("==1.2.*")),
            ("== 1.2RC1", Some("==1.2rc1")),
            ("===1.2", Some("===1.2")),
            // pip would take it; uv, which installs, does not.
            ("===foo", None),
            ("~=1.4.2", Some("~=1.4.2")),
            ("~=1", None),
            (">=1.2.*", None),
            ("=1.2", None),
            ("1.2", None),
            (">=1.2,", None),
            ("", None),
        ] {
            assert_eq!(specifiers(text).map(|all| joined(&all)).as_deref(), wanted, "{text}");
        }
    }
}
