//! The bill of one node: its lines must tile its life, without gap or overlap, and each must say what the
//! node was doing. Time spent on an attempt is posted when the attempt is over, which can be after the node
//! is gone: so lines may come in any order.

use std::collections::BTreeMap;

use muster_core::model::{Category, LedgerLine, Node, NodePhase};
use muster_core::time::Wall;

use crate::failure::{Held, promise};

#[derive(Debug, Clone)]
pub(super) struct Bill {
    price_micro_usd_per_hour: u64,
    /// When the meter first ran, and when the node was gone.
    begin: Option<Wall>,
    end: Option<Wall>,
    /// What has been posted, neighbours joined.
    pieces: BTreeMap<Wall, Wall>,
    /// What the node was doing, oldest first, from the end of the first piece on.
    phases: Vec<(Wall, NodePhase)>,
}

impl Bill {
    pub(super) fn new(price_micro_usd_per_hour: u64) -> Bill {
        let (pieces, phases) = (BTreeMap::new(), Vec::new());
        Bill { price_micro_usd_per_hour, begin: None, end: None, pieces, phases }
    }

    pub(super) fn on_node(&mut self, node: &Node, wall: Wall) {
        if self.begin.is_none() {
            self.begin = node.meter.map(|meter| meter.since);
        }
        if node.phase() == NodePhase::Gone {
            self.end = Some(wall);
        }
        if self.phases.last().is_none_or(|(_, phase)| *phase != node.phase()) {
            self.phases.push((wall, node.phase()));
        }
    }

    pub(super) fn add(&mut self, line: &LedgerLine, wall: Wall) -> Held {
        let is_sound = line.from < line.to
            && line.to <= self.end.unwrap_or(wall)
            && self.begin.is_some_and(|begin| begin <= line.from)
            && self.price_micro_usd_per_hour == line.price_micro_usd_per_hour;
        promise(is_sound, || format!("{line:?} does not belong to {self:?}"))?;
        promise(self.is_true(line), || format!("{line:?} is not true, it was {:?}", self.phases))?;
        let before = self.pieces.range(..=line.from).next_back().map(|(from, to)| (*from, *to));
        let after = self.pieces.range(line.from..).next().map(|(from, to)| (*from, *to));
        let is_free = before.is_none_or(|(_, to)| to <= line.from)
            && after.is_none_or(|(from, _)| line.to <= from);
        promise(is_free, || format!("{line:?} is billed twice: {:?}", self.pieces))?;
        let from = before.filter(|(_, to)| *to == line.from).map_or(line.from, |(from, _)| from);
        let to = match after {
            Some((from, to)) if from == line.to => {
                self.pieces.remove(&from);
                to
            }
            Some(_) | None => line.to,
        };
        self.pieces.insert(from, to);
        self.forget_phases();
        Ok(())
    }

    /// Whether the node is gone.
    pub(super) fn is_final(&self) -> bool {
        self.end.is_some()
    }

    /// Whether the pieces are one, from the first moment to the last.
    pub(super) fn is_whole(&self) -> bool {
        let Some(begin) = self.begin else { return self.pieces.is_empty() };
        match self.end {
            Some(end) if end == begin => self.pieces.is_empty(),
            Some(end) => self.pieces.len() == 1 && self.pieces.get(&begin) == Some(&end),
            None => false,
        }
    }

    /// Whether the node was doing what the line says, all the time.
    fn is_true(&self, line: &LedgerLine) -> bool {
        let expected = match line.category {
            Category::Start => NodePhase::Booting,
            Category::Prepare | Category::Run => NodePhase::Leased,
            Category::Idle | Category::Floor => NodePhase::Idle,
            Category::Stop => NodePhase::Leaving,
            Category::Unusable => NodePhase::Unusable,
        };
        let first = self.phases.iter().rposition(|(since, _)| *since <= line.from);
        let Some(first) = first else { return false };
        self.phases[first..]
            .iter()
            .take_while(|(since, _)| *since < line.to)
            .all(|(_, phase)| *phase == expected)
    }

    /// What the first piece covers is settled.
    fn forget_phases(&mut self) {
        let settled = self.pieces.first_key_value().filter(|(from, _)| Some(**from) == self.begin);
        let Some((_, to)) = settled else { return };
        let last = self.phases.iter().rposition(|(since, _)| since <= to).unwrap_or(0);
        self.phases.drain(..last);
    }
}

#[cfg(test)]
mod tests {
    use muster_core::ids::{ClusterId, NodeId, WorkspaceId};
    use muster_core::model::Outcome;

    use super::*;

    fn line(category: Category, from: u64, to: u64) -> LedgerLine {
        LedgerLine {
            node: NodeId(1),
            workspace: WorkspaceId(2),
            cluster: ClusterId(3),
            category,
            outcome: Outcome::None,
            served: None,
            from: Wall(from),
            to: Wall(to),
            price_micro_usd_per_hour: 7,
            resource: Default::default(),
            part: Default::default(),
            tags: Default::default(),
        }
    }

    /// Booting from 10, leased from 20, lost at 30, gone at 40.
    fn bill() -> Bill {
        let phases = [(10, NodePhase::Booting), (20, NodePhase::Leased), (30, NodePhase::Unusable)];
        Bill {
            begin: Some(Wall(10)),
            end: Some(Wall(40)),
            phases: phases.map(|(since, phase)| (Wall(since), phase)).to_vec(),
            ..Bill::new(7)
        }
    }

    #[test]
    fn lines_in_any_order_make_a_bill() {
        let mut bill = bill();
        for (category, from, to) in
            [(Category::Start, 10, 20), (Category::Unusable, 30, 40), (Category::Run, 22, 30)]
        {
            assert!(bill.add(&line(category, from, to), Wall(50)).is_ok());
            assert!(!bill.is_whole());
        }
        assert!(bill.add(&line(Category::Prepare, 20, 22), Wall(50)).is_ok());
        assert!(bill.is_whole());
    }

    #[test]
    fn a_wrong_line_is_seen() {
        let wrong = [
            ("before the meter ran", line(Category::Start, 9, 20)),
            ("after it was gone", line(Category::Unusable, 30, 41)),
            ("of no length", line(Category::Start, 10, 10)),
            (
                "at another price",
                LedgerLine { price_micro_usd_per_hour: 8, ..line(Category::Start, 10, 20) },
            ),
            ("another category", line(Category::Idle, 10, 20)),
            ("longer than the phase", line(Category::Run, 20, 31)),
        ];
        for (what, line) in wrong {
            assert!(bill().add(&line, Wall(50)).is_err(), "{what}");
        }
        let mut bill = bill();
        assert!(bill.add(&line(Category::Run, 20, 25), Wall(50)).is_ok());
        assert!(bill.add(&line(Category::Run, 24, 30), Wall(50)).is_err(), "overlap");
    }
}
