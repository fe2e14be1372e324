//! The inputs of the core, and its answers to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::agent::{Desired, Report};
pub use crate::cluster_properties::ClusterPatch;
use crate::ids::{EffectId, Epoch, JobId, OperationId};
use crate::model::{
    Activity, ActivityRequest, Asset, AssetContainer, AssetKind, AssetSpec, Caller, Capacity,
    Cluster, ContainerSpec, Datastore, DatastoreSpec, Deployment, Host, HostName, HostState, Job,
    JobMetadata, JobSpec, JoinTokenRecord, KeyDigest, LeftOut, Lock, LockLevel, Power, Quota,
    QuotaName, QuotaScope, QuotaVerdict, Record, ResourceGroup, RoleAssignment, Scope, SpecHash,
    TreeId, User, UserKind, Workspace, WorkspaceKey,
};
pub use crate::refusal::{RefusalKind, Refused};
use crate::time::Span;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A request by an authenticated caller. If it changes anything, it is recorded in the activity log.
    Asked {
        by: Caller,
        activity_request: Box<ActivityRequest>,
        input: Box<Input>,
    },
    /// A request to be recorded in the activity log that was refused, or carried out without the core.
    NoteActivity(Box<Activity>),
    PutWorkspace {
        key: WorkspaceKey,
        wanted: Box<WorkspacePatch>,
        by: Caller,
    },
    /// Changes an existing workspace.
    PatchWorkspace {
        key: WorkspaceKey,
        wanted: Box<WorkspacePatch>,
    },
    DeleteWorkspace {
        key: WorkspaceKey,
    },
    PutCluster {
        workspace: WorkspaceKey,
        name: String,
        wanted: Box<ClusterPatch>,
        by: Caller,
    },
    /// Changes an existing cluster. Unlike a put, it refuses values that cannot be changed instead of ignoring them.
    PatchCluster {
        workspace: WorkspaceKey,
        name: String,
        wanted: Box<ClusterPatch>,
    },
    DeleteCluster {
        workspace: WorkspaceKey,
        name: String,
    },
    /// Starts, stops or restarts an instance.
    PowerInstance {
        workspace: WorkspaceKey,
        name: String,
        power: Power,
    },
    SubmitJob(Box<JobRequest>),
    /// Checks whether a job would be accepted, and changes nothing.
    CheckJob(Box<JobRequest>),
    CancelJob {
        workspace: WorkspaceKey,
        name: String,
        known: Option<Box<KnownJob>>,
    },
    /// Changes the metadata of a job, archives it, or deletes one that has ended.
    EditJob(Box<JobEdit>),
    /// The server proposes to remove jobs that ended longer ago than they are kept.
    RemoveExpired(Box<ExpiredJobs>),
    Report {
        node: String,
        report: Report,
    },
    /// A node has uploaded the files that its member of an attempt passes on to the next one. All of them are on disk.
    SaveTree(Box<SaveRequest>),
    /// A provider carried out an effect from the outbox, or failed to. A delete is reported only once it succeeded;
    /// until then the outbox retries it.
    EffectDone {
        effect: EffectId,
        result: Result<(), String>,
    },
    /// The provider evicts this low-priority node.
    NodeEvicted {
        node: String,
    },
    /// The provider found that all processes of this node have ended although that was not requested.
    NodeEnded {
        node: String,
    },
    /// A user rehearses an eviction: a low-priority node is evicted, with notice.
    EvictNode {
        workspace: WorkspaceKey,
        cluster: String,
        node: String,
    },
    /// Sets limits for a region; `None` removes one. Limits that are not named are kept.
    SetQuota {
        scope: QuotaScope,
        limits: BTreeMap<QuotaName, Option<u64>>,
    },
    /// Changes users, keys and roles.
    ChangeAccess(Box<AccessRequest>),
    /// Changes resource groups and locks.
    ChangeGovernance(Box<GovernanceRequest>),
    /// Changes hosts and join tokens.
    ChangeHosts(Box<HostRequest>),
    /// Deploys a template, or only checks what that would do.
    Deploy(Box<DeployRequest>),
    /// Deletes the record of a deployment. The resources that it created are kept.
    DeleteDeployment {
        group: Scope,
        name: Box<str>,
    },
    /// Creates or replaces a datastore.
    PutDatastore {
        workspace: WorkspaceKey,
        name: Box<str>,
        wanted: Box<DatastoreSpec>,
        by: Caller,
    },
    DeleteDatastore {
        workspace: WorkspaceKey,
        name: Box<str>,
    },
    /// Creates, changes or deletes an asset.
    ChangeAsset(Box<AssetRequest>),
    /// Only time has passed.
    Tick,
}

impl Input {
    /// A request for a workspace without tags or other properties.
    pub fn workspace(key: WorkspaceKey, location: &str, by: Caller) -> Input {
        let wanted = WorkspacePatch { location: Some(location.into()), ..Default::default() };
        Input::PutWorkspace { key, wanted: Box::new(wanted), by }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssetRequest {
    pub workspace: WorkspaceKey,
    pub kind: AssetKind,
    pub name: Box<str>,
    pub action: AssetAction,
    pub by: Caller,
    /// What the rows show, filled in by the layer that can read them.
    pub known: KnownAsset,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssetAction {
    /// Creates a version, or changes its description and tags. Unless stated, it remains archived or not as it was.
    Put {
        version: Box<str>,
        wanted: AssetSpec,
        is_archived: Option<bool>,
    },
    /// The same for the container, that is for the name.
    PutContainer {
        wanted: ContainerSpec,
        is_archived: Option<bool>,
    },
    Delete {
        version: Box<str>,
    },
    /// Deletes the name with all its versions.
    DeleteContainer,
}

impl AssetAction {
    /// The version that the action is about.
    pub fn version(&self) -> Option<&str> {
        match self {
            AssetAction::Put { version, .. } | AssetAction::Delete { version } => Some(version),
            AssetAction::PutContainer { .. } | AssetAction::DeleteContainer => None,
        }
    }
}

/// What exists of an asset before it is changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownAsset {
    pub asset: Option<Asset>,
    pub container: Option<AssetContainer>,
}

/// The desired properties of a workspace. `None` keeps the current value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspacePatch {
    /// Required for a new workspace; it cannot be changed later.
    pub location: Option<Box<str>>,
    pub friendly_name: Option<Box<str>>,
    pub description: Option<Box<str>>,
    pub tags: Option<BTreeMap<String, String>>,
    /// The JSON text that the client sent.
    pub managed_network: Option<Box<str>>,
    /// The names of requested properties that have no effect in Muster.
    pub ignored: BTreeSet<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GovernanceRequest {
    /// Creates a group if a location is given, or changes an existing one.
    PutGroup {
        subscription: Box<str>,
        name: Box<str>,
        wanted: GroupPatch,
    },
    /// Deletes a group with everything in it.
    DeleteGroup {
        subscription: Box<str>,
        name: Box<str>,
    },
    PutLock(NewLock),
    DeleteLock {
        scope: Scope,
        name: Box<str>,
    },
}

/// The desired properties of a group. `None` keeps the current value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupPatch {
    pub location: Option<Box<str>>,
    pub tags: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLock {
    pub name: Box<str>,
    pub scope: Scope,
    pub level: LockLevel,
    pub notes: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostRequest {
    /// Creates a join token: a host that presents the secret with this digest in time may join, once.
    IssueTicket {
        digest: KeyDigest,
        intent: Scope,
        host: Option<HostName>,
        good_for: Span,
    },
    Join(NewHost),
    /// A host reported its capacity.
    Seen {
        name: HostName,
        capacity: Capacity,
    },
    /// A host has not reported for too long.
    Silent {
        name: HostName,
    },
    /// Opens, cordons or drains a host.
    SetState {
        name: HostName,
        state: HostState,
    },
    /// Removes a host. Refused while it has nodes, unless the jobs on them may be given up.
    Remove {
        name: HostName,
        is_forced: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewHost {
    pub ticket: KeyDigest,
    pub name: HostName,
    pub capacity: Capacity,
    /// The digest of a key that the host generated itself.
    pub key: KeyDigest,
}

/// A parsed template: the resources that it creates, in order, and what is recorded about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeployRequest {
    pub subscription: Box<str>,
    pub resource_group: Box<str>,
    pub name: Box<str>,
    pub by: Caller,
    pub correlation: Box<str>,
    pub template_hash: Box<str>,
    pub steps: Vec<DeployStep>,
    pub left_out: Vec<LeftOut>,
    pub outputs: Option<Box<str>>,
    /// Whether to answer as if it were deployed, but change nothing.
    pub is_trial: bool,
}

/// How a deployment would change one resource. Resources that would not change are not listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreseen {
    /// The resource ID in Azure's form.
    pub resource: Box<str>,
    /// `None` if the resource does not exist yet.
    pub before: Option<Record>,
    pub after: Option<Record>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeployStep {
    /// How the activity log names the request.
    pub activity_request: ActivityRequest,
    pub what: DeployWhat,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeployWhat {
    Workspace { key: WorkspaceKey, wanted: Box<WorkspacePatch> },
    Compute { workspace: WorkspaceKey, name: Box<str>, wanted: Box<ClusterPatch> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessRequest {
    CreateUser(NewUser),
    /// Replaces the key; `None` leaves the user without one.
    SetKey {
        user: Box<str>,
        digest: Option<KeyDigest>,
    },
    /// Deletes a user with all role assignments.
    DeleteUser {
        user: Box<str>,
    },
    AssignRole(RoleAssignment),
    /// Removes a role at exactly this scope: managing a scope does not include removing roles above it.
    RemoveRole {
        name: Box<str>,
        scope: Scope,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUser {
    pub name: Box<str>,
    pub kind: UserKind,
    pub object_id: Box<str>,
    pub digest: KeyDigest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRequest {
    pub workspace: WorkspaceKey,
    pub name: String,
    pub spec: Arc<JobSpec>,
    pub spec_hash: SpecHash,
    pub by: Caller,
    /// For an existing job: archives it or restores it. `None` changes neither.
    pub is_archived: Option<bool>,
    /// The job with this name in the rows, live or finished. World does not know finished ones.
    pub existing: Option<KnownJob>,
    /// The numbers for which the rows have a job with this name, an underscore and the number. An array cannot have
    /// such tasks.
    pub numbered: BTreeSet<u32>,
}

/// A job as stored in its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownJob {
    pub job: Arc<Job>,
    pub spec: Arc<JobSpec>,
    /// Its metadata, if it was changed after the submit.
    pub metadata: Option<Box<JobMetadata>>,
}

impl KnownJob {
    pub fn metadata(&self) -> JobMetadata {
        self.metadata.as_deref().cloned().unwrap_or_else(|| JobMetadata::of(&self.spec))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEdit {
    pub workspace: WorkspaceKey,
    pub name: Box<str>,
    pub action: JobAction,
    /// What the rows show, filled in by the layer that can read them.
    pub known: Option<KnownJob>,
}

/// Jobs that may be due for removal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpiredJobs {
    pub jobs: Vec<JobId>,
    /// What the rows show, filled in by the layer that can read them. Live jobs and children are left out.
    pub known: Vec<Job>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobAction {
    Patch(JobPatch),
    Delete,
}

/// The desired metadata of a job. `None` keeps the current value. Tags and properties are added to the existing ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobPatch {
    pub display_name: Option<Box<str>>,
    pub description: Option<Box<str>>,
    pub tags: BTreeMap<String, String>,
    pub properties: BTreeMap<String, String>,
    pub is_archived: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveRequest {
    pub node: String,
    pub epoch: Epoch,
    pub tree: TreeId,
    pub files: u32,
    pub bytes: u64,
    /// The member has succeeded, and these are all of its files.
    pub is_final: bool,
}

pub type InputResult = Result<Reply, Refused>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Workspace {
        workspace: Workspace,
        is_new: bool,
    },
    /// `is_new` distinguishes a create from an update.
    Cluster {
        cluster: Arc<Cluster>,
        operation: OperationId,
        is_new: bool,
    },
    /// It is being deleted; the operation reports when that is done.
    Deleting {
        operation: OperationId,
    },
    InstanceChanging {
        cluster: Arc<Cluster>,
        operation: OperationId,
    },
    /// It does not exist, so there is nothing to delete.
    NothingToDelete,
    JobAccepted {
        job: Arc<Job>,
        is_new: bool,
    },
    CancelAccepted,
    /// The jobs that were removed, because they ended longer ago than they are kept.
    Removed(Vec<JobId>),
    /// The node will be evicted within this time.
    Evicting {
        within: Span,
    },
    /// The limits that apply now, and the result for each requested one.
    Quota {
        quota: Quota,
        verdicts: BTreeMap<QuotaName, QuotaVerdict>,
    },
    User(Arc<User>),
    Role(RoleAssignment),
    Group {
        group: Arc<ResourceGroup>,
        is_new: bool,
    },
    Lock {
        lock: Arc<Lock>,
        is_new: bool,
    },
    Host(Arc<Host>),
    Ticket(JoinTokenRecord),
    Deployment(Box<Deployment>),
    Datastore(Box<Datastore>),
    /// The asset as it is now.
    Asset {
        asset: Box<Asset>,
        is_new: bool,
    },
    AssetContainer {
        is_new: bool,
    },
    /// What deploying a template would change.
    Tried {
        deployment: Box<Deployment>,
        foreseen: Vec<Foreseen>,
    },
    Desired(Box<Desired>),
    Noted,
}
