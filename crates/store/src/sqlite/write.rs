//! Writes changes as rows. Nothing here computes a state: a change contains the whole record.

use std::path::Path;

use muster_core::Change;
use muster_core::access::AccessChange;
use muster_core::governance::GovernanceChange;
use muster_core::hosts::HostChange;
use muster_core::model::{
    AttemptRecord, Cluster, ClusterPhase, Job, JobSpec, LedgerLine, Node, NodePhase, Operation,
    OperationKind, OperationStatus, Scope, Workspace,
};
use muster_core::time::{Span, Wall};
use rusqlite::{Connection, Params};

use super::doc::{encode, word};
use super::fault::Doing;
use super::{activity, assets, children, datastores, deployments, jobs, packed, trees};
use crate::StoreError;

/// How long a client can ask how an operation ended.
const OPERATIONS_KEPT: Span = Span::seconds(24 * 3600);

/// Updates the rows as the change says.
pub(super) fn rows(
    connection: &Connection,
    path: &Path,
    change: &Change,
) -> Result<(), StoreError> {
    let writer = Writer { connection, path };
    match change {
        Change::PrincipalSeen(principal) => writer.run(
            "INSERT INTO principals (id, object_id, doc) VALUES (?1, ?2, ?3)
             ON CONFLICT (id) DO UPDATE SET object_id = excluded.object_id, doc = excluded.doc",
            (principal.id.0, &principal.object_id, encode(principal)),
        ),
        Change::WorkspaceChanged(workspace) => writer.workspace(workspace),
        Change::WorkspaceGone(id) => {
            trees::forget(&writer, *id)?;
            datastores::forget(&writer, *id)?;
            assets::forget(&writer, *id)?;
            writer.run("DELETE FROM workspaces WHERE id = ?1", (id.0,))
        }
        Change::ClusterChanged { cluster, .. } => writer.cluster(cluster),
        Change::JobSubmitted { job, spec } => writer.new_job(job, spec),
        Change::ChildCreated { job, .. } => children::create(&writer, job),
        Change::JobChanged { job, .. } => writer.job(job),
        Change::JobMetadataChanged { job, metadata } => jobs::put_metadata(&writer, *job, metadata),
        Change::JobGone { job, last, .. } => jobs::remove(&writer, *job, *last),
        Change::MemberChanged(change) => writer.run(
            "INSERT INTO members (job, rank, doc) VALUES (?1, ?2, ?3)
             ON CONFLICT (job, rank) DO UPDATE SET doc = excluded.doc",
            (change.job.0, change.rank, encode(change)),
        ),
        Change::AttemptEnded(attempt) => writer.attempt(attempt),
        Change::TreeSaved(saved) => trees::saved(&writer, saved),
        Change::NodeChanged { node, .. } => writer.node(node),
        Change::LedgerPosted(line) => writer.ledger(line),
        Change::AccountChanged(account) => writer.run(
            "INSERT INTO accounts (cluster, principal, doc) VALUES (?1, ?2, ?3)
             ON CONFLICT (cluster, principal) DO UPDATE SET doc = excluded.doc",
            (account.cluster.0, account.principal.0, encode(account)),
        ),
        Change::QuotaChanged(quota) => writer.run(
            "INSERT INTO quotas (subscription, location, doc) VALUES (?1, ?2, ?3)
             ON CONFLICT (subscription, location) DO UPDATE SET doc = excluded.doc",
            (&*quota.scope.subscription, &*quota.scope.location, encode(quota)),
        ),
        Change::AccessChanged(change) => writer.access(change),
        Change::GovernanceChanged(change) => writer.governance(change),
        Change::HostsChanged(change) => writer.hosts(change),
        Change::DeploymentChanged(deployment) => deployments::put(&writer, deployment),
        Change::DeploymentGone { group, name } => deployments::remove(&writer, group, Some(name)),
        Change::DatastoreChanged(datastore) => datastores::put(&writer, datastore),
        Change::DatastoreGone { workspace, name } => datastores::remove(&writer, *workspace, name),
        Change::AssetChanged(asset) => assets::put(&writer, asset),
        Change::AssetGone { workspace, kind, name, version } => {
            assets::remove(&writer, (*workspace, *kind, name), version)
        }
        Change::AssetContainerChanged(container) => assets::put_container(&writer, container),
        Change::AssetContainerGone { workspace, kind, name } => {
            assets::remove_container(&writer, (*workspace, *kind, name))
        }
        Change::ActivityNoted(activity) => activity::append(connection, path, activity),
        Change::OperationChanged(operation) => writer.operation(operation),
        Change::EffectQueued(effect) => writer.run(
            "INSERT INTO outbox (id, doc) VALUES (?1, ?2)
             ON CONFLICT (id) DO UPDATE SET doc = excluded.doc",
            (effect.id.0, encode(effect)),
        ),
        Change::EffectSettled { id } => writer.run("DELETE FROM outbox WHERE id = ?1", (id.0,)),
    }
}

/// Deletes operations that ended long ago.
pub(super) fn prune_operations(
    connection: &Connection,
    path: &Path,
    wall: Wall,
) -> Result<(), StoreError> {
    let before = wall.0.saturating_sub(OPERATIONS_KEPT.0);
    // A few at a time: the work of a commit must not grow with what others left behind.
    Writer { connection, path }.run(
        "DELETE FROM operations WHERE id IN
         (SELECT id FROM operations WHERE ended_us < ?1 ORDER BY ended_us LIMIT 64)",
        (before,),
    )
}

pub(super) struct Writer<'c> {
    pub(super) connection: &'c Connection,
    pub(super) path: &'c Path,
}

impl Writer<'_> {
    pub(super) fn run(&self, sql: &str, values: impl Params) -> Result<(), StoreError> {
        self.count(sql, values).map(|_| ())
    }

    pub(super) fn count(&self, sql: &str, values: impl Params) -> Result<usize, StoreError> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(values))
            .doing("committing", self.path)
    }

    fn workspace(&self, workspace: &Workspace) -> Result<(), StoreError> {
        let key = workspace.key.folded();
        self.run(
            "INSERT INTO workspaces (id, subscription, resource_group, folded, doc)
             VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (id) DO UPDATE SET doc = excluded.doc",
            (workspace.id.0, key.subscription, key.resource_group, key.name, encode(workspace)),
        )
    }

    fn cluster(&self, cluster: &Cluster) -> Result<(), StoreError> {
        if cluster.phase == ClusterPhase::Gone {
            self.run("DELETE FROM accounts WHERE cluster = ?1", (cluster.id.0,))?;
            return self.run("DELETE FROM clusters WHERE id = ?1", (cluster.id.0,));
        }
        self.run(
            "INSERT INTO clusters (id, workspace, folded, name, doc) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (id) DO UPDATE SET doc = excluded.doc",
            (
                cluster.id.0,
                cluster.workspace.0,
                cluster.name.folded(),
                cluster.name.as_str(),
                encode(cluster),
            ),
        )
    }

    fn node(&self, node: &Node) -> Result<(), StoreError> {
        if node.phase() == NodePhase::Gone {
            return self.run("DELETE FROM nodes WHERE id = ?1", (node.id.0,));
        }
        let job = node.leases().first().map(|lease| lease.job.0);
        self.run(
            "INSERT INTO nodes (id, cluster, phase, job, doc) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (id) DO UPDATE SET
             phase = excluded.phase, job = excluded.job, doc = excluded.doc",
            (node.id.0, node.cluster.0, word(&node.phase()), job, encode(node)),
        )
    }

    /// A duplicate name fails the commit: the core has been told which names are taken, so it must not continue.
    fn new_job(&self, job: &Job, spec: &JobSpec) -> Result<(), StoreError> {
        self.run(
            "INSERT INTO specs (hash, doc) VALUES (?1, ?2) ON CONFLICT (hash) DO NOTHING",
            (job.spec.to_string(), encode(spec)),
        )?;
        self.run(
            "INSERT INTO jobs (id, workspace, folded, cluster, principal, spec, phase, live, doc)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            (
                job.id.0,
                job.workspace.0,
                job.name.to_ascii_lowercase(),
                job.cluster.0,
                job.principal.0,
                job.spec.to_string(),
                word(&job.phase()),
                !job.phase().is_terminal(),
                encode(job),
            ),
        )?;
        spec.code.map_or(Ok(()), |code| trees::brought(self, job, &code))
    }

    fn job(&self, job: &Job) -> Result<(), StoreError> {
        let phase = job.phase();
        let rows = match job.parent {
            Some(_) => children::update(self, job)?,
            None => self.count(
                "UPDATE jobs SET phase = ?2, live = ?3, doc = ?4 WHERE id = ?1",
                (job.id.0, word(&phase), !phase.is_terminal(), encode(job)),
            )?,
        };
        // The document includes all its members again.
        if job.nodes > 1 || job.attempt().is_none() {
            self.run("DELETE FROM members WHERE job = ?1", (job.id.0,))?;
        }
        if rows == 1 {
            return Ok(());
        }
        let what = format!("job {} has no row", job.id);
        Err(StoreError::Damaged { path: self.path.to_owned(), what })
    }

    /// One record per attempt: a second one fails the commit.
    fn attempt(&self, attempt: &AttemptRecord) -> Result<(), StoreError> {
        self.run(
            "INSERT INTO attempts (job, epoch, doc, packed) VALUES (?1, ?2, '', ?3)",
            (attempt.job.0, attempt.epoch.0, packed::pack(&encode(attempt), attempt.epoch.0)),
        )
    }

    fn ledger(&self, line: &LedgerLine) -> Result<(), StoreError> {
        let served = line.served.as_ref();
        let parent = served.and_then(|served| served.parent);
        let tags = (!line.tags.is_empty()).then(|| encode(&line.tags));
        let (resource, category, outcome) =
            (line.resource.as_str(), line.category.as_str(), line.outcome.as_str());
        self.run(
            "INSERT INTO ledger (workspace, cluster_name, node, resource, category, outcome, principal,
             job, epoch, tags, part, price_micro_usd_per_hour, from_us, to_us, parent)
             VALUES (?1, (SELECT name FROM clusters WHERE id = ?2), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
             ?11, ?12, ?13, ?14, ?15)",
            rusqlite::params![
                line.workspace.0,
                line.cluster.0,
                line.node.0,
                resource,
                category,
                outcome,
                served.map(|served| served.principal.0),
                served.map(|served| served.job.0),
                served.map(|served| served.epoch.0),
                tags,
                line.part.0,
                line.price_micro_usd_per_hour,
                line.from.0,
                line.to.0,
                parent.map(|parent| parent.0)
            ],
        )?;
        if let Some(parent) = parent {
            let time = (line.part, line.price_micro_usd_per_hour, line.span());
            children::add_cost(self, parent, time)?;
        }
        self.run(
            "INSERT INTO ledger_totals
             VALUES (?1, (SELECT name FROM clusters WHERE id = ?2), ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT DO UPDATE SET span_us = span_us + excluded.span_us",
            (
                line.workspace.0,
                line.cluster.0,
                resource,
                category,
                outcome,
                served.map_or(0, |served| served.principal.0),
                line.part.0,
                line.price_micro_usd_per_hour,
                line.span().0,
            ),
        )
    }

    fn access(&self, change: &AccessChange) -> Result<(), StoreError> {
        match change {
            AccessChange::User(user) => self.run(
                "INSERT INTO users (folded, doc) VALUES (?1, ?2)
                 ON CONFLICT (folded) DO UPDATE SET doc = excluded.doc",
                (user.name.to_ascii_lowercase(), encode(user)),
            ),
            AccessChange::UserGone(name) => {
                self.run("DELETE FROM users WHERE folded = ?1", (&**name,))
            }
            AccessChange::Role(role) => self.run(
                "INSERT INTO roles (folded, doc) VALUES (?1, ?2)
                 ON CONFLICT (folded) DO UPDATE SET doc = excluded.doc",
                (role.name.to_ascii_lowercase(), encode(role)),
            ),
            AccessChange::RoleGone(name) => {
                self.run("DELETE FROM roles WHERE folded = ?1", (&**name,))
            }
        }
    }

    fn governance(&self, change: &GovernanceChange) -> Result<(), StoreError> {
        match change {
            GovernanceChange::Group(group) => self.run(
                "INSERT INTO resource_groups (subscription, folded, doc) VALUES (?1, ?2, ?3)
                 ON CONFLICT (subscription, folded) DO UPDATE SET doc = excluded.doc",
                (
                    group.subscription.to_ascii_lowercase(),
                    group.name.to_ascii_lowercase(),
                    encode(group),
                ),
            ),
            GovernanceChange::GroupGone(scope) => match scope {
                Scope::Group { subscription, resource_group } => {
                    deployments::remove(self, scope, None)?;
                    self.run(
                        "DELETE FROM resource_groups WHERE subscription = ?1 AND folded = ?2",
                        (subscription, resource_group),
                    )
                }
                other => unreachable!("{other} is not a resource group"),
            },
            GovernanceChange::Lock(lock) => self.run(
                "INSERT INTO locks (scope, folded, doc) VALUES (?1, ?2, ?3)
                 ON CONFLICT (scope, folded) DO UPDATE SET doc = excluded.doc",
                (lock.scope.to_string(), lock.name.to_ascii_lowercase(), encode(lock)),
            ),
            GovernanceChange::LockGone { scope, name } => self.run(
                "DELETE FROM locks WHERE scope = ?1 AND folded = ?2",
                (scope.to_string(), name),
            ),
        }
    }

    fn hosts(&self, change: &HostChange) -> Result<(), StoreError> {
        match change {
            HostChange::Host(host) => self.run(
                "INSERT INTO hosts (name, doc) VALUES (?1, ?2)
                 ON CONFLICT (name) DO UPDATE SET doc = excluded.doc",
                (host.name.as_str(), encode(host)),
            ),
            HostChange::HostGone(name) => {
                self.run("DELETE FROM hosts WHERE name = ?1", (name.as_str(),))
            }
            HostChange::Ticket(ticket) => self.run(
                "INSERT INTO tickets (digest, doc) VALUES (?1, ?2)
                 ON CONFLICT (digest) DO UPDATE SET doc = excluded.doc",
                (ticket.digest.to_string(), encode(ticket)),
            ),
            HostChange::TicketGone(digest) => {
                self.run("DELETE FROM tickets WHERE digest = ?1", (digest.to_string(),))
            }
        }
    }

    /// Deployments are kept for a long time, and only the operation records whether a resource failed. So failed
    /// operations are kept as if they had not ended.
    fn operation(&self, operation: &Operation) -> Result<(), StoreError> {
        let has_failed =
            matches!(operation.status, OperationStatus::Failed | OperationStatus::Canceled);
        let is_kept = has_failed && operation.kind == OperationKind::PutCluster;
        let ended = operation.ended_at.filter(|_| !is_kept);
        self.run(
            "INSERT INTO operations (id, ended_us, doc) VALUES (?1, ?2, ?3)
             ON CONFLICT (id) DO UPDATE SET ended_us = excluded.ended_us, doc = excluded.doc",
            (operation.id.0, ended.map(|at| at.0), encode(operation)),
        )
    }
}
