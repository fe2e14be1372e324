//! The activity log: records in a chain of digests.

use std::path::Path;

use muster_core::model::{Activity, Scope};
use muster_core::time::Wall;
use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};

use super::doc;
use super::fault::Doing;
use super::write::Writer;
use crate::{ActivityChain, ActivityEntry, ActivityQuery, StoreError};

/// How many records a commit deletes at most.
const PRUNED_MAX: usize = 64;

/// The predecessor of the very first record.
const START: &str = "";

/// Adds a record to the end of the chain.
pub(super) fn append(
    connection: &Connection,
    path: &Path,
    activity: &Activity,
) -> Result<(), StoreError> {
    let doing = "committing";
    let last: Option<(i64, String)> = connection
        .prepare_cached("SELECT number, digest FROM activity ORDER BY number DESC LIMIT 1")
        .and_then(|mut statement| {
            statement.query_row((), |row| Ok((row.get(0)?, row.get(1)?))).optional()
        })
        .doing(doing, path)?;
    let (number, previous) = last.unwrap_or((0, START.to_owned()));
    let text = doc::encode(activity);
    let digest = digest(&previous, &text);
    connection
        .prepare_cached(
            "INSERT INTO activity (number, at_us, subscription, doc, previous, digest)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )
        .and_then(|mut statement| {
            let subscription = subscription(&activity.request.scope);
            statement.execute((number + 1, activity.at.0, subscription, text, previous, digest))
        })
        .doing(doing, path)?;
    Ok(())
}

/// Deletes the oldest records, if they are from before this time: a few with each commit, but never the last one. The
/// `previous` of the first one that is kept still has the digest of the last one that was deleted, so the chain can be
/// verified from there on.
pub(super) fn prune(connection: &Connection, path: &Path, before: Wall) -> Result<(), StoreError> {
    // Time never goes back, so only the first records can be too old. Most commits find none and look at one only.
    let sql = "SELECT number FROM activity WHERE number = (SELECT min(number) FROM activity) AND at_us < ?1";
    if doc::rows(connection, path, sql, (doc::key(before.0),), |_| Ok(()))?.is_empty() {
        return Ok(());
    }
    let sql = "DELETE FROM activity WHERE number IN
               (SELECT number FROM (SELECT number, at_us FROM activity ORDER BY number LIMIT ?2)
                WHERE at_us < ?1) AND number < (SELECT max(number) FROM activity)";
    Writer { connection, path }.run(sql, (doc::key(before.0), PRUNED_MAX))
}

fn digest(previous: &str, text: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(previous.as_bytes());
    hasher.update(text.as_bytes());
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn subscription(scope: &Scope) -> &str {
    match scope {
        Scope::Everything => "",
        Scope::Subscription(subscription) | Scope::Group { subscription, .. } => subscription,
        Scope::Workspace(key) | Scope::Compute { workspace: key, .. } => &key.subscription,
    }
}

/// Newest first.
pub(super) fn entries(
    connection: &Connection,
    path: &Path,
    query: &ActivityQuery,
    before: u64,
    limit: usize,
) -> Result<Vec<ActivityEntry>, StoreError> {
    let sql = "SELECT doc, number, digest FROM activity \
               WHERE (?1 IS NULL OR subscription = ?1) AND at_us BETWEEN ?2 AND ?3 AND number < ?4 \
               ORDER BY number DESC LIMIT ?5";
    let subscription = query.subscription.as_deref().map(str::to_ascii_lowercase);
    let (since, until) = (doc::key(query.since.0), doc::key(query.until.0));
    let values = (subscription, since, until, doc::key(before), limit);
    doc::rows(connection, path, sql, values, |row| {
        Ok(ActivityEntry {
            activity: doc::decode(row, 0, path)?,
            number: row.get(1).doing("reading a row", path)?,
            digest: row.get(2).doing("reading a row", path)?,
        })
    })
}

/// Follows the whole chain.
pub(super) fn verify(connection: &Connection, path: &Path) -> Result<ActivityChain, StoreError> {
    let mut chain = ActivityChain { entries: 0, head: START.into(), broken_at: None };
    let mut next: Option<u64> = None;
    let sql = "SELECT number, doc, previous, digest FROM activity ORDER BY number";
    doc::each(connection, path, sql, (), |row| {
        let doing = "reading a row";
        let number: u64 = row.get(0).doing(doing, path)?;
        let text: String = row.get(1).doing(doing, path)?;
        let previous: String = row.get(2).doing(doing, path)?;
        let found: Box<str> = row.get(3).doing(doing, path)?;
        // The first record that is kept follows a deleted one, unless it is the very first.
        let follows = match next {
            Some(next) => number == next && *previous == *chain.head,
            None => number > 1 || previous == START,
        };
        if !follows || *found != *digest(&previous, &text) {
            chain.broken_at.get_or_insert(number);
        }
        next = Some(number + 1);
        chain.entries += 1;
        chain.head = found;
        Ok(())
    })?;
    Ok(chain)
}
