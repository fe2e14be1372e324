//! What was tried, beside what the kernel said about it.

use std::fmt::Display;
use std::io;

/// Says what could not be done; the kind of the error stays, so that callers can still tell them apart.
pub(crate) fn cannot(what: impl Display, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
