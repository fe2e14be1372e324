//! Addresses of nodes.
