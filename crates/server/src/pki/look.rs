//! Reads the server certificate without creating, renewing or refusing anything.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{LEAF, Names, PkiError, files, parse};

#[derive(Debug, Clone)]
pub struct Seen {
    pub path: PathBuf,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
    pub names: Names,
}

impl Seen {
    /// Whether the certificate is for this host, which may be a name or an address as written in a URL.
    pub fn is_for(&self, host: &str) -> bool {
        let wanted = Names::for_host(host, None);
        wanted.dns.is_subset(&self.names.dns) && wanted.ips.is_subset(&self.names.ips)
    }
}

/// The certificate in `dir`, if there is one.
pub fn look(dir: &Path) -> Result<Option<Seen>, PkiError> {
    let path = dir.join("server.pem");
    let Some(pem) = files::read(&path, files::FILE_BYTES_MAX)? else { return Ok(None) };
    let cert = parse(path, pem, LEAF)?;
    let at = |seconds: i64| UNIX_EPOCH + Duration::from_secs(seconds.max(0).unsigned_abs());
    Ok(Some(Seen {
        not_before: at(cert.facts.not_before),
        not_after: at(cert.facts.not_after),
        names: cert.facts.names,
        path: cert.path,
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::load_or_create;
    use super::*;

    #[test]
    fn an_existing_certificate_is_found_and_none_is_created() {
        let dir = tempfile::tempdir().unwrap();
        assert!(look(dir.path()).unwrap().is_none());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let names = Names::for_host("lab", Some("10.0.0.7"));
        let made = load_or_create(dir.path(), &names, SystemTime::now()).unwrap();
        let seen = look(dir.path()).unwrap().unwrap();
        assert_eq!(seen.not_after, made.leaf_expires);
        assert!(seen.not_before < SystemTime::now());
        for (host, is_for) in [
            ("localhost", true),
            ("LAB", true),
            ("10.0.0.7", true),
            ("[::1]", true),
            ("other", false),
        ] {
            assert_eq!(seen.is_for(host), is_for, "{host}");
        }
        std::fs::write(&seen.path, "no certificate").unwrap();
        assert!(look(dir.path()).is_err());
    }
}
