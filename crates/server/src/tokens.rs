//! Credentials: API keys, the access tokens issued for them, and those that are computed from the signing secret
//! (nodes, log URLs) and therefore not stored anywhere.
//!
//! One secret serves several purposes; each signs with its own prefix, so that no value created for one can pass for
//! another. All comparisons of secrets take constant time. Time is an argument. Roles, routes and HTTP are deliberately
//! unknown here.

use std::fmt;
use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{constant_time, digest, hmac, rand};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use muster_core::access::Directory;
use muster_core::ids::Epoch;
use muster_core::model::{KeyDigest, UserKind};
use serde::{Deserialize, Serialize};

use crate::pki::files::{self, FileError};

mod audience;
mod error;
mod run;
mod services;

pub use audience::{Audiences, matches as audience_matches};
pub use error::{LogUrlRejected, TokenError, TokenRejected};
pub use run::{RUN_TOKEN_LIFETIME_S, RunToken};
pub use services::{COOKIE_LIFETIME_S, LINK_LIFETIME_S, Pass, PassRejected};

/// Clients request a new token a few minutes before it expires; a stolen token is useful for no longer than this.
pub const TOKEN_LIFETIME_S: u64 = 60 * 60;

/// The maximum remaining lifetime of a log URL.
pub const LOG_URL_LIFETIME_MAX_S: u64 = 60 * 60;

/// The owner's API key, in the directory of the keyring, readable by the owner.
pub const OWNER_KEY_FILE: &str = "owner.key";

const SECRET_FILE: &str = "token.key";
/// Lets a secret scanner recognize the keys.
const KEY_PREFIX: &str = "msk_";

/// The tolerated difference between the clocks of this server and of nodes and clients.
const LEEWAY_S: u64 = 60;

/// Tokens of this server are below 1 KiB; longer ones are refused before any work is done on them.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// An authenticated caller. The id never changes, even when the key does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub id: String,
    pub name: String,
}

pub struct IssuedToken {
    pub token: String,
    /// The `aud` claim: the requested resource, without its trailing slash.
    pub audience: String,
    pub expires_unix: u64,
}

/// The signing secret and the owner's key. Other users are in the directory.
pub struct Keyring {
    secret: hmac::Key,
    encoding: EncodingKey,
    decoding: DecodingKey,
    validation: Validation,
    issuer: String,
    tenant: String,
    owner: OwnerKey,
    owner_key_made: bool,
}

struct OwnerKey {
    digest: KeyDigest,
    principal: Principal,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    aud: String,
    iss: String,
    sub: String,
    oid: String,
    tid: String,
    appid: String,
    name: String,
    upn: String,
    iat: u64,
    nbf: u64,
    exp: u64,
    /// The API key that the token was issued for; revoking the key invalidates its tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The epoch of the attempt that the token was issued to, if it was one. The token ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<u64>,
}

/// Reads the keyring in `dir`, or creates its secret and the owner's key on the first start.
///
/// Removing the owner's key and starting again replaces it; the owner remains the same principal.
pub fn load_or_create(dir: &Path) -> Result<Keyring, TokenError> {
    files::ensure_dir(dir)?;
    let (secret_path, owner_path) = (dir.join(SECRET_FILE), dir.join(OWNER_KEY_FILE));
    let owner_key = files::read_private(&owner_path)?;
    let secret = match files::read_private(&secret_path)? {
        Some(content) => line(&content).and_then(unhex),
        // A new secret would lock out the owner and every node.
        None if owner_key.is_some() => {
            return Err(TokenError::SecretMissing { path: secret_path });
        }
        None => {
            let secret = random()?;
            write_line(&secret_path, &hex(&secret))?;
            Some(secret)
        }
    };
    let secret = secret.ok_or(TokenError::SecretDamaged { path: secret_path })?;
    let owner_key_made = owner_key.is_none();
    let owner_key = match &owner_key {
        Some(content) => line(content).map(str::to_owned),
        None => {
            let (key, _) = new_key()?;
            write_line(&owner_path, &key)?;
            Some(key)
        }
    };
    let owner_key = owner_key
        .filter(|key| key.strip_prefix(KEY_PREFIX).and_then(unhex).is_some())
        .ok_or(TokenError::OwnerKeyDamaged { path: owner_path })?;
    Ok(Keyring::new(&secret, &owner_key, owner_key_made))
}

/// The token in an `Authorization` header.
pub fn bearer(authorization: Option<&str>) -> Result<&str, TokenRejected> {
    let value = authorization.map(str::trim).filter(|value| !value.is_empty());
    let (scheme, token) = value.ok_or(TokenRejected::Missing)?.split_once(' ').unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(TokenRejected::Malformed);
    }
    Ok(token.trim_start())
}

impl Keyring {
    fn new(secret: &[u8; 32], owner_key: &str, owner_key_made: bool) -> Keyring {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let token_secret = hmac::sign(&secret, b"jwt\0hs256");
        let tenant = uuid_like(hmac::sign(&secret, b"id\0tenant").as_ref());
        let owner = Principal {
            id: uuid_like(hmac::sign(&secret, b"id\0owner").as_ref()),
            name: "owner".to_owned(),
        };
        let issuer = format!("urn:muster:{tenant}");
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_required_spec_claims(&["iss"]);
        validation.set_issuer(&[&issuer]);
        // The library supports neither the server's own time nor a list of audiences per route.
        validation.validate_exp = false;
        validation.validate_aud = false;
        Keyring {
            encoding: EncodingKey::from_secret(token_secret.as_ref()),
            decoding: DecodingKey::from_secret(token_secret.as_ref()),
            secret,
            validation,
            issuer,
            tenant,
            owner: OwnerKey { digest: KeyDigest(sha256(owner_key.as_bytes())), principal: owner },
            owner_key_made,
        }
    }

    /// The `tid` of every token; one per keyring.
    pub fn tenant_id(&self) -> &str {
        &self.tenant
    }

    /// The `iss` of every token.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Whether loading created the owner's key, so that the owner must be notified.
    pub fn owner_key_made(&self) -> bool {
        self.owner_key_made
    }

    pub fn is_owner(&self, object_id: &str) -> bool {
        self.owner.principal.id == object_id
    }

    /// The principal of a key: the owner, or a user.
    pub fn authenticate_key(&self, presented: &str, directory: &Directory) -> Option<Principal> {
        let presented = digest_of(presented);
        // All are compared, so that the time does not reveal which one was close.
        let user = directory.holder_of(&presented, is_same);
        if is_same(&self.owner.digest, &presented) {
            return Some(self.owner.principal.clone());
        }
        let user = user?;
        Some(Principal { id: user.object_id.to_string(), name: user.name.to_string() })
    }

    /// The fingerprint of the principal's current key, as its tokens contain it.
    fn fingerprint_of(&self, object_id: &str, directory: &Directory) -> Option<String> {
        if self.is_owner(object_id) {
            return Some(fingerprint(&self.owner.digest));
        }
        let user = directory.user_by_object_id(object_id)?;
        match user.kind {
            UserKind::Person | UserKind::Service => user.key.map(|key| fingerprint(&key.digest)),
            // Its tokens are valid for as long as it exists.
            UserKind::Managed(_) => Some("managed".to_owned()),
        }
    }

    /// Whether this principal exists and has a key, so that its tokens end with the key.
    pub fn has_key(&self, object_id: &str, directory: &Directory) -> bool {
        self.fingerprint_of(object_id, directory).is_some()
    }

    /// Issues an access token for one of the known audiences.
    pub fn issue(
        &self,
        principal: &Principal,
        resource: &str,
        audiences: &Audiences,
        now_unix: u64,
        directory: &Directory,
    ) -> Result<IssuedToken, TokenError> {
        self.issue_to(None, principal, resource, audiences, now_unix, directory)
    }

    /// Like `issue`, for an attempt that acts as this principal: the token is valid only while the attempt is live.
    pub fn issue_to(
        &self,
        attempt: Option<Epoch>,
        principal: &Principal,
        resource: &str,
        audiences: &Audiences,
        now_unix: u64,
        directory: &Directory,
    ) -> Result<IssuedToken, TokenError> {
        if !audiences.contains(resource) {
            let known = [&audiences.arm[..], &audiences.ml, &audiences.storage].concat();
            let resource = resource.chars().take(200).collect();
            return Err(TokenError::UnknownResource { resource, known: known.join(", ") });
        }
        let audience = audience::trimmed(resource).to_owned();
        let expires_unix = now_unix.saturating_add(TOKEN_LIFETIME_S);
        let claims = Claims {
            aud: audience.clone(),
            iss: self.issuer.clone(),
            sub: principal.id.clone(),
            oid: principal.id.clone(),
            tid: self.tenant.clone(),
            appid: principal.id.clone(),
            name: principal.name.clone(),
            upn: principal.name.clone(),
            iat: now_unix,
            nbf: now_unix,
            exp: expires_unix,
            key: self.fingerprint_of(&principal.id, directory),
            attempt: attempt.map(|epoch| epoch.0),
        };
        let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &self.encoding)
            .map_err(TokenError::Sign)?;
        Ok(IssuedToken { token, audience, expires_unix })
    }

    /// The principal of a token; `accepted` are the lists of audiences that the route accepts.
    pub fn verify(
        &self,
        token: &str,
        accepted: &[&[String]],
        now_unix: u64,
        directory: &Directory,
        is_live: impl Fn(Epoch) -> bool,
    ) -> Result<Principal, TokenRejected> {
        if token.is_empty() {
            return Err(TokenRejected::Missing);
        }
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenRejected::Malformed);
        }
        let decoded = jsonwebtoken::decode::<Claims>(token, &self.decoding, &self.validation);
        let claims = decoded.map_err(|error| TokenRejected::from(error.kind()))?.claims;
        let ago_s = now_unix.saturating_sub(claims.exp);
        if ago_s > LEEWAY_S {
            return Err(TokenRejected::Expired { ago_s });
        }
        let in_s = claims.nbf.saturating_sub(now_unix);
        if in_s > LEEWAY_S {
            return Err(TokenRejected::NotYetValid { in_s });
        }
        if claims.key.is_some() && claims.key != self.fingerprint_of(&claims.oid, directory) {
            return Err(TokenRejected::Revoked);
        }
        if claims.attempt.is_some_and(|epoch| !is_live(Epoch(epoch))) {
            return Err(TokenRejected::AttemptEnded);
        }
        if !accepted.iter().copied().flatten().any(|one| audience::matches(one, &claims.aud)) {
            return Err(TokenRejected::WrongAudience { got: claims.aud });
        }
        Ok(Principal { id: claims.oid, name: claims.name })
    }

    /// The credential of the node with this name, and of no other.
    pub fn node_secret(&self, node_name: &str) -> String {
        self.mac(&["node", node_name])
    }

    pub fn check_node_secret(&self, node_name: &str, presented: &str) -> bool {
        same(self.node_secret(node_name).as_bytes(), presented.as_bytes())
    }

    /// The signature, as hexadecimal digits, that lets its holder read this one path until then.
    pub fn sign_log_url(&self, path: &str, expires_unix: u64) -> String {
        self.mac(&["log", &expires_unix.to_string(), path])
    }

    pub fn check_log_url(
        &self,
        path: &str,
        expires_unix: u64,
        signature: &str,
        now_unix: u64,
    ) -> Result<(), LogUrlRejected> {
        let expected = self.sign_log_url(path, expires_unix);
        if !same(expected.as_bytes(), signature.as_bytes()) {
            return Err(LogUrlRejected::BadSignature);
        }
        if now_unix >= expires_unix {
            return Err(LogUrlRejected::Expired { ago_s: now_unix - expires_unix });
        }
        let left_s = expires_unix - now_unix;
        // The leeway is for a clock that was set back a little after signing.
        if left_s > LOG_URL_LIFETIME_MAX_S + LEEWAY_S {
            return Err(LogUrlRejected::TooLong { left_s });
        }
        Ok(())
    }

    /// Encrypts a secret that must be readable again later, so that it can be stored in rows and in copies of them.
    /// `place` is where it belongs: it cannot be decrypted in another place.
    pub fn seal(&self, place: &str, secret: &str) -> Result<String, TokenError> {
        let mut bytes = secret.as_bytes().to_vec();
        let nonce = self.sealing_key().seal_in_place_append_tag(Aad::from(place), &mut bytes);
        let nonce = nonce.map_err(|_| TokenError::Random)?;
        Ok(format!("{}{}", hex(nonce.as_ref()), hex(&bytes)))
    }

    /// `None` if this server has not sealed it for that place.
    pub fn unseal(&self, place: &str, sealed: &str) -> Option<String> {
        let mut bytes = crate::secrets::unhex(sealed)?;
        let (nonce, content) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = self.sealing_key().open_in_place(nonce, Aad::from(place), content).ok()?;
        String::from_utf8(opened.to_vec()).ok()
    }

    fn sealing_key(&self) -> RandomizedNonceKey {
        let key = hmac::sign(&self.secret, b"seal\0aes256gcm");
        RandomizedNonceKey::new(&AES_256_GCM, key.as_ref()).expect("32 bytes are a key")
    }

    /// The signature of a signed address of the blob storage, over the text from [`muster_wire::blob::Sas`].
    pub fn sign_blob_address(&self, text: &str) -> String {
        self.mac(&["blob", text])
    }

    pub fn check_blob_address(&self, text: &str, signature: &str) -> bool {
        same(self.sign_blob_address(text).as_bytes(), signature.as_bytes())
    }

    /// The first part is the purpose; no part but the last may contain a zero byte.
    fn mac(&self, parts: &[&str]) -> String {
        hex(hmac::sign(&self.secret, parts.join("\0").as_bytes()).as_ref())
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

impl fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedToken")
            .field("audience", &self.audience)
            .field("expires_unix", &self.expires_unix)
            .finish_non_exhaustive()
    }
}

/// A new API key, and its digest, which is stored.
pub fn new_key() -> Result<(String, KeyDigest), TokenError> {
    let key = format!("{KEY_PREFIX}{}", hex(&random()?));
    let digest = KeyDigest(sha256(key.as_bytes()));
    Ok((key, digest))
}

/// The secret of a join token, and its digest, which is stored.
pub fn new_ticket() -> Result<(String, KeyDigest), TokenError> {
    let secret = hex(&random()?);
    let digest = digest_of(&secret);
    Ok((secret, digest))
}

/// The digest that is stored of a key or of any other random secret.
pub fn digest_of(key: &str) -> KeyDigest {
    KeyDigest(sha256(key.as_bytes()))
}

/// Compares in constant time.
pub fn is_same(one: &KeyDigest, other: &KeyDigest) -> bool {
    same(&one.0, &other.0)
}

/// An object id for a new user.
pub fn new_id() -> Result<String, TokenError> {
    Ok(uuid_like(&random()?))
}

/// Names a key in its tokens. Keys are random, so a part of the digest reveals nothing.
fn fingerprint(digest: &KeyDigest) -> String {
    hex(&digest.0[..8])
}

fn sha256(data: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, data);
    digest.as_ref().try_into().expect("sha-256 has 32 bytes")
}

fn same(one: &[u8], other: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(one, other).is_ok()
}

fn random() -> Result<[u8; 32], TokenError> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).map_err(|_| TokenError::Random)?;
    Ok(bytes)
}

fn write_line(path: &Path, text: &str) -> Result<(), FileError> {
    files::write(path, format!("{text}\n").as_bytes(), files::PRIVATE)
}

fn line(content: &[u8]) -> Option<&str> {
    std::str::from_utf8(content).ok().map(str::trim_end)
}

fn hex(bytes: &[u8]) -> String {
    let digit = |four: u8| char::from_digit(u32::from(four), 16).expect("four bits");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits: [u32; 64] = digits?.try_into().ok()?;
    Some(std::array::from_fn(|at| (digits[2 * at] * 16 + digits[2 * at + 1]) as u8))
}

/// In the form of a UUID of version 8 (custom content), which all clients accept as an id.
fn uuid_like(mac: &[u8]) -> String {
    let mut text = hex(&mac[..16]);
    text.replace_range(12..13, "8");
    text.replace_range(16..17, "8");
    for at in [20, 16, 12, 8] {
        text.insert(at, '-');
    }
    text
}

#[cfg(test)]
mod tests;
