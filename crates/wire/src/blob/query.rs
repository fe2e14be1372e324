//! The query of a blob's address. Unlike elsewhere a value may hold anything that is UTF-8: names do.

use super::StorageError;
use crate::path::unescape;

/// A prefix and a marker of the longest names, percent-encoded, and a signature.
const QUERY_BYTES_MAX: usize = 48 << 10;
/// A list's own and those of a signature are fewer than half as many.
const PAIRS_MAX: usize = 50;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlobQuery(Vec<(String, String)>);

impl BlobQuery {
    pub fn parse(raw: &str) -> Result<BlobQuery, StorageError> {
        if raw.len() > QUERY_BYTES_MAX {
            let message =
                format!("the query has {} bytes; it may have {QUERY_BYTES_MAX}", raw.len());
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
            let message = format!("the query has {} fields; it may have {PAIRS_MAX}", pairs.len());
            return Err(StorageError::invalid_uri(message));
        }
        // Of two, one might be checked and the other obeyed.
        for (at, (key, _)) in pairs.iter().enumerate() {
            if pairs[..at].iter().any(|(other, _)| other == key) {
                return Err(StorageError::invalid_query(&shorten(key), "it is there twice"));
            }
        }
        Ok(BlobQuery(pairs))
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// As [`get`](Self::get); an empty value is none.
    pub fn filled(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|value| !value.is_empty())
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(40).filter(|character| !character.is_control()).collect()
}

/// Percent-decodes once; what comes out is UTF-8.
pub(super) fn decode(raw: &str) -> Result<String, StorageError> {
    let bad = || StorageError::invalid_uri("'%' must be followed by two hex digits");
    let bytes = unescape(raw).ok_or_else(bad)?;
    String::from_utf8(bytes).map_err(|_| StorageError::invalid_uri("the address is not UTF-8"))
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
