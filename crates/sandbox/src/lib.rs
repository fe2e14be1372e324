//! Sandboxes on this host: what separates a node from the rest of the host, and a job from the rest of its node.
//!
//! * [`helper`] is the only process that may create sandboxes; [`protocol`] defines its requests, and [`link`] is how a
//!   provider sends them;
//! * [`node`] creates a node: its namespaces, its root and its first process;
//! * [`cgroup`] limits a node's cores, memory and processes (v1, v2 and both);
//! * [`network`] gives a node its address, through a hub: a network namespace of our own with a bridge for each
//!   cluster;
//! * [`slirp`] gives a node internet access, if it may have it;
//! * [`job`] runs a job inside a node, with its own processes, files and user;
//! * [`probe`] tests every part of a sandbox once, and leaves nothing behind;
//! * [`private`] keeps other users of the host out of our folders;
//! * [`disk_space`] measures how much of a disk is free, for all crates.
//!
//! Everything here blocks and runs on one thread, because it forks, and a fork of a process with threads may do next to
//! nothing. This crate knows nothing about servers, scheduling or network protocols.

pub mod cgroup;
mod context;
pub mod descriptors;
pub mod disk_space;
pub mod helper;
pub mod identity;
pub mod job;
pub mod link;
pub mod logs;
mod mounts;
pub mod network;
pub mod node;
pub mod private;
pub mod probe;
pub mod protocol;
pub mod slirp;
