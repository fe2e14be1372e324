//! Typed IDs. All of them are drawn from one sequence that only increases.
//!
//! A server starts the sequence at `controller_epoch << EPOCH_SHIFT` (see `World::rebuild`), and a controller epoch is
//! at least the wall clock in milliseconds. So no ID is ever drawn twice, not even after an old backup was restored,
//! and a later lease epoch is always larger than an earlier one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One server can draw 2^20 IDs, about a million, per millisecond of its epoch before it would reach the range of a
/// later one. `World` takes the maximum of both, so even that would be safe.
pub const EPOCH_SHIFT: u32 = 20;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{:016x}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                text.strip_prefix($prefix)
                    .filter(|hex| hex.len() == 16)
                    .and_then(|hex| u64::from_str_radix(hex, 16).ok())
                    .map($name)
                    .ok_or(BadId)
            }
        }
    };
}

/// A text that is not an ID of the expected kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id of this kind")]
pub struct BadId;

id!(
    /// A user, a service or a managed identity that can make requests.
    PrincipalId, "p");
id!(WorkspaceId, "w");
id!(ClusterId, "c");
id!(NodeId, "n");
id!(JobId, "j");
id!(
    /// A long-running operation that a client polls.
    OperationId, "o");
id!(
    /// An entry of the outbox, and also the idempotency key of the call that carries it out.
    EffectId, "e");
id!(
    /// The fencing token of one attempt of one job. Later attempts have larger ones.
    Epoch, "a");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_and_refuse_other_kinds() {
        let node = NodeId(0x1234);
        assert_eq!(node.to_string().parse(), Ok(node));
        assert_eq!("j0000000000001234".parse::<NodeId>(), Err(BadId));
        assert_eq!("n1234".parse::<NodeId>(), Err(BadId));
    }
}
