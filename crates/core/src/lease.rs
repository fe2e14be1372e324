//! How long a node may run jobs without contact to the server, and what follows from it for both sides.
//!
//! The length of the lease determines all other times. A shorter lease also shortens the part of it that the agent
//! reserves for stopping jobs, the time that the server waits beyond it, and the interval of the reports. So their
//! order never changes: the agent asks its jobs to stop, kills them, its lease ends, and the server gives the jobs to
//! other nodes.

use crate::time::Span;

/// Also the longest lease that an earlier server can have granted: a new server waits that long before it gives up
/// nodes.
pub const LEASE_MAX: Span = Span::seconds(60);
/// With a shorter lease, there would be less time for stopping jobs than a busy host needs.
pub const LEASE_MIN: Span = Span::seconds(6);
/// How much longer than the longest lease the server waits before a node counts as lost: for clock drift and the
/// agent's own grace period.
const MARGIN: Span = Span::seconds(10);
/// How long the server may hold a report until it has news, under the longest lease.
const HELD: Span = Span::seconds(10);
/// How long a joined host may be silent under the longest lease. It is less than the time after which its nodes are
/// lost, so that their replacements are not created on the same silent host.
const SILENCE: Span = Span::seconds(40);

/// Scales a span that is meant for a lease of `whole` to a shorter lease.
pub(crate) fn share(span: Span, whole: Span, lease: Span) -> Span {
    if lease >= whole { span } else { Span(span.0.saturating_mul(lease.0) / whole.0) }
}

/// How long a node may be silent before it counts as lost.
pub fn patience(lease: Span) -> Span {
    Span(lease.0 + share(MARGIN, LEASE_MAX, lease).0)
}

/// How long the server may hold a report until it has news, so that the next one arrives long before the lease ends.
pub fn held(lease: Span) -> Span {
    share(HELD, LEASE_MAX, lease)
}

/// How long a joined host may be silent before it counts as such.
pub fn silence(lease: Span) -> Span {
    share(SILENCE, LEASE_MAX, lease)
}
