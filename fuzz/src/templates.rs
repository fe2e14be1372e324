//! Templates of Azure Resource Manager: a language with functions, whose evaluation must be quick and need little
//! memory.

use std::collections::BTreeMap;

use muster_core::model::{ActivityRequest, Scope};
use muster_core::time::Wall;
use muster_core::{DeployRequest, DeployStep, DeployWhat, Input};
use muster_wire::ArmError;
use muster_wire::deployment::{self, Plan, RESOURCES_MAX, Setting};
use serde_json::Value;

use crate::core::{Stage, caller};
use crate::oracle;

/// The size limit for the outputs.
const OUTPUTS_BYTES_MAX: usize = 64 << 10;

fn plan(data: &[u8]) -> Result<Plan, ArmError> {
    let tags = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
    let setting = Setting {
        subscription: "s",
        resource_group: "g",
        location: "eastus",
        tags: &tags,
        tenant: "t",
        deployment: "d",
        now: Wall(1_794_772_332_000_000),
        seed: [7; 16],
    };
    deployment::plan(data, &setting, &|_| "digest".to_owned())
}

/// The result is the same each time, and the core accepts or refuses all of it.
pub fn deployment(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Err(error) = deployment::filter(text)
    {
        oracle::refusal(&error);
    }
    let plan = match plan(data) {
        Ok(plan) => plan,
        Err(error) => return oracle::refusal(&error),
    };
    assert_eq!(self::plan(data).as_ref(), Ok(&plan));
    assert!(plan.steps.len() + plan.left_out.len() <= RESOURCES_MAX);
    if let Some(outputs) = &plan.outputs {
        assert!(outputs.as_str().len() <= OUTPUTS_BYTES_MAX);
        let outputs: Value = serde_json::from_str(outputs.as_str()).expect("our own JSON");
        assert!(outputs.is_object());
    }
    let request = DeployRequest {
        subscription: "s".into(),
        resource_group: "g".into(),
        name: "d".into(),
        by: caller(),
        correlation: "c".into(),
        template_hash: plan.template_hash.into(),
        steps: plan.steps.into_iter().map(step).collect(),
        left_out: plan.left_out,
        outputs: plan.outputs.map(|outputs| outputs.as_str().into()),
        is_trial: false,
    };
    let mut stage = Stage::running();
    let trial = DeployRequest { is_trial: true, ..request.clone() };
    let would = stage.say(Input::Deploy(Box::new(trial)));
    assert_eq!(stage.say(Input::Deploy(Box::new(request))), would, "a dry run predicts the result");
}

fn step(what: DeployWhat) -> DeployStep {
    let (operation, resource, key) = match &what {
        DeployWhat::Workspace { key, .. } => ("workspaces/write", key.name.to_string(), key),
        DeployWhat::Compute { workspace, name, .. } => {
            ("workspaces/computes/write", format!("{}/{name}", workspace.name), workspace)
        }
    };
    let activity_request = ActivityRequest {
        operation: operation.into(),
        resource: resource.into(),
        scope: Scope::group(&key.subscription, &key.resource_group),
        correlation: "c".into(),
    };
    DeployStep { activity_request, what }
}
