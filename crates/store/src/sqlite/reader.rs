//! Readers: every call is one read transaction, which sees one consistent snapshot and never waits for the writer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use muster_core::ids::{JobId, OperationId, PrincipalId, WorkspaceId};
use muster_core::model::{
    Asset, AssetKind, Datastore, Deployment, Job, JobMetadata, JobSpec, NodePhase, Operation,
    Principal, SavedTree, Scope, SpecHash, Tier, TreeId, Workspace, WorkspaceKey,
};
use rusqlite::{Connection, Row, Transaction};

use super::doc;
use super::fault::Doing;
use super::meta::Meta;
use super::schema;
use super::trees;
use super::{
    activity, assets, children, datastores, deployments, events, jobs, ledger, members, open,
    references, size,
};
use crate::size::DatabaseSize;
use crate::{
    ActivityChain, ActivityEntry, ActivityQuery, Archived, AssetQuery, ClusterView, ContainerView,
    Event, JobQuery, JobView, LedgerQuery, LedgerSum, NodeCounts, NodeView, Page, ParentView,
    Reader, Revision, StoreError,
};

/// The most items in one result, however many are requested, because readers delay the reuse of the log.
const PAGE_MAX: usize = 1_000;
const EVENTS_MAX: usize = 10_000;

/// A read-only connection.
#[derive(Debug)]
pub struct SqliteReader {
    connection: Connection,
    path: PathBuf,
}

impl SqliteReader {
    /// Opens a store that a writer has created.
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteReader, StoreError> {
        let path = path.as_ref();
        Ok(SqliteReader { connection: open::reader(path, &schema::MAIN)?, path: path.to_owned() })
    }

    fn snapshot(&mut self) -> Result<Snapshot<'_>, StoreError> {
        let transaction = self.connection.transaction().doing("reading", &self.path)?;
        Ok(Snapshot { transaction, path: &self.path })
    }
}

/// The rows as they were when the first of them was read.
struct Snapshot<'r> {
    transaction: Transaction<'r>,
    path: &'r Path,
}

const JOB_VIEW: &str = "SELECT j.doc, s.doc, p.doc, j.metadata FROM jobs j \
                        JOIN specs s ON s.hash = j.spec \
                        LEFT JOIN principals p ON p.id = j.principal";

impl Snapshot<'_> {
    fn workspace(&self, key: &WorkspaceKey) -> Result<Option<Workspace>, StoreError> {
        let key = key.folded();
        let sql = "SELECT doc FROM workspaces \
                   WHERE subscription = ?1 AND resource_group = ?2 AND folded = ?3";
        let values = (key.subscription, key.resource_group, key.name);
        doc::one(&self.transaction, self.path, sql, values)
    }

    fn cluster_view(
        &self,
        row: &Row<'_>,
        workspace: &Workspace,
    ) -> Result<ClusterView, StoreError> {
        let cluster = doc::decode(row, 0, self.path)?;
        let home = workspace.location.clone();
        Ok(ClusterView { cluster, home, counts: NodeCounts::default() })
    }

    /// The clusters of a workspace whose folded name is in the range, with their figures.
    fn cluster_views(
        &self,
        workspace: &Workspace,
        (after, until): (&str, Option<&str>),
        limit: usize,
    ) -> Result<Vec<ClusterView>, StoreError> {
        let id = workspace.id.0;
        let mut views = match until {
            Some(name) => {
                let sql = "SELECT doc FROM clusters WHERE workspace = ?1 AND folded = ?2";
                doc::rows(&self.transaction, self.path, sql, (id, name), |row| {
                    self.cluster_view(row, workspace)
                })
            }
            None => {
                let sql = "SELECT doc FROM clusters WHERE workspace = ?1 AND folded > ?2 \
                           AND doc ->> '$.spec.kind' IS NOT 'Serverless' \
                           ORDER BY folded LIMIT ?3";
                doc::rows(&self.transaction, self.path, sql, (id, after, limit), |row| {
                    self.cluster_view(row, workspace)
                })
            }
        }?;
        self.count_nodes(id, &mut views)?;
        Ok(views)
    }

    /// Fills in the counts of clusters that are sorted by folded name without gaps.
    fn count_nodes(&self, workspace: u64, views: &mut [ClusterView]) -> Result<(), StoreError> {
        let (Some(first), Some(last)) = (views.first(), views.last()) else { return Ok(()) };
        let names = (first.cluster.name.folded(), last.cluster.name.folded());
        let sql = "SELECT c.id, n.phase, count(*) FROM clusters c \
                   JOIN nodes n ON n.cluster = c.id \
                   WHERE c.workspace = ?1 AND c.folded BETWEEN ?2 AND ?3 GROUP BY c.id, n.phase";
        let doing = "counting nodes";
        let values = (workspace, names.0, names.1);
        let counted = doc::rows(&self.transaction, self.path, sql, values, |row| {
            let phase: Box<str> = row.get(1).doing(doing, self.path)?;
            let cluster: u64 = row.get(0).doing(doing, self.path)?;
            let nodes: u32 = row.get(2).doing(doing, self.path)?;
            Ok((cluster, doc::from_word::<NodePhase>(&phase, self.path)?, nodes))
        })?;
        for (cluster, phase, nodes) in counted {
            if let Some(view) = views.iter_mut().find(|view| view.cluster.id.0 == cluster) {
                let preempted = match view.cluster.spec.tier {
                    Tier::Dedicated => 0,
                    Tier::LowPriority => self.count_preempted(cluster, phase)?,
                };
                add_nodes(&mut view.counts, phase, nodes - preempted);
                view.counts.preempted += preempted;
            }
        }
        Ok(())
    }

    /// The number of nodes of this phase that were evicted, or will be. This reads every record, so it is called only
    /// if there can be any.
    fn count_preempted(&self, cluster: u64, phase: NodePhase) -> Result<u32, StoreError> {
        let sql = "SELECT count(*) FROM nodes WHERE cluster = ?1 AND phase = ?2 \
                   AND doc ->> '$.evict_at' IS NOT NULL";
        let values = (cluster, doc::word(&phase));
        let counted: Vec<u32> = doc::rows(&self.transaction, self.path, sql, values, |row| {
            row.get(0).doing("counting preempted nodes", self.path)
        })?;
        Ok(counted.into_iter().sum())
    }

    fn job_view(&self, row: &Row<'_>) -> Result<JobView, StoreError> {
        let job = doc::decode(row, 0, self.path)?;
        let mut spec = doc::decode(row, 1, self.path)?;
        let metadata: Option<JobMetadata> = doc::decode_optional(row, 3, self.path)?;
        if let Some(metadata) = &metadata {
            metadata.write_on(&mut spec);
        }
        Ok(JobView {
            job: members::overlay(&self.transaction, self.path, job)?,
            spec,
            is_archived: metadata.is_some_and(|metadata| metadata.is_archived),
            submitted_by: doc::decode_optional(row, 2, self.path)?,
            attempts: Vec::new(),
            parent: None,
            children: None,
        })
    }

    /// The job with this folded name.
    fn job_named(
        &self,
        workspace: &Workspace,
        folded: &str,
    ) -> Result<Option<JobView>, StoreError> {
        let sql = format!("{JOB_VIEW} WHERE j.workspace = ?1 AND j.folded = ?2");
        let values = (workspace.id.0, folded);
        let mut views =
            doc::rows(&self.transaction, self.path, &sql, values, |row| self.job_view(row))?;
        Ok(views.pop())
    }

    /// The view of a child.
    fn child_view(&self, parent: &JobView, child: Job) -> JobView {
        let index = parent.job.child_index(child.id).unwrap_or_default();
        let parent_view = ParentView { name: parent.job.name.clone(), index };
        JobView {
            job: child,
            spec: parent.spec.for_task(index),
            parent: Some(parent_view),
            children: None,
            attempts: Vec::new(),
            ..parent.clone()
        }
    }

    /// A page of the children of a job.
    fn children_of(
        &self,
        parent: &JobView,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Page<JobView>, StoreError> {
        let first = JobId(after.map_or(parent.job.id.0, |id| id.0.max(parent.job.id.0)) + 1);
        let last = parent.job.last_id();
        let end = JobId(first.0.saturating_add(limit as u64 - 1)).min(last);
        let found = children::between(&self.transaction, self.path, &parent.job, (first, end))?;
        let items = found.into_iter().map(|child| self.child_view(parent, child)).collect();
        let next = (end < last).then(|| end.to_string());
        let mut page = Page { items, next };
        self.add_attempts(&mut page.items)?;
        Ok(page)
    }

    fn add_children(&self, views: &mut [JobView]) -> Result<(), StoreError> {
        for view in views.iter_mut().filter(|view| view.job.is_parent()) {
            view.children = Some(children::figures(&self.transaction, self.path, &view.job)?);
        }
        Ok(())
    }

    /// One by one, because the jobs of a list may be far apart.
    fn add_attempts(&self, views: &mut [JobView]) -> Result<(), StoreError> {
        let sql = "SELECT doc, packed, epoch FROM attempts WHERE job = ?1 ORDER BY epoch";
        for view in views {
            let id = (view.job.id.0,);
            view.attempts = doc::rows(&self.transaction, self.path, sql, id, |row| {
                doc::attempt(row, self.path)
            })?;
        }
        Ok(())
    }
}

fn add_nodes(counts: &mut NodeCounts, phase: NodePhase, nodes: u32) {
    match phase {
        NodePhase::Requested | NodePhase::Booting => counts.preparing += nodes,
        NodePhase::Idle => counts.idle += nodes,
        NodePhase::Leased => counts.running += nodes,
        NodePhase::Unusable => counts.unusable += nodes,
        NodePhase::Leaving => counts.leaving += nodes,
        NodePhase::Gone => {}
    }
}

/// Reduces a result with one extra item to a page.
fn page<T>(mut items: Vec<T>, limit: usize, token: impl Fn(&T) -> String) -> Page<T> {
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next = if has_more { items.last().map(token) } else { None };
    Page { items, next }
}

impl Reader for SqliteReader {
    fn workspace_ids(&mut self) -> Result<Vec<WorkspaceId>, StoreError> {
        let sql = "SELECT id FROM workspaces ORDER BY id";
        doc::rows(&self.connection, &self.path, sql, [], |row| {
            Ok(WorkspaceId(row.get(0).doing("reading workspaces", &self.path)?))
        })
    }

    fn workspace(&mut self, key: &WorkspaceKey) -> Result<Option<Workspace>, StoreError> {
        self.snapshot()?.workspace(key)
    }

    fn workspaces(
        &mut self,
        subscription: &str,
        resource_group: Option<&str>,
    ) -> Result<Vec<Workspace>, StoreError> {
        let sql = "SELECT doc FROM workspaces \
                   WHERE subscription = ?1 AND (?2 IS NULL OR resource_group = ?2) \
                   ORDER BY folded, resource_group";
        let group = resource_group.map(str::to_ascii_lowercase);
        doc::many(&self.connection, &self.path, sql, (subscription.to_ascii_lowercase(), group))
    }

    fn cluster(
        &mut self,
        workspace: &WorkspaceKey,
        name: &str,
    ) -> Result<Option<ClusterView>, StoreError> {
        let snapshot = self.snapshot()?;
        let Some(workspace) = snapshot.workspace(workspace)? else { return Ok(None) };
        let folded = name.to_ascii_lowercase();
        let views = snapshot.cluster_views(&workspace, ("", Some(&folded)), 1)?;
        Ok(views.into_iter().next())
    }

    fn clusters(
        &mut self,
        workspace: &WorkspaceKey,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<ClusterView>, StoreError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let snapshot = self.snapshot()?;
        let Some(workspace) = snapshot.workspace(workspace)? else {
            return Ok(Page { items: Vec::new(), next: None });
        };
        let after = after.unwrap_or_default();
        let views = snapshot.cluster_views(&workspace, (after, None), limit + 1)?;
        Ok(page(views, limit, |view| view.cluster.name.folded()))
    }

    fn nodes(
        &mut self,
        workspace: &WorkspaceKey,
        cluster: &str,
    ) -> Result<Vec<NodeView>, StoreError> {
        let snapshot = self.snapshot()?;
        let Some(workspace) = snapshot.workspace(workspace)? else { return Ok(Vec::new()) };
        let sql = "SELECT n.doc, j.doc, n.job FROM clusters c JOIN nodes n ON n.cluster = c.id \
                   LEFT JOIN children k ON k.id = n.job \
                   LEFT JOIN jobs j ON j.id = coalesce(k.parent, n.job) \
                   WHERE c.workspace = ?1 AND c.folded = ?2 ORDER BY n.id";
        let values = (workspace.id.0, cluster.to_ascii_lowercase());
        let path = snapshot.path;
        doc::rows(&snapshot.transaction, path, sql, values, |row| {
            let job: Option<Job> = doc::decode_optional(row, 1, path)?;
            let id: Option<u64> = row.get(2).doing("reading nodes", path)?;
            let job = job.map(|job| job.child_name(JobId(id.unwrap_or(0))).unwrap_or(job.name));
            Ok(NodeView { node: doc::decode(row, 0, path)?, job })
        })
    }

    fn job(&mut self, workspace: &WorkspaceKey, name: &str) -> Result<Option<JobView>, StoreError> {
        let snapshot = self.snapshot()?;
        let Some(workspace) = snapshot.workspace(workspace)? else { return Ok(None) };
        let mut found = snapshot.job_named(&workspace, &name.to_ascii_lowercase())?;
        if found.is_none()
            && let Some(parent) = children::parent_name(name)
            && let Some(parent) = snapshot.job_named(&workspace, &parent)?
            && let Some(id) = parent.job.child_named(name)
        {
            let child = children::one(&snapshot.transaction, snapshot.path, &parent.job, id)?;
            found = child.map(|child| snapshot.child_view(&parent, child));
        }
        let mut views: Vec<JobView> = found.into_iter().collect();
        snapshot.add_attempts(&mut views)?;
        snapshot.add_children(&mut views)?;
        Ok(views.pop())
    }

    fn job_by_id(&mut self, id: JobId) -> Result<Option<Job>, StoreError> {
        let snapshot = self.snapshot()?;
        let sql = "SELECT doc FROM jobs WHERE id = ?1";
        let job: Option<Job> =
            doc::one(&snapshot.transaction, snapshot.path, sql, (doc::key(id.0),))?;
        if job.is_none() {
            return children::by_id(&snapshot.transaction, snapshot.path, id);
        }
        job.map(|job| members::overlay(&snapshot.transaction, snapshot.path, job)).transpose()
    }

    fn ended_jobs(&mut self, after: JobId, limit: usize) -> Result<Vec<Job>, StoreError> {
        let limit = limit.clamp(1, PAGE_MAX);
        jobs::ended_after(&self.connection, &self.path, after, limit)
    }

    fn referenced_jobs(
        &mut self,
        workspace: WorkspaceId,
    ) -> Result<BTreeSet<Box<str>>, StoreError> {
        references::jobs(&self.connection, &self.path, workspace)
    }

    fn job_ids(&mut self, workspace: WorkspaceId) -> Result<Vec<JobId>, StoreError> {
        let sql = "SELECT id FROM jobs WHERE workspace = ?1 \
                   UNION SELECT c.id FROM jobs j JOIN children c ON c.parent = j.id \
                   WHERE j.workspace = ?1 ORDER BY id";
        doc::rows(&self.connection, &self.path, sql, (doc::key(workspace.0),), |row| {
            let id: i64 = row.get(0).doing("reading jobs", &self.path)?;
            Ok(JobId(id.cast_unsigned()))
        })
    }

    fn jobs(
        &mut self,
        workspace: &WorkspaceKey,
        query: &JobQuery,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<JobView>, StoreError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let bad_page = |token: &str| StoreError::BadPage { token: token.to_owned() };
        let after: Option<JobId> =
            after.map(|token| token.parse().map_err(|_| bad_page(token))).transpose()?;
        let before = after.unwrap_or(JobId(u64::MAX));
        let snapshot = self.snapshot()?;
        let Some(workspace) = snapshot.workspace(workspace)? else {
            return Ok(Page { items: Vec::new(), next: None });
        };
        if let Some(parent) = &query.parent {
            let parent = snapshot.job_named(&workspace, &parent.to_ascii_lowercase())?;
            let no_children = Page { items: Vec::new(), next: None };
            return parent.map_or(Ok(no_children), |it| snapshot.children_of(&it, after, limit));
        }
        let (condition, values) = jobs::condition(workspace.id, before, query, limit + 1);
        let sql = format!("{JOB_VIEW} WHERE {condition}");
        let values = rusqlite::params_from_iter(values);
        let views = doc::rows(&snapshot.transaction, snapshot.path, &sql, values, |row| {
            snapshot.job_view(row)
        })?;
        let mut page = page(views, limit, |view| view.job.id.to_string());
        snapshot.add_attempts(&mut page.items)?;
        snapshot.add_children(&mut page.items)?;
        Ok(page)
    }

    fn saved_trees(&mut self, job: JobId) -> Result<Vec<SavedTree>, StoreError> {
        let snapshot = self.snapshot()?;
        trees::of_job(&snapshot.transaction, snapshot.path, job)
    }

    fn wanted_trees(&mut self) -> Result<Vec<(WorkspaceId, TreeId)>, StoreError> {
        let snapshot = self.snapshot()?;
        trees::wanted(&snapshot.transaction, snapshot.path)
    }

    fn spec(&mut self, hash: &SpecHash) -> Result<Option<JobSpec>, StoreError> {
        let sql = "SELECT doc FROM specs WHERE hash = ?1";
        doc::one(&self.connection, &self.path, sql, (hash.to_string(),))
    }

    fn operation(&mut self, id: OperationId) -> Result<Option<Operation>, StoreError> {
        let sql = "SELECT doc FROM operations WHERE id = ?1";
        doc::one(&self.connection, &self.path, sql, (doc::key(id.0),))
    }

    fn principal(&mut self, id: PrincipalId) -> Result<Option<Principal>, StoreError> {
        let sql = "SELECT doc FROM principals WHERE id = ?1";
        doc::one(&self.connection, &self.path, sql, (doc::key(id.0),))
    }

    fn ledger_by(
        &mut self,
        workspace: &WorkspaceKey,
        query: &LedgerQuery,
    ) -> Result<Vec<LedgerSum>, StoreError> {
        let snapshot = self.snapshot()?;
        let Some(workspace) = snapshot.workspace(workspace)? else { return Ok(Vec::new()) };
        ledger::sums(&snapshot.transaction, snapshot.path, workspace.id.0, query)
    }

    fn activity(
        &mut self,
        query: &ActivityQuery,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<ActivityEntry>, StoreError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let before = match after {
            Some(token) => {
                token.parse().map_err(|_| StoreError::BadPage { token: token.to_owned() })?
            }
            None => u64::MAX,
        };
        let found = activity::entries(&self.connection, &self.path, query, before, limit + 1)?;
        Ok(page(found, limit, |entry| entry.number.to_string()))
    }

    fn deployment(&mut self, group: &Scope, name: &str) -> Result<Option<Deployment>, StoreError> {
        deployments::one(&self.connection, &self.path, group, name)
    }

    fn deployments(&mut self, group: &Scope) -> Result<Vec<Deployment>, StoreError> {
        deployments::all(&self.connection, &self.path, group)
    }

    fn datastore(
        &mut self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<Datastore>, StoreError> {
        datastores::one(&self.connection, &self.path, workspace, name)
    }

    fn datastores(&mut self, workspace: WorkspaceId) -> Result<Vec<Datastore>, StoreError> {
        datastores::all(&self.connection, &self.path, workspace)
    }

    fn named_uploads(&mut self, workspace: WorkspaceId) -> Result<BTreeSet<Box<str>>, StoreError> {
        let transaction = self.connection.transaction().doing("reading rows", &self.path)?;
        references::uploads(&transaction, &self.path, workspace)
    }

    fn asset(
        &mut self,
        workspace: WorkspaceId,
        kind: AssetKind,
        name: &str,
        version: &str,
    ) -> Result<Option<Asset>, StoreError> {
        assets::one(&self.connection, &self.path, (workspace, kind, name), version)
    }

    fn assets(
        &mut self,
        workspace: WorkspaceId,
        query: &AssetQuery,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<Asset>, StoreError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let found =
            assets::of_name(&self.connection, &self.path, (workspace, query), after, limit + 1)?;
        let page = page(found, limit, |(id, _)| id.to_string());
        let items = page.items.into_iter().map(|(_, asset)| asset).collect();
        Ok(Page { items, next: page.next })
    }

    fn assets_with_hash(
        &mut self,
        workspace: WorkspaceId,
        kind: AssetKind,
        hash: &str,
    ) -> Result<Vec<Asset>, StoreError> {
        assets::of_hash(&self.connection, &self.path, (workspace, kind), hash)
    }

    fn asset_container(
        &mut self,
        workspace: WorkspaceId,
        kind: AssetKind,
        name: &str,
    ) -> Result<Option<ContainerView>, StoreError> {
        assets::container(&self.connection, &self.path, (workspace, kind, name))
    }

    fn asset_containers(
        &mut self,
        workspace: WorkspaceId,
        kind: AssetKind,
        archived: Archived,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<ContainerView>, StoreError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let (of, after) = ((workspace, kind, archived), after.unwrap_or_default());
        let found = assets::containers(&self.connection, &self.path, of, after, limit + 1)?;
        Ok(page(found, limit, |view| view.container.name.to_ascii_lowercase()))
    }

    fn verify_activity(&mut self) -> Result<ActivityChain, StoreError> {
        activity::verify(&self.connection, &self.path)
    }

    fn events(&mut self, after: Revision, limit: usize) -> Result<Vec<Event>, StoreError> {
        let limit = limit.clamp(1, EVENTS_MAX);
        events::after(&self.connection, &self.path, after, limit)
    }

    fn size(&mut self) -> Result<DatabaseSize, StoreError> {
        size::measure(&self.connection, &self.path, size::MAIN)
    }

    fn event_range(&mut self) -> Result<(Revision, Revision), StoreError> {
        let floor = events::floor(&self.connection, &self.path)?;
        Ok((floor, Revision(Meta::read(&self.connection, &self.path)?.last_revision)))
    }
}
