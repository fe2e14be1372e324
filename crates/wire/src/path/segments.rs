//! Converts the bytes of a request line to decoded segments, and back.

use super::PathError;
use crate::json::shorten;

/// Several times the length of four of Azure's longest names with each byte percent-encoded.
pub const PATH_BYTES_MAX: usize = 8_192;

/// The non-empty segments, each decoded once.
pub(super) fn split(path: &str) -> Result<Vec<String>, PathError> {
    if path.len() > PATH_BYTES_MAX {
        return Err(PathError::PathTooLong { got: path.len() });
    }
    if !path.starts_with('/') {
        return Err(PathError::NotAbsolute);
    }
    path.split('/').filter(|segment| !segment.is_empty()).map(decode_segment).collect()
}

fn decode_segment(raw: &str) -> Result<String, PathError> {
    let segment = decode(raw)?;
    let text = || shorten(&segment);
    if segment == "." || segment == ".." {
        return Err(PathError::DotSegment { text: text() });
    }
    if segment.contains('/') {
        return Err(PathError::EncodedSlash { text: text() });
    }
    Ok(segment)
}

/// The bytes that percent escapes represent, decoded once; `None` if a `%` is not followed by two hex digits.
pub(crate) fn unescape(raw: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).expect("two digits make a byte"));
    }
    Some(bytes)
}

/// Percent-decodes once. The result must be UTF-8 without control characters.
pub(super) fn decode(raw: &str) -> Result<String, PathError> {
    let bytes = unescape(raw).ok_or_else(|| PathError::BadEscape { text: shorten(raw) })?;
    let text = String::from_utf8(bytes).map_err(|_| PathError::NotUtf8 { text: shorten(raw) })?;
    if text.chars().any(char::is_control) {
        return Err(PathError::Control { text: shorten(&text) });
    }
    Ok(text)
}

/// Percent-encodes everything except RFC 3986's unreserved characters.
pub(crate) fn encode(text: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push(char::from(DIGITS[usize::from(byte >> 4)]));
            encoded.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_decoded_once() {
        assert_eq!(split("/a//b%20c/%2525/"), Ok(vec!["a".into(), "b c".into(), "%25".into()]));
        assert_eq!(split("/"), Ok(vec![]));
        assert_eq!(split("/%C3%BCn%C3%AF"), Ok(vec!["ünï".into()]));
    }

    #[test]
    fn what_could_lead_elsewhere_is_refused() {
        use PathError as E;
        let text = |text: &str| text.to_owned();
        let cases = [
            ("a/b", E::NotAbsolute),
            ("", E::NotAbsolute),
            ("/a/../b", E::DotSegment { text: text("..") }),
            ("/a/%2e%2E/b", E::DotSegment { text: text("..") }),
            ("/a/./b", E::DotSegment { text: text(".") }),
            ("/a%2Fb", E::EncodedSlash { text: text("a/b") }),
            ("/a%00b", E::Control { text: text("a\u{fffd}b") }),
            ("/a%0d%0ab", E::Control { text: text("a\u{fffd}\u{fffd}b") }),
            ("/a%7F", E::Control { text: text("a\u{fffd}") }),
            ("/a%C2%85", E::Control { text: text("a\u{fffd}") }),
            ("/a%", E::BadEscape { text: text("a%") }),
            ("/a%2", E::BadEscape { text: text("a%2") }),
            ("/a%zz", E::BadEscape { text: text("a%zz") }),
            ("/%FF", E::NotUtf8 { text: text("%FF") }),
            ("/%C0%AF", E::NotUtf8 { text: text("%C0%AF") }),
        ];
        for (path, why) in cases {
            assert_eq!(split(path), Err(why), "{path}");
        }
        let long = format!("/{}", "a".repeat(PATH_BYTES_MAX));
        assert_eq!(split(&long), Err(E::PathTooLong { got: PATH_BYTES_MAX + 1 }));
    }
}
