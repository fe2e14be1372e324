//! What a request's headers say about a blob: its content, its metadata, and the conditions of the request.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};
use muster_core::storage::{About, ContentHeaders, Guard, Match, Span, Tag};
use muster_core::time::Wall;

use super::{StorageError, parse_range};

/// The limit for all names and values together.
pub const METADATA_BYTES_MAX: usize = 8 << 10;

/// The limit for one header that is stored and returned.
const VALUE_BYTES_MAX: usize = 1_024;
const METADATA: &str = "x-ms-meta-";

/// The headers of a request, with lower-case names.
pub struct Asked<'r> {
    headers: Vec<(&'r str, &'r str)>,
}

impl<'r> Asked<'r> {
    pub fn new(headers: impl IntoIterator<Item = (&'r str, &'r str)>) -> Asked<'r> {
        Asked { headers: headers.into_iter().collect() }
    }

    pub fn get(&self, name: &str) -> Option<&'r str> {
        self.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.trim())
    }

    /// The requested range. The storage's own header takes precedence over HTTP's.
    pub fn span(&self) -> Result<Option<Span>, StorageError> {
        self.get("x-ms-range").or_else(|| self.get("range")).map(parse_range).transpose()
    }

    pub fn about(&self) -> Result<About, StorageError> {
        Ok(About { headers: self.content_headers()?, metadata: self.metadata()? })
    }

    /// The plain headers of a block describe the block; only those with the prefix describe the blob.
    pub fn content_headers(&self) -> Result<ContentHeaders, StorageError> {
        let text = |name: &str| -> Result<Option<Box<str>>, StorageError> {
            let Some(value) = self.get(name).filter(|value| !value.is_empty()) else {
                return Ok(None);
            };
            if value.len() > VALUE_BYTES_MAX {
                let message =
                    format!("it has {} bytes; at most {VALUE_BYTES_MAX} are allowed", value.len());
                return Err(StorageError::invalid_header(name, message));
            }
            Ok(Some(value.into()))
        };
        let md5 = text("x-ms-blob-content-md5")?;
        if let Some(md5) = &md5 {
            parse_md5("x-ms-blob-content-md5", md5)?;
        }
        Ok(ContentHeaders {
            content_type: text("x-ms-blob-content-type")?,
            encoding: text("x-ms-blob-content-encoding")?,
            language: text("x-ms-blob-content-language")?,
            disposition: text("x-ms-blob-content-disposition")?,
            cache_control: text("x-ms-blob-cache-control")?,
            md5,
        })
    }

    pub fn metadata(&self) -> Result<BTreeMap<Box<str>, Box<str>>, StorageError> {
        let mut metadata = BTreeMap::new();
        let mut bytes = 0;
        for (name, value) in &self.headers {
            let Some(name) = name.strip_prefix(METADATA) else { continue };
            if !is_identifier(name) {
                let shown: String = name.chars().take(60).collect();
                let message = format!(
                    "metadata {shown:?}: a name has letters, digits and '_', and does not start with a digit"
                );
                return Err(StorageError::new(400, "InvalidMetadata", message));
            }
            bytes += name.len() + value.trim().len();
            metadata.insert(name.into(), value.trim().into());
        }
        if bytes > METADATA_BYTES_MAX {
            let message =
                format!("the metadata has {bytes} bytes; at most {METADATA_BYTES_MAX} are allowed");
            return Err(StorageError::new(400, "MetadataTooLarge", message));
        }
        Ok(metadata)
    }

    pub fn guard(&self) -> Result<Guard, StorageError> {
        let tag = |name: &str| match self.get(name) {
            None | Some("") => None,
            Some("*") => Some(Match::Any),
            Some(text) => Some(parse_tag(text).map_or(Match::Foreign, Match::Tag)),
        };
        let seconds = |name: &str| -> Result<Option<u64>, StorageError> {
            let Some(text) = self.get(name) else { return Ok(None) };
            let at = parse_http_date(text).ok_or_else(|| {
                StorageError::invalid_header(
                    name,
                    "give a time such as 'Sun, 15 Nov 2026 19:52:56 GMT'",
                )
            })?;
            Ok(Some(at.0 / 1_000_000))
        };
        if self.get("x-ms-if-tags").is_some() {
            return Err(StorageError::unsupported_header(
                "x-ms-if-tags",
                "blob tags are not supported; leave the header out",
            ));
        }
        Ok(Guard {
            if_match: tag("if-match"),
            if_none_match: tag("if-none-match"),
            if_modified_since_s: seconds("if-modified-since")?,
            if_unmodified_since_s: seconds("if-unmodified-since")?,
            may_only_create: false,
        })
    }

    /// The digest that the body must have.
    pub fn content_md5(&self) -> Result<Option<[u8; 16]>, StorageError> {
        let md5 = self.get("content-md5").filter(|value| !value.is_empty());
        md5.map(|text| parse_md5("Content-MD5", text)).transpose()
    }

    /// Refuses headers that would change the meaning of the body's bytes, or that ask for something that is not
    /// supported.
    pub fn refuse_unsupported(&self) -> Result<(), StorageError> {
        for (name, why) in [
            (
                "x-ms-structured-body",
                "send the body unchanged, with Content-MD5 if it should be verified",
            ),
            (
                "x-ms-encryption-key",
                "encryption with a client's own key is not supported; leave the header out",
            ),
            ("x-ms-lease-id", "leases are not supported; use If-Match"),
            (
                "x-ms-copy-source",
                "the server does not copy blobs from another URL; send their bytes",
            ),
        ] {
            if self.get(name).is_some() {
                return Err(StorageError::unsupported_header(name, why));
            }
        }
        Ok(())
    }
}

fn is_identifier(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_plain) && !name.as_bytes()[0].is_ascii_digit()
}

fn parse_md5(name: &str, text: &str) -> Result<[u8; 16], StorageError> {
    let bytes = STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| StorageError::invalid_header(name, "give 16 bytes in base64"))
}

/// Base64 of 1 to 64 bytes.
pub fn is_block_id(text: &str) -> bool {
    text.len() <= 88 && STANDARD.decode(text).is_ok_and(|id| (1..=64).contains(&id.len()))
}

pub fn format_tag(tag: Tag) -> String {
    format!("\"0x{:016X}\"", tag.0)
}

/// `None` for a tag that was not issued by this server.
pub fn parse_tag(text: &str) -> Option<Tag> {
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 16)?;
    let tag = u64::from_str_radix(digits, 16).ok().map(Tag)?;
    (format_tag(tag).trim_matches('"') == text).then_some(tag)
}

/// A time in HTTP's format: to the second, in GMT.
pub fn http_date(at: Wall) -> String {
    let us = i64::try_from(at.0).unwrap_or(i64::MAX);
    let at = Timestamp::from_microsecond(us).unwrap_or(Timestamp::MAX);
    DateTimePrinter::new().timestamp_to_rfc9110_string(&at).unwrap_or_default()
}

pub fn parse_http_date(text: &str) -> Option<Wall> {
    let at = DateTimeParser::new().parse_timestamp(text).ok()?;
    u64::try_from(at.as_microsecond()).ok().map(Wall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_and_metadata_are_read() {
        let asked = Asked::new([
            ("if-none-match", "*"),
            ("if-match", "\"0x00000000000000AB\""),
            ("if-modified-since", "Sun, 15 Nov 2026 19:52:12 GMT"),
            ("x-ms-meta-upload_status", " completed "),
        ]);
        let guard = asked.guard().unwrap();
        assert_eq!(guard.if_none_match, Some(Match::Any));
        assert_eq!(guard.if_match, Some(Match::Tag(Tag(0xab))));
        assert_eq!(guard.if_modified_since_s, Some(1_794_772_332));
        assert_eq!(
            asked.metadata().unwrap().get("upload_status").map(|it| &**it),
            Some("completed")
        );
        let foreign = Asked::new([("if-match", "\"0x8D\"")]).guard().unwrap();
        assert_eq!(foreign.if_match, Some(Match::Foreign));
        assert!(Asked::new([("if-modified-since", "soon")]).guard().is_err());
    }

    #[test]
    fn what_is_too_much_or_no_name_is_refused() {
        let long = "v".repeat(METADATA_BYTES_MAX);
        let code = |name, value| Asked::new([(name, value)]).metadata().unwrap_err().code;
        assert_eq!(code("x-ms-meta-a", &long), "MetadataTooLarge");
        for name in ["x-ms-meta-", "x-ms-meta-1a", "x-ms-meta-a-b"] {
            assert_eq!(code(name, "v"), "InvalidMetadata", "{name}");
        }
        assert!(Asked::new([("content-md5", "AAAA")]).content_md5().is_err());
        assert!(Asked::new([("x-ms-structured-body", "XSM/1.0")]).refuse_unsupported().is_err());
    }

    #[test]
    fn times_and_tags_read_back() {
        let at = Wall(1_794_772_332_000_000);
        assert_eq!(http_date(at), "Sun, 15 Nov 2026 19:52:12 GMT");
        assert_eq!(parse_http_date(&http_date(at)), Some(at));
        assert_eq!(parse_tag(&format_tag(Tag(77))), Some(Tag(77)));
        for other in ["", "*", "\"\"", "0x+00000000000000f", "\"0x00000000000000ab\""] {
            assert_eq!(parse_tag(other), None, "{other}");
        }
        assert!(
            is_block_id("MDAwMA==")
                && !is_block_id("")
                && !is_block_id("*")
                && !is_block_id(&"A".repeat(92))
        );
    }
}
