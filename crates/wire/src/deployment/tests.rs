//! Templates as people and Azure's clients write them, and malformed ones.

mod hostile;
mod values;

use std::collections::BTreeMap;

use muster_core::DeployWhat;
use muster_core::time::Wall;
use serde_json::{Value, json};

use super::{Plan, Setting, plan};
use crate::error::ArmError;

const ML: &str = "Microsoft.MachineLearningServices/workspaces";

fn read(template: Value, parameters: Value) -> Result<Plan, ArmError> {
    let body = json!({"properties": {
        "mode": "incremental", "template": template, "parameters": parameters,
    }});
    read_body(&body)
}

fn read_body(body: &Value) -> Result<Plan, ArmError> {
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
    plan(body.to_string().as_bytes(), &setting, &|_| "digest".to_owned())
}

fn resources(list: Value) -> Value {
    json!({"contentVersion": "1.0.0.0", "resources": list})
}

fn workspace(name: &str) -> Value {
    json!({"type": ML, "apiVersion": "2023-10-01", "name": name, "location": "eastus"})
}

fn cluster(name: &str) -> Value {
    json!({
        "type": format!("{ML}/computes"), "name": name, "location": "eastus",
        "properties": {"computeType": "AmlCompute", "properties": {
            "vmSize": "Standard_DS3_v2",
            "scaleSettings": {"minNodeCount": 0, "maxNodeCount": 4},
        }},
    })
}

/// The resources to create, as `workspace` and `workspace/cluster`.
fn made(plan: &Plan) -> Vec<String> {
    let name = |step: &DeployWhat| match step {
        DeployWhat::Workspace { key, .. } => key.name.to_string(),
        DeployWhat::Compute { workspace, name, .. } => format!("{}/{name}", workspace.name),
    };
    plan.steps.iter().map(name).collect()
}

#[test]
fn a_template_makes_a_workspace_and_then_its_cluster() {
    let template = json!({
        "parameters": {
            "name": {"type": "string", "minLength": 3},
            "max": {"type": "int", "defaultValue": 4, "minValue": 1, "maxValue": 10},
            "password": {"type": "securestring", "defaultValue": "hunter2"},
        },
        "variables": {"pool": "[toLower(concat(parameters('NAME'), '-CPU'))]"},
        "resources": [
            {
                "type": format!("{ML}/computes"),
                "name": "[concat(parameters('name'), '/', variables('pool'))]",
                "location": "[resourceGroup().location]",
                "dependsOn": ["[resourceId('Microsoft.MachineLearningServices/workspaces', parameters('name'))]"],
                "properties": {"computeType": "AmlCompute", "properties": {
                    "scaleSettings": {"maxNodeCount": "[parameters('max')]"},
                    "userAccountCredentials": {
                        "adminUserName": "azureuser",
                        "adminUserPassword": "[parameters('password')]",
                    },
                }},
            },
            {
                "type": ML, "name": "[parameters('name')]", "location": "westeurope",
                "tags": "[union(resourceGroup().tags, createObject('made', 'here'))]",
                "kind": "Default",
                "properties": {"friendlyName": "[format('{0} of {1}', 'Space', parameters('name'))]"},
            },
        ],
        "outputs": {
            "id": {"type": "string", "value": "[resourceId('Microsoft.MachineLearningServices/workspaces', parameters('name'))]"},
            "friendly": {"type": "string", "value": "[reference(parameters('name')).friendlyName]"},
            "secret": {"type": "securestring", "value": "[parameters('password')]"},
        },
    });
    let plan = read(template.clone(), json!({"name": {"value": "ws1"}})).expect("a template");
    assert_eq!(made(&plan), ["ws1", "ws1/ws1-cpu"]);
    let [DeployWhat::Workspace { key, wanted }, DeployWhat::Compute { wanted: pool, .. }] =
        plan.steps.as_slice()
    else {
        panic!("{:?}", plan.steps)
    };
    assert_eq!((&*key.subscription, &*key.resource_group), ("s", "g"));
    assert_eq!(wanted.friendly_name.as_deref(), Some("Space of ws1"));
    assert_eq!(wanted.location.as_deref(), Some("westeurope"));
    let tags = wanted.tags.as_ref().expect("tags");
    assert_eq!((&*tags["team"], &*tags["made"]), ("blue", "here"));
    assert_eq!((pool.nodes_max, pool.location.as_deref()), (Some(4), Some("eastus")));
    let digest = pool.admin.as_ref().and_then(|admin| admin.password_digest.as_deref());
    assert_eq!(digest, Some("digest"));
    let outputs = plan.outputs.as_ref().expect("outputs").as_str();
    assert!(outputs.contains("providers/Microsoft.MachineLearningServices/workspaces/ws1"));
    assert!(
        outputs.contains(r#""friendly":{"type":"String","value":"Space of ws1"}"#),
        "{outputs}"
    );
    assert!(!outputs.contains("hunter2"), "{outputs}");

    // The same template has the same hash, whatever the values of its parameters.
    let other = read(template, json!({"name": {"value": "ws2"}})).expect("a template");
    assert_eq!(other.template_hash, plan.template_hash);
    assert_eq!(plan.template_hash.len(), 64);
}

#[test]
fn what_workspaces_of_the_cloud_need_is_left_out_and_named() {
    let template = resources(json!([
        {"type": "Microsoft.Storage/storageAccounts", "name": "sa", "properties": {
            // Not computed, because the resource is not created.
            "key": "[listKeys(resourceId('Microsoft.Storage/storageAccounts', 'sa'), '2021-04-01').keys[0]]",
        }},
        {"type": "Microsoft.KeyVault/vaults", "name": "kv", "condition": false},
        {"type": "Microsoft.Insights/components", "name": "ai", "dependsOn": ["sa"]},
        {
            "type": ML, "name": "ws", "location": "eastus",
            // One resource is excluded by its condition, and one is named without the beginning of its id.
            "dependsOn": ["kv", "Microsoft.Insights/components/ai"],
            "properties": {"storageAccount": "[resourceId('Microsoft.Storage/storageAccounts', 'sa')]"},
        },
        {"type": "Microsoft.Authorization/roleAssignments", "name": "[guid('a', 'b')]", "scope": "[resourceId('Microsoft.MachineLearningServices/workspaces', 'ws')]"},
        {"type": "Microsoft.Storage/storageAccounts/blobServices/containers", "name": "sa/default/c"},
    ]));
    let plan = read(template, Value::Null).expect("a template");
    assert_eq!(made(&plan), ["ws"]);
    let kinds: Vec<&str> = plan.left_out.iter().map(|left_out| &*left_out.kind).collect();
    assert_eq!(
        kinds,
        [
            "Microsoft.Storage/storageAccounts",
            "Microsoft.Insights/components",
            "Microsoft.Authorization/roleAssignments",
            "Microsoft.Storage/storageAccounts/blobServices/containers",
        ]
    );
    let last = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/sa/blobServices/default/containers/c";
    assert_eq!(&*plan.left_out[3].resource, last);
}

#[test]
fn resources_in_resources_and_named_resources_are_found() {
    let mut parent = workspace("ws");
    let mut child = cluster("cpu");
    child["type"] = json!("computes");
    parent["resources"] = json!([child]);
    let plan = read(resources(json!([parent])), Value::Null).expect("a template");
    assert_eq!(made(&plan), ["ws", "ws/cpu"]);

    let mut pool = cluster("ws/gpu");
    pool["dependsOn"] = json!(["home", "there"]);
    let mut there = workspace("there");
    there["existing"] = json!(true);
    let template = json!({"languageVersion": "2.0", "resources": {
        "a": pool, "home": workspace("ws"), "there": there,
    }});
    assert_eq!(made(&read(template, Value::Null).expect("a template")), ["ws", "ws/gpu"]);
}

#[test]
fn templates_in_templates_are_read_too() {
    let inner = json!({
        "type": "Microsoft.Resources/deployments", "name": "inner", "resourceGroup": "other",
        "properties": {
            "mode": "Incremental",
            "expressionEvaluationOptions": {"scope": "inner"},
            "parameters": {"name": {"value": "[variables('name')]"}},
            "template": {
                "parameters": {"name": {"type": "string"}},
                "resources": [{"type": ML, "name": "[parameters('name')]", "location": "eastus", "tags": {
                    "group": "[resourceGroup().name]", "by": "[deployment().name]",
                }}],
                "outputs": {"made": {"type": "string", "value": "[concat('made ', parameters('name'))]"}},
            },
        },
    });
    let mut after = workspace("after");
    after["dependsOn"] = json!(["inner"]);
    after["properties"] = json!({"description": "[reference('inner').outputs.made.value]"});
    let outer = json!({
        "type": "Microsoft.Resources/deployments", "name": "outer",
        "properties": {"template": {"resources": [
            {"type": ML, "name": "[variables('name')]", "location": "eastus"},
        ]}},
    });
    let mut template = resources(json!([after, inner, outer]));
    template["variables"] = json!({"name": "ws"});
    let plan = read(template, Value::Null).expect("a template");
    assert_eq!(made(&plan), ["ws", "after", "ws"]);
    let [DeployWhat::Workspace { key, wanted }, DeployWhat::Workspace { wanted: after, .. }, _] =
        plan.steps.as_slice()
    else {
        panic!("{:?}", plan.steps)
    };
    assert_eq!(&*key.resource_group, "other");
    let tags = wanted.tags.as_ref().expect("tags");
    assert_eq!((&*tags["group"], &*tags["by"]), ("other", "inner"));
    assert_eq!(after.description.as_deref(), Some("made ws"));
}

#[test]
fn what_cannot_be_carried_out_is_refused_with_its_place() {
    let bad = |change: Value| {
        let mut resource = workspace("ws");
        for (key, value) in change.as_object().expect("an object") {
            resource[key] = value.clone();
        }
        read(resources(json!([resource])), Value::Null).expect_err("refused")
    };
    let cases = [
        (
            json!({"name": "[nonsense('a')]"}),
            "resources[0].name: the function 'nonsense' does not exist",
        ),
        (json!({"location": "[environment().name]"}), "'environment' is not supported"),
        (json!({"name": "[concat('a']"}), "resources[0].name: the expression ends"),
        (json!({"name": "[parameters('x')]"}), "there is no parameter 'x'"),
        (json!({"name": "[variables('x')]"}), "there is no variable 'x'"),
        (json!({"name": "[reference('x').y]"}), "in properties and outputs only"),
        (
            json!({"properties": {"description": "[reference('x').y]"}}),
            "does not refer to a resource of this template",
        ),
        (
            json!({"properties": {"description": "[resourceGroup().nothing]"}}),
            "there is no property 'nothing'; there are: id,",
        ),
        (
            json!({"properties": {"description": ["x"]}}),
            "Microsoft.MachineLearningServices/workspaces/ws): ",
        ),
        (json!({"properties": {"a": "[reference('ws').b]"}}), "it refers to itself"),
        (json!({"copy": {"name": "c", "count": 3}}), "copy loops are not supported"),
        (
            json!({"properties": {"copy": [{"name": "c", "count": 3, "input": 1}]}}),
            "copy loops are not supported",
        ),
        (
            json!({"type": "Microsoft.Sql/servers"}),
            "the resource type 'Microsoft.Sql/servers' is not supported; Microsoft.Machine",
        ),
        (json!({"type": ML, "name": "a/b"}), "needs 1 names, but has 2"),
        (json!({"kind": "Hub"}), "kind is 'Hub', which is not supported"),
        (json!({"dependsOn": ["ghost"]}), "dependsOn names 'ghost', which is not in the template"),
        (json!({"dependsOn": ["ws"]}), "these resources depend on each other"),
        (json!({"condition": "maybe"}), "condition: an argument is a string; give true or false"),
        (json!({"type": null}), "the resource has no type"),
    ];
    for (change, words) in cases {
        let error = bad(change);
        assert_eq!(error.status, 400, "{error}");
        assert!(error.to_string().contains(words), "{words} in {error}");
    }
    let error = bad(json!({"type": "Microsoft.Sql/servers"}));
    assert_eq!((error.code(), error.target()), ("InvalidTemplate", Some("resources[0]")));
    let twice = resources(json!([workspace("ws"), workspace("WS")]));
    let error = read(twice, Value::Null).expect_err("twice");
    assert!(error.to_string().contains("in the template twice"), "{error}");
}

#[test]
fn bodies_that_ask_for_more_are_refused() {
    let good = json!({"properties": {"mode": "Incremental", "template": {"resources": []}}});
    assert_eq!(read_body(&good).expect("nothing").steps, []);
    let cases = [
        (
            "/properties/mode",
            json!("Complete"),
            "it would delete everything that the template does not",
        ),
        ("/properties/mode", Value::Null, "properties.mode is missing"),
        ("/properties/template", Value::Null, "properties.template is missing"),
        ("/properties/template", json!([]), "the template is an array"),
        (
            "/properties/templateLink",
            json!({"uri": "https://x"}),
            "send the template and its values",
        ),
        ("/properties/template/functions", json!([{"namespace": "x"}]), "are not supported"),
        ("/properties/template/resources", json!(3), "the resources are a number"),
        (
            "/properties/parameters",
            json!({"x": {"value": 1}}),
            "does not declare; the declared parameters are: none",
        ),
    ];
    for (place, value, words) in cases {
        let mut body = good.clone();
        let (parent, key) = place.rsplit_once('/').expect("a place");
        body.pointer_mut(parent).expect("there")[key] = value;
        let error = read_body(&body).expect_err(place);
        assert_eq!(error.status, 400);
        assert!(error.to_string().contains(words), "{place}: {error}");
    }
}

#[test]
fn a_parameter_has_what_it_is_declared_to_have() {
    let check = |declared: Value, given: Value| {
        let template = json!({"parameters": {"p": declared}, "resources": []});
        let given = if given.is_null() { json!({}) } else { json!({"P": given}) };
        read(template, given).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(
        check(json!({"type": "STRING", "allowedValues": ["a"]}), json!({"value": "a"})),
        Ok(())
    );
    assert_eq!(check(json!({"type": "int", "nullable": true}), Value::Null), Ok(()));
    // Given values are literal; defaults are computed.
    assert_eq!(check(json!({"type": "string"}), json!({"value": "[nonsense()]"})), Ok(()));
    let cases = [
        (json!({"type": "string"}), Value::Null, "parameters.p: it has neither a value nor"),
        (
            json!({"type": "int"}),
            json!({"value": "4"}),
            "its value is a string, but its type is int",
        ),
        (json!({"type": "thing"}), json!({"value": 1}), "its type is 'thing'; give string,"),
        (
            json!({"type": "string", "allowedValues": ["a", "b"]}),
            json!({"value": "c"}),
            "its value is 'c'; give \"a\" or \"b\"",
        ),
        (
            json!({"type": "securestring", "allowedValues": ["a"]}),
            json!({"value": "secret"}),
            "its value is a string; give",
        ),
        (
            json!({"type": "int", "maxValue": 3}),
            json!({"value": 4}),
            "its value is 4; give at most 3",
        ),
        (
            json!({"type": "string", "minLength": 3}),
            json!({"value": "é"}),
            "its length is 1; give at least 3",
        ),
        (
            json!({"type": "string", "defaultValue": "[parameters('p')]"}),
            Value::Null,
            "its definition refers to itself",
        ),
        (
            json!({"type": "string"}),
            json!({"reference": {"keyVault": {}}}),
            "give the value itself",
        ),
    ];
    for (declared, given, words) in cases {
        let error = check(declared, given).expect_err(words);
        assert!(error.contains(words) && !error.contains("secret"), "{words}: {error}");
    }
}
