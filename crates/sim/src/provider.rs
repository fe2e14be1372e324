//! Where machines come from. The provider outlives the controller, and its own list of what exists is the
//! truth that the controller's books are compared with.
//!
//! Calls on one node are carried out one after the other, and asking twice for the same thing is the same as
//! asking once. When the controller dies, the call under way goes on, those behind it die with whoever
//! would have made them, and nobody hears the answer.

use std::collections::{BTreeMap, VecDeque};

use muster_core::ids::{EffectId, NodeId};
use muster_core::time::Span;
use muster_core::{Effect, EffectKind};

use crate::agenda::{Agenda, AgentId, Event, ProviderEvent};
use crate::chance::{Chance, Stream};
use crate::clock::Moment;
use crate::network::ARRIVAL_GRID;

/// A machine that exists.
#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) node: NodeId,
    pub(crate) made_at: Moment,
    /// Who runs on it, from its boot until it ends itself.
    pub(crate) agent: Option<AgentId>,
}

#[derive(Debug)]
struct Call {
    effect: Effect,
    /// Which controller asked.
    controller: u64,
    /// How it will end; drawn when it begins.
    result: Result<(), String>,
}

/// A call that is over.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) effect: EffectId,
    pub(crate) controller: u64,
    pub(crate) result: Result<(), String>,
    /// The machine that it removed.
    pub(crate) removed: Option<Vm>,
}

pub(crate) struct Provider {
    chance: Chance,
    vms: BTreeMap<Box<str>, Vm>,
    /// By node; the first is under way.
    calls: BTreeMap<Box<str>, VecDeque<Call>>,
    pub(crate) made: u64,
    pub(crate) failed: u64,
}

impl Provider {
    pub(crate) fn new(seed: u64) -> Provider {
        Provider {
            chance: Chance::new(seed, Stream::Provider),
            vms: BTreeMap::new(),
            calls: BTreeMap::new(),
            made: 0,
            failed: 0,
        }
    }

    pub(crate) fn vms(&self) -> impl ExactSizeIterator<Item = (&str, &Vm)> {
        self.vms.iter().map(|(name, vm)| (&**name, vm))
    }

    pub(crate) fn vm_mut(&mut self, node: &str) -> Option<&mut Vm> {
        self.vms.get_mut(node)
    }

    pub(crate) fn carry_out(
        &mut self,
        effect: &Effect,
        controller: u64,
        now: Moment,
        agenda: &mut Agenda,
    ) {
        let node = node_name(effect);
        let calls = self.calls.entry(node.into()).or_default();
        calls.push_back(Call { effect: effect.clone(), controller, result: Ok(()) });
        if calls.len() == 1 {
            self.begin(node, now, agenda);
        }
    }

    /// The controller is dead: only what is under way goes on.
    pub(crate) fn forget_waiting_calls(&mut self) {
        for calls in self.calls.values_mut() {
            calls.truncate(1);
        }
    }

    fn begin(&mut self, node: &str, now: Moment, agenda: &mut Agenda) {
        let exists = self.vms.contains_key(node);
        let call = self.calls.get_mut(node).and_then(VecDeque::front_mut);
        let call = call.expect("begun when it became the first");
        let finished = match call.effect.kind {
            EffectKind::CreateNode(_) if exists => {
                now + self.chance.span(Span::seconds(1), Span::seconds(10))
            }
            EffectKind::CreateNode(_) => {
                let latency = self.chance.span(Span::seconds(5), Span::seconds(180));
                // The machine is there before the provider says so, and can be the quicker one to report.
                let made = now + Span(latency.0 * (30 + self.chance.below(70)) / 100);
                let is_failed = self.chance.permille(60);
                // "Failed" does not always mean that nothing was made.
                let is_made = !is_failed || self.chance.permille(300);
                if is_failed {
                    call.result = Err("no capacity".to_owned());
                    self.failed += 1;
                }
                if is_made {
                    let event = ProviderEvent::Made { node: node.into() };
                    agenda.plan(made, Event::Provider(event));
                }
                now + latency
            }
            EffectKind::DeleteNode { .. } => {
                now + self.chance.span(Span::seconds(1), Span::seconds(60))
            }
        };
        let event = ProviderEvent::Finished { node: node.into() };
        agenda.plan(finished.on_grid(ARRIVAL_GRID), Event::Provider(event));
    }

    /// The create call under way has made its machine, which boots now.
    pub(crate) fn on_made(&mut self, node: &str, now: Moment, agenda: &mut Agenda) -> NodeId {
        let call = self.calls.get(node).and_then(VecDeque::front);
        let id = call.expect("machines are made by a call under way").effect.kind.node();
        self.vms.insert(node.into(), Vm { node: id, made_at: now, agent: None });
        self.made += 1;
        let booted = now + self.chance.span(Span::seconds(5), Span::seconds(60));
        let event = ProviderEvent::Booted { node: node.into(), made_at: now };
        agenda.plan(booted, Event::Provider(event));
        id
    }

    pub(crate) fn on_finished(&mut self, node: &str, now: Moment, agenda: &mut Agenda) -> Finished {
        let calls = self.calls.get_mut(node).expect("a call under way");
        let Call { effect, controller, result } = calls.pop_front().expect("a call under way");
        let removed = match effect.kind {
            EffectKind::CreateNode(_) => None,
            EffectKind::DeleteNode { .. } => self.vms.remove(node),
        };
        if calls.is_empty() {
            self.calls.remove(node);
        } else {
            self.begin(node, now, agenda);
        }
        Finished { effect: effect.id, controller, result, removed }
    }

    /// Whether nothing is under way.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.calls.is_empty()
    }
}

fn node_name(effect: &Effect) -> &str {
    match &effect.kind {
        EffectKind::CreateNode(order) => &order.name,
        EffectKind::DeleteNode { name, .. } => name,
    }
}
