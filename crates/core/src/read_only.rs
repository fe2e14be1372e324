//! What a controller answers while its store takes no writes (a full disk, a file system that became read-only).
//!
//! Nothing is taken in and nothing is decided then. But nodes must not lose their leases because of our disk: what they run
//! would be given to others later, and run twice. So the nodes that World knows are told what they were told before, and
//! keep what they have. What they report of it they report again when it can be written down.

use crate::agent::{Desired, Report};
use crate::input::Reply;
use crate::model::NodePhase;
use crate::observations::{desired_for, is_given_up};
use crate::time::Now;
use crate::world::World;

/// Renews the lease of a node and says what it should hold, from a World that is what the rows say. `None` for a report
/// that would change something before it could be answered: of a node that joins, that booted again, or that is to go.
pub fn renew(world: &mut World, name: &str, report: &Report, now: Now) -> Option<Reply> {
    let node = world.node_by_name(name)?;
    let is_here = match node.phase() {
        NodePhase::Idle | NodePhase::Leased => true,
        NodePhase::Requested
        | NodePhase::Booting
        | NodePhase::Unusable
        | NodePhase::Leaving
        | NodePhase::Gone => false,
    };
    if !is_here || *node.boot_id != *report.boot_id || is_given_up(world, node) {
        return None;
    }
    let id = node.id;
    world.volatile.renew(id, now.elapsed);
    // Nothing is acknowledged: what has ended is not on disk yet.
    Some(Reply::Desired(Box::new(Desired { acknowledged: Vec::new(), ..desired_for(world, id) })))
}
