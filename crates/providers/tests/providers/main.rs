//! Providers do what every provider must, one module for each.

mod joined;
mod local;
