//! How long a node may go on unheard, and what follows from it for both sides.
//!
//! One length sets all: whoever shortens the lease shortens with it what the agent keeps of it for stopping, what the
//! controller waits beyond it, and how often they speak. So the order of these never changes: the agent asks its jobs to
//! stop, kills them, its lease ends, the controller gives them to others.

use crate::time::Span;

/// Also what any earlier controller can have promised: a later one waits that long before it gives up what it found.
pub const LEASE_MAX: Span = Span::seconds(60);
/// Below this, what is left for stopping would be less than a busy machine takes for it.
pub const LEASE_MIN: Span = Span::seconds(6);
/// How much longer than the longest lease we wait before we call a node lost: clock drift and its own grace.
const MARGIN: Span = Span::seconds(10);
/// How long a report may wait for news under the longest lease.
const HELD: Span = Span::seconds(10);
/// After how long without a word a machine counts as silent, under the longest lease: before its nodes are lost, so that
/// theirs are not made anew where nobody answers.
const SILENCE: Span = Span::seconds(40);

/// What takes this long under a lease of `whole` takes as much less under a shorter one.
pub(crate) fn share(span: Span, whole: Span, lease: Span) -> Span {
    if lease >= whole { span } else { Span(span.0.saturating_mul(lease.0) / whole.0) }
}

/// How long a node may be silent before it is lost.
pub fn patience(lease: Span) -> Span {
    Span(lease.0 + share(MARGIN, LEASE_MAX, lease).0)
}

/// How long a report may wait for news, so that the next one comes long before the lease ends.
pub fn held(lease: Span) -> Span {
    share(HELD, LEASE_MAX, lease)
}

/// After how long without a word a machine counts as silent.
pub fn silence(lease: Span) -> Span {
    share(SILENCE, LEASE_MAX, lease)
}
