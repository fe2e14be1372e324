//! Clients, which repeat a request until it is answered, and check that the system does what it acknowledged.

use muster_core::ids::OperationId;
use muster_core::model::QuotaScope;
use muster_core::time::Span;
use muster_core::{Input, InputResult, JobRequest, RefusalKind, Reply};

use crate::agenda::{Agenda, Arrival, ClientEvent, Event, RequestId};
use crate::chance::{Chance, Stream};
use crate::clock::Moment;
use crate::failure::{Broken, Held, promise};
use crate::network::ARRIVAL_GRID;
use crate::oracle::Oracle;
use crate::workload::{Act, Expect, Submit, UserRequest, caller, workspace_key};

const PATIENCE: Span = Span::seconds(10);
const ASK_AGAIN: Span = Span::seconds(30);

struct Ask {
    user_request: UserRequest,
    tries: u32,
    is_answered: bool,
}

pub(crate) struct Clients {
    chance: Chance,
    asks: Vec<Ask>,
    open: usize,
    pub(crate) refused: u64,
    pub(crate) retries: u64,
    /// Long-running operations that clients were told to wait for.
    pub(crate) operations: Vec<OperationId>,
}

impl Clients {
    pub(crate) fn new(seed: u64) -> Clients {
        Clients {
            chance: Chance::new(seed, Stream::Clients),
            asks: Vec::new(),
            open: 0,
            refused: 0,
            retries: 0,
            operations: Vec::new(),
        }
    }

    pub(crate) fn take_on(&mut self, user_requests: Vec<UserRequest>, agenda: &mut Agenda) {
        for user_request in user_requests {
            let id = RequestId(self.asks.len());
            agenda.plan(user_request.at, Event::Client(id, ClientEvent::Send));
            self.asks.push(Ask { user_request, tries: 0, is_answered: false });
            self.open += 1;
        }
    }

    /// A user cancels a job just when it is about to end.
    pub(crate) fn race(&mut self, job: &str, now: Moment, agenda: &mut Agenda) {
        let submitted = self.asks.iter().find_map(|ask| match &ask.user_request.act {
            Act::SubmitJob(submit) if submit.name == job => Some(submit.workspace),
            Act::SubmitJob(_)
            | Act::CreateWorkspace { .. }
            | Act::PutCluster { .. }
            | Act::DeleteCluster { .. }
            | Act::CancelJob { .. }
            | Act::SetQuota { .. } => None,
        });
        let Some(workspace) = submitted else { return };
        let act = Act::CancelJob { workspace, name: job.to_owned() };
        self.take_on(vec![UserRequest { at: now, act, expect: Expect::AnyAnswer }], agenda);
    }

    /// A request that was not answered yet.
    pub(crate) fn waiting(&self) -> Option<&Act> {
        if self.open == 0 {
            return None;
        }
        self.asks.iter().find(|ask| !ask.is_answered).map(|ask| &ask.user_request.act)
    }

    pub(crate) fn act(&self, id: RequestId) -> &Act {
        &self.asks[id.0].user_request.act
    }

    pub(crate) fn on(
        &mut self,
        id: RequestId,
        event: ClientEvent,
        now: Moment,
        agenda: &mut Agenda,
        oracle: &mut Oracle,
    ) -> Held {
        match event {
            ClientEvent::Send => {
                oracle.on_asked(&self.asks[id.0].user_request.act);
                self.send(id, now, agenda);
            }
            ClientEvent::TimedOut { tries } => {
                let ask = &self.asks[id.0];
                if !ask.is_answered && ask.tries == tries {
                    self.retries += 1;
                    self.send(id, now, agenda);
                }
            }
            ClientEvent::Answered { answer, was_known } => {
                oracle.on_answer(&self.asks[id.0].user_request.act, &answer, was_known)?;
                self.on_answer(id, &answer, now, agenda)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, id: RequestId, now: Moment, agenda: &mut Agenda) {
        let ask = &mut self.asks[id.0];
        ask.tries += 1;
        // Requests of one instant are kept together, so that a burst can be one batch.
        let at = (now + Span(1)).on_grid(ARRIVAL_GRID);
        agenda.plan(at, Event::Arrival(Arrival::Request(id)));
        let jitter = self.chance.span(Span::ZERO, Span::seconds(10));
        let timeout = ClientEvent::TimedOut { tries: ask.tries };
        agenda.plan(at + PATIENCE + jitter, Event::Client(id, timeout));
    }

    fn on_answer(
        &mut self,
        id: RequestId,
        answer: &InputResult,
        now: Moment,
        agenda: &mut Agenda,
    ) -> Held {
        let ask = &mut self.asks[id.0];
        if ask.is_answered {
            return Ok(());
        }
        if let Ok(Reply::Cluster { operation, .. } | Reply::Deleting { operation }) = answer {
            self.operations.push(*operation);
        }
        match (ask.user_request.expect, answer) {
            (Expect::Refused, Ok(reply)) => {
                return Err(Broken(format!("{:?} was accepted: {reply:?}", ask.user_request.act)));
            }
            (Expect::AcceptedAtLast, Err(refused)) => {
                let is_passing = match refused.kind {
                    RefusalKind::Conflict | RefusalKind::NotFound | RefusalKind::QuotaExceeded => {
                        true
                    }
                    RefusalKind::Invalid
                    | RefusalKind::TooMany
                    | RefusalKind::Full
                    | RefusalKind::Locked => false,
                };
                promise(is_passing, || {
                    format!("{:?} was refused: {refused}", ask.user_request.act)
                })?;
                // The old cluster is being deleted, the workspace is not created yet, or the region is limited.
                // It was answered, so its timeout no longer matters.
                ask.tries += 1;
                agenda.plan(now + ASK_AGAIN, Event::Client(id, ClientEvent::Send));
                return Ok(());
            }
            (Expect::Refused | Expect::AnyAnswer, Err(refused)) => {
                promise(!refused.words().parts().is_empty(), || {
                    "a refusal says nothing".to_owned()
                })?;
                self.refused += 1;
            }
            (Expect::AcceptedAtLast | Expect::AnyAnswer, Ok(_)) => {}
        }
        ask.is_answered = true;
        self.open -= 1;
        Ok(())
    }
}

/// The request as an input of the core, before the rows are looked up for it.
pub(crate) fn input(act: &Act) -> Input {
    match act {
        Act::CreateWorkspace { workspace } => {
            let by = caller(*workspace, "owner");
            Input::workspace(workspace_key(*workspace), "northeurope", by)
        }
        Act::PutCluster { workspace, name, wanted } => Input::PutCluster {
            workspace: workspace_key(*workspace),
            name: name.clone(),
            wanted: wanted.clone(),
            by: caller(*workspace, name),
        },
        Act::DeleteCluster { workspace, name } => {
            Input::DeleteCluster { workspace: workspace_key(*workspace), name: name.clone() }
        }
        Act::SubmitJob(submit) => {
            let Submit { workspace, name, spec, hash } = &**submit;
            Input::SubmitJob(Box::new(JobRequest {
                workspace: workspace_key(*workspace),
                name: name.clone(),
                spec: std::sync::Arc::clone(spec),
                spec_hash: *hash,
                by: caller(*workspace, name),
                is_archived: None,
                existing: None,
                numbered: <_>::default(),
            }))
        }
        Act::SetQuota { limits } => Input::SetQuota {
            scope: QuotaScope::new("simulated", "northeurope"),
            limits: limits.clone(),
        },
        Act::CancelJob { workspace, name } => Input::CancelJob {
            workspace: workspace_key(*workspace),
            name: name.clone(),
            known: None,
        },
    }
}
