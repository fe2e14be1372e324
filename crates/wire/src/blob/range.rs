//! `bytes=FROM-TO` and `bytes=FROM-`.

use muster_core::storage::Span;

use super::StorageError;

pub fn parse(text: &str) -> Result<Span, StorageError> {
    let bad = || {
        let shown: String = text.chars().take(60).collect();
        StorageError::invalid_header(
            "Range",
            format_args!("{shown:?} is not a range; give bytes=FROM-TO or bytes=FROM-"),
        )
    };
    let number = |text: &str| {
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (from, to) =
        text.strip_prefix("bytes=").and_then(|rest| rest.split_once('-')).ok_or_else(bad)?;
    let from = number(from).ok_or_else(bad)?;
    let to = match to {
        "" => None,
        to => Some(number(to).filter(|to| *to >= from).ok_or_else(bad)?),
    };
    Ok(Span { from, to })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_of_two_forms() {
        assert_eq!(parse("bytes=0-33554431").unwrap(), Span { from: 0, to: Some(33_554_431) });
        assert_eq!(parse("bytes=7-").unwrap(), Span { from: 7, to: None });
        for bad in [
            "",
            "bytes=",
            "bytes=-5",
            "bytes=5-4",
            "bytes=0-1,3-4",
            "bytes=+1-2",
            "5-6",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(parse(bad).unwrap_err().code, "InvalidHeaderValue", "{bad}");
        }
    }
}
