//! Walls on this machine: what makes a node a place of its own, and a job a guest in it.
//!
//! * [`helper`] is the one process that may make sandboxes; [`protocol`] is all that it can be asked, and [`link`] how a
//!   provider asks it;
//! * [`node`] makes a node: its namespaces, its root, its first process;
//! * [`cgroup`] keeps a node within its cores, memory and processes (v1, v2 and both);
//! * [`network`] gives a node its address: a hub that is a network namespace of ours, with a bridge for each
//!   cluster;
//! * [`slirp`] gives a node a way out, where it may have one;
//! * [`job`] runs one job inside a node, with its own processes, files and user;
//! * [`probe`] tries every wall once, and leaves nothing behind;
//! * [`private`] keeps other users of the machine out of our folders;
//! * [`disk_space`] says how much of a disk is free, for every crate that asks.
//!
//! Everything here blocks and runs on one thread: it forks, and what is forked from a process with threads may do
//! next to nothing. It knows nothing of servers, schedules and protocols.

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
