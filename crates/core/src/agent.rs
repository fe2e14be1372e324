//! The node's side of the protocol, as pure data and a pure machine.
//!
//! Agents and the controller exchange whole states, never commands: the agent says what it holds
//! ([`Report`]), the controller says what it should hold ([`Desired`]). A lost, doubled or late message
//! cannot do harm, because the next one says everything again.

mod machine;
mod protocol;
mod services;
mod usage;

pub use machine::*;
pub use protocol::*;
pub use services::*;
pub use usage::*;
