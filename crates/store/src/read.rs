//! What readers ask for. Every answer is one consistent snapshot of committed rows.

use std::collections::BTreeSet;

use muster_core::ids::{JobId, OperationId, PrincipalId, WorkspaceId};
use muster_core::model::{
    Activity, Asset, AssetContainer, AssetKind, AttemptOutcome, AttemptRecord, Category, Cluster,
    Datastore, Deployment, Job, JobSpec, Node, Operation, Principal, SavedTree, Scope, SpecHash,
    TreeId, Workspace, WorkspaceKey,
};
use muster_core::time::Wall;

use crate::{Revision, StoreError};

/// A cluster with the figures that its clients show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterView {
    pub cluster: Cluster,
    /// The region of its workspace.
    pub home: Box<str>,
    pub counts: NodeCounts,
}

/// Nodes by the states that Azure's clients know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Requested or booting.
    pub preparing: u32,
    pub idle: u32,
    pub running: u32,
    pub unusable: u32,
    pub leaving: u32,
    /// Taken away, or about to be; in none of the others.
    pub preempted: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    pub node: Node,
    /// The job that it holds.
    pub job: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    pub job: Job,
    /// With what is written on the job now.
    pub spec: JobSpec,
    pub is_archived: bool,
    pub submitted_by: Option<Principal>,
    /// Ended ones, oldest first.
    pub attempts: Vec<AttemptRecord>,
}

/// What lines of the ledger are put together by, beside category and outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerBy {
    Cluster,
    /// The name of the principal whose job was served.
    User,
    Category,
    /// The value of this tag: of the job that was served if it has it, else of the cluster at that time.
    Tag(Box<str>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerQuery {
    pub by: LedgerBy,
    /// What was spent before does not count.
    pub since: Option<Wall>,
    /// Up to when open meters of nodes that still run count.
    pub now: Wall,
}

/// Node time of one kind, added up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerSum {
    /// `None` where nobody was served, or nothing has the tag.
    pub group: Option<Box<str>>,
    pub category: Category,
    pub outcome: AttemptOutcome,
    pub node_us: u64,
    pub micro_usd: u64,
}

/// One entry of the event log: the change's stored text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub revision: Revision,
    pub wall_us: u64,
    pub change: Box<str>,
}

/// What of the activity log is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityQuery {
    /// `None` for everything, also what belongs to no subscription.
    pub subscription: Option<Box<str>>,
    pub since: Wall,
    pub until: Wall,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityEntry {
    pub number: u64,
    pub activity: Activity,
    /// Of this record and all before it.
    pub digest: Box<str>,
}

/// What following the chain of digests came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityChain {
    pub entries: u64,
    /// The last digest: who has noted it can tell later that nothing before it was changed.
    pub head: Box<str>,
    /// The first record that does not fit to the one before.
    pub broken_at: Option<u64>,
}

/// Of what is kept in versions, which a list shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Archived {
    #[default]
    No,
    Yes,
    Both,
}

/// Which jobs a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobQuery {
    pub archived: Archived,
    /// The key of a tag that they have.
    pub tag: Option<Box<str>>,
}

/// By when they were made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AssetOrder {
    #[default]
    NewestFirst,
    OldestFirst,
}

/// The versions of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssetQuery {
    pub kind: AssetKind,
    pub name: Box<str>,
    pub archived: Archived,
    pub order: AssetOrder,
}

/// A name, and the newest of its versions that is not in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerView {
    pub container: AssetContainer,
    pub latest: Option<Asset>,
}

/// One page of a listing. `next` asks for the following page, and is `None` on the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next: Option<String>,
}

/// The readers' side. Each handle is used by one thread at a time; there may be many.
pub trait Reader: Send {
    fn workspace(&mut self, key: &WorkspaceKey) -> Result<Option<Workspace>, StoreError>;
    /// By name, within a subscription and (if given) a resource group; both compared without case.
    fn workspaces(
        &mut self,
        subscription: &str,
        resource_group: Option<&str>,
    ) -> Result<Vec<Workspace>, StoreError>;
    fn cluster(
        &mut self,
        workspace: &WorkspaceKey,
        name: &str,
    ) -> Result<Option<ClusterView>, StoreError>;
    /// By name, without those that the service made for itself. `after` is a `Page::next`.
    fn clusters(
        &mut self,
        workspace: &WorkspaceKey,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<ClusterView>, StoreError>;
    fn nodes(
        &mut self,
        workspace: &WorkspaceKey,
        cluster: &str,
    ) -> Result<Vec<NodeView>, StoreError>;
    fn job(&mut self, workspace: &WorkspaceKey, name: &str) -> Result<Option<JobView>, StoreError>;
    fn job_by_id(&mut self, id: JobId) -> Result<Option<Job>, StoreError>;
    /// Of every job of a workspace, in order.
    fn job_ids(&mut self, workspace: WorkspaceId) -> Result<Vec<JobId>, StoreError>;
    /// Newest first. `after` is a `Page::next`.
    fn jobs(
        &mut self,
        workspace: &WorkspaceKey,
        query: &JobQuery,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<JobView>, StoreError>;
    /// What each member of a job left last, by rank.
    fn saved_trees(&mut self, job: JobId) -> Result<Vec<SavedTree>, StoreError>;
    /// Everything that some job brought or left; nobody needs other files.
    fn wanted_trees(&mut self) -> Result<Vec<(WorkspaceId, TreeId)>, StoreError>;
    fn spec(&mut self, hash: &SpecHash) -> Result<Option<JobSpec>, StoreError>;
    fn operation(&mut self, id: OperationId) -> Result<Option<Operation>, StoreError>;
    fn principal(&mut self, id: PrincipalId) -> Result<Option<Principal>, StoreError>;
    /// Everything that was spent so far, by cluster.
    fn ledger(
        &mut self,
        workspace: &WorkspaceKey,
        now_us: u64,
    ) -> Result<Vec<LedgerSum>, StoreError> {
        let query = LedgerQuery { by: LedgerBy::Cluster, since: None, now: Wall(now_us) };
        self.ledger_by(workspace, &query)
    }
    /// Closed lines and, up to now, the open meters of nodes that still run, in the order of their groups.
    fn ledger_by(
        &mut self,
        workspace: &WorkspaceKey,
        query: &LedgerQuery,
    ) -> Result<Vec<LedgerSum>, StoreError>;
    /// Newest first. `after` is a `Page::next`.
    fn activity(
        &mut self,
        query: &ActivityQuery,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<ActivityEntry>, StoreError>;
    /// By group and name, without case.
    fn deployment(&mut self, group: &Scope, name: &str) -> Result<Option<Deployment>, StoreError>;
    /// Newest first; a group has not many.
    fn deployments(&mut self, group: &Scope) -> Result<Vec<Deployment>, StoreError>;
    /// By workspace and name, without case.
    fn datastore(
        &mut self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<Datastore>, StoreError>;
    /// By name; a workspace has not many. Those that every workspace has are not among them.
    fn datastores(&mut self, workspace: WorkspaceId) -> Result<Vec<Datastore>, StoreError>;
    /// Containers for the files of versions that something of the workspace names: a version, a datastore, or a job that
    /// has not ended.
    fn named_uploads(&mut self, workspace: WorkspaceId) -> Result<BTreeSet<Box<str>>, StoreError>;
    /// By workspace, kind, name without case, and version as it is.
    fn asset(
        &mut self,
        workspace: WorkspaceId,
        kind: AssetKind,
        name: &str,
        version: &str,
    ) -> Result<Option<Asset>, StoreError>;
    /// `after` is a `Page::next`.
    fn assets(
        &mut self,
        workspace: WorkspaceId,
        query: &AssetQuery,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<Asset>, StoreError>;
    /// Of any name: a client has just made its up. A hundred at most, without those in the archive.
    fn assets_with_hash(
        &mut self,
        workspace: WorkspaceId,
        kind: AssetKind,
        hash: &str,
    ) -> Result<Vec<Asset>, StoreError>;
    /// Without case.
    fn asset_container(
        &mut self,
        workspace: WorkspaceId,
        kind: AssetKind,
        name: &str,
    ) -> Result<Option<ContainerView>, StoreError>;
    /// By name, without those that nobody named. `after` is a `Page::next`.
    fn asset_containers(
        &mut self,
        workspace: WorkspaceId,
        kind: AssetKind,
        archived: Archived,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<ContainerView>, StoreError>;
    fn verify_activity(&mut self) -> Result<ActivityChain, StoreError>;
    /// Entries after `after`, oldest first.
    fn events(&mut self, after: Revision, limit: usize) -> Result<Vec<Event>, StoreError>;
}
