//! What a job runs in, chosen for each job by itself. An engine makes ready what the job's environment names, and starts its
//! command; everything else about an attempt (files, log, signals, its end) is the same with all of them.
//!
//! One for containers is a variant here, a module beside `namespaces`, and a [`Running`] that it starts.

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

/// Everything that starting takes.
pub(crate) struct Launching<'a> {
    pub(crate) assignment: &'a Assignment,
    pub(crate) spec: &'a JobSpec,
    pub(crate) facts: Option<&'a RunFacts>,
    pub(crate) gpus: &'a Grant<'a>,
    pub(crate) services: &'a Services,
    /// Its own, where there is one.
    pub(crate) group: Option<&'a JobGroup>,
}

impl Engine {
    /// Which one runs this job. One that names an image is for an engine of containers; where there is none, what stands in
    /// for its image is used, and [`environment::bring`] says so in its log.
    pub(crate) fn choose(spec: &JobSpec) -> Engine {
        let environment = spec.environment.as_deref();
        if let Some(image) = environment.and_then(|environment| environment.image.as_deref()) {
            tracing::debug!(image, "no engine for containers on this node; its stand-in is used");
        }
        Engine::Namespaces
    }

    /// Has the job find what its environment names.
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
