//! The bill so far: closed lines, and what is running up on nodes that exist.

use std::collections::BTreeMap;
use std::path::Path;

use muster_core::model::{Category, Cost, Job, Node, Outcome, Part};
use muster_core::time::{Span, Wall};
use rusqlite::Connection;

use super::fault::Doing;
use super::{doc, members};
use crate::{LedgerSum, StoreError};

#[derive(Default)]
struct Bill(BTreeMap<(Box<str>, Category, Outcome), Cost>);

impl Bill {
    fn add(
        &mut self,
        cluster: &str,
        kind: (Category, Outcome),
        (part, span): (Part, Span),
        price: u64,
    ) {
        if span > Span::ZERO {
            let sum = self.0.entry((cluster.into(), kind.0, kind.1)).or_default();
            sum.add(part, span, price);
        }
    }

    /// What runs up on a node right now.
    fn add_running(&mut self, cluster: &str, node: &Node, now: Wall) {
        if let Some(meter) = node.meter {
            let kind = (meter.category, Outcome::None);
            let running = (meter.part, now - meter.since);
            self.add(cluster, kind, running, node.price_micro_usd_per_hour);
        }
    }

    /// What was spent on an attempt that is not over: it gets its lines, and its outcome, when it is.
    fn add_spent(&mut self, cluster: &str, job: &Job, now: Wall) {
        let members = job.attempt().map_or(&[][..], |attempt| &attempt.members);
        for member in members {
            let price = member.price_micro_usd_per_hour;
            for piece in &member.spent {
                let kind = (piece.category, Outcome::None);
                self.add(cluster, kind, (member.part, piece.to - piece.from), price);
            }
            if let Some(meter) = member.meter {
                let kind = (meter.category, Outcome::None);
                self.add(cluster, kind, (meter.part, now - meter.since), price);
            }
        }
    }

    fn into_sums(self) -> Vec<LedgerSum> {
        let sums = self.0.into_iter().map(|((cluster, category, outcome), sum)| LedgerSum {
            cluster,
            category,
            outcome,
            node_us: sum.node_us(),
            micro_usd: sum.micro_usd(),
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
    let sql = "SELECT cluster_name, category, outcome, price_micro_usd_per_hour, part, span_us \
               FROM ledger_totals WHERE workspace = ?1";
    doc::rows(connection, path, sql, (workspace,), |row| {
        let column = "reading the ledger";
        let cluster: Box<str> = row.get(0).doing(column, path)?;
        let category: Box<str> = row.get(1).doing(column, path)?;
        let outcome: Box<str> = row.get(2).doing(column, path)?;
        let kind = kind_of(&category, &outcome, path)?;
        let part = Part(row.get(4).doing(column, path)?);
        let span = Span(row.get(5).doing(column, path)?);
        bill.add(&cluster, kind, (part, span), row.get(3).doing(column, path)?);
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
        let job = members::overlay(connection, path, doc::decode(row, 0, path)?)?;
        let cluster: Box<str> = row.get(1).doing("reading the ledger", path)?;
        bill.add_spent(&cluster, &job, now);
        Ok(())
    })?;
    Ok(bill.into_sums())
}

fn kind_of(category: &str, outcome: &str, path: &Path) -> Result<(Category, Outcome), StoreError> {
    let category = Category::ALL.into_iter().find(|known| known.as_str() == category);
    let outcome = Outcome::ALL.into_iter().find(|known| known.as_str() == outcome);
    category.zip(outcome).ok_or_else(|| StoreError::Damaged {
        path: path.to_owned(),
        what: "a line of the ledger is of no known kind".to_owned(),
    })
}
