//! What a job runs in, chosen for each job separately. An engine prepares the environment of a job and starts its
//! command. Everything else about an attempt (files, log, signals, its end) is the same for all engines.
//!
//! An engine for containers would be a variant here, a module beside `namespaces`, and a [`Running`] that it starts.

mod namespaces;

use muster_core::agent::{Assignment, RunFacts};
use muster_core::model::JobSpec;

use crate::attempt::Context;
use crate::environment;
use crate::gpus::Grant;
use crate::limits::JobGroup;
use crate::running::Running;
use crate::sandboxed::StartError;
use crate::services::Services;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Namespaces,
}

/// Everything that is needed to start a job.
pub(crate) struct Launching<'a> {
    pub(crate) assignment: &'a Assignment,
    pub(crate) spec: &'a JobSpec,
    pub(crate) facts: Option<&'a RunFacts>,
    pub(crate) gpus: &'a Grant<'a>,
    pub(crate) services: &'a Services,
    /// The job's own control group, if it has one.
    pub(crate) group: Option<&'a JobGroup>,
}

impl Engine {
    /// Chooses the engine for this job. A job with an image needs an engine for containers. As there is none, the
    /// substitute environment is used, and [`environment::bring`] says so in the job's log.
    pub(crate) fn choose(spec: &JobSpec) -> Engine {
        let environment = spec.environment.as_deref();
        if let Some(image) = environment.and_then(|environment| environment.image.as_deref()) {
            tracing::debug!(
                image,
                "no container engine on this node; using the substitute environment"
            );
        }
        Engine::Namespaces
    }

    /// Makes the job's environment available to it.
    pub(crate) async fn prepare(
        self,
        context: &Context,
        assignment: &Assignment,
        spec: &mut JobSpec,
    ) -> Result<(), String> {
        match self {
            Engine::Namespaces => environment::bring(context, assignment, spec).await,
        }
    }

    pub(crate) async fn start(
        self,
        context: &Context,
        launching: &Launching<'_>,
    ) -> Result<Running, StartError> {
        match self {
            Engine::Namespaces => namespaces::start(context, launching).await,
        }
    }
}
