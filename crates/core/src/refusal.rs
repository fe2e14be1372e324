//! Refusals as values: the field at fault, the rule that it breaks, the given value and the limit.
//!
//! The names of fields and the commands that help differ from client to client, so a refusal contains them as values.
//! `wire` spells them for Azure's clients, and `cli` for its own users.

mod field;
mod rule;
mod words;

pub use field::{ClusterProperty, Field, JobField};
pub use rule::{ClusterRule, FixedValue, JobRule, QuotaTooSmall, Rule};
pub(crate) use words::words;
pub use words::{Part, Words};

/// Why a request was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.words())]
pub struct Refused {
    pub kind: RefusalKind,
    pub target: Target,
    /// What is wrong, the limit, the given value, and the remedy.
    pub rule: Rule,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    Invalid,
    NotFound,
    Conflict,
    TooMany,
    /// It would need more vCPUs than the quota has.
    QuotaExceeded,
    /// The maximum is reached, and waiting a moment does not help.
    Full,
    /// A lock forbids it.
    Locked,
}

/// The field or the resource at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Field(Field),
    /// An entry of a field whose keys are data, such as one environment variable.
    Below(Field, Box<str>),
    /// A part of the request that has the same name for all clients.
    Named(Box<str>),
}

impl Refused {
    pub fn invalid(target: impl Into<Target>, rule: impl Into<Rule>) -> Refused {
        Refused::new(RefusalKind::Invalid, target, rule)
    }

    pub fn not_found(target: impl Into<Target>, rule: impl Into<Rule>) -> Refused {
        Refused::new(RefusalKind::NotFound, target, rule)
    }

    pub fn conflict(target: impl Into<Target>, rule: impl Into<Rule>) -> Refused {
        Refused::new(RefusalKind::Conflict, target, rule)
    }

    pub fn too_many(target: impl Into<Target>, rule: impl Into<Rule>) -> Refused {
        Refused::new(RefusalKind::TooMany, target, rule)
    }

    pub fn quota(target: impl Into<Target>, rule: impl Into<Rule>) -> Refused {
        Refused::new(RefusalKind::QuotaExceeded, target, rule)
    }

    pub fn full(target: impl Into<Target>, rule: impl Into<Rule>) -> Refused {
        Refused::new(RefusalKind::Full, target, rule)
    }

    pub fn locked(target: impl Into<Target>, rule: impl Into<Rule>) -> Refused {
        Refused::new(RefusalKind::Locked, target, rule)
    }

    fn new(kind: RefusalKind, target: impl Into<Target>, rule: impl Into<Rule>) -> Refused {
        Refused { kind, target: target.into(), rule: rule.into() }
    }

    /// The message, in which fields and commands are still to be spelled.
    pub fn words(&self) -> Words {
        self.rule.words(&self.target)
    }
}

impl From<Field> for Target {
    fn from(field: Field) -> Target {
        Target::Field(field)
    }
}

impl From<ClusterProperty> for Target {
    fn from(property: ClusterProperty) -> Target {
        Target::Field(property.into())
    }
}

impl From<JobField> for Target {
    fn from(field: JobField) -> Target {
        Target::Field(field.into())
    }
}

impl From<&str> for Target {
    fn from(name: &str) -> Target {
        Target::Named(name.into())
    }
}
