//! What is checked at intervals, after every restart and at the end: the store against what was acknowledged, and the
//! server's records against what the provider really runs.

use std::collections::BTreeMap;

use muster_core::Change;
use muster_core::model::{Category, NodeEvent, OperationStatus};
use muster_core::time::Span;
use muster_store::Reader;

use crate::clock::minutes;
use crate::failure::{Broken, Held, promise};
use crate::sim::Sim;
use crate::workload;

/// How long a machine may exist that the server does not know. The intent is recorded first, so there should be none;
/// but a create call can be late, a delete can have no effect, and a backup can be old. Then the search for orphans has
/// to find it, in spite of stale listings and a provider that refuses every second call.
const LEAK_GRACE: Span = minutes(60);

/// How long a machine may exist before its bill begins: a create call takes minutes, and the server may be down when it
/// ends.
const BILL_GRACE: Span = minutes(30);

/// Clusters × outcomes: the most lines that one category can have in a bill.
const BILL_LINES_MAX: u64 = 100;

impl Sim {
    pub(crate) fn check_leaks(&mut self) -> Held {
        let now = self.now;
        let Some(live) = self.controller.live() else { return Ok(()) };
        let known = |name: &str| live.world().node_by_name(name).is_some();
        let strangers = self.provider.vms().filter(|(name, _)| !known(name));
        let strangers = strangers.map(|(name, vm)| {
            let key = (Box::<str>::from(name), vm.made_at);
            let since = self.strangers.get(&key).copied().unwrap_or(now);
            (key, since)
        });
        self.strangers = strangers.collect();
        for ((name, _), since) in &self.strangers {
            promise(now - *since <= LEAK_GRACE, || format!("{name} has leaked"))?;
        }
        self.check_metered()
    }

    /// The bill has begun for every machine that has existed for a while.
    fn check_metered(&mut self) -> Held {
        let now = self.now;
        let Some(live) = self.controller.live() else { return Ok(()) };
        for (name, vm) in self.provider.vms() {
            let Some(node) = live.world().node_by_name(name) else { continue };
            // The part that a job holds is metered with the job.
            let is_billed = node.meter.is_some() || !node.leases().is_empty() || vm.is_stray;
            let since = vm.made_at.max(self.restored_at);
            promise(is_billed || now - since <= BILL_GRACE, || format!("{name} is free"))?;
        }
        Ok(())
    }

    /// The bill does not end before the machine does.
    pub(crate) fn check_unbilled(&self, changes: &[Change]) -> Held {
        for change in changes {
            if let Change::NodeChanged { event: NodeEvent::Deleted, node } = change {
                let is_gone = self.provider.vm(&node.name).is_none_or(|vm| vm.is_stray);
                promise(is_gone, || format!("{} is deleted in the records only", node.name))?;
            }
        }
        Ok(())
    }

    /// Every job that was acknowledged is on disk, has ended as the log says, and has the files that it saved last.
    /// What was removed after its time is gone.
    pub(crate) fn check_acknowledged(&mut self) -> Held {
        let Some(live) = self.controller.live() else { return Ok(()) };
        for (id, ended) in self.oracle.acknowledged() {
            let Some(job) = live.reader.job_by_id(id)? else {
                return Err(Broken(format!("{id} was acknowledged and is lost")));
            };
            let phase = job.phase();
            promise(Some(phase).filter(|phase| phase.is_terminal()) == ended, || {
                format!("{id} ended as {ended:?} and is {phase:?}")
            })?;
            let left = self.oracle.left_by(id);
            if !left.is_empty() {
                let kept = live.reader.saved_trees(id)?;
                let kept: BTreeMap<_, _> = kept.iter().map(|one| (one.rank, one.tree)).collect();
                promise(*left == kept, || format!("{id} left {left:?}, and {kept:?} is kept"))?;
            }
        }
        for id in self.oracle.removed() {
            let found = live.reader.job_by_id(id)?;
            promise(found.is_none(), || format!("{id} was removed and is {found:?}"))?;
        }
        Ok(())
    }

    /// Why the system is not at rest, if it is not: every job has ended, every cluster is at its minimum, nothing is
    /// under way, and the provider agrees.
    pub(crate) fn unrest(&mut self) -> Option<String> {
        if let Some(act) = self.clients.waiting() {
            return Some(format!("a client waits for an answer: {act:?}"));
        }
        let Some(live) = self.controller.live() else {
            return Some("the server is down".to_owned());
        };
        let world = live.world();
        if let Some(job) = world.jobs().next() {
            let why = muster_core::why::why(world, job.id);
            return Some(format!("{} is {:?}: {why:?}", job.name, job.phase()));
        }
        if let Some(effect) = world.effects().next() {
            return Some(format!("{effect:?} is in the outbox"));
        }
        for cluster in world.clusters() {
            let nodes =
                world.cluster_index(cluster.id).map(|index| (index.idle.len(), index.existing()));
            let floor = cluster.spec.scale.nodes_min;
            if nodes != Some((floor as usize, floor)) {
                return Some(format!("{} has {nodes:?} nodes, not {floor}", cluster.name));
            }
        }
        let (here, there) = (world.nodes().count(), self.provider.vms().len());
        (here != there).then(|| format!("{here} nodes in the records, {there} at the provider"))
    }

    /// What is left after everything was deleted.
    pub(crate) fn remains(&mut self) -> Option<String> {
        if let Some(unrest) = self.unrest() {
            return Some(unrest);
        }
        let clusters = self.controller.live().map_or(0, |live| live.world().clusters().count());
        let (vms, processes) = (self.provider.vms().len(), self.oracle.processes.live());
        let is_at_rest = self.provider.is_at_rest() && clusters == 0 && vms == 0 && processes == 0;
        (!is_at_rest).then(|| format!("{clusters} clusters, {vms} machines, {processes} attempts"))
    }

    /// The final check: every acknowledged job and every operation has ended, and the store's bill is the sum of the
    /// posted lines.
    pub(crate) fn check_end(&mut self) -> Held {
        self.controller.check_books(self.now)?;
        self.check_acknowledged()?;
        for (id, ended) in self.oracle.acknowledged() {
            promise(ended.is_some(), || format!("{id} never ended"))?;
        }
        let orphan = self.oracle.orphan();
        promise(orphan.is_none(), || format!("{orphan:?} has lost its parent"))?;
        let unsettled = self.oracle.unsettled();
        promise(unsettled.is_none(), || format!("the bill of {unsettled:?} has a gap"))?;
        let now_us = self.controller.clock.wall(self.now).0;
        let operations = std::mem::take(&mut self.clients.operations);
        let Some(live) = self.controller.live() else {
            return Err(Broken("the server is down at the end".to_owned()));
        };
        for id in operations {
            // Finished operations are deleted after a while.
            let status = live.reader.operation(id)?.map(|operation| operation.status);
            let is_over = status.is_none_or(|status| status != OperationStatus::InProgress);
            promise(is_over, || format!("{id} never ended"))?;
        }
        let mut billed: BTreeMap<Category, u64> = BTreeMap::new();
        for workspace in workload::workspaces() {
            for sum in live.reader.ledger(&workspace, now_us)? {
                *billed.entry(sum.category).or_default() += sum.node_us;
            }
        }
        let posted = self.oracle.sums().iter().map(|(category, cost)| (*category, cost.node_us()));
        let posted: BTreeMap<Category, u64> = posted.collect();
        // The bill is rounded line by line, to a microsecond each.
        let is_close = |category: &Category| {
            let (bill, lines) = (billed.get(category), posted.get(category));
            bill.copied().unwrap_or(0).abs_diff(lines.copied().unwrap_or(0)) <= BILL_LINES_MAX
        };
        promise(Category::ALL.iter().all(is_close), || {
            format!("the bill is {billed:?}, the lines {posted:?}")
        })
    }
}
