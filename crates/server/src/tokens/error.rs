//! What can go wrong with a keyring, and why a credential is refused.

use std::path::PathBuf;

use jsonwebtoken::errors::ErrorKind;

use super::{KEY_PREFIX, LOG_URL_LIFETIME_MAX_S, OWNER_KEY_FILE};
use crate::pki::FileError;

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "{} is missing though {OWNER_KEY_FILE} is beside it; restore it from a backup, or remove \
         {OWNER_KEY_FILE} too and start again: that ends all tokens and node credentials",
        path.display()
    )]
    SecretMissing { path: PathBuf },
    #[error(
        "{} does not hold 64 hexadecimal digits; restore it from a backup, or remove it and \
         {OWNER_KEY_FILE} and start again: that ends all tokens and node credentials",
        path.display()
    )]
    SecretDamaged { path: PathBuf },
    #[error(
        "{} does not hold an api key ({KEY_PREFIX} and 64 hexadecimal digits); restore it from a \
         backup, or remove it and start again to have a new key made",
        path.display()
    )]
    OwnerKeyDamaged { path: PathBuf },
    #[error("no tokens are issued for the resource {resource:?}; the known ones are {known}")]
    UnknownResource { resource: String, known: String },
    #[error("the operating system gave no random bytes")]
    Random,
    #[error("cannot sign a token")]
    Sign(#[source] jsonwebtoken::errors::Error),
}

/// Why a token was not taken. Safe to show to the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRejected {
    #[error("no access token was sent; put `Authorization: Bearer <token>` on the request")]
    Missing,
    #[error("the access token is not one of this server's; sign in to this server again")]
    Malformed,
    #[error("the access token's signature is not this server's; sign in to this server again")]
    BadSignature,
    #[error("the access token ended {ago_s} s ago; ask for a new one")]
    Expired { ago_s: u64 },
    #[error("the access token begins in {in_s} s; set the clock of this server right")]
    NotYetValid { in_s: u64 },
    #[error("the api key behind the access token was withdrawn; sign in with the present key")]
    Revoked,
    #[error("the access token is for {got:?}; ask for one with this endpoint's resource")]
    WrongAudience { got: String },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogUrlRejected {
    #[error("the signature of this url does not fit its path and end; ask for the url again")]
    BadSignature,
    #[error("this url ended {ago_s} s ago; ask for the url again")]
    Expired { ago_s: u64 },
    #[error(
        "this url is valid for {left_s} s more, above the limit of {LOG_URL_LIFETIME_MAX_S} s; \
         ask for the url again"
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
