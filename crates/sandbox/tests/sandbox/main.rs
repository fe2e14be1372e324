//! Tests of sandboxed jobs, as the current user and as others: see `others`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod ends;
mod harness;
mod isolation;
mod others;
