//! What the server answers while its store cannot be written to (a full disk, or a file system that became read-only).
//!
//! During this time nothing is accepted and nothing is decided. But nodes must not lose their leases because of the
//! server's disk: their jobs would later be given to other nodes, and run twice. So the nodes that World knows get the
//! same answer as before and keep their jobs. What they report now, they report again once it can be stored.

use std::fmt;

use crate::agent::{Desired, Report};
use crate::input::{
    AccessRequest, AssetAction, GovernanceRequest, HostRequest, Input, JobAction, Reply,
};
use crate::model::{HostState, NodePhase, Power};
use crate::observations::{desired_for, is_given_up};
use crate::time::Now;
use crate::world::World;

/// Renews the lease of a node and returns what it should hold, from a World that matches the rows. `None` if the report
/// would have to change something before it could be answered: the node has just started, was rebooted, or is to be
/// deleted.
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
    // Nothing is acknowledged, because the endings are not on disk yet.
    Some(Reply::Desired(Box::new(Desired { acknowledged: Vec::new(), ..desired_for(world, id) })))
}

/// Why the store cannot accept new work. While this lasts, no job is started and no node is created, because the
/// remaining space is needed for what is running already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreTrouble {
    /// Its disk is full: it uses its reserve, or cannot write at all.
    ShortOfSpace { free_bytes: u64, needed_bytes: u64 },
    /// Its file system became read-only.
    ReadOnly,
    /// It cannot be written to for another reason.
    Failing,
}

impl StoreTrouble {
    /// Every kind, without figures.
    pub const KINDS: [StoreTrouble; 3] = [
        StoreTrouble::ShortOfSpace { free_bytes: 0, needed_bytes: 0 },
        StoreTrouble::ReadOnly,
        StoreTrouble::Failing,
    ];

    /// The kind with this code, without figures. `None` if there is none.
    pub fn of_code(code: &str) -> Option<StoreTrouble> {
        StoreTrouble::KINDS.into_iter().find(|kind| kind.code() == code)
    }

    /// A stable code for programs.
    pub fn code(self) -> &'static str {
        match self {
            StoreTrouble::ShortOfSpace { .. } => "StoreShortOfSpace",
            StoreTrouble::ReadOnly => "StoreReadOnly",
            StoreTrouble::Failing => "StoreFailing",
        }
    }

    /// The problem and its remedy.
    pub fn words(self) -> String {
        format!("{self}; {}", self.advice())
    }

    /// The same as [`StoreTrouble::words`] if the figures are unknown.
    pub fn words_without_figures(self) -> String {
        match self {
            StoreTrouble::ShortOfSpace { .. } => format!(
                "the server's disk is full, and nothing new is started until there is space again; {}",
                self.advice()
            ),
            StoreTrouble::ReadOnly | StoreTrouble::Failing => self.words(),
        }
    }

    pub(crate) fn advice(self) -> &'static str {
        match self {
            StoreTrouble::ShortOfSpace { .. } => {
                "delete data that is not needed, or free space on it"
            }
            StoreTrouble::ReadOnly => {
                "see the kernel's log for the reason (`dmesg`), repair the disk if it has errors, and mount it \
                 again with write access"
            }
            StoreTrouble::Failing => "see the server's log for the reason",
        }
    }
}

/// Writes the problem without its remedy.
impl fmt::Display for StoreTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreTrouble::ShortOfSpace { free_bytes, needed_bytes } => write!(
                f,
                "the server's disk is full: {} MiB are free, and nothing new is started until {} MiB are free",
                free_bytes >> 20,
                mib_up(*needed_bytes)
            ),
            StoreTrouble::ReadOnly => f.write_str(
                "the server's file system is read-only, so it cannot write to its store, and nothing new is started",
            ),
            StoreTrouble::Failing => {
                f.write_str("the server cannot write to its store, and nothing new is started")
            }
        }
    }
}

/// Bytes in MiB, rounded up, so that the space that is needed never looks equal to the space that is free.
pub(crate) fn mib_up(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// Whether a store that uses its reserve (see the server's `reserve`) accepts this input: only if it ends something,
/// frees space, or reports what has happened. Everything else would grow the store and use up the space that these
/// need.
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
        | Input::RemoveExpired(_)
        | Input::DeleteDeployment { .. }
        | Input::DeleteDatastore { .. }
        | Input::Tick
        // It changes nothing.
        | Input::CheckJob(_) => true,
        Input::NoteActivity(_)
        | Input::PutWorkspace { .. }
        | Input::PatchWorkspace { .. }
        | Input::PutCluster { .. }
        | Input::PatchCluster { .. }
        | Input::SubmitJob(_)
        | Input::SetQuota { .. }
        | Input::PutDatastore { .. } => false,
        Input::PowerInstance { power, .. } => *power == Power::Stop,
        Input::EditJob(edit) => edit.action == JobAction::Delete,
        Input::ChangeAccess(request) => match **request {
            AccessRequest::SetKey { ref digest, .. } => digest.is_none(),
            AccessRequest::DeleteUser { .. } | AccessRequest::RemoveRole { .. } => true,
            AccessRequest::CreateUser(_) | AccessRequest::AssignRole(_) => false,
        },
        Input::ChangeGovernance(request) => match **request {
            GovernanceRequest::DeleteGroup { .. } | GovernanceRequest::DeleteLock { .. } => true,
            GovernanceRequest::PutGroup { .. } | GovernanceRequest::PutLock(_) => false,
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
        Input::ChangeAsset(request) => match request.action {
            AssetAction::Delete { .. } | AssetAction::DeleteContainer => true,
            AssetAction::Put { .. } | AssetAction::PutContainer { .. } => false,
        },
    }
}
