//! Checks that the providers conform, with one module for each.

mod joined;
mod local;
