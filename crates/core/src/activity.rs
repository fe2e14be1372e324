//! The activity log: a request is recorded in the same step as its changes, and so in the same commit.

use crate::change::Change;
use crate::input::{AccessRequest, GovernanceRequest, HostRequest, Input, InputResult};
use crate::model::{
    Activity, ActivityOutcome, ActivityRequest, Caller, Cluster, Lock, Quota, QuotaScope, Record,
    ResourceGroup, Scope, WorkspaceKey,
};
use crate::step::{self, Transaction};
use crate::world::World;

/// Processes a request and records it, unless it changed nothing. Refusals are not recorded here: the layer that
/// refuses a request, or passes on a refusal from core, reports it with `Input::NoteActivity`.
pub(crate) fn take_in(
    tx: &mut Transaction<'_>,
    by: &Caller,
    activity_request: &ActivityRequest,
    input: &Input,
) -> InputResult {
    let (count, before) = (tx.changes.len(), record(tx.world, input).map(Box::new));
    let outer = tx.by.replace(by.clone());
    let answer = step::take_in(tx, input);
    tx.by = outer;
    if answer.is_ok() && tx.changes.len() > count {
        let after = record(tx.world, input).map(Box::new);
        let outcome = ActivityOutcome::Done { before, after };
        let (by, request) = (by.clone(), activity_request.clone());
        let activity = Activity { at: tx.now.wall, by, request, outcome };
        tx.emit(Change::ActivityNoted(Box::new(activity)));
    }
    answer
}

/// The current state of the resource that the input is about.
fn record(world: &World, input: &Input) -> Option<Record> {
    match input {
        Input::PutWorkspace { key, .. }
        | Input::PatchWorkspace { key, .. }
        | Input::DeleteWorkspace { key } => workspace(world, key),
        Input::PutCluster { workspace, name, .. }
        | Input::PatchCluster { workspace, name, .. }
        | Input::DeleteCluster { workspace, name }
        | Input::PowerInstance { workspace, name, .. } => {
            let home = world.workspace(workspace)?;
            world.cluster_by_name(home.id, name).map(compute)
        }
        Input::SetQuota { scope, .. } => quota(world, scope),
        Input::ChangeAccess(request) => access(world, request),
        Input::ChangeGovernance(request) => governance(world, request),
        Input::ChangeHosts(request) => host(world, request),
        // A job's own rows record who submitted it and how it ended,
        Input::SubmitJob(_) | Input::CheckJob(_) | Input::CancelJob { .. } | Input::EditJob(_) => {
            None
        }
        // and a node's events record its eviction.
        Input::EvictNode { .. } => None,
        // The retention of jobs is a setting, not a request.
        Input::RemoveExpired(_) => None,
        // Deployments are not in World; the resources that they create are recorded one by one.
        Input::Deploy(_) | Input::DeleteDeployment { .. } => None,
        // Datastores and assets are not in World either.
        Input::PutDatastore { .. } | Input::DeleteDatastore { .. } => None,
        Input::ChangeAsset(_) => None,
        Input::Asked { .. }
        | Input::NoteActivity(_)
        | Input::Report { .. }
        | Input::SaveTree(_)
        | Input::EffectDone { .. }
        | Input::NodeEvicted { .. }
        | Input::NodeEnded { .. }
        | Input::Tick => None,
    }
}

/// The host without its secret.
fn host(world: &World, request: &HostRequest) -> Option<Record> {
    let name = match request {
        HostRequest::IssueTicket { .. } => return None,
        HostRequest::Join(new) => &new.name,
        HostRequest::Seen { name, .. }
        | HostRequest::Silent { name }
        | HostRequest::SetState { name, .. }
        | HostRequest::Remove { name, .. } => name,
    };
    let found = world.hosts().host(name)?;
    Some(Record::Host {
        name: found.name.clone(),
        capacity: found.capacity,
        intent: found.intent.clone(),
        state: found.state,
    })
}

fn workspace(world: &World, key: &WorkspaceKey) -> Option<Record> {
    let found = world.workspace(key)?;
    Some(Record::Workspace {
        location: found.location.clone(),
        about: found.about.clone(),
        is_deleting: found.deletion.is_some(),
    })
}

/// The compute without the digest of its password: the log is kept for a long time and read by many people.
fn compute(cluster: &Cluster) -> Record {
    let mut spec = Box::new(cluster.spec.clone());
    if let Some(admin) = &mut spec.admin {
        admin.password_digest = None;
    }
    Record::Compute { phase: cluster.phase, spec }
}

fn quota(world: &World, scope: &QuotaScope) -> Option<Record> {
    let limits = world.quota_limits(scope)?.clone();
    Some(Record::Quota(Quota { scope: scope.clone(), limits }))
}

fn access(world: &World, request: &AccessRequest) -> Option<Record> {
    let directory = world.directory();
    match request {
        AccessRequest::CreateUser(new) => user(world, &new.name),
        AccessRequest::SetKey { user: name, .. } | AccessRequest::DeleteUser { user: name } => {
            user(world, name)
        }
        AccessRequest::AssignRole(role) => directory.role(&role.name).cloned().map(Record::Role),
        AccessRequest::RemoveRole { name, .. } => directory.role(name).cloned().map(Record::Role),
    }
}

fn user(world: &World, name: &str) -> Option<Record> {
    let user = world.directory().user(name)?;
    Some(Record::User {
        name: user.name.clone(),
        kind: user.kind,
        key_made_at: user.key.map(|key| key.made_at),
    })
}

fn governance(world: &World, request: &GovernanceRequest) -> Option<Record> {
    let group = |subscription: &str, name: &str| -> Option<ResourceGroup> {
        world.governance().group(subscription, name).map(|group| (**group).clone())
    };
    let lock = |scope: &Scope, name: &str| -> Option<Lock> {
        world.governance().lock(scope, name).map(|lock| (**lock).clone())
    };
    match request {
        GovernanceRequest::PutGroup { subscription, name, .. }
        | GovernanceRequest::DeleteGroup { subscription, name } => {
            group(subscription, name).map(Record::Group)
        }
        GovernanceRequest::PutLock(new) => lock(&new.scope, &new.name).map(Record::Lock),
        GovernanceRequest::DeleteLock { scope, name } => lock(scope, name).map(Record::Lock),
    }
}
