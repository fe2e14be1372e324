#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::*;

const NOW: u64 = 1_800_000_000;

fn keyring() -> Keyring {
    Keyring::new(&[7; 32], "msk_test", false)
}

fn no_users() -> Directory {
    Directory::default()
}

fn owner() -> Principal {
    keyring().authenticate_key("msk_test", &no_users()).unwrap()
}

fn audiences() -> Audiences {
    Audiences::for_base("https://localhost:8443/")
}

fn token(resource: &str) -> String {
    keyring().issue(&owner(), resource, &audiences(), NOW, &no_users()).unwrap().token
}

fn check(token: &str, now: u64) -> Result<Principal, TokenRejected> {
    keyring().verify(token, &[&audiences().arm], now, &no_users(), |_| false)
}

fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * place) & 63) as usize]));
        }
    }
    text
}

#[test]
fn the_first_start_creates_the_keys_and_the_second_reads_them() {
    let dir = tempfile::tempdir().unwrap();
    let first = load_or_create(dir.path()).unwrap();
    assert!(first.owner_key_made());
    let key = fs::read_to_string(dir.path().join(OWNER_KEY_FILE)).unwrap();
    assert_eq!((key.len(), &key[..4]), (4 + 64 + 1, "msk_"));
    for file in [OWNER_KEY_FILE, SECRET_FILE] {
        let mode = fs::metadata(dir.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let second = load_or_create(dir.path()).unwrap();
    assert!(!second.owner_key_made());
    assert_eq!(second.tenant_id(), first.tenant_id());
    let owner = second.authenticate_key(key.trim_end(), &no_users()).unwrap();
    assert_eq!(Some(&owner), first.authenticate_key(key.trim_end(), &no_users()).as_ref());
    let issued =
        first.issue(&owner, "https://localhost:8443", &audiences(), NOW, &no_users()).unwrap();
    assert_eq!(
        second.verify(&issued.token, &[&audiences().arm], NOW, &no_users(), |_| false),
        Ok(owner)
    );
}

#[test]
fn replacing_a_key_invalidates_its_tokens_but_keeps_the_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(OWNER_KEY_FILE);
    let first = load_or_create(dir.path()).unwrap();
    let old_key = fs::read_to_string(&path).unwrap();
    let owner = first.authenticate_key(old_key.trim_end(), &no_users()).unwrap();
    let issued =
        first.issue(&owner, "https://localhost:8443", &audiences(), NOW, &no_users()).unwrap();
    // A principal without a key, such as a cluster's identity, does not depend on one.
    let cluster = Principal { id: "c".to_owned(), name: "cluster".to_owned() };
    let other =
        first.issue(&cluster, "https://localhost:8443", &audiences(), NOW, &no_users()).unwrap();
    fs::remove_file(&path).unwrap();
    let second = load_or_create(dir.path()).unwrap();
    assert!(second.owner_key_made());
    assert_eq!(second.authenticate_key(old_key.trim_end(), &no_users()), None);
    let new_key = fs::read_to_string(&path).unwrap();
    assert_eq!(second.authenticate_key(new_key.trim_end(), &no_users()), Some(owner));
    let arm = &audiences().arm[..];
    assert_eq!(
        second.verify(&issued.token, &[arm], NOW, &no_users(), |_| false),
        Err(TokenRejected::Revoked)
    );
    assert_eq!(second.verify(&other.token, &[arm], NOW, &no_users(), |_| false), Ok(cluster));
    assert_eq!(second.node_secret("n"), first.node_secret("n"));
}

#[test]
fn a_damaged_or_half_present_keyring_is_refused_and_left_alone() {
    let refused = |damage: &dyn Fn(&Path), message: &str| {
        let dir = tempfile::tempdir().unwrap();
        load_or_create(dir.path()).unwrap();
        damage(dir.path());
        let read =
            || [SECRET_FILE, OWNER_KEY_FILE].map(|file| fs::read(dir.path().join(file)).ok());
        let before = read();
        let error = load_or_create(dir.path()).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert_eq!(read(), before);
    };
    let spoil = |file: &'static str, text: String| {
        move |dir: &Path| fs::write(dir.join(file), &text).unwrap()
    };
    refused(&|dir| fs::remove_file(dir.join(SECRET_FILE)).unwrap(), "token.key is missing");
    for bad in ["", "07", &"0".repeat(63), &"0".repeat(66), &"g".repeat(64), &"é".repeat(32)] {
        refused(&spoil(SECRET_FILE, bad.to_owned()), "does not contain 64 hexadecimal digits");
        refused(&spoil(OWNER_KEY_FILE, format!("msk_{bad}")), "does not contain an API key");
    }
    refused(&spoil(OWNER_KEY_FILE, "0".repeat(64)), "does not contain an API key");
    let expose = |dir: &Path| {
        let path = dir.join(OWNER_KEY_FILE);
        fs::set_permissions(path, fs::Permissions::from_mode(0o604)).unwrap();
    };
    refused(&expose, "chmod 600");
}

#[test]
fn only_the_exact_key_authenticates() {
    for wrong in ["", "msk_", "msk_tes", "msk_test ", "MSK_TEST", "msk_test\0"] {
        assert_eq!(keyring().authenticate_key(wrong, &no_users()), None, "{wrong:?}");
    }
    assert_eq!(owner().name, "owner");
    let form: Vec<usize> = owner().id.split('-').map(str::len).collect();
    assert_eq!(form, [8, 4, 4, 4, 12]);
}

#[test]
fn a_token_has_the_claims_that_clients_read() {
    let issued =
        keyring().issue(&owner(), "https://ml.azure./", &audiences(), NOW, &no_users()).unwrap();
    assert_eq!(issued.audience, "https://ml.azure.");
    assert_eq!(issued.expires_unix, NOW + 3600);
    let claims: Value = jsonwebtoken::dangerous::insecure_decode(&issued.token).unwrap().claims;
    assert_eq!(claims["aud"], "https://ml.azure.");
    assert_eq!(claims["tid"], keyring().tenant_id());
    assert_eq!((&claims["iat"], &claims["nbf"]), (&json!(NOW), &json!(NOW)));
    assert_eq!(claims["exp"], NOW + 3600);
    for id in ["sub", "oid", "appid"] {
        assert_eq!(claims[id], owner().id, "{id}");
    }
    assert_eq!((&claims["name"], &claims["upn"]), (&json!("owner"), &json!("owner")));
    let header = jsonwebtoken::decode_header(&issued.token).unwrap();
    assert_eq!((header.alg, header.kid), (Algorithm::HS256, None));
    let shown = format!("{issued:?} {:?}", keyring());
    assert!(!shown.contains(&issued.token) && !shown.contains("msk_"), "{shown}");
}

#[test]
fn tokens_are_issued_only_for_known_resources() {
    let error =
        keyring().issue(&owner(), "https://vault.azure.net", &audiences(), NOW, &no_users());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("\"https://vault.azure.net\""), "{error}");
    assert!(error.contains("https://storage.azure.com"), "{error}");
    let long =
        keyring().issue(&owner(), &"x".repeat(9000), &audiences(), NOW, &no_users()).unwrap_err();
    assert!(long.to_string().len() < 1000);
}

#[test]
fn time_is_checked_with_a_minute_of_leeway() {
    let token = token("https://localhost:8443");
    for good in [NOW - 60, NOW, NOW + 3660] {
        assert_eq!(check(&token, good), Ok(owner()), "{good}");
    }
    assert_eq!(check(&token, NOW + 3661), Err(TokenRejected::Expired { ago_s: 61 }));
    assert_eq!(check(&token, NOW - 61), Err(TokenRejected::NotYetValid { in_s: 61 }));
    assert_eq!(check(&token, 0), Err(TokenRejected::NotYetValid { in_s: NOW }));
}

#[test]
fn each_route_takes_its_own_audiences() {
    let Audiences { arm, ml, storage } = audiences();
    let storage_token = token("https://storage.azure.com/");
    let got = "https://storage.azure.com".to_owned();
    let wrong = Err(TokenRejected::WrongAudience { got });
    assert_eq!(keyring().verify(&storage_token, &[&arm, &ml], NOW, &no_users(), |_| false), wrong);
    assert_eq!(keyring().verify(&storage_token, &[], NOW, &no_users(), |_| false), wrong);
    assert_eq!(
        keyring().verify(&storage_token, &[&arm, &storage], NOW, &no_users(), |_| false),
        Ok(owner())
    );
    assert_eq!(
        keyring().verify(
            &token("https://management.azure.com/"),
            &[&arm],
            NOW,
            &no_users(),
            |_| false
        ),
        Ok(owner())
    );
}

#[test]
fn missing_and_malformed_tokens_are_distinguished() {
    let long = "a".repeat(TOKEN_BYTES_MAX + 1);
    for bad in ["x", "a.b.c", "..", "é", &long, &format!("{}.x", token("https://localhost:8443"))]
    {
        assert_eq!(check(bad, NOW), Err(TokenRejected::Malformed), "{bad}");
    }
    assert_eq!(check("", NOW), Err(TokenRejected::Missing));
    assert_eq!(bearer(None), Err(TokenRejected::Missing));
    assert_eq!(bearer(Some(" ")), Err(TokenRejected::Missing));
    assert_eq!(bearer(Some("Basic abc")), Err(TokenRejected::Malformed));
    assert_eq!(bearer(Some("Bearer")), Err(TokenRejected::Malformed));
    assert_eq!(bearer(Some("bearer  abc")), Ok("abc"));
}

#[test]
fn another_secret_or_changed_claims_do_not_pass() {
    let stranger = Keyring::new(&[8; 32], "msk_test", false);
    let foreign =
        stranger.issue(&owner(), "https://localhost:8443", &audiences(), NOW, &no_users()).unwrap();
    assert_eq!(check(&foreign.token, NOW), Err(TokenRejected::BadSignature));
    let good = token("https://localhost:8443");
    let [header, _, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!() };
    let mut claims: Value = jsonwebtoken::dangerous::insecure_decode(&good).unwrap().claims;
    claims["exp"] = json!(NOW + 999_999);
    let changed = base64url(claims.to_string().as_bytes());
    let changed = format!("{header}.{changed}.{signature}");
    assert_eq!(check(&changed, NOW), Err(TokenRejected::BadSignature));
}

#[test]
fn another_issuer_does_not_pass_although_the_key_is_right() {
    let good = token("https://localhost:8443");
    let mut claims: Value = jsonwebtoken::dangerous::insecure_decode(&good).unwrap().claims;
    let signed = |claims: &Value| {
        let header = Header::new(Algorithm::HS256);
        jsonwebtoken::encode(&header, claims, &keyring().encoding).unwrap()
    };
    assert_eq!(check(&signed(&claims), NOW), Ok(owner()));
    for issuer in [json!("urn:muster:other"), json!(""), json!(["urn:muster:other"]), Value::Null] {
        claims["iss"] = issuer;
        assert_eq!(check(&signed(&claims), NOW), Err(TokenRejected::Malformed), "{claims}");
    }
    claims.as_object_mut().unwrap().remove("iss");
    assert_eq!(check(&signed(&claims), NOW), Err(TokenRejected::Malformed));
}

#[test]
fn no_prefix_of_a_token_passes() {
    let good = token("https://localhost:8443");
    for end in 0..good.len() {
        assert!(check(&good[..end], NOW).is_err(), "{end}");
    }
}

/// Attacks on verifiers that let the token choose how it is checked.
#[test]
fn the_server_chooses_the_algorithm() {
    let good = token("https://localhost:8443");
    let [_, claims, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!() };
    let secret = hmac::sign(&keyring().secret, b"jwt\0hs256");
    let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref());
    let with_alg = |alg: &str| {
        let header = base64url(json!({"alg": alg, "typ": "JWT"}).to_string().as_bytes());
        format!("{header}.{claims}")
    };
    let signed = |message: &str| {
        let signature = base64url(hmac::sign(&secret, message.as_bytes()).as_ref());
        format!("{message}.{signature}")
    };
    // The forging itself works: with the right algorithm, such a token passes.
    assert_eq!(check(&signed(&with_alg("HS256")), NOW), Ok(owner()));
    for none in ["none", "None", "NONE", "nOnE", ""] {
        let message = with_alg(none);
        for token in [format!("{message}."), format!("{message}.{signature}"), signed(&message)] {
            assert_eq!(check(&token, NOW), Err(TokenRejected::Malformed), "{none}");
        }
    }
    for other in ["RS256", "PS256", "ES256", "EdDSA", "HS384", "HS512"] {
        let token = signed(&with_alg(other));
        assert_eq!(check(&token, NOW), Err(TokenRejected::BadSignature), "{other}");
    }
    let claims: Value = jsonwebtoken::dangerous::insecure_decode(&good).unwrap().claims;
    for other in [Algorithm::HS384, Algorithm::HS512] {
        let token =
            jsonwebtoken::encode(&Header::new(other), &claims, &keyring().encoding).unwrap();
        assert_eq!(check(&token, NOW), Err(TokenRejected::BadSignature), "{other:?}");
    }
}

#[test]
fn a_node_secret_is_bound_to_the_name() {
    let secret = keyring().node_secret("node-1");
    let expected = hmac::sign(&keyring().secret, b"node\0node-1");
    assert_eq!(secret, hex(expected.as_ref()));
    assert!(keyring().check_node_secret("node-1", &secret));
    for (name, presented) in [
        ("node-2", &secret[..]),
        ("node-1", ""),
        ("node-1", &secret[1..]),
        ("node-1", &secret.to_uppercase()),
        ("", &secret),
    ] {
        assert!(!keyring().check_node_secret(name, presented), "{name} {presented}");
    }
}

#[test]
fn a_log_url_is_for_one_path_and_an_hour_at_most() {
    let keyring = keyring();
    let end = NOW + 3600;
    let signature = keyring.sign_log_url("/logs/a", end);
    let check = |path: &str, end: u64, now: u64| keyring.check_log_url(path, end, &signature, now);
    assert_eq!(check("/logs/a", end, NOW), Ok(()));
    assert_eq!(check("/logs/a", end, end - 1), Ok(()));
    assert_eq!(check("/logs/a", end, end), Err(LogUrlRejected::Expired { ago_s: 0 }));
    for (path, end) in [("/logs/b", end), ("/logs/a/", end), ("/logs/a", end + 1)] {
        assert_eq!(check(path, end, NOW), Err(LogUrlRejected::BadSignature), "{path} {end}");
    }
    let early = NOW - 61;
    assert_eq!(check("/logs/a", end, early), Err(LogUrlRejected::TooLong { left_s: 3661 }));
    // A node cannot turn its name into a signature.
    assert_ne!(keyring.node_secret(&format!("{end}\0/logs/a")), signature);
}

#[test]
fn a_token_of_an_attempt_ends_with_the_attempt() {
    let (resource, known) = ("https://localhost:8443", audiences());
    let issued = keyring().issue_to(Some(Epoch(7)), &owner(), resource, &known, NOW, &no_users());
    let token = issued.unwrap().token;
    let verify = |live: u64| {
        keyring().verify(&token, &[&known.arm], NOW, &no_users(), |epoch| epoch == Epoch(live))
    };
    assert_eq!(verify(7), Ok(owner()));
    assert_eq!(verify(8), Err(TokenRejected::AttemptEnded));
}
