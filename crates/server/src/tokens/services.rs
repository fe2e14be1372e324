//! Links to a service of a job, and the cookie that replaces such a link. Both give one user access to one service,
//! until they expire, and for as long as the key that this user had at the time is valid.

use muster_core::access::Directory;

use super::{Keyring, Principal, same};

/// How long a link is valid; afterwards the user requests another.
pub const LINK_LIFETIME_S: u64 = 60 * 60;
/// The lifetime of a cookie: a working day.
pub const COOKIE_LIFETIME_S: u64 = 12 * 60 * 60;

/// They sign different texts, so that neither passes for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    Link,
    Cookie,
}

impl Pass {
    fn purpose(self) -> &'static str {
        match self {
            Pass::Link => "service-link",
            Pass::Cookie => "service-cookie",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PassRejected {
    #[error(
        "it was not issued by this server for this address and this user, or their key has changed since"
    )]
    Bad,
    #[error("it expired {ago_s} s ago")]
    Expired { ago_s: u64 },
}

impl Keyring {
    /// The signature as hexadecimal digits; `None` if the user has no key.
    pub fn sign_service(
        &self,
        pass: Pass,
        path: &str,
        user: &str,
        until_unix: u64,
        directory: &Directory,
    ) -> Option<String> {
        let key = self.fingerprint_of(user, directory)?;
        Some(self.mac(&[pass.purpose(), &until_unix.to_string(), &key, user, path]))
    }

    /// The principal that it was issued for.
    pub fn check_service(
        &self,
        (pass, path): (Pass, &str),
        (user, until_unix, signature): (&str, u64, &str),
        now_unix: u64,
        directory: &Directory,
    ) -> Result<Principal, PassRejected> {
        let expected = self.sign_service(pass, path, user, until_unix, directory);
        if !expected.is_some_and(|expected| same(expected.as_bytes(), signature.as_bytes())) {
            return Err(PassRejected::Bad);
        }
        if now_unix >= until_unix {
            return Err(PassRejected::Expired { ago_s: now_unix - until_unix });
        }
        let name = match self.is_owner(user) {
            true => self.owner.principal.name.clone(),
            false => {
                let known = directory.user_by_object_id(user).ok_or(PassRejected::Bad)?;
                known.name.to_string()
            }
        };
        Ok(Principal { id: user.to_owned(), name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_for_one_service_one_user_and_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let keyring = super::super::load_or_create(folder.path()).expect("a keyring");
        let directory = Directory::default();
        let owner = keyring.owner.principal.id.clone();
        let (path, until) = ("/services/a1/0/web", 1_000);
        let signature = keyring
            .sign_service(Pass::Link, path, &owner, until, &directory)
            .expect("the owner has a key");
        let check = |pass, path, user: &str, until, now| {
            let shown = (user, until, signature.as_str());
            keyring.check_service((pass, path), shown, now, &directory).map(|found| found.id)
        };
        assert_eq!(check(Pass::Link, path, &owner, until, 999), Ok(owner.clone()));
        let late = PassRejected::Expired { ago_s: 5 };
        assert_eq!(check(Pass::Link, path, &owner, until, 1_005), Err(late));
        for (pass, path, user, until) in [
            (Pass::Cookie, path, owner.as_str(), until),
            (Pass::Link, "/services/a1/0/other", owner.as_str(), until),
            (Pass::Link, path, "other", until),
            (Pass::Link, path, owner.as_str(), until + 1),
        ] {
            assert_eq!(check(pass, path, user, until, 999), Err(PassRejected::Bad));
        }
        assert_eq!(keyring.sign_service(Pass::Link, path, "missing", until, &directory), None);
    }
}
