//! Signed URLs: a query that states what its holder may do, where and until when, and a signature over all of it.
//!
//! The form is that of Azure's service SAS, so that Azure's clients accept it unchanged. The signature is Muster's own:
//! it covers every field and the resource, so the holder of one cannot create another.

use muster_core::time::Wall;

use super::{BlobQuery, StorageError};
use crate::path::encode_text;
use crate::timestamp;

/// The value of `sv` in signed URLs from this server. Any value is accepted.
const VERSION: &str = "2023-11-03";
/// The limit for the depth of a folder.
const DEPTH_MAX: usize = 64;

/// Fields that restrict a signed URL in ways that are not checked here. It is safer to refuse them than to ignore them.
const UNKNOWN: [&str; 16] = [
    "si", "sip", "ss", "srt", "ses", "skoid", "sktid", "skt", "ske", "sks", "skv", "saoid",
    "suoid", "scid", "rscd", "rsct",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    Read,
    Write,
    Create,
    Delete,
    List,
}

impl Right {
    fn letter(self) -> char {
        match self {
            Right::Read => 'r',
            Right::Write => 'w',
            Right::Create => 'c',
            Right::Delete => 'd',
            Right::List => 'l',
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::Create => "create",
            Right::Delete => "delete",
            Right::List => "list",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SasScope {
    Container,
    Blob,
    /// Everything in a folder, which is at this depth.
    Folder {
        depth: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sas {
    pub scope: SasScope,
    rights: String,
    starts: Option<Wall>,
    expires: Wall,
    /// The fields as they were written, because the signature covers their text.
    version: String,
    starts_text: String,
    expires_text: String,
    protocol: String,
    pub signature: String,
}

impl Sas {
    /// A signed URL that has no signature yet.
    pub fn new(scope: SasScope, rights: &[Right], expires: Wall) -> Sas {
        let expires = Wall(expires.0 / 1_000_000 * 1_000_000);
        Sas {
            scope,
            rights: rights.iter().map(|right| right.letter()).collect(),
            starts: None,
            expires,
            version: VERSION.to_owned(),
            starts_text: String::new(),
            expires_text: timestamp::format(expires),
            protocol: "https".to_owned(),
            signature: String::new(),
        }
    }

    /// The signed URL in a query, if there is one.
    pub fn of(query: &BlobQuery) -> Result<Option<Sas>, StorageError> {
        let Some(signature) = query.get("sig") else { return Ok(None) };
        let bad = |what: &str| {
            StorageError::authentication_failed(format!("the signed URL is refused: {what}"))
        };
        if let Some(unknown) = UNKNOWN.into_iter().find(|key| query.get(key).is_some()) {
            return Err(bad(&format!(
                "'{unknown}' is not supported; request another URL without it"
            )));
        }
        let text = |key: &str| query.get(key).unwrap_or_default().to_owned();
        let scope = match (query.get("sr"), query.get("sdd")) {
            (Some("c"), None) => SasScope::Container,
            (Some("b"), None) => SasScope::Blob,
            (Some("d"), Some(depth)) => {
                let depth = depth.parse().ok().filter(|depth| (1..=DEPTH_MAX).contains(depth));
                SasScope::Folder { depth: depth.ok_or_else(|| bad("'sdd' is not a depth"))? }
            }
            _ => return Err(bad("'sr' must be c or b, or d with 'sdd'")),
        };
        let (starts_text, expires_text) = (text("st"), text("se"));
        let starts = match starts_text.as_str() {
            "" => None,
            text => Some(timestamp::parse(text).ok_or_else(|| bad("'st' is not a time"))?),
        };
        let expires = timestamp::parse(&expires_text).ok_or_else(|| bad("'se' is not a time"))?;
        let (version, protocol) = (text("sv"), text("spr"));
        if !matches!(protocol.as_str(), "" | "https" | "https,http") {
            return Err(bad("'spr' must be https"));
        }
        Ok(Some(Sas {
            scope,
            rights: text("sp"),
            starts,
            expires,
            version,
            starts_text,
            expires_text,
            protocol,
            signature: signature.to_owned(),
        }))
    }

    /// The text that the signature covers, or `None` if this signed URL cannot apply to the blob or, without a name, to
    /// names that start with `prefix`. A field with a line break is refused, so that it cannot pass for two fields.
    pub fn signed_text(&self, container: &str, name: Option<&str>, prefix: &str) -> Option<String> {
        let place = match (self.scope, name) {
            (SasScope::Container, _) => "",
            (SasScope::Blob, Some(name)) => name,
            (SasScope::Blob, None) => return None,
            (SasScope::Folder { depth }, name) => folder(name.unwrap_or(prefix), depth)?,
        };
        let (letter, depth) = match self.scope {
            SasScope::Container => ("c", 0),
            SasScope::Blob => ("b", 0),
            SasScope::Folder { depth } => ("d", depth),
        };
        let fields = [
            letter,
            &depth.to_string(),
            &self.rights,
            &self.starts_text,
            &self.expires_text,
            &self.protocol,
            &self.version,
            container,
        ];
        if fields.iter().any(|field| field.contains('\n')) {
            return None;
        }
        Some(format!("{}\n{place}", fields.join("\n")))
    }

    pub fn allows(&self, right: Right) -> bool {
        self.rights.contains(right.letter())
    }

    /// Whether it is valid now. The error says when it expired or when it will become valid.
    pub fn is_in_time(&self, now: Wall) -> Result<(), StorageError> {
        if now >= self.expires {
            let message =
                format!("the signed URL expired at {}; request another one", self.expires_text);
            return Err(StorageError::authentication_failed(message));
        }
        if self.starts.is_some_and(|starts| now < starts) {
            let message = format!("the signed URL is valid from {} on", self.starts_text);
            return Err(StorageError::authentication_failed(message));
        }
        Ok(())
    }

    /// The query of the signed URL.
    pub fn to_query(&self) -> String {
        let (letter, depth) = match self.scope {
            SasScope::Container => ("c", None),
            SasScope::Blob => ("b", None),
            SasScope::Folder { depth } => ("d", Some(depth)),
        };
        let mut query = format!("sv={}&sr={letter}", encode_text(&self.version));
        if let Some(depth) = depth {
            query.push_str(&format!("&sdd={depth}"));
        }
        for (key, value) in [
            ("sp", &self.rights),
            ("st", &self.starts_text),
            ("se", &self.expires_text),
            ("spr", &self.protocol),
            ("sig", &self.signature),
        ] {
            if !value.is_empty() || key == "sig" {
                query.push_str(&format!("&{key}={}", encode_text(value)));
            }
        }
        query
    }
}

/// The folder at this depth that a name is in. A name that merely starts with the same text is not in the folder.
fn folder(name: &str, depth: usize) -> Option<&str> {
    let (end, _) = name.match_indices('/').nth(depth - 1)?;
    Some(&name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(sas: &Sas) -> Sas {
        Sas::of(&BlobQuery::parse(&sas.to_query()).unwrap()).unwrap().unwrap()
    }

    #[test]
    fn one_reads_back_as_it_was_made() {
        for scope in [SasScope::Container, SasScope::Blob, SasScope::Folder { depth: 2 }] {
            let mut sas = Sas::new(scope, &[Right::Read, Right::List], Wall(1_794_772_332_345_922));
            sas.signature = "a+b/c=".to_owned();
            assert_eq!(again(&sas), sas);
            assert!(sas.allows(Right::Read) && !sas.allows(Right::Write));
        }
    }

    #[test]
    fn a_folder_is_what_is_below_it() {
        let sas = Sas::new(SasScope::Folder { depth: 2 }, &[Right::Read], Wall(1));
        let text = |name| sas.signed_text("abc", Some(name), "");
        assert_eq!(text("a/b/c"), text("a/b/d/e"));
        assert_eq!(text("a/b/c"), sas.signed_text("abc", None, "a/b/"));
        assert_ne!(text("a/b/c"), text("a/bb/c"));
        assert_eq!(
            (text("a/b"), text("a"), sas.signed_text("abc", None, "a/b")),
            (None, None, None)
        );
        assert_ne!(text("a/b/c"), sas.signed_text("xyz", Some("a/b/c"), ""));
        let blob = Sas::new(SasScope::Blob, &[Right::Read], Wall(1));
        assert_eq!(
            blob.signed_text("abc", None, ""),
            None,
            "a signed URL for a blob does not allow listing"
        );
        assert_ne!(blob.signed_text("abc", Some("x"), ""), blob.signed_text("abc", Some("y"), ""));
    }

    #[test]
    fn what_is_not_checked_is_refused() {
        let of = |query: &str| Sas::of(&BlobQuery::parse(query).unwrap());
        let good = "sv=2023-11-03&sr=c&sp=r&se=2026-11-15T19:52:12Z&sig=x";
        assert!(of(good).unwrap().is_some());
        assert_eq!(of("comp=list"), Ok(None));
        for more in ["sip=1.2.3.4", "si=policy", "sdd=1", "skoid=x", "spr=ftp", "st=soon"] {
            assert!(of(&format!("{good}&{more}")).is_err(), "{more}");
        }
        for bad in ["sig=x", "sr=c&sig=x", "sr=d&sdd=0&se=2026-11-15T19:52:12Z&sig=x"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn it_holds_until_it_expires() {
        let sas = Sas::new(SasScope::Container, &[Right::Read], Wall(5_000_000));
        assert!(sas.is_in_time(Wall(4_999_999)).is_ok());
        assert!(sas.is_in_time(Wall(5_000_000)).is_err());
        let later = "sr=c&sp=r&st=2026-11-15T19:52:12Z&se=2026-11-16T19:52:12Z&sig=x";
        let later = Sas::of(&BlobQuery::parse(later).unwrap()).unwrap().unwrap();
        assert!(later.is_in_time(Wall(1_794_772_331_999_999)).is_err());
        assert!(later.is_in_time(Wall(1_794_772_332_000_000)).is_ok());
    }
}
