//! What a controller answers while its store takes no writes (a full disk, a file system that became read-only).
//!
//! Nothing is taken in and nothing is decided then. But nodes must not lose their leases because of our disk: what they run
//! would be given to others later, and run twice. So the nodes that World knows are told what they were told before, and
//! keep what they have. What they report of it they report again when it can be written down.

use crate::agent::{Desired, Report};
use crate::input::{AccessRequest, AssetWish, EstateRequest, HostRequest, Input, JobWish, Reply};
use crate::model::{HostState, NodePhase, Power};
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

/// Whether a store that lives on its reserve (see the server's `reserve`) takes this: only what ends things, frees space,
/// or reports what has happened. Everything else grows the store, and would use up what the rest needs.
pub fn is_taken_on_reserve(input: &Input) -> bool {
    match input {
        Input::Asked { input, .. } => is_taken_on_reserve(input),
        Input::DeleteWorkspace { .. }
        | Input::DeleteCluster { .. }
        | Input::CancelJob { .. }
        | Input::Report { .. }
        | Input::SaveTree(_)
        | Input::EffectDone { .. }
        | Input::NodeEvicted { .. }
        | Input::NodeEnded { .. }
        | Input::EvictNode { .. }
        | Input::DeleteDeployment { .. }
        | Input::DeleteDatastore { .. }
        | Input::Tick
        // It changes nothing.
        | Input::CheckJob(_) => true,
        Input::NoteRefusal(_)
        | Input::PutWorkspace { .. }
        | Input::PatchWorkspace { .. }
        | Input::PutCluster { .. }
        | Input::PatchCluster { .. }
        | Input::SubmitJob(_)
        | Input::SetQuota { .. }
        | Input::PutDatastore { .. } => false,
        Input::PowerInstance { power, .. } => *power == Power::Stop,
        Input::EditJob(edit) => edit.wish == JobWish::Delete,
        Input::ChangeAccess(request) => match **request {
            AccessRequest::SetKey { ref digest, .. } => digest.is_none(),
            AccessRequest::DeleteUser { .. } | AccessRequest::RemoveRole { .. } => true,
            AccessRequest::CreateUser(_) | AccessRequest::AssignRole(_) => false,
        },
        Input::ChangeEstate(request) => match **request {
            EstateRequest::DeleteGroup { .. } | EstateRequest::DeleteLock { .. } => true,
            EstateRequest::PutGroup { .. } | EstateRequest::PutLock(_) => false,
        },
        Input::ChangeHosts(request) => match **request {
            HostRequest::Seen { .. } | HostRequest::Silent { .. } | HostRequest::Remove { .. } => {
                true
            }
            HostRequest::SetState { state, .. } => state != HostState::Open,
            HostRequest::IssueTicket { .. } | HostRequest::Join(_) => false,
        },
        // A trial changes nothing.
        Input::Deploy(request) => request.is_trial,
        Input::ChangeAsset(request) => match request.wish {
            AssetWish::Delete { .. } | AssetWish::DeleteContainer => true,
            AssetWish::Put { .. } | AssetWish::PutContainer { .. } => false,
        },
    }
}
