//! The engine that always exists. It uses namespaces of this node, or plain processes if it has none, with the host's
//! own programs and Python environments that uv creates.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use muster_sandbox::job;
use muster_sandbox::network::JobNetwork;

use super::Launching;
use crate::attempt::{Context, DEFAULT_PATH, ServerAccess, open_log};
use crate::bound::{self, Places, bind_all};
use crate::identity::Identity;
use crate::limits::{JobGroup, PROCESSES_MAX};
use crate::process::{Launch, Process};
use crate::running::Running;
use crate::sandboxed::{OwnNetwork, SandboxedJob, StartError};
use crate::{files, kin, members, mlflow, notice, ranks};

const DEFAULT_LANG: &str = "C.UTF-8";

pub(super) async fn start(
    context: &Context,
    launching: &Launching<'_>,
) -> Result<Running, StartError> {
    let Launching { assignment, spec, facts, services, .. } = launching;
    let work_dir = context.home.work(assignment.epoch);
    let log = open_log(&context.home.job_log(assignment.epoch))?;
    if let Some(spawner) = &context.spawner {
        let launch = sandboxed_launch(context, launching)?;
        let network = match has_own_network(context, launching) {
            true => Some(own_network(context)?),
            false => None,
        };
        return Ok(Running::SandboxedJob(
            SandboxedJob::start(spawner, launch, &log, network).await?,
        ));
    }
    let inputs = context.home.inputs(assignment.epoch);
    let places = Places { inputs: &inputs, seen_inputs: &inputs, seen_work: &work_dir };
    let bound = bind_all(spec, &places).map_err(io::Error::other)?;
    let (command, more) = ranks::distributed(spec, assignment, *facts, bound.command);
    let (command, starter) = services.beside(command, &bound.log_dirs);
    let tmp_dir = context.home.tmp(assignment.epoch);
    let mut variables = variables(context, launching, bound.variables, (&work_dir, &tmp_dir))?;
    variables.extend(more.into_iter().chain(starter));
    let process =
        Process::spawn(Launch { command: &command, work_dir: &work_dir, variables, log })?;
    // The process may have ended already, and then there is nothing to record.
    if let Some(identity) = Identity::of(process.pid())? {
        identity.write(&context.home.job_pid(assignment.epoch))?;
    }
    Ok(Running::Plain(process))
}

/// A job has its own loopback if others may run on the node at the same time. The members of a job on several nodes use
/// the addresses of their nodes instead.
fn has_own_network(context: &Context, launching: &Launching<'_>) -> bool {
    !context.jobs_share && launching.assignment.nodes == 1 && !launching.spec.share.is_whole()
}

/// Creates the job's network, with access to the server at the usual address.
fn own_network(context: &Context) -> io::Result<OwnNetwork> {
    let network = Arc::new(JobNetwork::make()?);
    let relay = context.access.as_ref().map(|access| access.lay_into(&network)).transpose()?;
    Ok(OwnNetwork { network, _relay: relay })
}

fn sandboxed_launch(context: &Context, launching: &Launching<'_>) -> io::Result<job::Launch> {
    let Launching { assignment, spec, facts, gpus, services, group } = launching;
    let inputs = context.home.inputs(assignment.epoch);
    let (seen_inputs, seen_work) = (Path::new(job::INPUTS), Path::new(job::FOLDER));
    let places = Places { inputs: &inputs, seen_inputs, seen_work };
    let bound = bind_all(spec, &places).map_err(io::Error::other)?;
    let (command, more) = ranks::distributed(spec, assignment, *facts, bound.command);
    let (command, starter) = services.beside(command, &bound.log_dirs);
    let seen_tmp = Path::new(job::OWN).join(job::TMP_NAME);
    let mut variables = variables(context, launching, bound.variables, (seen_work, &seen_tmp))?;
    variables.extend(more.into_iter().chain(starter));
    // A sandboxed job does not see the folder, and its processes are found through their init.
    variables.remove(kin::DIR_VARIABLE);
    // The job's user has a number but no name, which many programs ask for.
    for name in ["USER", "LOGNAME"] {
        variables.entry(name.into()).or_insert_with(|| "job".into());
    }
    let access = context.access.iter().flat_map(ServerAccess::variables);
    let acting = context.access.as_ref().zip(*facts).filter(|_| spec.acts_as_submitter());
    let acting = acting.map(|(access, facts)| ("OBO_ENDPOINT", access.on_behalf_of(facts)));
    for (name, value) in access.chain(acting).chain(gpus.variables()) {
        variables.entry(name.into()).or_insert_with(|| value.into());
    }
    let text = |(name, value): (String, OsString)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(io::Error::other(format!("variable {name} is not UTF-8"))),
    };
    Ok(job::Launch {
        command,
        variables: variables.into_iter().map(text).collect::<io::Result<_>>()?,
        own_dir: context.home.own(assignment.epoch),
        hidden: context.hidden.clone(),
        ca_bundle: context.access.as_ref().and_then(ServerAccess::ca_bundle).map(Path::to_owned),
        inputs: inputs.is_dir().then_some(inputs),
        gpus: gpus.numbers(),
        shares_node: context.jobs_share,
        group: group.map(JobGroup::folders).unwrap_or_default(),
        process_count: group.and_then(|group| group.group().process_count()),
        limits: job::Limits {
            processes: Some(u64::from(PROCESSES_MAX)),
            shared_memory_bytes: spec.shared_memory_mb.map(|mb| mb.saturating_mul(1 << 20)),
            // The job's output is a file too, and may exceed its limit for a moment before it is cut.
            file_bytes: context.file_bytes(),
        },
    })
}

/// The complete environment of the job. Later entries win: users may replace the first few, but not those that identify
/// the job.
fn variables(
    context: &Context,
    launching: &Launching<'_>,
    own: BTreeMap<String, String>,
    (work_dir, tmp_dir): (&Path, &Path),
) -> io::Result<BTreeMap<String, OsString>> {
    let Launching { assignment, spec, facts, .. } = launching;
    let inherited =
        |name: &str, default: &str| std::env::var_os(name).unwrap_or_else(|| default.into());
    let mut all: BTreeMap<String, OsString> = BTreeMap::from([
        ("PATH".into(), inherited("PATH", DEFAULT_PATH)),
        ("LANG".into(), inherited("LANG", DEFAULT_LANG)),
        ("HOME".into(), work_dir.into()),
        ("TMPDIR".into(), tmp_dir.into()),
    ]);
    all.extend(mlflow::variables(work_dir));
    for (name, value) in own {
        if name.is_empty() || name.contains(['=', '\0']) {
            let message = format!("{name:?} cannot be the name of an environment variable");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        all.insert(name, value.into());
    }
    let root = assignment.task.as_ref().map_or(&assignment.job_name, |task| &task.array);
    let about = bound::about(spec, root, *facts);
    all.extend(about.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
    all.extend(members::variables(assignment));
    let ours: [(&str, OsString); 9] = [
        ("MUSTER_JOB_NAME", (*assignment.job_name).into()),
        ("MUSTER_ATTEMPT", assignment.attempt.to_string().into()),
        ("MUSTER_EPOCH", assignment.epoch.to_string().into()),
        (kin::NODE_VARIABLE, context.node.as_str().into()),
        (kin::DIR_VARIABLE, context.home.dir().into()),
        (notice::VARIABLE, notice::path(work_dir).into()),
        ("AZUREML_RUN_ID", (*assignment.job_name).into()),
        ("AZUREML_NODE_COUNT", assignment.nodes.to_string().into()),
        ("NODE_RANK", assignment.rank.to_string().into()),
    ];
    all.extend(ours.map(|(name, value)| (name.to_owned(), value)));
    if let Some(task) = &assignment.task {
        let task: [(&str, OsString); 3] = [
            ("MUSTER_ARRAY_INDEX", task.index.to_string().into()),
            ("MUSTER_ARRAY_COUNT", task.count.to_string().into()),
            ("MUSTER_ARRAY_NAME", (*task.array).into()),
        ];
        all.extend(task.map(|(name, value)| (name.to_owned(), value)));
    }
    if let Some(folder) = &spec.checkpoint {
        all.insert(files::CHECKPOINT_VARIABLE.to_owned(), work_dir.join(&**folder).into());
    }
    Ok(all)
}
