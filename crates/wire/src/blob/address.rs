//! The container and the blob that a path refers to.
//!
//! Clients build `/ACCOUNT.blob.SUFFIX/CONTAINER/NAME` from an account, and `/CONTAINER/NAME` from that URL and a path.
//! No container has a dot in its name, so the two forms cannot be confused.

use super::StorageError;
use super::query::decode;

/// In characters, as Azure counts.
pub const NAME_CHARS_MAX: usize = 1_024;

/// The longest name in four-byte characters, with every byte percent-encoded, and an account.
const PATH_BYTES_MAX: usize = 16 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub container: Box<str>,
    /// `None` for the container itself.
    pub blob: Option<Box<str>>,
}

impl Address {
    pub fn parse(path: &str) -> Result<Address, StorageError> {
        if path.len() > PATH_BYTES_MAX {
            let message =
                format!("the path has {} bytes; at most {PATH_BYTES_MAX} are allowed", path.len());
            return Err(StorageError::invalid_uri(message));
        }
        let rest = path.strip_prefix('/').unwrap_or(path);
        let (first, behind) = rest.split_once('/').unwrap_or((rest, ""));
        let rest = if is_account(first) { behind } else { rest };
        let (container, name) = match rest.split_once('/') {
            Some((container, name)) => (container, Some(name)),
            None => (rest, None),
        };
        // No container can have such a name, so the answer is the usual one for a missing container.
        if !is_container_name(container) {
            return Err(StorageError::no_container());
        }
        let name = name.filter(|name| !name.is_empty()).map(decode).transpose()?;
        if let Some(name) = &name {
            let characters = name.chars().count();
            if characters > NAME_CHARS_MAX {
                return Err(StorageError::invalid_name(characters));
            }
        }
        Ok(Address { container: container.into(), blob: name.map(Into::into) })
    }
}

fn is_account(segment: &str) -> bool {
    segment
        .split_once(".blob.")
        .is_some_and(|(account, suffix)| !account.is_empty() && !suffix.is_empty())
}

/// Whether the name is 3 to 63 lower-case letters, digits and single hyphens between them.
pub fn is_container_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (3..=63).contains(&name.len())
        && name.split('-').all(|part| !part.is_empty() && part.bytes().all(is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> (String, Option<String>) {
        let address = Address::parse(path).unwrap();
        (address.container.into(), address.blob.map(Into::into))
    }

    #[test]
    fn both_forms_lead_to_the_same_blob() {
        for path in ["/acct.blob.muster.internal/store-1/a/b.txt", "/store-1/a/b.txt"] {
            assert_eq!(at(path), ("store-1".into(), Some("a/b.txt".into())), "{path}");
        }
        for path in ["/acct.blob.x/store-1", "/store-1", "/store-1/"] {
            assert_eq!(at(path), ("store-1".into(), None), "{path}");
        }
    }

    #[test]
    fn a_name_is_decoded_once_and_otherwise_left_alone() {
        for (path, name) in [
            ("/abc/../../etc/passwd", "../../etc/passwd"),
            ("/abc//x", "/x"),
            ("/abc/a//b/", "a//b/"),
            ("/abc/a%2Fb%252e", "a/b%2e"),
            ("/abc/%C3%BC%00%0A", "ü\0\n"),
            ("/abc/x.blob.y/z", "x.blob.y/z"),
            ("/abc/a+b", "a+b"),
        ] {
            assert_eq!(at(path), ("abc".into(), Some(name.into())), "{path}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let code = |path: &str| Address::parse(path).unwrap_err().code;
        for path in ["", "/", "/ab", "/A-B", "/a--b", "/-ab", "/a.blob.b", "/a%62c/x", "/a_b/c"] {
            assert_eq!(code(path), "ContainerNotFound", "{path}");
        }
        assert_eq!(code("/abc/%ff"), "InvalidUri");
        assert_eq!(code("/abc/%2"), "InvalidUri");
        assert_eq!(code(&format!("/abc/{}", "a".repeat(1_025))), "InvalidResourceName");
        assert_eq!(code(&format!("/abc/{}", "a".repeat(PATH_BYTES_MAX))), "InvalidUri");
        assert!(Address::parse(&format!("/abc/{}", "%F0%9F%A6%80".repeat(1_024))).is_ok());
    }
}
