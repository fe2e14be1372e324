//! The metadata of a job. Unlike what the job runs, it can be changed for as long as the job exists. No decision
//! depends on it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{JobEnvironment, JobInput, JobSpec, Source};

/// The metadata as submitted, until it is changed. World never holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMetadata {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Box<str>>,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// Only hides it from lists.
    #[serde(default)]
    pub is_archived: bool,
}

impl JobMetadata {
    /// The metadata as submitted.
    pub fn of(spec: &JobSpec) -> JobMetadata {
        JobMetadata {
            display_name: spec.display_name.clone(),
            description: spec.description.clone(),
            tags: spec.tags.clone(),
            properties: spec.properties.clone(),
            is_archived: false,
        }
    }

    /// Writes the current metadata into a specification that is to be shown.
    pub fn write_on(&self, spec: &mut JobSpec) {
        spec.display_name.clone_from(&self.display_name);
        spec.description.clone_from(&self.description);
        spec.tags.clone_from(&self.tags);
        spec.properties.clone_from(&self.properties);
    }
}

impl JobSpec {
    /// Whether both specifications run the same work, regardless of their metadata.
    pub fn is_same_work(&self, other: &JobSpec) -> bool {
        let is_same_environment = match (&self.environment, &other.environment) {
            (Some(one), Some(two)) => is_same_environment(one, two),
            (one, two) => one.is_none() && two.is_none(),
        };
        let is_same_input = |(one, two): ((&String, &JobInput), (&String, &JobInput))| {
            one.0 == two.0 && is_same_input(one.1, two.1)
        };
        is_same_environment
            && self.inputs.len() == other.inputs.len()
            && self.inputs.iter().zip(&other.inputs).all(is_same_input)
            && self.bare() == other.bare()
    }

    fn bare(&self) -> JobSpec {
        let mut spec = self.clone();
        JobMetadata::default().write_on(&mut spec);
        spec.compute = spec.compute.to_ascii_lowercase().into();
        if let Some(code) = &mut spec.code_asset {
            code.id = "".into();
        }
        JobSpec { workspace: None, environment: None, inputs: BTreeMap::new(), ..spec }
    }
}

/// Clients spell a name in more than one way, and a name may lead to something else by now while the job keeps what it
/// had. So the environments are the same if either the names or the contents are.
fn is_same_environment(one: &JobEnvironment, two: &JobEnvironment) -> bool {
    one.id == two.id || *one == JobEnvironment { id: one.id.clone(), ..two.clone() }
}

fn is_same_input(one: &JobInput, two: &JobInput) -> bool {
    match (one, two) {
        (
            JobInput::Data { kind, mode, uri, source },
            JobInput::Data { kind: other_kind, mode: other_mode, uri: other_uri, source: other },
        ) => {
            let is_found = source == other && *source != Source::Url;
            (kind, mode) == (other_kind, other_mode) && (is_found || uri == other_uri)
        }
        (one, two) => one == two,
    }
}
