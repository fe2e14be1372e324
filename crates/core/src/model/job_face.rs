//! What is written on a job. It can be changed for as long as the job is known, and nothing follows from it; what
//! a job does cannot.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::JobSpec;

/// As it was submitted, until somebody writes something else. Never held by World.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFace {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Box<str>>,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// Left out of lists, and nothing else.
    #[serde(default)]
    pub is_archived: bool,
}

impl JobFace {
    /// What was written on it at first.
    pub fn of(spec: &JobSpec) -> JobFace {
        JobFace {
            display_name: spec.display_name.clone(),
            description: spec.description.clone(),
            tags: spec.tags.clone(),
            properties: spec.properties.clone(),
            is_archived: false,
        }
    }

    /// The specification as it is to be shown.
    pub fn write_on(&self, spec: &mut JobSpec) {
        spec.display_name.clone_from(&self.display_name);
        spec.description.clone_from(&self.description);
        spec.tags.clone_from(&self.tags);
        spec.properties.clone_from(&self.properties);
    }
}

impl JobSpec {
    /// Whether both would do the same, whatever is written on them.
    pub fn is_same_work(&self, other: &JobSpec) -> bool {
        let environment = |spec: &JobSpec| spec.environment.as_ref().map(|named| named.id.clone());
        // What stands in for an environment may be another one by now; the job has the one that it had.
        environment(self) == environment(other) && self.bare() == other.bare()
    }

    fn bare(&self) -> JobSpec {
        let mut spec = self.clone();
        JobFace::default().write_on(&mut spec);
        spec.compute = spec.compute.to_ascii_lowercase().into();
        JobSpec { workspace: None, environment: None, ..spec }
    }
}
