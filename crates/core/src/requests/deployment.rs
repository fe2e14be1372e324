//! Deploying a template: as a whole or not at all.

use super::shorten;
use crate::activity;
use crate::change::Change;
use crate::ids::OperationId;
use crate::input::{
    DeployRequest, DeployStep, DeployWhat, Foreseen, Input, InputResult, Refused, Reply,
};
use crate::limits;
use crate::model::{ActivityOutcome, Caller, Deployed, Deployment, Scope, check_path_name};
use crate::refusal::{Rule, words};
use crate::step::Transaction;

/// Tries everything on a sketch of World first. A request that is refused there is refused before anything was created.
/// A request that is accepted there is not refused afterwards either, because nothing happens in between.
pub(crate) fn deploy(tx: &mut Transaction<'_>, request: &DeployRequest) -> InputResult {
    check_path_name(&request.name, limits::DEPLOYMENT_NAME_BYTES_MAX).map_err(|why| {
        Refused::invalid("name", format!("deployment {:?}: {why}", shorten(&request.name)))
    })?;
    let place = Scope::group(&request.subscription, &request.resource_group);
    if let Some(lock) = tx.world.governance().against_change(&place) {
        return Err(super::governance::locked("deployment", &request.name, "made", lock));
    }
    let mut sketch = tx.world.sketch(tx.now);
    let mut trial = Transaction::new(&mut sketch, tx.now);
    let tried = make_all(&mut trial, request)?;
    if request.is_trial {
        let foreseen = trial.changes.iter().filter_map(foreseen).collect();
        let deployment = Box::new(record(&mut trial, request, tried));
        return Ok(Reply::Tried { deployment, foreseen });
    }
    let made = make_all(tx, request)?;
    let deployment = Box::new(record(tx, request, made));
    tx.emit(Change::DeploymentChanged(deployment.clone()));
    Ok(Reply::Deployment(deployment))
}

pub(crate) fn delete(tx: &mut Transaction<'_>, group: &Scope, name: &str) -> InputResult {
    // A lock on a resource in the group does not protect the record of the deployment.
    let mut locks = tx.world.governance().locks();
    if let Some(lock) = locks.find(|lock| lock.scope.contains(group)) {
        return Err(super::governance::locked("deployment", name, "deleted", lock));
    }
    drop(locks);
    let name = name.to_ascii_lowercase().into();
    tx.emit(Change::DeploymentGone { group: group.clone(), name });
    Ok(Reply::Noted)
}

fn make_all(tx: &mut Transaction<'_>, request: &DeployRequest) -> Result<Vec<Deployed>, Refused> {
    request.steps.iter().map(|step| make(tx, step, &request.by)).collect()
}

fn make(tx: &mut Transaction<'_>, step: &DeployStep, by: &Caller) -> Result<Deployed, Refused> {
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
    let (is_new, operation) = match activity::take_in(tx, by, &step.activity_request, &input) {
        Ok(Reply::Workspace { is_new, .. }) => (is_new, None),
        // A cluster is ready in this very step, but an instance is ready only when its node is.
        Ok(Reply::Cluster { is_new, operation, cluster }) => {
            (is_new, (!cluster.spec.kind.is_cluster()).then_some(operation))
        }
        Ok(other) => unreachable!("a workspace or a compute was asked for, not {other:?}"),
        Err(refused) => {
            let place = words![format!("{}: ", step.activity_request.resource)];
            let rule = Rule::Said(place.then(refused.words()));
            return Err(Refused { rule, ..refused });
        }
    };
    Ok(Deployed {
        resource: step.activity_request.resource.clone(),
        kind: kind.into(),
        is_new,
        operation,
    })
}

/// The entry of a step in the activity log has the state before and after it.
fn foreseen(change: &Change) -> Option<Foreseen> {
    let Change::ActivityNoted(activity) = change else { return None };
    let ActivityOutcome::Done { before, after } = activity.outcome.clone() else { return None };
    let resource = activity.request.resource.clone();
    Some(Foreseen { resource, before: before.map(|it| *it), after: after.map(|it| *it) })
}

fn record(tx: &mut Transaction<'_>, request: &DeployRequest, made: Vec<Deployed>) -> Deployment {
    Deployment {
        id: OperationId(tx.world.draw()),
        subscription: request.subscription.clone(),
        resource_group: request.resource_group.clone(),
        name: request.name.clone(),
        at: tx.now.wall,
        by: request.by.clone(),
        correlation: request.correlation.clone(),
        template_hash: request.template_hash.clone(),
        made,
        left_out: request.left_out.clone(),
        outputs: request.outputs.clone(),
    }
}
