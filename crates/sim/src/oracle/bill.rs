//! The bill of one node: its lines must cover its life without gap or overlap, and each must agree with what the node
//! was doing. Time spent on an attempt is posted when the attempt is over, which can be after the node was deleted, so
//! lines may arrive in any order.

use std::collections::BTreeMap;

use muster_core::model::{Category, LedgerLine, Node, NodePhase, Part};
use muster_core::time::Wall;

use crate::failure::{Held, promise};

#[derive(Debug, Clone)]
pub(super) struct Bill {
    price_micro_usd_per_hour: u64,
    /// When the meter first ran. `end` is when the node was deleted.
    begin: Option<Wall>,
    end: Option<Wall>,
    /// How much of the node has been billed from this moment up to the next. Neighbouring values differ.
    levels: BTreeMap<Wall, u32>,
    /// What the node was doing, oldest first, since the end of the settled part.
    phases: Vec<(Wall, NodePhase)>,
}

impl Bill {
    pub(super) fn new(price_micro_usd_per_hour: u64) -> Bill {
        let (levels, phases) = (BTreeMap::new(), Vec::new());
        Bill { price_micro_usd_per_hour, begin: None, end: None, levels, phases }
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
            && line.part > Part::NONE
            && self.begin.is_some_and(|begin| begin <= line.from)
            && self.price_micro_usd_per_hour == line.price_micro_usd_per_hour;
        promise(is_sound, || format!("{line:?} does not belong to {self:?}"))?;
        promise(self.is_true(line), || format!("{line:?} is not true, it was {:?}", self.phases))?;
        for edge in [line.from, line.to] {
            let level = self.levels.range(..=edge).next_back().map_or(0, |(_, level)| *level);
            self.levels.insert(edge, level);
        }
        let mut highest = 0;
        for (_, level) in self.levels.range_mut(line.from..line.to) {
            *level += line.part.0;
            highest = highest.max(*level);
        }
        promise(highest <= Part::WHOLE.0, || {
            format!("{line:?} is billed twice: {:?}", self.levels)
        })?;
        self.join_neighbours(line.from, line.to);
        self.forget_phases();
        Ok(())
    }

    fn join_neighbours(&mut self, from: Wall, to: Wall) {
        let mut before = self.levels.range(..from).next_back().map_or(0, |(_, level)| *level);
        let mut same = Vec::new();
        for (at, level) in self.levels.range(from..=to) {
            if *level == before {
                same.push(*at);
            }
            before = *level;
        }
        for at in same {
            self.levels.remove(&at);
        }
    }

    /// Whether the node is deleted.
    pub(super) fn is_final(&self) -> bool {
        self.end.is_some()
    }

    /// Whether all of it is billed, from the first moment to the last.
    pub(super) fn is_whole(&self) -> bool {
        let Some(begin) = self.begin else { return self.levels.is_empty() };
        match self.end {
            Some(end) if end == begin => self.levels.is_empty(),
            Some(end) => self.levels == BTreeMap::from([(begin, Part::WHOLE.0), (end, 0)]),
            None => false,
        }
    }

    /// Whether the node was doing what the line says, the whole time.
    fn is_true(&self, line: &LedgerLine) -> bool {
        let expected = match line.category {
            Category::Start => NodePhase::Booting,
            Category::Prepare | Category::Run => NodePhase::Leased,
            // The idle rest of a node of which jobs hold a part.
            Category::Idle if line.part < Part::WHOLE => NodePhase::Leased,
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

    /// What is completely billed from the beginning is settled and can be forgotten.
    fn forget_phases(&mut self) {
        let mut levels = self.levels.iter();
        let first = levels
            .next()
            .filter(|(from, level)| Some(**from) == self.begin && **level == Part::WHOLE.0);
        let Some((to, _)) = first.and_then(|_| levels.next()) else { return };
        let last = self.phases.iter().rposition(|(since, _)| since <= to).unwrap_or(0);
        self.phases.drain(..last);
    }
}

#[cfg(test)]
mod tests {
    use muster_core::ids::{ClusterId, NodeId, WorkspaceId};
    use muster_core::model::AttemptOutcome;

    use super::*;

    fn line(category: Category, from: u64, to: u64) -> LedgerLine {
        LedgerLine {
            node: NodeId(1),
            workspace: WorkspaceId(2),
            cluster: ClusterId(3),
            category,
            outcome: AttemptOutcome::None,
            served: None,
            from: Wall(from),
            to: Wall(to),
            price_micro_usd_per_hour: 7,
            resource: Default::default(),
            part: Default::default(),
            tags: Default::default(),
        }
    }

    /// Booting from 10, leased from 20, lost at 30, deleted at 40.
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
            ("after it was deleted", line(Category::Unusable, 30, 41)),
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

    #[test]
    fn parts_add_up_to_the_whole() {
        let mut bill = bill();
        let part =
            |category, from, to, part| LedgerLine { part: Part(part), ..line(category, from, to) };
        for line in [
            line(Category::Start, 10, 20),
            part(Category::Run, 20, 30, 250_000),
            part(Category::Run, 20, 26, 500_000),
            part(Category::Idle, 20, 26, 250_000),
            line(Category::Unusable, 30, 40),
        ] {
            assert!(bill.add(&line, Wall(50)).is_ok(), "{line:?}");
            assert!(!bill.is_whole());
        }
        assert!(bill.add(&part(Category::Idle, 26, 30, 750_000), Wall(50)).is_ok());
        assert!(bill.is_whole());
        assert!(bill.add(&part(Category::Idle, 26, 30, 1), Wall(50)).is_err());
    }
}
