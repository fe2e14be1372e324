"""azure-cli: templates with a workspace and a cluster."""

import json
import re

from test_az import az  # noqa: F401  (a fixture)

ML = "Microsoft.MachineLearningServices/workspaces"
TEMPLATE = {
    "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
    "contentVersion": "1.0.0.0",
    "parameters": {
        "workspace": {"type": "string"},
        "nodes": {"type": "int", "defaultValue": 2, "maxValue": 4},
    },
    "variables": {"pool": "[toLower(concat(parameters('workspace'), '-POOL'))]"},
    "resources": [
        {"type": "Microsoft.Storage/storageAccounts", "apiVersion": "2021-04-01", "name": "store"},
        {
            "type": ML,
            "apiVersion": "2023-10-01",
            "name": "[parameters('workspace')]",
            "location": "[resourceGroup().location]",
            "dependsOn": ["store"],
            "properties": {"friendlyName": "From a template"},
        },
        {
            "type": f"{ML}/computes",
            "apiVersion": "2023-10-01",
            "name": "[format('{0}/{1}', parameters('workspace'), variables('pool'))]",
            "location": "[resourceGroup().location]",
            "dependsOn": [f"[resourceId('{ML}', parameters('workspace'))]"],
            "properties": {
                "computeType": "AmlCompute",
                "properties": {
                    "vmSize": "Standard_DS3_v2",
                    "scaleSettings": {"minNodeCount": 0, "maxNodeCount": "[parameters('nodes')]"},
                },
            },
        },
    ],
    "outputs": {"pool": {"type": "string", "value": "[variables('pool')]"}},
}


# Takes 20 s: az starts eleven times.
def test_a_template_from_a_file(az, tmp_path):  # noqa: F811
    az("group", "create", "-n", "az-dep", "-l", "eastus")
    file = tmp_path / "template.json"
    file.write_text("// Ours\n" + json.dumps(TEMPLATE, indent=2))
    template = ("--template-file", str(file), "--parameters", "workspace=azdep")
    place = ("-g", "az-dep", "-n", "first")
    valid = json.loads(az("deployment", "group", "validate", *place, *template))
    assert valid["properties"]["provisioningState"] == "Succeeded"
    what_if = az("deployment", "group", "what-if", *place, *template, "--no-pretty-print")
    changes = [change["changeType"] for change in json.loads(what_if)["changes"]]
    assert changes == ["Create", "Create", "Ignore"]

    made = json.loads(az("deployment", "group", "create", *place, *template))["properties"]
    assert made["provisioningState"] == "Succeeded"
    assert made["outputs"] == {"pool": {"type": "String", "value": "azdep-pool"}}
    group = "/subscriptions/az-sub/resourceGroups/az-dep"
    workspace = f"{group}/providers/{ML}/azdep"
    assert [item["id"] for item in made["outputResources"]] == [
        workspace,
        f"{workspace}/computes/azdep-pool",
    ]
    shown = json.loads(az("resource", "show", "--ids", f"{workspace}/computes/azdep-pool"))
    assert shown["properties"]["properties"]["scaleSettings"]["maxNodeCount"] == 2

    # The changes are printed property by property, but nothing is changed.
    said = az("deployment", "group", "what-if", *place, *template, "nodes=4")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in said.splitlines()]
    assert "~ properties.properties.scaleSettings.maxNodeCount: 2 => 4" in lines, said
    shown = json.loads(az("deployment", "group", "show", *place))
    assert shown["properties"]["templateHash"] == made["templateHash"]
    listed = json.loads(az("deployment", "group", "list", "-g", "az-dep"))
    assert [item["name"] for item in listed] == ["first"]
    query = "[].[properties.targetResource.resourceType, properties.statusMessage.error.code]"
    lines = az("deployment", "operation", "group", "list", *place, "--query", query)
    assert json.loads(lines) == [
        ["Microsoft.Storage/storageAccounts", "NotMadeHere"],
        [ML, None],
        [f"{ML}/computes", None],
    ]
    az("deployment", "group", "delete", *place)
    assert json.loads(az("deployment", "group", "list", "-g", "az-dep")) == []
    az("resource", "show", "--ids", workspace)


def test_a_bad_template_is_refused_with_its_place(az, tmp_path):  # noqa: F811
    az("group", "create", "-n", "az-dep", "-l", "eastus")
    file = tmp_path / "template.json"
    file.write_text(json.dumps(TEMPLATE).replace("toLower(", "toLowest("))
    template = ("--template-file", str(file), "--parameters", "workspace=azbad")
    place = ("-g", "az-dep", "-n", "bad")
    az("deployment", "group", "create", *place, *template, code=1)
    file.write_text(json.dumps(TEMPLATE))
    many = (*template, "nodes=5")
    az("deployment", "group", "create", *place, *many, code=1)
    az("deployment", "group", "show", *place, code=3)
