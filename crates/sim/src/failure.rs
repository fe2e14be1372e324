//! How a scenario fails: which promise, when, after which changes, and how to reproduce it.

use std::fmt;

use crate::Scenario;
use crate::clock::Moment;

/// The description of a broken promise. The loop of the scenario adds where it broke.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Broken(pub(crate) String);

pub(crate) type Held<T = ()> = Result<T, Broken>;

/// Breaks a promise unless `holds`.
pub(crate) fn promise(holds: bool, words: impl FnOnce() -> String) -> Held {
    if holds { Ok(()) } else { Err(Broken(words())) }
}

impl From<muster_store::StoreError> for Broken {
    fn from(error: muster_store::StoreError) -> Broken {
        let mut words = format!("the store failed: {error}");
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            words = format!("{words}: {cause}");
            source = cause.source();
        }
        Broken(words)
    }
}

/// A scenario in which a promise did not hold.
#[derive(Debug, Clone)]
pub struct Failure {
    pub scenario: Scenario,
    /// The promise, and how it was broken.
    pub promise: String,
    /// Virtual time, from the start of the scenario.
    pub at: String,
    /// The last committed changes, oldest first, as in the event log.
    pub last_changes: Vec<String>,
}

impl Failure {
    pub(crate) fn new(
        scenario: &Scenario,
        broken: &Broken,
        at: Moment,
        last_changes: Vec<String>,
    ) -> Failure {
        let promise = broken.to_string();
        Failure { scenario: scenario.clone(), promise, at: at.to_string(), last_changes }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "a promise was broken: {}", self.promise)?;
        writeln!(f, "at {} of virtual time, after these changes:", self.at)?;
        for change in &self.last_changes {
            writeln!(f, "  {change}")?;
        }
        write!(f, "to reproduce it: {}", self.scenario.command())
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_when_after_what_and_how_to_reproduce_it() {
        let scenario = Scenario { batch: 1, faults: false, ..Scenario::new(7, 10) };
        let at = Moment(93_784_000_005);
        let broken = Broken("j1 is lost".to_owned());
        let failure = Failure::new(&scenario, &broken, at, vec!["41 {}".to_owned()]);
        let text = "a promise was broken: j1 is lost\n\
                    at day 1 02:03:04.000005 of virtual time, after these changes:\n  41 {}\n\
                    to reproduce it: muster sim --seed 7 --days 10 --batch 1 --no-faults";
        assert_eq!(failure.to_string(), text);
    }
}
