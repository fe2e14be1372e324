//! Adds to the kernel's errors what was being attempted.

use std::fmt::Display;
use std::io;

/// Describes what could not be done. The kind of the error is kept, so that callers can still match on it.
pub(crate) fn cannot(what: impl Display, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
