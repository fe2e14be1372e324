//! Carrying out a template: all of it or nothing.

use super::shorten;
use crate::activity;
use crate::change::Change;
use crate::ids::OperationId;
use crate::input::{
    Answer, DeployRequest, DeployStep, DeployWhat, Foreseen, Input, Refused, Reply,
};
use crate::limits;
use crate::model::{ActivityOutcome, Caller, Deployed, Deployment, Scope, check_path_name};
use crate::step::Turn;

/// Tries everything on a sketch of the world first. What is refused there is refused before anything was
/// made; what is not, is not refused afterwards either, as nothing happens in between.
pub(crate) fn deploy(turn: &mut Turn<'_>, request: &DeployRequest) -> Answer {
    check_path_name(&request.name, limits::DEPLOYMENT_NAME_BYTES_MAX).map_err(|why| {
        Refused::invalid("name", format!("deployment {:?}: {why}", shorten(&request.name)))
    })?;
    let place = Scope::group(&request.subscription, &request.resource_group);
    if let Some(lock) = turn.world.estate().against_change(&place) {
        return Err(super::estate::locked("deployment", &request.name, "made", lock));
    }
    let mut sketch = turn.world.sketch(turn.now);
    let mut trial = Turn::new(&mut sketch, turn.now);
    let tried = make_all(&mut trial, request)?;
    if request.is_trial {
        let foreseen = trial.changes.iter().filter_map(foreseen).collect();
        let deployment = Box::new(record(&mut trial, request, tried));
        return Ok(Reply::Tried { deployment, foreseen });
    }
    let made = make_all(turn, request)?;
    let deployment = Box::new(record(turn, request, made));
    turn.emit(Change::DeploymentChanged(deployment.clone()));
    Ok(Reply::Deployment(deployment))
}

pub(crate) fn delete(turn: &mut Turn<'_>, group: &Scope, name: &str) -> Answer {
    // A lock on something in the group does not hold what was noted about it.
    let mut locks = turn.world.estate().locks();
    if let Some(lock) = locks.find(|lock| lock.scope.contains(group)) {
        return Err(super::estate::locked("deployment", name, "deleted", lock));
    }
    drop(locks);
    let name = name.to_ascii_lowercase().into();
    turn.emit(Change::DeploymentGone { group: group.clone(), name });
    Ok(Reply::Noted)
}

fn make_all(turn: &mut Turn<'_>, request: &DeployRequest) -> Result<Vec<Deployed>, Refused> {
    request.steps.iter().map(|step| make(turn, step, &request.by)).collect()
}

fn make(turn: &mut Turn<'_>, step: &DeployStep, by: &Caller) -> Result<Deployed, Refused> {
    let (input, kind) = match step.what.clone() {
        DeployWhat::Workspace { key, wanted } => (
            Input::PutWorkspace { key, wanted, by: by.clone() },
            "Microsoft.MachineLearningServices/workspaces",
        ),
        DeployWhat::Compute { workspace, name, wanted } => (
            Input::PutCluster { workspace, name: name.into(), wanted, by: by.clone() },
            "Microsoft.MachineLearningServices/workspaces/computes",
        ),
    };
    let (is_new, operation) = match activity::take_in(turn, by, &step.deed, &input) {
        Ok(Reply::Workspace { is_new, .. }) => (is_new, None),
        // A cluster is ready with this very step; only an instance is ready with its node.
        Ok(Reply::Cluster { is_new, operation, cluster }) => {
            (is_new, (!cluster.spec.kind.is_cluster()).then_some(operation))
        }
        Ok(other) => unreachable!("a workspace or a compute was asked for, not {other:?}"),
        Err(refused) => {
            let message = format!("{}: {}", step.deed.resource, refused.message);
            return Err(Refused { message: message.into(), ..refused });
        }
    };
    Ok(Deployed { resource: step.deed.resource.clone(), kind: kind.into(), is_new, operation })
}

/// The activity log's line of a step says what was before and what after it.
fn foreseen(change: &Change) -> Option<Foreseen> {
    let Change::ActivityNoted(activity) = change else { return None };
    let ActivityOutcome::Done { before, after } = activity.outcome.clone() else { return None };
    let resource = activity.deed.resource.clone();
    Some(Foreseen { resource, before: before.map(|it| *it), after: after.map(|it| *it) })
}

fn record(turn: &mut Turn<'_>, request: &DeployRequest, made: Vec<Deployed>) -> Deployment {
    Deployment {
        id: OperationId(turn.world.draw()),
        subscription: request.subscription.clone(),
        resource_group: request.resource_group.clone(),
        name: request.name.clone(),
        at: turn.now.wall,
        by: request.by.clone(),
        correlation: request.correlation.clone(),
        template_hash: request.template_hash.clone(),
        made,
        left_out: request.left_out.clone(),
        outputs: request.outputs.clone(),
    }
}
