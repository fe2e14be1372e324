//! What passes through the controller, stage by stage.

use muster_core::time::Wall;
use muster_core::{Change, Effect, Input, InputResult, Output, Wake};

use crate::{Revision, StoreError};

/// Admitted inputs that will share a step and a commit. Each has a tag that says where its answer belongs.
#[derive(Debug)]
pub struct Batch<T> {
    pub(super) inputs: Vec<Input>,
    pub(super) tags: Vec<T>,
    /// Reports before them that needed no step.
    pub(super) renewed: Vec<(T, Input, InputResult)>,
    /// Whether the store could not be read for another input.
    pub(super) is_unreadable: bool,
}

impl<T> Default for Batch<T> {
    fn default() -> Batch<T> {
        Batch { inputs: Vec::new(), tags: Vec::new(), renewed: Vec::new(), is_unreadable: false }
    }
}

/// A batch that World contains and the store does not. It has to be committed, or World dropped.
#[must_use]
#[derive(Debug)]
pub struct Pending<T> {
    /// The inputs of the batch, then a tick; or nothing, if no step was needed.
    pub(super) inputs: Vec<Input>,
    pub(super) tags: Vec<T>,
    pub(super) output: Output,
    pub(super) renewed: Vec<(T, Input, InputResult)>,
    pub(super) is_unreadable: bool,
}

impl<T> Pending<T> {
    /// What was stepped. Empty if all inputs were mere renewals.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// What will be written and released. None of it may become visible yet.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Takes the batch apart without a commit: the process dies here.
    pub fn abandon(self) -> (Vec<Input>, Vec<T>, Output) {
        (self.inputs, self.tags, self.output)
    }
}

/// A batch that is on disk, so its results may become visible.
#[must_use]
#[derive(Debug)]
pub struct Released<T> {
    pub changes: Vec<Change>,
    /// In the order of the batch.
    pub answers: Vec<(T, Input, InputResult)>,
    /// When to step again even if no input arrives. `None` if the store has to be opened again first, because it could
    /// not be read for an input.
    pub wake: Option<Wake>,
    /// The wall time that the decisions were based on.
    pub wall: Wall,
    /// The last revision on disk.
    pub revision: Revision,
}

impl<T> Released<T> {
    /// The effects to carry out from now on.
    pub fn effects(&self) -> impl Iterator<Item = &Effect> {
        self.changes.iter().filter_map(|change| match change {
            Change::EffectQueued(effect) => Some(effect),
            _ => None,
        })
    }
}

/// Why an input was not added to a batch. It is certain that nothing was changed.
#[derive(Debug)]
pub enum NotAdmitted {
    /// The store uses its reserve, which is kept for inputs that end something.
    OnReserve,
    /// The facts that the input needs could not be read. The rest of the batch is processed; then the store has to be
    /// opened again.
    Unreadable(StoreError),
}

/// Why an input has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDone {
    /// The disk is full. It is certain that nothing was changed, as with the next two.
    Full,
    /// The file system is read-only.
    ReadOnly,
    /// The store cannot be written to for another reason.
    Failing,
    /// It is unknown whether the changes are on disk.
    Unconfirmed,
}

impl NotDone {
    /// The error for callers while the store accepts no writes.
    pub fn because_of(failed: &StoreError) -> NotDone {
        match failed {
            StoreError::Full { .. } => NotDone::Full,
            StoreError::ReadOnly { .. } => NotDone::ReadOnly,
            _ => NotDone::Failing,
        }
    }
}

/// A batch that was not released. World was dropped.
#[must_use]
#[derive(Debug)]
pub struct Failed<T> {
    /// In the order of the batch.
    pub answers: Vec<(T, Result<InputResult, NotDone>)>,
    pub cause: Cause,
}

#[derive(Debug)]
pub enum Cause {
    /// The core panicked, with this message.
    Panicked(String),
    /// The commit failed. If the store is fenced, another server has claimed it, and this one has to stop.
    Commit(StoreError),
}
