//! The provider of machines. It outlives the server, and its own list of machines is the truth that the server's
//! records are compared with.
//!
//! Calls on one node are carried out one after the other, and repeating a call has no further effect. When the server
//! dies, the call under way continues, the calls behind it are never made, and the answer is lost.

mod faults;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use muster_core::ids::NodeId;
use muster_core::model::Tier;
use muster_core::time::Span;
use muster_core::{Effect, EffectKind, NodeRequest};

use self::faults::{CallFaults, CreateFault};
use crate::agenda::{Agenda, AgentId, Event, ProviderEvent};
use crate::chance::{Chance, Stream};
use crate::clock::{Moment, minutes};
use crate::faults::{Fault, FaultCounts};
use crate::network::ARRIVAL_GRID;

/// How long a listing may still show a deleted machine.
const LISTED_AFTER: Span = minutes(10);

/// An existing machine.
#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) node: NodeId,
    pub(crate) made_at: Moment,
    pub(crate) tier: Tier,
    /// Its delete was carried out before it was created, or had no effect: it cannot be billed.
    pub(crate) is_stray: bool,
    /// The agent that runs on it, from its boot until it ends itself.
    pub(crate) agent: Option<AgentId>,
}

#[derive(Debug)]
struct Call {
    effect: Effect,
    /// The epoch of the server that made the call.
    controller: u64,
    /// The result, which is drawn when the call begins.
    result: Result<(), String>,
    /// It reports success, but does nothing.
    is_without_effect: bool,
    tries: u32,
}

/// A call that is over.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) effect: Effect,
    pub(crate) controller: u64,
    pub(crate) result: Result<(), String>,
    /// The machine that it deleted.
    pub(crate) removed: Option<Vm>,
}

pub(crate) struct Provider {
    chance: Chance,
    call_faults: CallFaults,
    listings: Chance,
    vms: BTreeMap<Box<str>, Vm>,
    /// Recently deleted machines by name: when each was created and when it was deleted.
    removed: BTreeMap<Box<str>, (Moment, Moment)>,
    /// Names whose delete was carried out.
    deleted: BTreeSet<Box<str>>,
    /// Calls by node. The first is under way.
    calls: BTreeMap<Box<str>, VecDeque<Call>>,
    pub(crate) made: u64,
    pub(crate) failed: u64,
    pub(crate) faults: FaultCounts,
}

impl Provider {
    pub(crate) fn new(seed: u64, is_faulty: bool) -> Provider {
        Provider {
            chance: Chance::new(seed, Stream::Provider),
            call_faults: CallFaults::new(seed, is_faulty),
            listings: Chance::new(seed, Stream::Listings),
            vms: BTreeMap::new(),
            removed: BTreeMap::new(),
            deleted: BTreeSet::new(),
            calls: BTreeMap::new(),
            made: 0,
            failed: 0,
            faults: FaultCounts::default(),
        }
    }

    pub(crate) fn calm_down(&mut self) {
        self.call_faults.calm_down();
    }

    pub(crate) fn vms(&self) -> impl ExactSizeIterator<Item = (&str, &Vm)> {
        self.vms.iter().map(|(name, vm)| (&**name, vm))
    }

    pub(crate) fn vm(&self, node: &str) -> Option<&Vm> {
        self.vms.get(node)
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
        calls.push_back(Call {
            effect: effect.clone(),
            controller,
            result: Ok(()),
            is_without_effect: false,
            tries: 0,
        });
        if calls.len() == 1 {
            self.begin(node, now, agenda);
        }
    }

    /// This server is dead: of its calls, only those under way continue.
    pub(crate) fn forget_waiting_calls(&mut self, controller: u64) {
        for calls in self.calls.values_mut() {
            let mut is_first = true;
            calls.retain(|call| std::mem::take(&mut is_first) || call.controller != controller);
        }
    }

    fn begin(&mut self, node: &str, now: Moment, agenda: &mut Agenda) {
        let exists = self.vms.contains_key(node);
        let call = self.calls.get_mut(node).and_then(VecDeque::front_mut);
        let call = call.expect("begun when it became the first");
        call.tries += 1;
        call.result = Ok(());
        let finished = match &call.effect.kind {
            EffectKind::CreateNode(_) if exists => {
                now + self.chance.span(Span::seconds(1), Span::seconds(10))
            }
            EffectKind::CreateNode(request) => {
                let request = Box::new(request.clone());
                let (latency, result) = self.begin_create(request, now, agenda);
                self.first_call(node).result = result;
                now + latency
            }
            EffectKind::DeleteNode { .. } => {
                let latency = self.chance.span(Span::seconds(1), Span::seconds(60));
                let tries = call.tries;
                if self.call_faults.is_refused(now) {
                    self.faults.note(Fault::CallRefused);
                    self.first_call(node).result = Err("429 Too Many Requests".to_owned());
                    // The outbox retries it, after a pause that doubles each time.
                    now + Span::seconds(1 << tries.min(5))
                } else {
                    self.first_call(node).is_without_effect = self.call_faults.is_without_effect();
                    now + latency
                }
            }
        };
        let event = ProviderEvent::Finished { node: node.into() };
        agenda.plan(finished.on_grid(ARRIVAL_GRID), Event::Provider(event));
    }

    fn first_call(&mut self, node: &str) -> &mut Call {
        let call = self.calls.get_mut(node).and_then(VecDeque::front_mut);
        call.expect("a call under way")
    }

    /// How long the call takes, and its result.
    fn begin_create(
        &mut self,
        request: Box<NodeRequest>,
        now: Moment,
        agenda: &mut Agenda,
    ) -> (Span, Result<(), String>) {
        let latency = self.chance.span(Span::seconds(5), Span::seconds(180));
        // The machine exists before the provider answers, and its report can arrive first.
        let made = now + Span(latency.0 * (30 + self.chance.below(70)) / 100);
        let is_failed = self.chance.permille(60);
        // A failure does not always mean that nothing was created.
        let is_made = !is_failed || self.chance.permille(300);
        let fault = self.call_faults.draw_create(now);
        let mut make = |at: Moment, request: Box<NodeRequest>| {
            agenda.plan(at, Event::Provider(ProviderEvent::Made { request }));
        };
        let outcome = match fault {
            Some(CreateFault::Refused { words }) => {
                if words.starts_with('4') || words.starts_with('5') {
                    self.faults.note(Fault::CallRefused);
                }
                (Span::seconds(1), Err(words.to_owned()))
            }
            Some(CreateFault::TimedOut { later }) => {
                self.faults.note(Fault::CreateTimedOut);
                make(now + latency + later, request);
                (latency, Err("timed out".to_owned()))
            }
            Some(CreateFault::Twice { later }) => {
                self.faults.note(Fault::DuplicateCreate);
                make(made, request.clone());
                let event = ProviderEvent::Repeated { request };
                agenda.plan(now + later, Event::Provider(event));
                (latency, Ok(()))
            }
            None => {
                if is_made {
                    make(made, request);
                }
                let result = if is_failed { Err("no capacity".to_owned()) } else { Ok(()) };
                (latency, result)
            }
        };
        if outcome.1.is_err() {
            self.failed += 1;
        }
        outcome
    }

    /// A create call has created its machine, which boots now, unless it already exists.
    pub(crate) fn on_made(&mut self, request: &NodeRequest, now: Moment, agenda: &mut Agenda) {
        if self.vms.contains_key(&*request.name) {
            return;
        }
        let is_stray = self.deleted.contains(&*request.name);
        if is_stray {
            self.faults.note(Fault::LateCreate);
        }
        let NodeRequest { node, name, tier, .. } = request;
        let vm = Vm { node: *node, made_at: now, tier: *tier, is_stray, agent: None };
        self.vms.insert(name.as_ref().into(), vm);
        self.made += 1;
        let quick = self.chance.span(Span::seconds(5), Span::seconds(60));
        let booted = match self.call_faults.draw_boot() {
            None => Some(quick),
            Some((fault, slow)) => {
                self.faults.note(fault);
                slow
            }
        };
        if let Some(after) = booted {
            let node = name.as_ref().into();
            let event = ProviderEvent::Booted { node, made_at: now, journal: Vec::new() };
            agenda.plan(now + after, Event::Provider(event));
        }
    }

    /// The call under way is over. `None` if it failed and is repeated by `live`, the server that made it.
    pub(crate) fn on_finished(
        &mut self,
        node: &str,
        is_live: impl Fn(u64) -> bool,
        now: Moment,
        agenda: &mut Agenda,
    ) -> Option<Finished> {
        let call = self.first_call(node);
        let is_delete = matches!(call.effect.kind, EffectKind::DeleteNode { .. });
        if is_delete && call.result.is_err() && is_live(call.controller) {
            self.begin(node, now, agenda);
            return None;
        }
        let is_deleted = is_delete && call.result.is_ok();
        let is_without_effect = call.is_without_effect;
        let calls = self.calls.get_mut(node).expect("a call under way");
        let Call { effect, controller, result, .. } = calls.pop_front().expect("a call under way");
        if calls.is_empty() {
            self.calls.remove(node);
        } else {
            self.begin(node, now, agenda);
        }
        let mut removed = None;
        if is_deleted {
            self.deleted.insert(node.into());
            if let Some(vm) = self.vms.get_mut(node).filter(|_| is_without_effect) {
                vm.is_stray = true;
                self.faults.note(Fault::DeleteWithoutEffect);
            } else {
                removed = self.remove(node, now);
            }
        }
        Some(Finished { effect, controller, result, removed })
    }

    /// Deletes the machine.
    pub(crate) fn remove(&mut self, node: &str, now: Moment) -> Option<Vm> {
        let vm = self.vms.remove(node)?;
        self.removed.insert(node.into(), (vm.made_at, now));
        Some(vm)
    }

    /// Deletes the machine, if it is still the same one.
    pub(crate) fn remove_made_at(&mut self, node: &str, at: Moment, now: Moment) -> Option<Vm> {
        let is_it = self.vms.get(node).is_some_and(|vm| vm.made_at == at);
        if is_it { self.remove(node, now) } else { None }
    }

    /// Begins to delete a machine without a node. It is repeated while the machine exists.
    pub(crate) fn remove_orphans(&mut self, node: &str, now: Moment, agenda: &mut Agenda) {
        let Some(vm) = self.vms.get(node) else { return };
        if self.call_faults.is_refused(now) {
            return self.faults.note(Fault::CallRefused);
        }
        let after = self.listings.span(Span::seconds(1), Span::seconds(60));
        let event = ProviderEvent::Swept { node: node.into(), made_at: vm.made_at };
        agenda.plan(now + after, Event::Provider(event));
    }

    /// The names of existing machines, as listed by the provider: sometimes from an older state, and each page from a
    /// different one.
    pub(crate) fn list(&mut self, now: Moment) -> Vec<String> {
        self.removed.retain(|_, (_, removed_at)| now - *removed_at < LISTED_AFTER);
        let is_stale = self.listings.permille(150) && self.call_faults.is_on();
        let ages = [minutes(5), minutes(5)].map(|most| self.listings.span(Span::ZERO, most));
        if !is_stale || (self.vms.is_empty() && self.removed.is_empty()) {
            return self.vms.keys().map(|name| name.to_string()).collect();
        }
        self.faults.note(Fault::ListingStale);
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let seen = |page: usize| Moment(now.0.saturating_sub(ages[page].0));
        // Half of the clusters come before this in the alphabet.
        let page = |name: &str| usize::from(name > "h");
        let there = self.vms.iter().filter(|(name, vm)| vm.made_at <= seen(page(name)));
        names.extend(there.map(|(name, _)| &**name));
        let gone = self.removed.iter().filter(|(name, (made_at, removed_at))| {
            *made_at <= seen(page(name)) && *removed_at > seen(page(name))
        });
        names.extend(gone.map(|(name, _)| &**name));
        names.into_iter().map(str::to_owned).collect()
    }

    /// There is no capacity until then.
    pub(crate) fn run_out(&mut self, until: Moment) {
        self.faults.note(Fault::NoCapacity);
        self.call_faults.no_capacity_until = until;
    }

    /// Every second call is refused until then.
    pub(crate) fn be_unwell(&mut self, until: Moment) {
        self.faults.note(Fault::ProviderErrors);
        self.call_faults.errors_until = until;
    }

    /// Whether nothing is under way.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.calls.is_empty()
    }
}

fn node_name(effect: &Effect) -> &str {
    match &effect.kind {
        EffectKind::CreateNode(request) => &request.name,
        EffectKind::DeleteNode { name, .. } => name,
    }
}
