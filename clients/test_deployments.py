"""Templates: workspaces as azure-ai-ml creates them, and templates that users write."""

import json
import pathlib
import subprocess
import sys

import pytest
import requests
from conftest import STOP_LIMIT_S, Server, wait_until_ready
from test_access import run_program

ML = "Microsoft.MachineLearningServices/workspaces"
SUBSCRIPTION = "/subscriptions/dep-sub"
GROUP = f"{SUBSCRIPTION}/resourceGroups/dep-rg"
OPERATOR = "AzureML Compute Operator"
DEPLOYMENTS = "providers/Microsoft.Resources/deployments"


class ByHand:
    """A server on which workspaces are not created on first use, and its owner."""

    def __init__(self, binary, directory):
        self.binary, self.directory = binary, directory
        self.start()

    def start(self):
        output, state_dir = self.directory / "output.txt", self.directory / "state"
        with output.open("wb") as sink:
            self.process = subprocess.Popen(
                [self.binary, "serve", "--state-dir", state_dir, "--listen", "127.0.0.1:0"],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        self.server = Server(wait_until_ready(self.process, output), state_dir)
        printed = subprocess.run(
            [self.binary, "env", "--shell", "json", "--state-dir", state_dir],
            check=True,
            capture_output=True,
            text=True,
        )
        self.env = json.loads(printed.stdout)
        self.sessions = {}

    def stop(self):
        self.process.terminate()
        assert self.process.wait(STOP_LIMIT_S) == 0, (self.directory / "output.txt").read_text()

    def session(self, key):
        if key not in self.sessions:
            session = requests.Session()
            session.trust_env = False
            session.verify = self.env["REQUESTS_CA_BUNDLE"]
            token = session.get(
                self.env["IDENTITY_ENDPOINT"],
                params={"api-version": "2019-08-01", "resource": self.server.url},
                headers={"X-IDENTITY-HEADER": key},
            ).json()
            session.headers["Authorization"] = f"Bearer {token['access_token']}"
            self.sessions[key] = session
        return self.sessions[key]

    def __call__(self, method, path, body=None, key=None, **parameters):
        session = self.session(key or self.env["IDENTITY_HEADER"])
        parameters = {"api-version": "2020-06-01", **parameters}
        return session.request(method, f"{self.server.url}{path}", json=body, params=parameters)


@pytest.fixture(scope="module")
def owner(muster_bin, tmp_path_factory):
    server = ByHand(muster_bin, tmp_path_factory.mktemp("by-hand"))
    assert server("PUT", GROUP, {"location": "eastus", "tags": {"team": "a"}}).status_code == 201
    yield server
    server.stop()


def body(resources, values=None, **sections):
    template = {"contentVersion": "1.0.0.0", "resources": resources, **sections}
    properties = {"mode": "Incremental", "template": template, "parameters": values or {}}
    return {"properties": properties}


def workspace(name, **settings):
    return {"type": ML, "name": name, "location": "eastus", "apiVersion": "2023-10-01", **settings}


def cluster(name, **scale):
    scale = {"minNodeCount": 0, "maxNodeCount": 1, **scale}
    inner = {"vmSize": "Standard_DS3_v2", "scaleSettings": scale}
    properties = {"computeType": "AmlCompute", "properties": inner}
    return {"type": f"{ML}/computes", "name": name, "location": "eastus", "properties": properties}


CREATE = """
import json, logging, sys
from azure.ai.ml import MLClient
from azure.ai.ml.entities import Workspace
from azure.core.exceptions import HttpResponseError
from azure.identity import DefaultAzureCredential

client = MLClient(DefaultAzureCredential(), "dep-sub", "dep-rg")
seen = {}
wanted = Workspace(
    name="from-sdk", location="eastus", display_name="From the SDK", description="made",
    tags={"team": "blue"},
)
made = client.workspaces.begin_create(wanted).result()
seen["made"] = [made.name, made.location, made.display_name, made.description, made.tags["team"]]
seen["toolkit"] = made.tags["createdByToolkit"]
seen["listed"] = [found.name for found in client.workspaces.list()]
again = Workspace(name="from-sdk", location="eastus", description="made again", tags={"b": "c"})
again = client.workspaces.begin_create(again).result()
seen["again"] = [again.description, again.display_name, again.tags["team"], again.tags["b"]]
made.description = "changed"
seen["updated"] = client.workspaces.begin_update(made).result().description
# The group's region is taken where none is given.
nearby = client.workspaces.begin_create(Workspace(name="no-region")).result()
seen["region"] = nearby.location
for name in ("from-sdk", "no-region"):
    client.workspaces.begin_delete(name, delete_dependent_resources=False).result()
try:
    client.workspaces.get("from-sdk")
except HttpResponseError as gone:
    seen["gone"] = gone.status_code
try:
    client.workspaces.begin_create(Workspace(name="x" * 40, location="eastus")).result()
except HttpResponseError as refused:
    seen["refused"] = [refused.status_code, refused.error.code, refused.message]
print(json.dumps(seen))
"""


# Takes 13 s with the older client: it creates, updates and deletes workspaces, and waits.
@pytest.mark.parametrize("older", [None, "ai-ml-1.20.0"])
def test_azure_ai_ml_creates_a_workspace_with_its_template(owner, older):
    first = {"PYTHONPATH": str(pathlib.Path(sys.prefix) / older)} if older else {}
    seen = run_program(CREATE, {**owner.env, **first})
    assert seen["made"] == ["from-sdk", "eastus", "From the SDK", "made", "blue"]
    assert seen["toolkit"].startswith("sdk-v2-1.20.0" if older else "sdk-v2-1.35")
    assert seen["listed"] == ["from-sdk"]
    assert seen["again"][:1] + seen["again"][2:] == ["made again", "blue", "c"]
    assert seen["updated"] == "changed"
    assert seen["region"] == "eastus"
    assert seen["gone"] == 404
    status, code, message = seen["refused"]
    assert (status, code) == (400, "InvalidPropertyValue")
    assert "x" * 40 in message and "33" in message
    # The other resources of its template are listed as not created.
    listed = owner("GET", f"{GROUP}/{DEPLOYMENTS}").json()["value"]
    found = next(item for item in listed if item["name"].startswith("from-sdk-"))
    assert found["properties"]["provisioningState"] == "Succeeded"
    assert [made["id"] for made in found["properties"]["outputResources"]] == [
        f"{GROUP}/providers/{ML}/from-sdk"
    ]
    warnings = {line["code"] for line in found["properties"]["diagnostics"]}
    assert warnings == {"NotMadeHere"}
    lines = owner("GET", f"{found['id']}/operations").json()["value"]
    kinds = [line["properties"]["targetResource"]["resourceType"] for line in lines]
    assert kinds == [
        "Microsoft.Storage/storageAccounts",
        "Microsoft.KeyVault/vaults",
        "Microsoft.OperationalInsights/workspaces",
        "Microsoft.Insights/components",
        ML,
    ]
    left_out = lines[0]["properties"]
    assert left_out["statusMessage"]["error"]["code"] == "NotMadeHere"
    assert "Muster does not use it" in left_out["statusMessage"]["error"]["message"]
    assert lines[4]["properties"]["statusMessage"] is None


def test_a_deployment_is_followed_listed_kept_and_forgotten(owner):
    outputs = {"id": {"type": "string", "value": f"[resourceId('{ML}', parameters('name'))]"}}
    parameters = {"name": {"type": "string"}}
    wanted = body(
        [cluster("[concat(parameters('name'), '/kept-pool')]"), workspace("[parameters('name')]")],
        {"name": {"value": "kept"}},
        parameters=parameters,
        outputs=outputs,
    )
    path = f"{GROUP}/{DEPLOYMENTS}/Kept"
    assert owner("HEAD", path).status_code == 404
    tried = owner("POST", f"{path}/validate", wanted)
    assert tried.status_code == 200 and len(tried.json()["properties"]["validatedResources"]) == 2
    what_if = owner("POST", f"{path}/whatIf", wanted).json()["properties"]["changes"]
    assert [change["changeType"] for change in what_if] == ["Create", "Create"]
    assert owner("GET", f"{GROUP}/providers/{ML}/kept").status_code == 404
    made = owner("PUT", path, wanted)
    assert made.status_code == 201, made.text
    assert made.headers["Retry-After"] == "1"
    status = made.headers["Azure-AsyncOperation"].removeprefix(owner.server.url).split("?")[0]
    deadline = 100
    while (seen := owner("GET", status).json())["status"] == "InProgress" and deadline:
        deadline -= 1
    assert seen["status"] == "Succeeded"
    assert owner("GET", f"{GROUP}/providers/{ML}/kept/computes/kept-pool").status_code == 200
    what_if = owner("POST", f"{path}/whatIf", wanted).json()["properties"]["changes"]
    assert [change["changeType"] for change in what_if] == ["NoChange", "NoChange"]
    assert [change.get("delta", []) for change in what_if] == [[], []]
    larger = json.loads(json.dumps(wanted).replace('"maxNodeCount": 1', '"maxNodeCount": 3'))
    larger["properties"]["template"]["resources"][1]["tags"] = {"team": "red"}
    what_if = owner("POST", f"{path}/whatIf", larger).json()["properties"]["changes"]
    assert [change["changeType"] for change in what_if] == ["Modify", "Modify"]
    assert [change["delta"] for change in what_if] == [
        [
            {
                "path": "tags.team",
                "propertyChangeType": "Create",
                "before": None,
                "after": "red",
            }
        ],
        [
            {
                "path": "properties.properties.scaleSettings.maxNodeCount",
                "propertyChangeType": "Modify",
                "before": 1,
                "after": 3,
            }
        ],
    ]
    shown = owner("GET", f"{GROUP}/providers/{ML}/kept/computes/kept-pool").json()
    assert shown["properties"]["properties"]["scaleSettings"]["maxNodeCount"] == 1

    owner.stop()
    owner.start()
    found = owner("GET", path.replace("Kept", "KEPT")).json()
    assert found["id"] == path and found["properties"]["provisioningState"] == "Succeeded"
    resource = f"{GROUP}/providers/{ML}/kept"
    assert found["properties"]["outputs"] == {"id": {"type": "String", "value": resource}}
    assert found["properties"]["duration"].startswith("PT")
    lines = owner("GET", f"{path}/operations").json()["value"]
    assert [line["properties"]["targetResource"]["id"] for line in lines] == [
        resource,
        f"{resource}/computes/kept-pool",
    ]
    assert owner("GET", f"{path}/operations/{lines[1]['operationId']}").json() == lines[1]
    listed = owner("GET", f"{GROUP}/{DEPLOYMENTS}/", **{"$top": "1"}).json()["value"]
    assert [item["name"] for item in listed] == ["Kept"]
    none = owner("GET", f"{GROUP}/{DEPLOYMENTS}", **{"$filter": "provisioningState eq 'Failed'"})
    assert none.json()["value"] == []
    # Every resource has a record in the activity log, and so has the deployment.
    events = f"{SUBSCRIPTION}/providers/Microsoft.Insights/eventtypes/management/values"
    noted = [line["resourceId"] for line in owner("GET", events).json()["value"]]
    assert noted[:3] == [path, f"{resource}/computes/kept-pool", resource]
    assert owner("PUT", path, wanted).status_code == 200
    assert owner("DELETE", path).status_code == 204
    assert owner("GET", path).json()["error"]["code"] == "DeploymentNotFound"
    assert owner("GET", resource).status_code == 200


def test_nothing_is_made_of_a_template_that_is_refused(owner):
    path = f"{GROUP}/{DEPLOYMENTS}/refused"
    fine = workspace("never-made")
    cases = [
        (cluster("never-made/cpu", maxNodeCount=-1), "InvalidPropertyValue", "maxNodeCount is -1"),
        (cluster("never-made/9bad"), "InvalidPropertyValue", "9bad"),
        (cluster("nowhere/cpu"), "ResourceNotFound", "nowhere"),
        (workspace("[nonsense()]"), "InvalidTemplate", "resources[1].name: the function 'nonse"),
        ({"type": "Microsoft.Sql/servers", "name": "s"}, "InvalidTemplate", "Microsoft.Sql"),
        ({**fine, "name": "many", "copy": {"count": 3}}, "InvalidTemplate", "copy loops"),
    ]
    for resource, code, words in cases:
        for method, place in (("PUT", path), ("POST", f"{path}/validate")):
            answer = owner(method, place, body([fine, resource]))
            assert answer.status_code in (400, 404), answer.text
            error = answer.json()["error"]
            assert error["code"] == code and words in error["message"], error
    assert owner("GET", f"{GROUP}/providers/{ML}/never-made").status_code == 404
    assert owner("GET", path).status_code == 404
    elsewhere = f"{SUBSCRIPTION}/resourceGroups/nowhere/{DEPLOYMENTS}/d"
    missing = owner("PUT", elsewhere, body([fine]))
    assert missing.json()["error"]["code"] == "ResourceGroupNotFound"


def test_a_template_needs_the_roles_of_all_that_it_makes(owner):
    for name in ("mine", "theirs"):
        owner("PUT", f"{GROUP}/providers/{ML}/{name}", {"location": "eastus"})
    user = "/providers/Muster.Identity/users/operator"
    made = owner("PUT", user, {"principalType": "User"}).json()
    role = {"properties": {"principalId": made["objectId"], "roleDefinitionId": OPERATOR}}
    mine = f"{GROUP}/providers/{ML}/mine"
    given = owner("PUT", f"{mine}/providers/Microsoft.Authorization/roleAssignments/r1", role)
    assert given.status_code == 201, given.text

    def deploy(name, *resources):
        return owner("PUT", f"{GROUP}/{DEPLOYMENTS}/{name}", body(list(resources)), made["key"])

    own = cluster("mine/role-pool")
    assert deploy("ok", own).status_code == 201
    for refused in (
        deploy("no", own, cluster("theirs/role-pool2")),
        deploy("no", own, workspace("mine", tags={"a": "b"})),
        deploy("no", own, workspace("another")),
        deploy("no"),
    ):
        assert refused.status_code == 403, refused.text
    owner("PUT", f"{GROUP}/{DEPLOYMENTS}/owners", body([workspace("mine")]))
    assert deploy("owners", own).status_code == 403
    # Users see their own deployments, not those of others in the group.
    listed = owner("GET", f"{GROUP}/{DEPLOYMENTS}", None, made["key"]).json()["value"]
    assert [item["name"] for item in listed] == ["ok"]
    hidden = owner("GET", f"{GROUP}/{DEPLOYMENTS}/owners", None, made["key"])
    assert hidden.status_code == 404
    assert owner("DELETE", f"{GROUP}/{DEPLOYMENTS}/owners", None, made["key"]).status_code == 204
    assert owner("GET", f"{GROUP}/{DEPLOYMENTS}/owners").status_code == 200
