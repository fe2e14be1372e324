//! Where the server is killed: at a step that persists a certain thing, before or after its commit.
//!
//! When a kill is due, a place is drawn, and from then on inputs are processed one by one until a step is at that
//! place. So the place where it dies does not depend on how inputs are batched.

use std::fmt;

use muster_core::agent::{AttemptPhase, Report};
use muster_core::model::{JobEvent, NodeEvent};
use muster_core::time::Span;
use muster_core::{Change, EffectKind, Input, InputResult, Output, Reply};

use crate::chance::{Chance, Stream};

macro_rules! failpoints {
    ($($name:ident => $words:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Failpoint {
            $($name,)*
        }

        impl Failpoint {
            pub const ALL: &'static [Failpoint] = &[$(Failpoint::$name,)*];
        }

        impl fmt::Display for Failpoint {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Failpoint::$name => $words,)*
                })
            }
        }
    };
}

failpoints! {
    SubmitAck => "submit-ack",
    LeaseGrant => "lease-grant",
    CreateQueued => "create-queued",
    CreateRecorded => "create-recorded",
    StartSent => "start-sent",
    CompletionReceived => "completion-received",
    CompletionCommitted => "completion-committed",
    DeleteCall => "delete-call",
    DeleteRecord => "delete-record",
    LedgerPost => "ledger-post",
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Before,
    After,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Before => "before",
            Side::After => "after",
        })
    }
}

impl Failpoint {
    /// Whether a step that processed this one input is at this place.
    fn is_at(self, input: &Input, output: &Output) -> bool {
        match self {
            Failpoint::StartSent => {
                output.answers.iter().any(|answer| has_new_assignment(input, answer))
            }
            Failpoint::CompletionReceived => {
                matches!(input, Input::Report { report, .. } if has_ended(report))
            }
            Failpoint::SubmitAck
            | Failpoint::LeaseGrant
            | Failpoint::CreateQueued
            | Failpoint::CreateRecorded
            | Failpoint::CompletionCommitted
            | Failpoint::DeleteCall
            | Failpoint::DeleteRecord
            | Failpoint::LedgerPost => output.changes.iter().any(|change| self.is_in(change)),
        }
    }

    fn is_in(self, change: &Change) -> bool {
        match change {
            Change::JobSubmitted { .. } => self == Failpoint::SubmitAck,
            Change::JobChanged { event: JobEvent::Granted, .. }
            | Change::ChildCreated { event: JobEvent::Granted, .. } => {
                self == Failpoint::LeaseGrant
            }
            Change::AttemptEnded(_) => self == Failpoint::CompletionCommitted,
            Change::NodeChanged { event: NodeEvent::Created, .. } => {
                self == Failpoint::CreateRecorded
            }
            Change::NodeChanged { event: NodeEvent::Deleted, .. } => {
                self == Failpoint::DeleteRecord
            }
            Change::LedgerPosted(_) => self == Failpoint::LedgerPost,
            Change::EffectQueued(effect) => match effect.kind {
                EffectKind::CreateNode(_) => self == Failpoint::CreateQueued,
                EffectKind::DeleteNode { .. } => self == Failpoint::DeleteCall,
            },
            Change::JobChanged { .. }
            | Change::ChildCreated { .. }
            | Change::NodeChanged { .. }
            | Change::PrincipalSeen(_)
            | Change::WorkspaceChanged(_)
            | Change::WorkspaceGone(_)
            | Change::GovernanceChanged(_)
            | Change::HostsChanged(_)
            | Change::TreeSaved(_)
            | Change::DeploymentChanged(_)
            | Change::JobMetadataChanged { .. }
            | Change::JobGone { .. }
            | Change::DeploymentGone { .. }
            | Change::DatastoreChanged(_)
            | Change::AssetChanged(_)
            | Change::AssetGone { .. }
            | Change::AssetContainerChanged(_)
            | Change::AssetContainerGone { .. }
            | Change::DatastoreGone { .. }
            | Change::ActivityNoted(_)
            | Change::ClusterChanged { .. }
            | Change::MemberChanged(_)
            | Change::AccountChanged(_)
            | Change::QuotaChanged(_)
            | Change::AccessChanged(_)
            | Change::OperationChanged(_)
            | Change::EffectSettled { .. } => false,
        }
    }
}

fn has_ended(report: &Report) -> bool {
    report.attempts.iter().any(|attempt| matches!(attempt.phase, AttemptPhase::Ended(_)))
}

/// Whether the answer to a report assigns something that the node does not hold yet.
pub(crate) fn has_new_assignment(input: &Input, answer: &InputResult) -> bool {
    let (Input::Report { report, .. }, Ok(Reply::Desired(desired))) = (input, answer) else {
        return false;
    };
    let is_held = |epoch| report.attempts.iter().any(|held| held.epoch == epoch);
    desired.assignments.iter().any(|assignment| !is_held(assignment.epoch))
}

/// One death: the place, the side of the commit, and how long the server is down.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Death {
    pub(crate) at: Failpoint,
    pub(crate) side: Side,
    pub(crate) down: Span,
    /// How long its host has been running when it is back, if that was restarted as well.
    pub(crate) uptime: Option<Span>,
}

pub(crate) struct Killer {
    chance: Chance,
    target: Option<(Death, u32)>,
}

impl Killer {
    pub(crate) fn new(seed: u64) -> Killer {
        Killer { chance: Chance::new(seed, Stream::Kills), target: None }
    }

    /// The next death is due: draws its place.
    pub(crate) fn arm(&mut self) {
        let at = Failpoint::ALL[self.chance.index(Failpoint::ALL.len())];
        let side = self.chance.weighted(&[(1, Side::Before), (1, Side::After)]);
        // In half of the cases the server is back before any lease has expired.
        let longest = self.chance.weighted(&[(1, Span::seconds(15)), (1, Span::seconds(150))]);
        let down = self.chance.span(Span(1), longest);
        let uptime = self.chance.span(Span::seconds(10), Span::seconds(300));
        let uptime = self.chance.permille(250).then_some(uptime);
        let passed = self.chance.number(0, 3);
        self.target = Some((Death { at, side, down, uptime }, passed));
    }

    pub(crate) fn calm_down(&mut self) {
        self.target = None;
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.target.is_some()
    }

    /// Whether the server dies at this step.
    pub(crate) fn strike(&mut self, input: &Input, output: &Output) -> Option<Death> {
        let (death, passed) = self.target.as_mut()?;
        if !death.at.is_at(input, output) {
            return None;
        }
        if *passed > 0 {
            *passed -= 1;
            return None;
        }
        self.target.take().map(|(death, _)| death)
    }
}
