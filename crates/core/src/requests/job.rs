//! Requests to run a job or to cancel it.

use std::sync::Arc;

use super::governance::locked;
use super::job_life::{self, check_properties, known};
use super::serverless::{self, JobTarget};
use super::{
    check_tags, check_text, find_workspace, instance, job_array, job_compute, job_data,
    job_service, principal, shorten,
};
use crate::attempts;
use crate::change::Change;
use crate::ids::{JobId, WorkspaceId};
use crate::input::{InputResult, JobRequest, KnownJob, Refused, Reply};
use crate::limits;
use crate::model::{
    CancelReason, Capacity, Cluster, ClusterPhase, Job, JobKind, JobPhase, JobSpec, JobState,
    RecipeMark, Scope, WorkspaceKey, check_job_name, check_path,
};
use crate::planted::{Bug, is_planted};
use crate::refusal::{JobField, JobRule, Rule, words};
use crate::step::Transaction;
use crate::why::{Listing, Remedy};

pub(crate) fn submit(tx: &mut Transaction<'_>, request: &JobRequest) -> InputResult {
    let workspace = find_workspace(tx, &request.workspace)?.id;
    check_name(request)?;
    if let Some(known) = known(tx, workspace, &request.name, request.existing.as_ref()) {
        return job_life::put_again(tx, request, &known);
    }
    // Without rows, as when a trace is replayed, the specifications cannot be compared, but their hashes can.
    if let Some(live) = tx.world.live_job_by_name(workspace, &request.name) {
        return job_life::accept_by_hash(request, live);
    }
    if request.is_archived == Some(true) {
        return Err(Refused::invalid(JobField::IsArchived, JobRule::ArchivedBeforeSubmit));
    }
    let JobPlacement { found, share } = wanted(tx, workspace, request)?;
    job_array::check_names(tx, workspace, request)?;
    let by = principal(tx, &request.by);
    let cluster = serverless::make(tx, found, by);
    let array = request.spec.array.clone();
    let children = array.as_ref().map_or(0, |plan| u64::from(plan.indices.len()));
    let job = Arc::new(Job {
        id: JobId(tx.world.draw_many(1 + children)),
        workspace,
        cluster,
        name: request.name.as_str().into(),
        kind: array.map_or(JobKind::Command, JobKind::Array),
        parent: None,
        principal: by,
        nodes: request.spec.nodes,
        share,
        priority: request.spec.priority,
        spec: request.spec_hash,
        submitted_at: tx.now.wall,
        attempts: 0,
        losses: 0,
        on_eviction: request.spec.on_eviction,
        is_returned: false,
        environment: environment_of(&request.spec),
        state: JobState::Queued,
    });
    tx.emit(Change::JobSubmitted { job: Arc::clone(&job), spec: Arc::clone(&request.spec) });
    Ok(Reply::JobAccepted { job, is_new: true })
}

/// Checks whether a job would be accepted if its name were free. Nothing changes.
pub(crate) fn check(tx: &Transaction<'_>, request: &JobRequest) -> InputResult {
    let workspace = find_workspace(tx, &request.workspace)?.id;
    check_name(request)?;
    wanted(tx, workspace, request)?;
    Ok(Reply::Noted)
}

fn check_name(request: &JobRequest) -> Result<(), Refused> {
    check_job_name(&request.name).map_err(|why| {
        Refused::invalid("name", format!("job name {:?}: {why}", shorten(&request.name)))
    })
}

/// Where a job would run, and its share of each node.
struct JobPlacement {
    found: JobTarget,
    share: Option<Box<Capacity>>,
}

/// Checks everything about a new job except its name.
fn wanted(
    tx: &Transaction<'_>,
    workspace: WorkspaceId,
    request: &JobRequest,
) -> Result<JobPlacement, Refused> {
    check_spec(&request.spec)?;
    if let Some(lock) = tx.world.governance().against_change(&Scope::workspace(&request.workspace))
    {
        return Err(locked("job", &request.name, "submitted", lock));
    }
    let found = match request.spec.is_serverless() {
        true => serverless::find(tx, workspace, &request.spec)?,
        false => {
            let cluster = find_cluster(tx, workspace, request)?;
            instance::check_nodes(cluster, request.spec.nodes)?;
            let cluster = tx.world.shared_cluster(cluster.id).expect("just found");
            JobTarget::There(Arc::clone(cluster))
        }
    };
    job_compute::check(tx, found.cluster(), &request.spec)?;
    let share = share_of(found.cluster(), &request.spec)?;
    if tx.world.jobs().len() >= limits::QUEUED_JOBS_MAX {
        return Err(Refused::too_many(
            "name",
            format!(
                "{} jobs are waiting or running, which is the maximum; try again when some have ended",
                limits::QUEUED_JOBS_MAX
            ),
        ));
    }
    check_queued(tx, workspace, request)?;
    Ok(JobPlacement { found, share })
}

/// Checks that one more job may wait.
fn check_queued(
    tx: &Transaction<'_>,
    workspace: WorkspaceId,
    request: &JobRequest,
) -> Result<(), Refused> {
    let (world, settings) = (&tx.world, &tx.world.settings);
    let by = &request.by;
    let own = world.principal_id(&by.object_id).map_or(0, |principal| world.queued_of(principal));
    let new = job_array::waiting_at_once(&request.spec);
    if own.saturating_add(new) > settings.queued_per_principal_max {
        let message = format!(
            "{own} jobs of '{}' are waiting{}; submit again when some have started, \
             cancel some, or ask the operator to raise queued-jobs-per-user",
            shorten(&by.name),
            job_array::beyond(new, settings.queued_per_principal_max, "one user"),
        );
        return Err(Refused::full("name", message));
    }
    let all = world.queued_in(workspace);
    if all.saturating_add(new) > settings.queued_per_workspace_max {
        let message = format!(
            "{all} jobs are waiting in workspace '{}'{}; submit again when some \
             have started, cancel some, or ask the operator to raise queued-jobs-per-workspace",
            request.workspace.name,
            job_array::beyond(new, settings.queued_per_workspace_max, "one workspace"),
        );
        return Err(Refused::full("name", message));
    }
    Ok(())
}

fn environment_of(spec: &JobSpec) -> Option<RecipeMark> {
    let recipe = spec.environment.as_ref()?.recipe.as_ref()?;
    Some(recipe.mark())
}

/// The job's share of each node: less than a node of this cluster has, or all of it.
fn share_of(cluster: &Cluster, spec: &JobSpec) -> Result<Option<Box<Capacity>>, Refused> {
    let has = cluster.capacity;
    let asked = [
        (JobField::ShareVcpus, spec.share.vcpus.map(u64::from), u64::from(has.vcpus), "vCPUs"),
        (JobField::ShareMemory, spec.share.memory_mb, has.memory_mb, "MiB of memory"),
        (JobField::ShareGpus, spec.share.gpus.map(u64::from), u64::from(has.gpus), "GPUs"),
    ];
    for (target, asked, has, unit) in asked {
        if let Some(asked) = asked
            && asked > has
        {
            return Err(Refused::invalid(
                target,
                format!(
                    "the job asks for {asked} {unit} of each node, but a node of compute '{}' ({}) has \
                     {has}; ask for less, or submit to a compute with a larger size",
                    cluster.name, cluster.spec.vm_size
                ),
            ));
        }
        // Asking for no GPU makes sense, but asking for no core or no memory is a mistake.
        if asked == Some(0) && target != JobField::ShareGpus {
            return Err(Refused::invalid(
                target,
                format!("the job asks for 0 {unit}; ask for at least 1, or leave it out"),
            ));
        }
    }
    Ok(spec.share.of(has).map(Box::new))
}

/// The cluster that the job names, if the job can ever run there.
fn find_cluster<'t>(
    tx: &'t Transaction<'_>,
    workspace: WorkspaceId,
    request: &JobRequest,
) -> Result<&'t Cluster, Refused> {
    let JobSpec { compute, nodes, .. } = &*request.spec;
    let Some(cluster) = tx.world.cluster_by_name(workspace, compute) else {
        return Err(Refused::invalid(
            JobField::Compute,
            words![
                format!(
                    "compute '{}' does not exist in workspace '{}'; create it, or name one that `",
                    shorten(compute),
                    request.workspace.name
                ),
                Remedy::List(Listing::Computes),
                "` shows"
            ],
        ));
    };
    if cluster.phase == ClusterPhase::Deleting {
        return Err(Refused::conflict(
            JobField::Compute,
            format!("compute '{}' is being deleted; name another one", cluster.name),
        ));
    }
    // A maximum of zero means that the cluster is closed for now: its jobs wait.
    let nodes_max = cluster.spec.scale.nodes_max;
    if *nodes > nodes_max && nodes_max > 0 {
        let (nodes, compute, max) = (*nodes, cluster.name.clone(), nodes_max);
        let rule = JobRule::LargerThanCompute { nodes, compute, max };
        return Err(Refused::invalid(JobField::Nodes, rule));
    }
    Ok(cluster)
}

fn check_spec(spec: &JobSpec) -> Result<(), Refused> {
    if spec.command.trim().is_empty() {
        return Err(Refused::invalid(JobField::Command, Rule::Empty { advice: "say what to run" }));
    }
    check_text(JobField::Command, Some(&spec.command), limits::COMMAND_BYTES_MAX)?;
    if spec.command.contains('\0') {
        return Err(Refused::invalid(JobField::Command, JobRule::HasNulByte));
    }
    if spec.nodes == 0 {
        return Err(Refused::invalid(JobField::Nodes, JobRule::NoNodes));
    }
    if spec.nodes > limits::CLUSTER_NODES_MAX {
        let (nodes, max) = (spec.nodes, limits::CLUSTER_NODES_MAX);
        return Err(Refused::invalid(JobField::Nodes, JobRule::TooManyNodes { nodes, max }));
    }
    check_text(JobField::DisplayName, spec.display_name.as_deref(), limits::JOB_NAME_BYTES_MAX)?;
    check_text(JobField::ExperimentName, Some(&spec.experiment_name), limits::JOB_NAME_BYTES_MAX)?;
    check_text(JobField::Description, spec.description.as_deref(), limits::DESCRIPTION_BYTES_MAX)?;
    check_tags(&spec.tags)?;
    check_properties(&spec.properties)?;
    check_environment(spec)?;
    check_checkpoint(spec)?;
    job_data::check(spec)?;
    job_service::check(spec)?;
    job_array::check(spec)?;
    match spec.timeout {
        Some(timeout) if timeout.0 == 0 || timeout > limits::JOB_TIMEOUT_MAX => {
            let (seconds, max) = (timeout.as_seconds(), limits::JOB_TIMEOUT_MAX.as_seconds());
            Err(Refused::invalid(JobField::Timeout, JobRule::TimeoutOutOfRange { seconds, max }))
        }
        Some(_) | None => Ok(()),
    }
}

fn check_checkpoint(spec: &JobSpec) -> Result<(), Refused> {
    let Some(folder) = &spec.checkpoint else { return Ok(()) };
    check_path(folder).map_err(|why| {
        let message = format!(
            "the checkpoint folder {:?} {why}; give one below the job's working folder, such as checkpoints",
            shorten(folder)
        );
        Refused::invalid(JobField::Checkpoint, message)
    })
}

fn check_environment(spec: &JobSpec) -> Result<(), Refused> {
    let variables = &spec.environment_variables;
    if variables.len() > limits::ENVIRONMENT_VARIABLES_MAX {
        return Err(Refused::invalid(
            JobField::EnvironmentVariables,
            format!(
                "there are {} environment variables; at most {} are allowed",
                variables.len(),
                limits::ENVIRONMENT_VARIABLES_MAX
            ),
        ));
    }
    let bytes: usize = variables.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    if bytes > limits::ENVIRONMENT_BYTES_MAX {
        return Err(Refused::invalid(
            JobField::EnvironmentVariables,
            format!(
                "the environment variables have {bytes} bytes; at most {} are allowed",
                limits::ENVIRONMENT_BYTES_MAX
            ),
        ));
    }
    for (name, value) in variables {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(Refused::invalid(
                JobField::EnvironmentVariables,
                format!(
                    "the environment variable {:?} has an empty name, or contains '=' or a NUL byte",
                    shorten(name)
                ),
            ));
        }
    }
    Ok(())
}

pub(crate) fn cancel(
    tx: &mut Transaction<'_>,
    workspace: &WorkspaceKey,
    name: &str,
    known_before: Option<&KnownJob>,
) -> InputResult {
    let key = workspace;
    let workspace = find_workspace(tx, key)?.id;
    let Some(job) = tx.world.live_job_by_name(workspace, name) else {
        return match known(tx, workspace, name, known_before).map(|known| known.job.phase()) {
            // A repeated request, or one that arrived a moment too late: the job was canceled as requested. A child that
            // never started was canceled together with its parent.
            Some(JobPhase::Canceled | JobPhase::Queued) => Ok(Reply::CancelAccepted),
            Some(phase) => Err(Refused::conflict(
                "name",
                format!("job '{}' has already ended ({phase:?}); nothing to cancel", shorten(name)),
            )),
            None => Err(job_life::missing(name, key)),
        };
    };
    if !is_planted(Bug::CancelForgotten) {
        attempts::cancel(tx, Arc::unwrap_or_clone(job), CancelReason::Asked);
    }
    Ok(Reply::CancelAccepted)
}
