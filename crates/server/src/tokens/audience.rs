//! The audiences that a token may have: a fixed list, derived from the server's own URL.
//!
//! Clients do not request an audience that the server chooses; they derive it from the cloud metadata, each in its own
//! way. The derivations are repeated here, including odd results.

/// The audiences by the kind of route that accepts them. Compare with [`matches`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audiences {
    pub arm: Vec<String>,
    pub ml: Vec<String>,
    pub storage: Vec<String>,
}

impl Audiences {
    /// The audiences of a server whose metadata names `base_url` as resource manager and portal.
    pub fn for_base(base_url: &str) -> Audiences {
        let base = trimmed(base_url);
        let mut ml = vec![sdk_ml_resource(base)];
        for other in [base.replace("portal", "ml"), "https://ml.azure.com".to_owned()] {
            if !ml.contains(&other) {
                ml.push(other);
            }
        }
        Audiences {
            arm: vec![
                base.to_owned(),
                format!("{base}/"),
                "https://management.azure.com".to_owned(),
                "https://management.core.windows.net".to_owned(),
            ],
            ml,
            storage: vec!["https://storage.azure.com".to_owned()],
        }
    }

    /// Whether tokens are issued for this resource at all.
    pub fn contains(&self, resource: &str) -> bool {
        [&self.arm, &self.ml, &self.storage]
            .into_iter()
            .flatten()
            .any(|audience| matches(audience, resource))
    }
}

/// Whether two audiences are the same; one trailing slash makes no difference.
pub fn matches(one: &str, other: &str) -> bool {
    trimmed(one) == trimmed(other)
}

pub(super) fn trimmed(audience: &str) -> &str {
    audience.strip_suffix('/').unwrap_or(audience)
}

/// The same as in the Python SDK: everything after the portal's second dot, without slashes.
fn sdk_ml_resource(portal: &str) -> String {
    let suffix = portal.splitn(3, '.').nth(2).unwrap_or_default();
    format!("https://ml.azure.{}", suffix.replace('/', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values were computed with the Python expression of azure-ai-ml 1.35.2.
    #[test]
    fn the_ml_audience_is_what_the_clients_derive() {
        let check = |base: &str, expected: &[&str]| {
            assert_eq!(Audiences::for_base(base).ml, expected, "{base}");
        };
        let azure = "https://ml.azure.com";
        check("https://localhost:8443/", &["https://ml.azure.", "https://localhost:8443", azure]);
        check(
            "https://127.0.0.1:8443",
            &["https://ml.azure.0.1:8443", "https://127.0.0.1:8443", azure],
        );
        check(
            "https://a.b.example.org:8443/",
            &["https://ml.azure.example.org:8443", "https://a.b.example.org:8443", azure],
        );
        check(
            "https://portal.example.org",
            &["https://ml.azure.org", "https://ml.example.org", azure],
        );
        check("https://[::1]:8443", &["https://ml.azure.", "https://[::1]:8443", azure]);
        check("https://portal.azure.com/", &[azure]);
    }

    #[test]
    fn one_trailing_slash_is_ignored_and_nothing_else() {
        let audiences = Audiences::for_base("https://localhost:8443/");
        for known in [
            "https://localhost:8443",
            "https://localhost:8443/",
            "https://management.azure.com/",
            "https://management.core.windows.net/",
            "https://ml.azure.com",
            "https://ml.azure.",
            "https://ml.azure./",
            "https://storage.azure.com/",
        ] {
            assert!(audiences.contains(known), "{known}");
        }
        for unknown in [
            "",
            "/",
            "https://localhost:8443//",
            "https://localhost",
            "https://LOCALHOST:8443",
            "https://vault.azure.net",
            "https://ml.azure.com.example.org",
        ] {
            assert!(!audiences.contains(unknown), "{unknown}");
        }
    }
}
