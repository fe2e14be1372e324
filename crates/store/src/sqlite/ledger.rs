//! The ledger: closed lines and the running meters of existing nodes, grouped as requested.

mod groups;

use std::path::Path;

use muster_core::model::{AttemptOutcome, Category, Cluster, Cost, Job, Node, Part};
use muster_core::time::{Span, Wall};
use rusqlite::{Connection, Row};

use self::groups::{Group, Groups};
use super::fault::Doing;
use super::{children, doc, members};
use crate::{LedgerBy, LedgerQuery, LedgerSum, StoreError};

const DOING: &str = "reading the ledger";

/// Sums by category and outcome, in the order of `Category::ALL` and `AttemptOutcome::ALL`.
type Kinds = [[Cost; AttemptOutcome::ALL.len()]; Category::ALL.len()];

/// The owners of a piece of time, as far as the query needs them.
#[derive(Clone, Copy)]
struct Owner<'a> {
    cluster: &'a str,
    category: Category,
    principal: Option<u64>,
    job: Option<u64>,
    /// The cluster's tags as JSON.
    tags: Option<&'a str>,
}

struct Bill<'a> {
    query: &'a LedgerQuery,
    groups: Groups<'a>,
    /// By the number of the group.
    sums: Vec<Kinds>,
}

impl<'a> Bill<'a> {
    fn new(connection: &'a Connection, path: &'a Path, query: &'a LedgerQuery) -> Bill<'a> {
        Bill { query, groups: Groups::new(connection, path), sums: Vec::new() }
    }

    fn group_of(&mut self, owner: &Owner<'_>) -> Result<Group, StoreError> {
        match &self.query.by {
            LedgerBy::Cluster => Ok(self.groups.named(owner.cluster)),
            LedgerBy::Category => Ok(self.groups.named(owner.category.as_str())),
            LedgerBy::User => match owner.principal {
                Some(principal) => self.groups.of_principal(principal),
                None => Ok(Groups::UNGROUPED),
            },
            LedgerBy::Tag(key) => self.groups.of_tag(key, owner.job, owner.tags),
        }
    }

    fn add(
        &mut self,
        owner: &Owner<'_>,
        outcome: AttemptOutcome,
        (part, span): (Part, Span),
        price: u64,
    ) -> Result<(), StoreError> {
        if span == Span::ZERO {
            return Ok(());
        }
        let group = self.group_of(owner)?;
        if group.0 >= self.sums.len() {
            self.sums.resize(group.0 + 1, Kinds::default());
        }
        // Both are in the order in which they are declared.
        let sum = &mut self.sums[group.0][owner.category as usize][outcome as usize];
        sum.add(part, span, price);
        Ok(())
    }

    /// How much of a piece counts.
    fn span(&self, from: Wall, to: Wall) -> Span {
        to - self.query.since.map_or(from, |since| since.max(from))
    }

    /// The time that is running up on a node right now.
    fn add_running(&mut self, owner: &Owner<'_>, node: &Node) -> Result<(), StoreError> {
        let Some(meter) = node.meter else { return Ok(()) };
        let owner = Owner { category: meter.category, ..*owner };
        let span = self.span(meter.since, self.query.now);
        self.add(&owner, AttemptOutcome::None, (meter.part, span), node.price_micro_usd_per_hour)
    }

    /// The time of an attempt that has not ended. It becomes lines, with an outcome, at the end of the attempt.
    fn add_spent(&mut self, owner: &Owner<'_>, job: &Job) -> Result<(), StoreError> {
        let members = job.attempt().map_or(&[][..], |attempt| &attempt.members);
        for member in members {
            let closed = member.spent.iter().map(|piece| (piece.category, piece.from, piece.to));
            let open = member.meter.map(|meter| (meter.category, meter.since, self.query.now));
            for (category, from, to) in closed.chain(open) {
                let owner = Owner { category, ..*owner };
                let piece = (member.part, self.span(from, to));
                self.add(&owner, AttemptOutcome::None, piece, member.price_micro_usd_per_hour)?;
            }
        }
        Ok(())
    }

    fn into_sums(self) -> Vec<LedgerSum> {
        let mut sums = Vec::new();
        for (group, kinds) in self.groups.into_sorted_names() {
            let Some(by_category) = self.sums.get(group.0) else { continue };
            for (category, by_outcome) in Category::ALL.into_iter().zip(by_category) {
                for (outcome, sum) in AttemptOutcome::ALL.into_iter().zip(by_outcome) {
                    if *sum != Cost::default() {
                        sums.push(LedgerSum {
                            group: kinds.clone(),
                            category,
                            outcome,
                            node_us: sum.node_us(),
                            micro_usd: sum.micro_usd(),
                        });
                    }
                }
            }
        }
        sums
    }
}

/// Grouped as requested, in the order of the groups; time without a group comes first. The caller has begun a
/// transaction.
pub(super) fn sums(
    connection: &Connection,
    path: &Path,
    workspace: u64,
    query: &LedgerQuery,
) -> Result<Vec<LedgerSum>, StoreError> {
    let mut bill = Bill::new(connection, path, query);
    match (&query.by, query.since) {
        (LedgerBy::Cluster | LedgerBy::User | LedgerBy::Category, None) => {
            add_totals(&mut bill, connection, path, workspace)?;
        }
        (LedgerBy::Cluster | LedgerBy::User | LedgerBy::Category, Some(_))
        | (LedgerBy::Tag(_), _) => {
            add_lines(&mut bill, connection, path, workspace)?;
        }
    }
    add_open(&mut bill, connection, path, workspace)?;
    Ok(bill.into_sums())
}

fn add_totals(
    bill: &mut Bill<'_>,
    connection: &Connection,
    path: &Path,
    workspace: u64,
) -> Result<(), StoreError> {
    let sql = "SELECT cluster_name, category, outcome, principal, part, price_micro_usd_per_hour, \
               span_us FROM ledger_totals WHERE workspace = ?1";
    doc::each(connection, path, sql, (workspace,), |row| {
        let (category, outcome) = kind_of(text(row, 1, path)?, text(row, 2, path)?, path)?;
        let principal: u64 = row.get(3).doing(DOING, path)?;
        let owner = Owner {
            cluster: text(row, 0, path)?,
            category,
            principal: Some(principal).filter(|principal| *principal != 0),
            job: None,
            tags: None,
        };
        let part = Part(row.get(4).doing(DOING, path)?);
        let span = Span(row.get(6).doing(DOING, path)?);
        bill.add(&owner, outcome, (part, span), row.get(5).doing(DOING, path)?)
    })
}

/// Line by line, from the first that ended after the beginning.
fn add_lines(
    bill: &mut Bill<'_>,
    connection: &Connection,
    path: &Path,
    workspace: u64,
) -> Result<(), StoreError> {
    let sql = "SELECT cluster_name, category, outcome, principal, coalesce(parent, job), tags, \
               part, price_micro_usd_per_hour, from_us, to_us FROM ledger \
               WHERE workspace = ?1 AND to_us > ?2";
    let since = doc::key(bill.query.since.map_or(0, |since| since.0));
    doc::each(connection, path, sql, (workspace, since), |row| {
        let (category, outcome) = kind_of(text(row, 1, path)?, text(row, 2, path)?, path)?;
        let tags = row.get_ref(5).doing(DOING, path)?;
        let owner = Owner {
            cluster: text(row, 0, path)?,
            category,
            principal: row.get(3).doing(DOING, path)?,
            job: row.get(4).doing(DOING, path)?,
            tags: tags.as_str_or_null().map_err(|why| doc::damaged(path, &why))?,
        };
        let part = Part(row.get(6).doing(DOING, path)?);
        let from = Wall(row.get(8).doing(DOING, path)?);
        let to = Wall(row.get(9).doing(DOING, path)?);
        let span = bill.span(from, to);
        bill.add(&owner, outcome, (part, span), row.get(7).doing(DOING, path)?)
    })
}

/// The time that has no lines yet.
fn add_open(
    bill: &mut Bill<'_>,
    connection: &Connection,
    path: &Path,
    workspace: u64,
) -> Result<(), StoreError> {
    let sql = "SELECT doc FROM clusters WHERE workspace = ?1";
    let clusters: Vec<Cluster> = doc::many(connection, path, sql, (workspace,))?;
    for cluster in clusters {
        let tags = doc::encode(&*cluster.spec.tags);
        let owner = Owner {
            cluster: cluster.name.as_str(),
            category: Category::Start,
            principal: None,
            job: None,
            tags: Some(&tags),
        };
        let sql = "SELECT doc FROM nodes WHERE cluster = ?1";
        doc::each(connection, path, sql, (cluster.id.0,), |row| {
            bill.add_running(&owner, &doc::decode(row, 0, path)?)
        })?;
        // The phases in which a job has nodes are listed, so that a million queued jobs are not read.
        let sql = "SELECT doc FROM jobs WHERE cluster = ?1 AND live = 1 \
                   AND phase IN ('Starting', 'Running', 'CancelRequested')";
        doc::each(connection, path, sql, (cluster.id.0,), |row| {
            let job = members::overlay(connection, path, doc::decode(row, 0, path)?)?;
            let served = Owner { principal: Some(job.principal.0), job: Some(job.id.0), ..owner };
            bill.add_spent(&served, &job)
        })?;
        children::each_active(connection, path, cluster.id.0, |child| {
            let parent = child.parent.map(|parent| parent.0);
            let served = Owner { principal: Some(child.principal.0), job: parent, ..owner };
            bill.add_spent(&served, child)
        })?;
    }
    Ok(())
}

fn text<'r>(row: &'r Row<'_>, column: usize, path: &Path) -> Result<&'r str, StoreError> {
    let text = row.get_ref(column).doing(DOING, path)?;
    text.as_str().map_err(|why| doc::damaged(path, &why))
}

fn kind_of(
    category: &str,
    outcome: &str,
    path: &Path,
) -> Result<(Category, AttemptOutcome), StoreError> {
    let category = Category::ALL.into_iter().find(|known| known.as_str() == category);
    let outcome = AttemptOutcome::ALL.into_iter().find(|known| known.as_str() == outcome);
    category.zip(outcome).ok_or_else(|| StoreError::Damaged {
        path: path.to_owned(),
        what: "a line of the ledger has an unknown category or outcome".to_owned(),
    })
}
