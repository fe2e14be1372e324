//! A node saves the files that its member of an attempt passes on to the next one.

use crate::change::Change;
use crate::input::{InputResult, Refused, Reply, SaveRequest};
use crate::model::{Job, SavedTree};
use crate::step::Transaction;

/// Accepts them only from the holder of the live epoch: an attempt that was given up must not overwrite the files of
/// its successor.
pub(crate) fn on_tree(tx: &mut Transaction<'_>, request: &SaveRequest) -> InputResult {
    let SaveRequest { node, epoch, tree, files, bytes, is_final } = request;
    let node = tx.world.node_by_name(node);
    let lease = node.and_then(|node| node.lease_of(*epoch));
    let job = lease.and_then(|lease| tx.world.job(lease.job));
    let (Some(lease), Some(job), Some(attempt)) = (lease, job, job.and_then(Job::attempt)) else {
        let message = format!("attempt {epoch} is over, or is not on this node; nothing was saved");
        return Err(Refused::conflict("epoch", message));
    };
    let saved = SavedTree {
        job: job.id,
        rank: lease.rank,
        workspace: job.workspace,
        epoch: *epoch,
        attempt: attempt.number,
        tree: *tree,
        files: *files,
        bytes: *bytes,
        is_final: *is_final,
        at: tx.now.wall,
    };
    tx.emit(Change::TreeSaved(saved));
    Ok(Reply::Noted)
}
