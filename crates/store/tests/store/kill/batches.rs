//! The batches of the writer. They are the same for the same number, so that the test knows what must be there.

use muster_core::ids::{ClusterId, EffectId, JobId, NodeId, PrincipalId, WorkspaceId};
use muster_core::model::{
    CancelReason, Job, JobEvent, JobKind, JobSpec, JobState, Principal, SpecHash,
};
use muster_core::time::Wall;
use muster_core::{Change, Effect, EffectKind, WorldRows};
use muster_store::conformance::Chance;

/// Keeps the ids of one batch apart from those of the next.
const IDS_PER_BATCH: u64 = 1_000;

/// New rows, changed rows and deleted rows; mostly small, at times larger than the whole limit of the log.
pub fn batch(number: u64) -> impl Iterator<Item = Change> {
    let id = number * IDS_PER_BATCH;
    let jobs = jobs_in(number);
    let principal =
        Principal { id: PrincipalId(id), object_id: number.to_string().into(), name: "n".into() };
    let effect = Effect {
        id: EffectId(id),
        queued_at: Wall(number),
        kind: EffectKind::DeleteNode { node: NodeId(1), name: "n".into(), failure: None },
    };
    let started = [Change::PrincipalSeen(principal), Change::EffectQueued(effect)];
    let submitted = (0..jobs).map(move |place| {
        let (job, spec) = job(number, place);
        Change::JobSubmitted { job: job.into(), spec: spec.into() }
    });
    // Half of the jobs of the last batch end, and its effect is done.
    let before = number.checked_sub(1).filter(|before| *before > 0);
    let ended = before.into_iter().flat_map(|before| {
        (0..jobs_in(before) / 2).map(move |place| {
            let state = JobState::Canceled { at: Wall(before), why: CancelReason::Asked };
            let job = Job { state, ..job(before, place).0 }.into();
            Change::JobChanged { event: JobEvent::Canceled, job }
        })
    });
    let settled =
        before.map(|before| Change::EffectSettled { id: EffectId(before * IDS_PER_BATCH) });
    started.into_iter().chain(submitted).chain(ended).chain(settled)
}

fn jobs_in(number: u64) -> u64 {
    let mut chance = Chance(number);
    match chance.below(8) {
        0 => 60 + chance.below(100),
        1..=3 => 1,
        _ => chance.below(12),
    }
}

fn job(number: u64, place: u64) -> (Job, JobSpec) {
    let mut chance = Chance(number ^ (place << 32));
    let bytes = match chance.below(20) {
        0 => 20_000,
        _ => chance.below(800) as usize,
    };
    let job = Job {
        id: JobId(number * IDS_PER_BATCH + 1 + place),
        workspace: WorkspaceId(1),
        cluster: ClusterId(1),
        name: format!("{number}-{place}").into(),
        kind: JobKind::Command,
        parent: None,
        principal: PrincipalId(number * IDS_PER_BATCH),
        nodes: 1,
        share: None,
        priority: Default::default(),
        spec: SpecHash::made_up(&format!("{:x}", chance.below(u64::MAX))),
        submitted_at: Wall(number),
        attempts: 0,
        losses: 0,
        on_eviction: muster_core::model::OnEviction::default(),
        is_returned: false,
        environment: None,
        state: JobState::Queued,
    };
    let spec = JobSpec::new("cpu", "x".repeat(bytes));
    (job, spec)
}

/// The number of batches that make this many changes, if they are complete ones.
pub fn batches_up_to(changes: u64) -> Option<u64> {
    let (mut total, mut number) = (0, 0);
    while total < changes {
        number += 1;
        total += batch(number).count() as u64;
    }
    (total == changes).then_some(number)
}

/// The rows that this many batches leave.
pub fn expected(batches: u64) -> WorldRows {
    let mut rows = WorldRows { last_wall: Wall(batches), ..WorldRows::default() };
    for change in (1..=batches).flat_map(batch) {
        rows.next_sequence = rows.next_sequence.max(change.highest_sequence() + 1);
        match change {
            Change::PrincipalSeen(principal) => rows.principals.push(principal),
            Change::JobSubmitted { job, .. } => rows.jobs.push((*job).clone()),
            Change::JobChanged { job, .. } => rows.jobs.retain(|other| other.id != job.id),
            Change::EffectQueued(effect) => rows.effects.push(effect),
            Change::EffectSettled { id } => rows.effects.retain(|effect| effect.id != id),
            other => unreachable!("no batch has {other:?}"),
        }
    }
    rows
}
