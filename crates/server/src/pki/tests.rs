#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn at() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn names() -> Names {
    Names::for_host("node7", Some("0.0.0.0"))
}

fn wider() -> Names {
    Names::for_host("node7", Some("192.0.2.7"))
}

fn load(dir: &Path, names: &Names, now: SystemTime) -> Identity {
    load_or_create(dir, names, now).unwrap()
}

/// All files of the directory, to check that a refusal changed nothing.
fn content(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = paths.map(|path| (path.clone(), fs::read(&path).unwrap())).collect();
    all.sort();
    all
}

#[test]
fn a_second_start_reads_what_the_first_made() {
    let dir = tempfile::tempdir().unwrap();
    let first = load(dir.path(), &names(), at());
    assert_eq!(first.renewed, Renewed::CaAndLeaf);
    for (file, mode) in [("ca.key", 0o600), ("server.key", 0o600)] {
        let found = fs::metadata(dir.path().join(file)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{file}");
    }
    let before = content(dir.path());
    let second = load(dir.path(), &names(), at() + 360 * DAY);
    assert_eq!(second.renewed, Renewed::None);
    assert_eq!(second.ca_pem, first.ca_pem);
    assert_eq!(second.leaf_expires, first.leaf_expires);
    assert_eq!(content(dir.path()), before);
    assert!(!format!("{second:?}").contains("PRIVATE"));
}

#[test]
fn the_leaf_is_renewed_near_its_end_when_missing_and_for_fewer_names() {
    let dir = tempfile::tempdir().unwrap();
    let first = load(dir.path(), &wider(), at());
    let later = load(dir.path(), &wider(), at() + 370 * DAY);
    assert_eq!((later.renewed, &later.ca_pem), (Renewed::Leaf, &first.ca_pem));
    assert_eq!(later.leaf_expires - (370 * DAY), first.leaf_expires);
    fs::remove_file(dir.path().join("server.pem")).unwrap();
    assert_eq!(load(dir.path(), &wider(), at() + 370 * DAY).renewed, Renewed::Leaf);
    assert_eq!(load(dir.path(), &names(), at() + 370 * DAY).renewed, Renewed::Leaf);
    fs::remove_file(dir.path().join("server.pem")).unwrap();
    fs::remove_file(dir.path().join("server.key")).unwrap();
    let made = load(dir.path(), &names(), at() + 370 * DAY);
    assert_eq!((made.renewed, &made.ca_pem), (Renewed::Leaf, &first.ca_pem));
}

#[test]
fn the_ca_is_made_anew_for_names_outside_it_and_near_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let first = load(dir.path(), &names(), at());
    let second = load(dir.path(), &wider(), at());
    assert_eq!(second.renewed, Renewed::CaAndLeaf);
    assert_ne!(second.ca_pem, first.ca_pem);
    assert_eq!(load(dir.path(), &wider(), at()).renewed, Renewed::None);
    assert_eq!(load(dir.path(), &wider(), at() + 3640 * DAY).renewed, Renewed::CaAndLeaf);
}

#[test]
fn a_crash_at_any_write_is_completed_by_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    load(dir.path(), &names(), at());
    let written_in_order = ["ca.key", "ca.pem", "server.key", "server.pem"];
    for kept in 1..4 {
        for absent in &written_in_order[kept..] {
            fs::remove_file(dir.path().join(absent)).unwrap();
        }
        let completed = load(dir.path(), &names(), at());
        let expected = if kept == 1 { Renewed::CaAndLeaf } else { Renewed::Leaf };
        assert_eq!(completed.renewed, expected);
        assert_eq!(load(dir.path(), &names(), at()).renewed, Renewed::None);
    }
}

/// Damages a good set, and expects a refusal that contains `message` and changes nothing.
fn check_refused(damage: impl FnOnce(&Path), message: &str) {
    let dir = tempfile::tempdir().unwrap();
    load(dir.path(), &names(), at());
    damage(dir.path());
    let before = content(dir.path());
    let error = load_or_create(dir.path(), &names(), at()).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
    assert_eq!(content(dir.path()), before);
}

#[test]
fn a_damaged_or_half_present_set_is_refused_and_left_alone() {
    let remove = |name: &'static str| move |dir: &Path| fs::remove_file(dir.join(name)).unwrap();
    let spoil = |name: &'static str, text: &'static str| {
        move |dir: &Path| fs::write(dir.join(name), text).unwrap()
    };
    check_refused(remove("ca.pem"), "ca.pem is missing");
    check_refused(remove("ca.key"), "ca.key is missing");
    check_refused(remove("server.key"), "server.key is missing");
    check_refused(spoil("ca.pem", ""), "ca.pem does not contain a certificate");
    check_refused(spoil("ca.key", "x"), "ca.key does not contain a private key");
    check_refused(spoil("server.pem", "x"), "server.pem does not contain a certificate");
    check_refused(spoil("server.key", ""), "server.key does not contain a private key");
    check_refused(
        |dir| fs::write(dir.join("server.key"), fs::read(dir.join("ca.key")).unwrap()).unwrap(),
        "server.pem does not match the key next to it",
    );
    check_refused(
        |dir| {
            let other = dir.join("other");
            load(&other, &names(), at());
            for name in ["ca.pem", "ca.key"] {
                fs::rename(other.join(name), dir.join(name)).unwrap();
            }
            fs::remove_dir_all(other).unwrap();
        },
        "was not issued by the CA next to it",
    );
    check_refused(
        |dir| {
            let key = fs::read_to_string(dir.join("ca.key")).unwrap();
            let params = rcgen::CertificateParams::default();
            let ca = params.self_signed(&KeyPair::from_pem(&key).unwrap()).unwrap();
            fs::write(dir.join("ca.pem"), ca.pem()).unwrap();
        },
        "without name constraints",
    );
    check_refused(
        |dir| fs::set_permissions(dir.join("ca.key"), fs::Permissions::from_mode(0o644)).unwrap(),
        "chmod 600",
    );
}

#[test]
fn unusable_names_and_clocks_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let check = |names: &Names, now: SystemTime, message: &str| {
        let error = load_or_create(dir.path(), names, now).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    };
    check(&Names::for_host("no name", None), at(), "\"no name\" is not a host name");
    check(&Names::for_host("*.example.org", None), at(), "is not a host name");
    let only_dns = Names { dns: ["localhost".to_owned()].into(), ips: [].into() };
    check(&only_dns, at(), "1 DNS names and 0 addresses");
    check(&names(), UNIX_EPOCH - DAY, "set the clock");
    load(dir.path(), &names(), at());
    check(&names(), at() - DAY, "82800 s before the start of");
}

/// A certificate for names that its CA does not permit, as anyone with the CA's key could create.
fn forged(dir: &Path, names: &Names, now: SystemTime) -> Identity {
    let good = load(dir, &Names::for_host("node7", None), now);
    let ca_key = KeyPair::from_pem(&fs::read_to_string(dir.join("ca.key")).unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let now = i64::try_from(now.duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
    let end = now + certs::CA_LIFETIME_S;
    let pem = certs::make_leaf(names, &key, &good.ca_pem, &ca_key, end, now).unwrap();
    Identity {
        leaf: CertificateDer::from_pem_slice(pem.as_bytes()).unwrap(),
        leaf_key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        ..good
    }
}

#[test]
fn the_servers_own_check_refuses_a_leaf_outside_the_constraints() {
    let dir = tempfile::tempdir().unwrap();
    for (host, listen) in [("bank.example", None), ("localhost", Some("192.0.2.66"))] {
        let wrong = Names::for_host(host, listen);
        let identity = forged(dir.path(), &wrong, at());
        let ca = CertificateDer::from_pem_slice(identity.ca_pem.as_bytes()).unwrap();
        let now = 1_800_000_000;
        let error = check_chain(&ca, &identity.leaf, &wrong, now).unwrap_err().to_string();
        assert!(error.contains("NameConstraintViolation"), "{error}");
    }
}

/// Serves the identity once and lets OpenSSL connect to it. Returns whether OpenSSL trusted it, and its output.
fn openssl_connects(identity: &Identity, check: &[&str]) -> Option<(bool, String)> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut tls = rustls::ServerConnection::new(
        server_config(Arc::new(rustls::sign::SingleCertAndKey::from(
            identity.certified().unwrap().as_ref().clone(),
        )))
        .unwrap(),
    )
    .unwrap();
    // The thread is not joined: a client that never connects must fail the test, not hang it.
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        // A client that refuses the certificate ends the handshake; that is its result, not an error here.
        let _ = rustls::Stream::new(&mut tls, &mut socket).read(&mut [0; 64]);
    });
    let client = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-alpn", "http/1.1"])
        .args(["-verify_return_error", "-x509_strict", "-CAfile"])
        .arg(&identity.ca_path)
        .args(check)
        .stdin(Stdio::null())
        .output()
        .inspect_err(|error| {
            muster_testing::skip_or_fail(&format!("openssl cannot be run: {error}"));
        })
        .ok()?;
    let output = [client.stdout, client.stderr].concat();
    Some((client.status.success(), String::from_utf8_lossy(&output).into_owned()))
}

#[test]
fn openssl_trusts_the_server_by_name_and_address_under_strict_checks() {
    let dir = tempfile::tempdir().unwrap();
    let identity = load(dir.path(), &names(), SystemTime::now());
    for version in ["-tls1_2", "-tls1_3"] {
        for name in ["-verify_hostname localhost", "-verify_hostname node7", "-verify_ip 127.0.0.1"]
        {
            let check: Vec<&str> = name.split(' ').chain([version]).collect();
            let Some((trusted, output)) = openssl_connects(&identity, &check) else {
                return;
            };
            assert!(trusted, "{check:?}: {output}");
            assert!(output.contains("Verify return code: 0 (ok)"), "{check:?}: {output}");
            assert!(output.contains("ALPN protocol: http/1.1"), "{check:?}: {output}");
        }
    }
    let other = ["-verify_hostname", "bank.example"];
    let Some((trusted, output)) = openssl_connects(&identity, &other) else {
        return;
    };
    assert!(!trusted && output.contains("ostname mismatch"), "{output}");
}

#[test]
fn openssl_refuses_another_site_signed_by_the_same_ca() {
    let dir = tempfile::tempdir().unwrap();
    for (host, listen, check) in [
        ("bank.example", None, ["-verify_hostname", "bank.example"]),
        ("localhost", Some("192.0.2.66"), ["-verify_ip", "192.0.2.66"]),
    ] {
        let identity = forged(dir.path(), &Names::for_host(host, listen), SystemTime::now());
        let Some((trusted, output)) = openssl_connects(&identity, &check) else {
            return;
        };
        assert!(!trusted && output.contains("permitted subtree violation"), "{output}");
    }
}
