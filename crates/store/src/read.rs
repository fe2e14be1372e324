//! The queries of readers. Every result is one consistent snapshot of committed rows.

use std::collections::BTreeSet;

use muster_core::ids::{JobId, OperationId, PrincipalId, WorkspaceId};
use muster_core::model::{
    Activity, Asset, AssetContainer, AssetKind, AttemptOutcome, AttemptRecord, Category,
    ChildCounts, Cluster, Cost, Datastore, Deployment, Job, JobSpec, Member, Node, Operation,
    Principal, SavedTree, Scope, SpecHash, TreeId, Workspace, WorkspaceKey, parent_and_index,
};
use muster_core::time::Wall;

use crate::size::DatabaseSize;
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
    /// Evicted, or about to be; not included in the other counts.
    pub preempted: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    pub node: Node,
    /// The job that runs on the node.
    pub job: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    pub job: Job,
    /// The specification with the current metadata of the job.
    pub spec: JobSpec,
    pub is_archived: bool,
    pub submitted_by: Option<Principal>,
    /// Attempts that have ended, oldest first.
    pub attempts: Vec<AttemptRecord>,
    /// The job that it is part of, if any.
    pub parent: Option<ParentView>,
    /// The jobs that it consists of, if any.
    pub children: Option<ChildrenView>,
}

/// The place of a child in its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentView {
    pub name: Box<str>,
    pub index: u32,
}

/// The children of a job in figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildrenView {
    pub counts: ChildCounts,
    /// What they have cost in attempts that have ended.
    pub cost: Cost,
    /// The members of the attempts that have not ended, whose cost depends on the time.
    pub members: Vec<Member>,
}

impl ChildrenView {
    /// What they have cost until now.
    pub fn cost(&self, now: Wall) -> Cost {
        let mut cost = self.cost;
        self.members.iter().for_each(|member| cost.merge(member.cost(now)));
        cost
    }
}

/// How lines of the ledger are grouped, besides by category and outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerBy {
    Cluster,
    /// By the name of the principal whose job was served.
    User,
    Category,
    /// By the value of this tag: that of the job that was served if it has the tag, otherwise that of the cluster at
    /// that time.
    Tag(Box<str>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerQuery {
    pub by: LedgerBy,
    /// Time before this moment is not counted.
    pub since: Option<Wall>,
    /// The running meters of existing nodes are counted up to this moment.
    pub now: Wall,
}

/// The sum of the node time of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerSum {
    /// `None` if the time served no principal, or if the tag is not set.
    pub group: Option<Box<str>>,
    pub category: Category,
    pub outcome: AttemptOutcome,
    pub node_us: u64,
    pub micro_usd: u64,
}

/// An entry of the event log: the stored text of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub revision: Revision,
    pub wall_us: u64,
    pub change: Box<str>,
}

/// Which records of the activity log to return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityQuery {
    /// `None` for all records, including those that belong to no subscription.
    pub subscription: Option<Box<str>>,
    pub since: Wall,
    pub until: Wall,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityEntry {
    pub number: u64,
    pub activity: Activity,
    /// The digest over this record and all before it.
    pub digest: Box<str>,
}

/// The result of verifying the chain of digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityChain {
    pub entries: u64,
    /// The last digest. If you keep a copy of it, you can prove later that no record before it was changed.
    pub head: Box<str>,
    /// The first record that does not follow from the one before.
    pub broken_at: Option<u64>,
}

/// Which of the archived and other items a list shows.
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
    /// Only jobs that have a tag with this key.
    pub tag: Option<Box<str>>,
    /// The children of this job, in their own order, instead of the jobs of the workspace. Other conditions do not
    /// apply to them.
    pub parent: Option<Box<str>>,
}

/// The order by time of creation.
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

/// A name, and the newest of its versions that is not archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerView {
    pub container: AssetContainer,
    pub latest: Option<Asset>,
}

/// One page of a list. `next` is the token of the following page, and `None` on the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next: Option<String>,
}

/// The readers' side. Each handle is used by one thread at a time; there may be many handles.
pub trait Reader: Send {
    /// All workspaces.
    fn workspace_ids(&mut self) -> Result<Vec<WorkspaceId>, StoreError>;
    fn workspace(&mut self, key: &WorkspaceKey) -> Result<Option<Workspace>, StoreError>;
    /// Sorted by name, within a subscription and (if given) a resource group, both compared ignoring case.
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
    /// Sorted by name, without the clusters of serverless jobs. `after` is a `Page::next`.
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
    /// A job, or a child of one.
    fn job(&mut self, workspace: &WorkspaceKey, name: &str) -> Result<Option<JobView>, StoreError>;
    fn job_by_id(&mut self, id: JobId) -> Result<Option<Job>, StoreError>;
    /// Jobs that have ended, without children, in the order in which they were submitted, after the given one.
    fn ended_jobs(&mut self, after: JobId, limit: usize) -> Result<Vec<Job>, StoreError>;
    /// The jobs whose files something in the workspace references: a version of an asset, a datastore, or a job that
    /// has not ended. Names are in lower case; for a child, the name of its parent is included.
    fn referenced_jobs(&mut self, workspace: WorkspaceId)
    -> Result<BTreeSet<Box<str>>, StoreError>;
    /// The ids of all jobs of a workspace, in order.
    fn job_ids(&mut self, workspace: WorkspaceId) -> Result<Vec<JobId>, StoreError>;
    /// Newest first, without children unless their parent is named. `after` is a `Page::next`.
    fn jobs(
        &mut self,
        workspace: &WorkspaceKey,
        query: &JobQuery,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<JobView>, StoreError>;
    /// The files that each member of a job left last, by rank.
    fn saved_trees(&mut self, job: JobId) -> Result<Vec<SavedTree>, StoreError>;
    /// All trees that jobs use or have left; no other files are needed.
    fn wanted_trees(&mut self) -> Result<Vec<(WorkspaceId, TreeId)>, StoreError>;
    fn spec(&mut self, hash: &SpecHash) -> Result<Option<JobSpec>, StoreError>;
    /// The specification of a job. A child has that of its parent, with what differs from one child to the next.
    fn spec_of(&mut self, job: &Job) -> Result<Option<JobSpec>, StoreError> {
        let index = job.parent.and(parent_and_index(&job.name)).map(|(_, index)| index);
        let spec = self.spec(&job.spec)?;
        Ok(spec.map(|spec| index.map_or(spec.clone(), |index| spec.for_task(index))))
    }
    fn operation(&mut self, id: OperationId) -> Result<Option<Operation>, StoreError>;
    fn principal(&mut self, id: PrincipalId) -> Result<Option<Principal>, StoreError>;
    /// Everything that has been spent so far, by cluster.
    fn ledger(
        &mut self,
        workspace: &WorkspaceKey,
        now_us: u64,
    ) -> Result<Vec<LedgerSum>, StoreError> {
        let query = LedgerQuery { by: LedgerBy::Cluster, since: None, now: Wall(now_us) };
        self.ledger_by(workspace, &query)
    }
    /// Closed lines and the running meters of existing nodes up to now, sorted by group.
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
    /// Group and name are compared ignoring case.
    fn deployment(&mut self, group: &Scope, name: &str) -> Result<Option<Deployment>, StoreError>;
    /// Newest first. A group has only a few.
    fn deployments(&mut self, group: &Scope) -> Result<Vec<Deployment>, StoreError>;
    /// The name is compared ignoring case.
    fn datastore(
        &mut self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<Datastore>, StoreError>;
    /// Sorted by name. A workspace has only a few; the ones that every workspace has are not included.
    fn datastores(&mut self, workspace: WorkspaceId) -> Result<Vec<Datastore>, StoreError>;
    /// The upload containers that something in the workspace references: a version, a datastore, or a job that has not
    /// ended.
    fn named_uploads(&mut self, workspace: WorkspaceId) -> Result<BTreeSet<Box<str>>, StoreError>;
    /// The name is compared ignoring case, the version exactly.
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
    /// Assets of any name, because clients make up a new name for every upload. At most a hundred, without archived
    /// ones.
    fn assets_with_hash(
        &mut self,
        workspace: WorkspaceId,
        kind: AssetKind,
        hash: &str,
    ) -> Result<Vec<Asset>, StoreError>;
    /// The name is compared ignoring case.
    fn asset_container(
        &mut self,
        workspace: WorkspaceId,
        kind: AssetKind,
        name: &str,
    ) -> Result<Option<ContainerView>, StoreError>;
    /// Sorted by name, without anonymous assets. `after` is a `Page::next`.
    fn asset_containers(
        &mut self,
        workspace: WorkspaceId,
        kind: AssetKind,
        archived: Archived,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<ContainerView>, StoreError>;
    fn verify_activity(&mut self) -> Result<ActivityChain, StoreError>;
    /// Entries after `after`, oldest first. If some of them were deleted, this fails with
    /// [`StoreError::EventsPruned`].
    fn events(&mut self, after: Revision, limit: usize) -> Result<Vec<Event>, StoreError>;
    /// The size of the database by content. This takes longer the larger it is, and holds no snapshot meanwhile.
    fn size(&mut self) -> Result<DatabaseSize, StoreError>;
    /// The floor, after which the event log begins, and the revision of the last commit.
    fn event_range(&mut self) -> Result<(Revision, Revision), StoreError>;
}
