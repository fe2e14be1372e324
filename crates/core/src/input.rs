//! What can be said to the core, and what it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::agent::{Desired, Report};
use crate::ids::{EffectId, Epoch, OperationId};
use crate::model::{
    Activity, ActivityRequest, AdminAccount, Asset, AssetContainer, AssetKind, AssetSpec, Caller,
    Capacity, Cluster, ComputeKind, ContainerSpec, Datastore, DatastoreSpec, Deployment, Host,
    HostName, HostState, Identity, Job, JobMetadata, JobSpec, JoinTicket, KeyDigest, LeftOut, Lock,
    LockLevel, OsType, Power, Quota, QuotaName, QuotaScope, QuotaVerdict, Record, RemoteLogin,
    ResourceGroup, RoleAssignment, ScaleUp, Scope, SpecHash, Tier, TreeId, User, UserKind,
    Workspace, WorkspaceKey,
};
use crate::time::Span;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// What somebody asks for through a door that knows them. What comes of it is in the activity log.
    Asked {
        by: Caller,
        activity_request: Box<ActivityRequest>,
        input: Box<Input>,
    },
    /// A refusal that the activity log should know of.
    NoteRefusal(Box<Activity>),
    PutWorkspace {
        key: WorkspaceKey,
        wanted: Box<WorkspacePatch>,
        by: Caller,
    },
    /// Changes a workspace that exists.
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
    /// Changes a cluster that exists. Unlike with a put, whatever cannot be changed is refused, not kept.
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
    /// Asks whether it would be accepted, and changes nothing.
    CheckJob(Box<JobRequest>),
    CancelJob {
        workspace: WorkspaceKey,
        name: String,
        known: Option<Box<KnownJob>>,
    },
    /// Writes something else on a job, or deletes one that has ended.
    EditJob(Box<JobEdit>),
    Report {
        node: String,
        report: Report,
    },
    /// A node has brought what its member of an attempt leaves to the next one. All of it is on disk.
    SaveTree(Box<SaveRequest>),
    /// A provider carried out an effect of the outbox, or could not. Deletes are only reported once they
    /// worked: until then whoever carries them out tries again.
    EffectDone {
        effect: EffectId,
        result: Result<(), String>,
    },
    /// The provider takes this low-priority node back.
    NodeEvicted {
        node: String,
    },
    /// The provider saw that everything of this node has ended, and nobody had asked for that.
    NodeEnded {
        node: String,
    },
    /// Somebody wants to see what an eviction does: takes a low-priority node away, with notice.
    EvictNode {
        workspace: WorkspaceKey,
        cluster: String,
        node: String,
    },
    /// Other limits for a region: `None` lifts one. What is not named stays.
    SetQuota {
        scope: QuotaScope,
        limits: BTreeMap<QuotaName, Option<u64>>,
    },
    /// Users, keys and roles.
    ChangeAccess(Box<AccessRequest>),
    /// Resource groups and locks.
    ChangeEstate(Box<GovernanceRequest>),
    /// Hosts, and tickets to join.
    ChangeHosts(Box<HostRequest>),
    /// Carries out a template, or only tries to.
    Deploy(Box<DeployRequest>),
    /// Forgets that a template was carried out. What it made stays.
    DeleteDeployment {
        group: Scope,
        name: Box<str>,
    },
    /// Makes a datastore, or puts another in its place.
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
    /// Makes, changes or deletes what is kept in versions.
    ChangeAsset(Box<AssetRequest>),
    /// Nothing but the time has changed.
    Tick,
}

impl Input {
    /// A workspace with nothing written on it.
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
    /// What the rows show; filled in where they can be looked at.
    pub known: KnownAsset,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssetAction {
    /// Makes a version, or changes what is written on it. Without a word about the archive it stays where it is.
    Put {
        version: Box<str>,
        wanted: AssetSpec,
        is_archived: Option<bool>,
    },
    /// The same for a name.
    PutContainer {
        wanted: ContainerSpec,
        is_archived: Option<bool>,
    },
    Delete {
        version: Box<str>,
    },
    /// With all its versions.
    DeleteContainer,
}

impl AssetAction {
    /// The version that it is about.
    pub fn version(&self) -> Option<&str> {
        match self {
            AssetAction::Put { version, .. } | AssetAction::Delete { version } => Some(version),
            AssetAction::PutContainer { .. } | AssetAction::DeleteContainer => None,
        }
    }
}

/// What there is of an asset before it is changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownAsset {
    pub asset: Option<Asset>,
    pub container: Option<AssetContainer>,
}

/// A workspace as a client wants it. `None` keeps what is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspacePatch {
    /// A new one needs it; it cannot be changed.
    pub location: Option<Box<str>>,
    pub friendly_name: Option<Box<str>>,
    pub description: Option<Box<str>>,
    pub tags: Option<BTreeMap<String, String>>,
    /// The JSON text that the client sent.
    pub managed_network: Option<Box<str>>,
    /// The names of what else was asked for, which nothing here follows.
    pub ignored: BTreeSet<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GovernanceRequest {
    /// Makes a group if a location is given, or changes one that is there.
    PutGroup {
        subscription: Box<str>,
        name: Box<str>,
        wanted: GroupPatch,
    },
    /// With everything in it.
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

/// `None` keeps what is there.
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
    /// Whoever shows the secret of this digest in time may join, once.
    IssueTicket {
        digest: KeyDigest,
        intent: Scope,
        host: Option<HostName>,
        good_for: Span,
    },
    Join(NewHost),
    /// What a host has, as it says itself.
    Seen {
        name: HostName,
        capacity: Capacity,
    },
    /// It has not said anything for too long.
    Silent {
        name: HostName,
    },
    /// Opens it, cordons it, or drains it.
    SetState {
        name: HostName,
        state: HostState,
    },
    /// Refused while it has nodes, unless what runs there may be given up.
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
    /// Of a key that it made itself.
    pub key: KeyDigest,
}

/// A template, read: what it makes, in order, and what is to be kept of it.
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
    /// Answers as if it were done, and changes nothing.
    pub is_trial: bool,
}

/// What would become of one resource. What would not change at all is not named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreseen {
    /// As Azure writes it.
    pub resource: Box<str>,
    /// `None` for one that is not there yet.
    pub before: Option<Record>,
    pub after: Option<Record>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeployStep {
    /// How the activity log calls it.
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
    /// Another key instead of the present one; `None` leaves the user without any.
    SetKey {
        user: Box<str>,
        digest: Option<KeyDigest>,
    },
    /// With all roles.
    DeleteUser {
        user: Box<str>,
    },
    AssignRole(RoleAssignment),
    /// Only where it is: a role above is not removed by whoever manages what is below.
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

/// A cluster as a client wants it. `None` keeps what is there, or takes the default for a new one: clients
/// re-send what they read, and what they read leaves things out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterPatch {
    pub kind: Option<ComputeKind>,
    pub releases_quota_on_stop: Option<bool>,
    pub location: Option<Box<str>>,
    pub description: Option<Box<str>>,
    pub tags: Option<BTreeMap<String, String>>,
    pub vm_size: Option<Arc<str>>,
    pub tier: Option<Tier>,
    pub nodes_min: Option<u32>,
    pub nodes_max: Option<u32>,
    pub idle_time: Option<Span>,
    pub scale_up: Option<ScaleUp>,
    pub os_type: Option<OsType>,
    pub virtual_machine_image: Option<Box<str>>,
    pub isolated_network: Option<bool>,
    pub subnet: Option<Box<str>>,
    pub admin: Option<AdminAccount>,
    pub remote_login: Option<RemoteLogin>,
    pub enable_node_public_ip: Option<bool>,
    pub disable_local_auth: Option<bool>,
    pub identity: Option<Identity>,
    pub property_bag: Option<Box<str>>,
    /// The names of what else was asked for, which nothing here follows.
    pub ignored: BTreeSet<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRequest {
    pub workspace: WorkspaceKey,
    pub name: String,
    pub spec: Arc<JobSpec>,
    pub spec_hash: SpecHash,
    pub by: Caller,
    /// Of a job that is there already: into the archive, or out of it. `None` leaves it where it is.
    pub is_archived: Option<bool>,
    /// The job of this name that the rows know, live or finished: World cannot see finished ones.
    pub existing: Option<KnownJob>,
}

/// A job as the rows have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownJob {
    pub job: Arc<Job>,
    pub spec: Arc<JobSpec>,
    /// What is written on it, if not what it was submitted with.
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
    /// What the rows show; filled in where they can be looked at.
    pub known: Option<KnownJob>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobAction {
    Patch(JobPatch),
    Delete,
}

/// `None` keeps what is there. Tags and properties are added to those that are there.
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
    /// The member has ended well, and this is all that it leaves.
    pub is_final: bool,
}

pub type InputResult = Result<Reply, Refused>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Workspace {
        workspace: Workspace,
        is_new: bool,
    },
    /// `is_new` tells a create from an update.
    Cluster {
        cluster: Arc<Cluster>,
        operation: OperationId,
        is_new: bool,
    },
    /// It goes in its time; the operation tells when it is gone.
    Deleting {
        operation: OperationId,
    },
    InstanceChanging {
        cluster: Arc<Cluster>,
        operation: OperationId,
    },
    /// There is nothing to delete: as good as deleted.
    NothingToDelete,
    JobAccepted {
        job: Arc<Job>,
        is_new: bool,
    },
    CancelAccepted,
    /// The node goes within this time.
    Evicting {
        within: Span,
    },
    /// The limits that hold now, and what became of each that was asked for.
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
    Ticket(JoinTicket),
    Deployment(Box<Deployment>),
    Datastore(Box<Datastore>),
    /// As it is now.
    Asset {
        asset: Box<Asset>,
        is_new: bool,
    },
    AssetContainer {
        is_new: bool,
    },
    /// What carrying out a template would come to.
    Tried {
        deployment: Box<Deployment>,
        foreseen: Vec<Foreseen>,
    },
    Desired(Box<Desired>),
    Noted,
}

/// Why something was not done. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    pub kind: RefusalKind,
    /// The field or thing at fault, in the client's spelling.
    pub target: Box<str>,
    /// What is wrong, the limit, the value given, and what to do about it.
    pub message: Box<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    Invalid,
    NotFound,
    Conflict,
    TooMany,
    /// More vCPUs than the quota has.
    QuotaExceeded,
    /// There is as much as there may be, and waiting a moment does not help.
    Full,
    /// A lock forbids it.
    Locked,
}

impl Refused {
    pub fn invalid(target: &str, message: impl Into<String>) -> Refused {
        Refused::new(RefusalKind::Invalid, target, message)
    }

    pub fn not_found(target: &str, message: impl Into<String>) -> Refused {
        Refused::new(RefusalKind::NotFound, target, message)
    }

    pub fn conflict(target: &str, message: impl Into<String>) -> Refused {
        Refused::new(RefusalKind::Conflict, target, message)
    }

    pub fn too_many(target: &str, message: impl Into<String>) -> Refused {
        Refused::new(RefusalKind::TooMany, target, message)
    }

    pub fn quota(target: &str, message: impl Into<String>) -> Refused {
        Refused::new(RefusalKind::QuotaExceeded, target, message)
    }

    pub fn full(target: &str, message: impl Into<String>) -> Refused {
        Refused::new(RefusalKind::Full, target, message)
    }

    pub fn locked(target: &str, message: impl Into<String>) -> Refused {
        Refused::new(RefusalKind::Locked, target, message)
    }

    fn new(kind: RefusalKind, target: &str, message: impl Into<String>) -> Refused {
        Refused { kind, target: target.into(), message: message.into().into() }
    }
}
