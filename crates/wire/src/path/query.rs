//! The query of a request. The case of a key does not matter, and unknown keys are ignored.

use super::PathError;
use super::segments::decode;

/// As generous as for the path; a continuation token is the longest value.
pub const QUERY_BYTES_MAX: usize = 8_192;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(raw: &str) -> Result<Query, PathError> {
        if raw.len() > QUERY_BYTES_MAX {
            return Err(PathError::QueryTooLong { got: raw.len() });
        }
        let plus_is_space = |text: &str| decode(&text.replace('+', "%20"));
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((plus_is_space(key)?, plus_is_space(value)?))
        };
        raw.split('&').filter(|raw| !raw.is_empty()).map(pair).collect::<Result<_, _>>().map(Query)
    }

    /// The first value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
        found.map(|(_, value)| value.as_str())
    }

    /// Any value is accepted. Only the metadata document depends on it.
    pub fn api_version(&self) -> Option<&str> {
        self.get("api-version")
    }

    /// The position at which a list continues, from an earlier `nextLink`. An empty one is the beginning.
    pub fn skip(&self) -> Option<&str> {
        self.get("$skipToken").or_else(|| self.get("$skip")).filter(|token| !token.is_empty())
    }

    /// The resource that a token is requested for (`/msi/token`).
    pub fn resource(&self) -> Option<&str> {
        self.get("resource").filter(|resource| !resource.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_without_case_and_others_ignored() {
        let query =
            Query::parse("API-Version=2023-08-01-preview&x&y=1&&$SkipTOKEN=a%2Bb+c").unwrap();
        assert_eq!(query.api_version(), Some("2023-08-01-preview"));
        assert_eq!(query.skip(), Some("a+b c"));
        assert_eq!(query.get("x"), Some(""));
        assert_eq!(query.get("z"), None);
        assert_eq!(Query::parse("$skip=tok").unwrap().skip(), Some("tok"));
        assert_eq!(Query::parse("%24skip=tok&$skipToken=").unwrap().skip(), None);
        assert_eq!(Query::parse("").unwrap(), Query::default());
        let token = Query::parse("api-version=2019-08-01&resource=https%3A%2F%2Flocalhost%3A8443");
        assert_eq!(token.unwrap().resource(), Some("https://localhost:8443"));
    }

    #[test]
    fn a_query_that_cannot_be_decoded_is_refused() {
        for raw in ["a=%", "a=%00", "%ff=1", "a=%0a"] {
            assert!(Query::parse(raw).is_err(), "{raw}");
        }
        assert!(Query::parse(&"a".repeat(QUERY_BYTES_MAX + 1)).is_err());
    }
}
