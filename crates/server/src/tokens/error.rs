//! The errors of a keyring, and the reasons why a credential is refused.

use std::path::PathBuf;

use jsonwebtoken::errors::ErrorKind;

use super::{KEY_PREFIX, LOG_URL_LIFETIME_MAX_S, OWNER_KEY_FILE};
use crate::pki::FileError;

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "{} is missing although {OWNER_KEY_FILE} exists next to it; restore it from a backup, or remove \
         {OWNER_KEY_FILE} too and start again: that invalidates all tokens and node credentials",
        path.display()
    )]
    SecretMissing { path: PathBuf },
    #[error(
        "{} does not contain 64 hexadecimal digits; restore it from a backup, or remove it and \
         {OWNER_KEY_FILE} and start again: that invalidates all tokens and node credentials",
        path.display()
    )]
    SecretDamaged { path: PathBuf },
    #[error(
        "{} does not contain an API key ({KEY_PREFIX} and 64 hexadecimal digits); restore it from a \
         backup, or remove it and start again to create a new key",
        path.display()
    )]
    OwnerKeyDamaged { path: PathBuf },
    #[error("no tokens are issued for the resource {resource:?}; the known ones are {known}")]
    UnknownResource { resource: String, known: String },
    #[error("the operating system provided no random bytes")]
    Random,
    #[error("cannot sign a token")]
    Sign(#[source] jsonwebtoken::errors::Error),
}

/// Why a token was not accepted. Safe to show to the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRejected {
    #[error("no access token was sent; add `Authorization: Bearer <token>` to the request")]
    Missing,
    #[error("the access token was not issued by this server; sign in to this server again")]
    Malformed,
    #[error(
        "the signature of the access token is not from this server; sign in to this server again"
    )]
    BadSignature,
    #[error("the access token expired {ago_s} s ago; request a new one")]
    Expired { ago_s: u64 },
    #[error("the access token becomes valid in {in_s} s; correct the clock of this server")]
    NotYetValid { in_s: u64 },
    #[error("the API key of the access token was revoked; sign in with the current key")]
    Revoked,
    #[error("the job that the access token was issued to has ended; request a token of your own")]
    AttemptEnded,
    #[error("the access token is for {got:?}; request one for the resource of this endpoint")]
    WrongAudience { got: String },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogUrlRejected {
    #[error("the signature of this URL does not match its path and expiry; request the URL again")]
    BadSignature,
    #[error("this URL expired {ago_s} s ago; request the URL again")]
    Expired { ago_s: u64 },
    #[error(
        "this URL is valid for another {left_s} s, above the limit of {LOG_URL_LIFETIME_MAX_S} s; \
         request the URL again"
    )]
    TooLong { left_s: u64 },
}

impl From<&ErrorKind> for TokenRejected {
    fn from(kind: &ErrorKind) -> TokenRejected {
        match kind {
            ErrorKind::InvalidSignature | ErrorKind::InvalidAlgorithm => {
                TokenRejected::BadSignature
            }
            _ => TokenRejected::Malformed,
        }
    }
}
