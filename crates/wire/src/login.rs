//! The requests to an OAuth authority and its responses, as Azure's clients know them.

pub mod browser;

use serde::{Deserialize, Serialize};

use crate::path::{Authority, PathError, QUERY_BYTES_MAX, Query};
use crate::routes::{Login, Route};

/// The largest form that is read: a secret and a few names.
pub const FORM_BYTES_MAX: usize = QUERY_BYTES_MAX;

/// Under which a job names itself when it asks for a token of its user.
pub const RUN: &str = "run";

const DEFAULT_SCOPE: &str = "/.default";

/// The document with the endpoints of an authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenIdDocument {
    pub issuer: String,
    /// Clients require these two endpoints; both refuse requests with a remedy.
    pub authorization_endpoint: String,
    pub device_authorization_endpoint: String,
    pub token_endpoint: String,
    pub token_endpoint_auth_methods_supported: Vec<String>,
    pub grant_types_supported: Vec<String>,
}

impl OpenIdDocument {
    pub fn new(base_url: &str, issuer: &str, authority: &Authority) -> OpenIdDocument {
        let at = |login: fn(Authority) -> Login| {
            Route::Login(login(authority.clone())).url(base_url, &[]).expect("the route has a path")
        };
        OpenIdDocument {
            issuer: issuer.to_owned(),
            authorization_endpoint: at(|authority| Login::Browser { authority }),
            device_authorization_endpoint: at(|authority| Login::DeviceCode { authority }),
            token_endpoint: at(|authority| Login::ClientToken { authority }),
            token_endpoint_auth_methods_supported: vec!["client_secret_post".to_owned()],
            grant_types_supported: vec!["client_credentials".to_owned()],
        }
    }
}

/// The response to the question whether an address is an authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceDocument {
    pub tenant_discovery_endpoint: String,
    #[serde(rename = "api-version")]
    pub api_version: String,
    pub metadata: Vec<InstanceNames>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceNames {
    pub preferred_network: String,
    pub preferred_cache: String,
    pub aliases: Vec<String>,
}

/// `None` for an address that is not an authority of this server.
pub fn instance(base_url: &str, authorization_endpoint: &str) -> Option<InstanceDocument> {
    let base = base_url.trim_end_matches('/');
    let path = authorization_endpoint.strip_prefix(base)?;
    let tenant = path.strip_prefix('/')?.strip_suffix("/authorize")?;
    let tenant = tenant.strip_suffix("/oauth2/v2.0").or_else(|| tenant.strip_suffix("/oauth2"))?;
    let host = base.split_once("://").map_or(base, |(_, host)| host).to_owned();
    Some(InstanceDocument {
        tenant_discovery_endpoint: format!("{base}/{tenant}/.well-known/openid-configuration"),
        api_version: "1.1".to_owned(),
        metadata: vec![InstanceNames {
            preferred_network: host.clone(),
            preferred_cache: host.clone(),
            aliases: vec![host],
        }],
    })
}

/// A form that requests a token.
pub struct TokenForm(Query);

impl TokenForm {
    pub fn parse(body: &str) -> Result<TokenForm, PathError> {
        Query::parse(body).map(TokenForm)
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).filter(|value| !value.is_empty())
    }

    /// The resource that the token is for: the scope without its suffix, or the resource that older clients name.
    pub fn resource(&self) -> Option<&str> {
        let scope =
            self.get("scope").map(|scope| scope.strip_suffix(DEFAULT_SCOPE).unwrap_or(scope));
        scope.or_else(|| self.get("resource"))
    }

    /// Whether the client is an older one, which expects more in the response.
    fn names_resource(&self) -> bool {
        self.get("scope").is_none()
    }
}

/// A token from an authority.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTokenReply {
    pub token_type: String,
    pub expires_in: u64,
    pub ext_expires_in: u64,
    /// This field and the next are only for clients that named a resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_on: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    pub access_token: String,
}

impl ClientTokenReply {
    pub fn new(form: &TokenForm, access_token: &str, now_unix_s: u64, expires_unix_s: u64) -> Self {
        let expires_in = expires_unix_s.saturating_sub(now_unix_s);
        let resource = form.resource().filter(|_| form.names_resource());
        ClientTokenReply {
            token_type: "Bearer".to_owned(),
            expires_in,
            ext_expires_in: expires_in,
            expires_on: resource.map(|_| expires_unix_s.to_string()),
            resource: resource.map(str::to_owned),
            access_token: access_token.to_owned(),
        }
    }
}

/// Why no token was issued, in OAuth's form. `error_codes` are Azure's numbers, some of which `az` explains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OauthError {
    #[serde(skip)]
    pub status: u16,
    pub error: String,
    pub error_description: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub error_codes: Vec<u32>,
}

impl OauthError {
    fn new(status: u16, error: &str, description: impl Into<String>) -> OauthError {
        let error_description = description.into();
        OauthError { status, error: error.to_owned(), error_description, error_codes: Vec::new() }
    }

    /// 400: the request cannot be read.
    pub fn invalid_request(description: impl Into<String>) -> OauthError {
        OauthError::new(400, "invalid_request", description)
    }

    /// 400: the way of signing in is not supported.
    pub fn unsupported_grant(description: impl Into<String>) -> OauthError {
        OauthError::new(400, "unsupported_grant_type", description)
    }

    /// 400: tokens for this resource are not issued.
    pub fn invalid_scope(description: impl Into<String>) -> OauthError {
        OauthError::new(400, "invalid_scope", description)
    }

    /// 400: the address is not an authority of this server.
    pub fn invalid_instance(description: impl Into<String>) -> OauthError {
        OauthError::new(400, "invalid_instance", description)
    }

    /// 401: the error is the same for an unknown client and for a wrong secret.
    pub fn invalid_client(description: impl Into<String>) -> OauthError {
        let error_codes = vec![7_000_215];
        OauthError { error_codes, ..OauthError::new(401, "invalid_client", description) }
    }

    /// 429: too many wrong secrets in a short time.
    pub fn slow_down(description: impl Into<String>) -> OauthError {
        OauthError::new(429, "temporarily_unavailable", description)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_ends_with_a_word_of_azures_and_maybe_two_slashes() {
        let resource = |body: &str| {
            let form = TokenForm::parse(body).expect("a form");
            form.resource().map(str::to_owned)
        };
        let plain = Some("https://h:1".to_owned());
        assert_eq!(resource("scope=https%3A%2F%2Fh%3A1%2F.default"), plain);
        assert_eq!(
            resource("scope=https%3A%2F%2Fh%3A1%2F%2F.default"),
            Some("https://h:1/".into())
        );
        assert_eq!(resource("resource=https%3A%2F%2Fh%3A1"), plain);
        assert_eq!(resource("scope=&resource="), None);
        assert!(TokenForm::parse("scope=%zz").is_err());
        assert!(TokenForm::parse(&"a".repeat(FORM_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn older_clients_get_what_they_read() {
        let reply = |body: &str| {
            let form = TokenForm::parse(body).expect("a form");
            crate::to_json(&ClientTokenReply::new(&form, "t", 100, 3_700))
        };
        assert_eq!(
            reply("scope=r/.default"),
            r#"{"token_type":"Bearer","expires_in":3600,"ext_expires_in":3600,"access_token":"t"}"#
        );
        assert!(reply("resource=r").contains(r#""expires_on":"3700","resource":"r""#));
    }

    /// The names are those of a recording (wire/v1/41_openid).
    #[test]
    fn the_endpoints_of_an_authority_are_this_servers() {
        let document = OpenIdDocument::new("https://h:1/", "urn:muster:x", &Authority::adfs());
        assert_eq!(document.token_endpoint, "https://h:1/adfs/oauth2/token");
        assert_eq!(document.authorization_endpoint, "https://h:1/adfs/oauth2/authorize");
    }

    #[test]
    fn only_our_own_address_is_an_authority() {
        let found = instance("https://h:1/", "https://h:1/t/oauth2/v2.0/authorize").expect("ours");
        assert_eq!(
            found.tenant_discovery_endpoint,
            "https://h:1/t/.well-known/openid-configuration"
        );
        for foreign in
            ["", "https://h:12/t/oauth2/authorize", "https://h/t/oauth2/authorize", "https://h:1/t"]
        {
            assert_eq!(instance("https://h:1", foreign), None, "{foreign}");
        }
    }
}
