//! The bill so far: closed lines, and what is running up on nodes that exist.

use std::collections::BTreeMap;
use std::path::Path;

use muster_core::model::{Category, Cost, Job, Node, Outcome};
use muster_core::time::{Span, Wall};
use rusqlite::Connection;

use super::doc;
use super::fault::Doing;
use crate::{LedgerSum, StoreError};

/// Node time of one kind: how much, and what it costs. Divided once, when it is shown.
#[derive(Default)]
struct Sum {
    node_us: u128,
    cost: Cost,
}

#[derive(Default)]
struct Bill(BTreeMap<(Box<str>, Category, Outcome), Sum>);

impl Bill {
    fn add(&mut self, cluster: &str, kind: (Category, Outcome), span: Span, price: u64) {
        if span == Span::ZERO {
            return;
        }
        let sum = self.0.entry((cluster.into(), kind.0, kind.1)).or_default();
        sum.node_us += u128::from(span.0);
        sum.cost.add(span, price);
    }

    /// What runs up on a node right now.
    fn add_running(&mut self, cluster: &str, node: &Node, now: Wall) {
        if let Some(meter) = node.meter {
            let kind = (meter.category, Outcome::None);
            self.add(cluster, kind, now - meter.since, node.price_micro_usd_per_hour);
        }
    }

    /// What was spent on an attempt that is not over: it gets its lines, and its outcome, when it is.
    fn add_spent(&mut self, cluster: &str, job: &Job) {
        let members = job.attempt().map_or(&[][..], |attempt| &attempt.members);
        for member in members {
            for piece in &member.spent {
                let kind = (piece.category, Outcome::None);
                self.add(cluster, kind, piece.to - piece.from, member.price_micro_usd_per_hour);
            }
        }
    }

    fn into_sums(self) -> Vec<LedgerSum> {
        let sums = self.0.into_iter().map(|((cluster, category, outcome), sum)| LedgerSum {
            cluster,
            category,
            outcome,
            node_us: u64::try_from(sum.node_us).unwrap_or(u64::MAX),
            micro_usd: sum.cost.micro_usd(),
        });
        sums.collect()
    }
}

/// By cluster, category and outcome. The caller has begun a transaction.
pub(super) fn sums(
    connection: &Connection,
    path: &Path,
    workspace: u64,
    now: Wall,
) -> Result<Vec<LedgerSum>, StoreError> {
    let mut bill = Bill::default();
    let sql = "SELECT cluster_name, category, outcome, price_micro_usd_per_hour, node_us \
               FROM ledger_totals WHERE workspace = ?1";
    doc::rows(connection, path, sql, (workspace,), |row| {
        let column = "reading the ledger";
        let cluster: Box<str> = row.get(0).doing(column, path)?;
        let category: Box<str> = row.get(1).doing(column, path)?;
        let outcome: Box<str> = row.get(2).doing(column, path)?;
        let kind = (doc::from_word(&category, path)?, doc::from_word(&outcome, path)?);
        let span = Span(row.get(4).doing(column, path)?);
        bill.add(&cluster, kind, span, row.get(3).doing(column, path)?);
        Ok(())
    })?;
    let sql = "SELECT n.doc, c.name FROM clusters c JOIN nodes n ON n.cluster = c.id \
               WHERE c.workspace = ?1";
    doc::rows(connection, path, sql, (workspace,), |row| {
        let node: Node = doc::decode(row, 0, path)?;
        let cluster: Box<str> = row.get(1).doing("reading the ledger", path)?;
        bill.add_running(&cluster, &node, now);
        Ok(())
    })?;
    // The phases that hold nodes are named, so that a million queued jobs are not looked at.
    let sql = "SELECT j.doc, c.name FROM clusters c JOIN jobs j ON j.cluster = c.id \
               AND j.live = 1 AND j.phase IN ('Starting', 'Running', 'CancelRequested') \
               WHERE c.workspace = ?1";
    doc::rows(connection, path, sql, (workspace,), |row| {
        let job: Job = doc::decode(row, 0, path)?;
        let cluster: Box<str> = row.get(1).doing("reading the ledger", path)?;
        bill.add_spent(&cluster, &job);
        Ok(())
    })?;
    Ok(bill.into_sums())
}
