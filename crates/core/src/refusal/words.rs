//! A message whose fields and commands are still to be spelled.

use std::fmt;

use super::{ClusterProperty, Field, JobField};
use crate::why::Remedy;

/// A message in parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Text(Box<str>),
    Field(Field),
    /// A command that helps.
    Remedy(Box<Remedy>),
}

/// Joins texts, numbers, fields and remedies to a message.
macro_rules! words {
    ($($part:expr),+ $(,)?) => {
        $crate::refusal::Words::from_iter([$($crate::refusal::Part::from($part)),+])
    };
}
pub(crate) use words;

impl Words {
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    #[must_use]
    pub fn then(mut self, next: Words) -> Words {
        self.0.extend(next.0);
        self
    }
}

impl FromIterator<Part> for Words {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Words {
        Words(parts.into_iter().collect())
    }
}

/// For logs and tests: fields and remedies appear as the values that they are.
impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Field(field) => write!(f, "{field:?}"),
            Part::Remedy(remedy) => write!(f, "{remedy:?}"),
        })
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Part {
        Part::Text(text.into())
    }
}

impl From<String> for Part {
    fn from(text: String) -> Part {
        Part::Text(text.into())
    }
}

impl From<Field> for Part {
    fn from(field: Field) -> Part {
        Part::Field(field)
    }
}

impl From<ClusterProperty> for Part {
    fn from(property: ClusterProperty) -> Part {
        Part::Field(property.into())
    }
}

impl From<JobField> for Part {
    fn from(field: JobField) -> Part {
        Part::Field(field.into())
    }
}

impl From<Remedy> for Part {
    fn from(remedy: Remedy) -> Part {
        Part::Remedy(Box::new(remedy))
    }
}

/// The part of a message that names the target.
impl From<&super::Target> for Part {
    fn from(target: &super::Target) -> Part {
        match target {
            super::Target::Field(field) | super::Target::Below(field, _) => Part::Field(*field),
            super::Target::Named(name) => Part::Text(name.clone()),
        }
    }
}
