//! The query of a blob's URL. Unlike in other queries, a value may be any UTF-8 text, because names may be.

use super::StorageError;
use crate::path::unescape;

/// The longest prefix and the longest marker, percent-encoded, and a signature.
const QUERY_BYTES_MAX: usize = 48 << 10;
/// A list request with a signature has fewer than half as many fields.
const PAIRS_MAX: usize = 50;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlobQuery(Vec<(String, String)>);

impl BlobQuery {
    pub fn parse(raw: &str) -> Result<BlobQuery, StorageError> {
        if raw.len() > QUERY_BYTES_MAX {
            let message =
                format!("the query has {} bytes; at most {QUERY_BYTES_MAX} are allowed", raw.len());
            return Err(StorageError::invalid_uri(message));
        }
        let spaced = |text: &str| decode(&text.replace('+', "%20"));
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((spaced(key)?, spaced(value)?))
        };
        let pairs: Result<Vec<_>, _> =
            raw.split('&').filter(|raw| !raw.is_empty()).map(pair).collect();
        let pairs = pairs?;
        if pairs.len() > PAIRS_MAX {
            let message =
                format!("the query has {} fields; at most {PAIRS_MAX} are allowed", pairs.len());
            return Err(StorageError::invalid_uri(message));
        }
        // If a key occurred twice, one value might be checked and the other used.
        for (at, (key, _)) in pairs.iter().enumerate() {
            if pairs[..at].iter().any(|(other, _)| other == key) {
                return Err(StorageError::invalid_query(
                    &shorten(key),
                    "it is given twice; give it once",
                ));
            }
        }
        Ok(BlobQuery(pairs))
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Like [`get`](Self::get), but an empty value counts as absent.
    pub fn filled(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|value| !value.is_empty())
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(40).filter(|character| !character.is_control()).collect()
}

/// Percent-decodes once; the result must be UTF-8.
pub(super) fn decode(raw: &str) -> Result<String, StorageError> {
    let bad = || StorageError::invalid_uri("'%' must be followed by two hex digits");
    let bytes = unescape(raw).ok_or_else(bad)?;
    String::from_utf8(bytes).map_err(|_| StorageError::invalid_uri("the URL is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_doubles_refused() {
        let query = BlobQuery::parse("comp=list&prefix=a%2Fb+c%00&marker=&&x").unwrap();
        assert_eq!(query.get("prefix"), Some("a/b c\0"));
        assert_eq!((query.get("marker"), query.filled("marker")), (Some(""), None));
        assert_eq!(query.get("x"), Some(""));
        assert_eq!(BlobQuery::parse("sp=r&sp=rw").unwrap_err().code, "InvalidQueryParameterValue");
        assert!(BlobQuery::parse("a=%").is_err());
        let many: Vec<String> = (0..=PAIRS_MAX).map(|number| format!("k{number}")).collect();
        assert!(BlobQuery::parse(&many.join("&")).is_err());
        assert!(BlobQuery::parse(&"a".repeat(QUERY_BYTES_MAX + 1)).is_err());
    }
}
