"""The unmodified azure-cli: log in, look around, change a cluster."""

import json
import os
import subprocess

import pytest
from conftest import REPOSITORY, wait_for

AZ = REPOSITORY / ".venv-az/bin/python"
PLACE = ("--subscription=az-sub", "--resource-group=az-rg", "--workspace-name=az-ws")
WORKSPACE = (
    "/subscriptions/az-sub/resourceGroups/az-rg/providers/Microsoft.MachineLearningServices"
    "/workspaces/az-ws"
)
POOL = f"{WORKSPACE}/computes/az-pool"


@pytest.fixture(scope="module")
def az(client_env, muster, tmp_path_factory):
    """Runs az, logged in, in a subscription that has one cluster."""
    muster("compute", "create", "--name", "az-pool", "--max-instances", "2", *PLACE)
    environment = {
        **os.environ,
        "AZURE_CONFIG_DIR": str(tmp_path_factory.mktemp("az")),
        "AZURE_CORE_COLLECT_TELEMETRY": "no",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # It would be read again for each command.

    def run(*arguments, code=0):
        done = subprocess.run(
            [AZ, "-m", "azure.cli", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    run("login", "--identity")
    run("account", "set", "--subscription", "az-sub")
    return run


def test_groups(az):
    # Groups, locks and the activity log are tested in test_az_estate.py.
    assert [group["name"] for group in json.loads(az("group", "list"))] == ["az-rg"]
    shown = json.loads(az("group", "show", "-n", "az-rg"))
    assert shown["properties"]["provisioningState"] == "Succeeded"
    az("group", "show", "-n", "no-such", code=3)
    assert az("group", "exists", "-n", "AZ-RG").strip() == "true"
    assert az("group", "exists", "-n", "no-such").strip() == "false"


def test_resource_list_and_show(az):
    table = az("resource", "list", "-g", "az-rg", "-o", "table").splitlines()
    assert table[0].split() == ["Name", "ResourceGroup", "Location", "Type", "Status"]
    assert [row.split()[0] for row in table[2:]] == ["az-ws", "az-ws/az-pool"]
    assert all(row.split()[-1] == "Succeeded" for row in table[2:])
    shown = json.loads(az("resource", "show", "--ids", POOL))
    assert shown["properties"]["computeType"] == "AmlCompute"
    # This one puts two slashes into the path.
    kind = ("--resource-type", "Microsoft.MachineLearningServices/workspaces")
    shown = json.loads(az("resource", "show", "-g", "az-rg", "-n", "az-ws", *kind))
    assert shown["id"] == WORKSPACE
    az("resource", "show", "--ids", POOL + "x", code=3)


def test_patch_and_update(az):
    wanted = json.dumps({"properties": {"scaleSettings": {"maxNodeCount": 3}}})
    patched = json.loads(az("resource", "patch", "--ids", POOL, "--properties", wanted))
    assert patched["properties"]["properties"]["scaleSettings"]["maxNodeCount"] == 3
    updated = json.loads(az("resource", "update", "--ids", POOL, "--set", "tags.team=blue"))
    assert updated["tags"] == {"team": "blue"}
    found = az("resource", "list", "--tag", "team=blue", "--query", "[].id", "-o", "tsv")
    assert found.split() == [POOL]


def test_rest(az):
    url = f"{WORKSPACE}/computes?api-version=2023-08-01-preview"
    assert json.loads(az("rest", "--method", "get", "--url", url, "--query", "value[].name")) == [
        "az-pool"
    ]
    az("rest", "--method", "get", "--url", f"{WORKSPACE}/nothing?api-version=1", code=1)


def most_nodes(shown):
    return json.loads(shown)["properties"]["properties"]["scaleSettings"]["maxNodeCount"]


def test_the_life_of_a_cluster_as_a_resource(az):
    inner = {"vmSize": "STANDARD_DS3_V2", "scaleSettings": {"maxNodeCount": 2, "minNodeCount": 0}}
    cluster = {"computeType": "AmlCompute", "properties": inner}
    parts = ("-g", "az-rg", "-n", "az-made", "--parent", "workspaces/az-ws")
    parts += ("--namespace", "Microsoft.MachineLearningServices", "--resource-type", "computes")
    made = az("resource", "create", *parts, "-l", "eastus", "-p", json.dumps(cluster))
    assert most_nodes(made) == 2
    whole = json.dumps({"location": "eastus", "tags": {"a": "b"}, "properties": cluster})
    again = az("resource", "create", "--id", f"{WORKSPACE}/computes/az-made", "--is-full-object",
               "-p", whole)  # fmt: skip
    assert json.loads(again)["tags"] == {"a": "b"}
    ids = ("--ids", f"{WORKSPACE}/computes/az-made")
    setting = "properties.properties.scaleSettings.maxNodeCount=4"
    assert most_nodes(az("resource", "update", *ids, "--set", setting)) == 4
    assert most_nodes(az("resource", "show", *parts)) == 4
    az("resource", "wait", *ids, "--exists")
    az("resource", "delete", *ids)
    az("resource", "show", *ids, code=3)


def test_the_life_of_a_cluster_by_rest(az):
    url = f"{WORKSPACE}/computes/az-rest?api-version=2023-08-01-preview"
    inner = {"vmSize": "STANDARD_DS3_V2", "scaleSettings": {"maxNodeCount": 2, "minNodeCount": 0}}
    body = {"location": "eastus", "properties": {"computeType": "AmlCompute", "properties": inner}}

    def rest(method, *more, code=0):
        return az("rest", "--method", method, "--url", url, *more, code=code)

    assert most_nodes(rest("put", "--body", json.dumps(body))) == 2
    patch = {"properties": {"properties": {"scaleSettings": {"maxNodeCount": 3}}}}
    assert most_nodes(rest("patch", "--body", json.dumps(patch))) == 3
    assert most_nodes(rest("get")) == 3
    rest("delete")
    wait_for("it is deleted", 20, lambda: "az-rest" not in az("resource", "list", "-o", "tsv"))
    rest("get", code=1)


def test_sizes_and_usage(az):
    sizes = json.loads(az("vm", "list-sizes", "-l", "eastus"))
    assert {"Standard_DS3_v2"} <= {size["name"] for size in sizes}
    usage = json.loads(az("vm", "list-usage", "-l", "eastus"))
    assert usage[0]["localName"] == "Total Regional vCPUs"
    assert "eastus" in az("account", "list-locations", "-o", "table")
