//! The node's side of the protocol, as pure data and a pure state machine.
//!
//! Agents and the server exchange whole states, never commands: the agent reports what it holds ([`Report`]), and
//! the server answers with what it should hold ([`Desired`]). A lost, repeated or late message does no harm, because
//! the next one carries the whole state again.

mod calls;
mod machine;
mod protocol;
mod services;
mod usage;

pub use calls::*;
pub use machine::*;
pub use protocol::*;
pub use services::*;
pub use usage::*;
