"""Users with their own keys: every endpoint for every role, in their workspace and in others."""

import json
import os
import re
import subprocess
import sys
import uuid

import pytest
import requests
from conftest import REPOSITORY, STRAY_PREFIXES

SUBSCRIPTION = "access-sub"
ML = "Microsoft.MachineLearningServices"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g"
OWN = f"{GROUP}/providers/{ML}/workspaces/own"
OTHER = f"{GROUP}/providers/{ML}/workspaces/other"
REGION = f"/subscriptions/{SUBSCRIPTION}/providers/{ML}/locations/eastus"
USERS = "/providers/Muster.Identity/users"
HOSTS = "/providers/Muster.Hosts/hosts"
ROLES = "providers/Microsoft.Authorization/roleAssignments"
LOCKS = "providers/Microsoft.Authorization/locks"
EVENTS = "providers/Microsoft.Insights/eventtypes/management/values"
DEPLOYMENTS = "providers/Microsoft.Resources/deployments"
V = {"api-version": "2023-08-01-preview"}

READ, RUN, COMPUTES = "read", "run jobs", "manage computes"
WORKSPACES, QUOTA, ACCESS = "manage workspaces", "manage quota", "manage access"
# What each role may do where it is assigned; a stranger has no role at all.
ALLOWED = {
    "Owner": {READ, RUN, COMPUTES, WORKSPACES, QUOTA, ACCESS},
    "Contributor": {READ, RUN, COMPUTES, WORKSPACES, QUOTA},
    "AzureML Data Scientist": {READ, RUN},
    "AzureML Compute Operator": {READ, COMPUTES},
    "Reader": {READ},
    "stranger": set(),
}

CLUSTER = {"properties": {"computeType": "AmlCompute", "properties": {}}}
NOTHING = {"properties": {"mode": "Incremental", "template": {"resources": []}}}
# Without a command, so that nothing is submitted.
JOB = {"properties": {"jobType": "Command"}}

# Every endpoint of a workspace, with the permission that it needs.
OF_WORKSPACE = [
    ("GET", "", None, READ),
    ("PUT", "", {}, WORKSPACES),
    ("POST", "/diagnose", None, READ),
    ("POST", "/resyncKeys", None, WORKSPACES),
    ("GET", "/computes", None, READ),
    ("GET", "/computes/none", None, READ),
    ("PUT", "/computes/9bad", CLUSTER, COMPUTES),
    ("DELETE", "/computes/none", None, COMPUTES),
    ("GET", "/computes/none/listNodes", None, READ),
    ("POST", "/computes/none/listNodes", None, READ),
    ("GET", "/jobs", None, READ),
    ("GET", "/jobs/none", None, READ),
    ("PUT", "/jobs/j1", JOB, RUN),
    ("POST", "/jobs/none/cancel", None, RUN),
    ("POST", "/providers/Muster.Jobs/jobs/j1/check", JOB, RUN),
    ("DELETE", "/jobs/none", None, RUN),
    ("GET", "/datastores", None, READ),
    ("GET", "/datastores/none", None, READ),
    ("PUT", "/datastores/9-bad", {}, RUN),
    ("DELETE", "/datastores/none", None, RUN),
    ("POST", "/datastores/none/listSecrets", None, RUN),
    *(
        (method, f"/{kind}{rest}", body, needed)
        for kind in ("codes", "environments", "data", "models", "components")
        for method, rest, body, needed in (
            ("GET", "", None, READ),
            ("GET", "/none", None, READ),
            ("PUT", "/-bad", {}, RUN),
            ("DELETE", "/none", None, RUN),
            ("GET", "/none/versions", None, READ),
            ("GET", "/none/versions/1", None, READ),
            ("PUT", "/none/versions/1", {}, RUN),
            ("DELETE", "/none/versions/1", None, RUN),
        )
    ),
    ("POST", "/codes/none/versions/1/startPendingUpload", None, RUN),
    ("POST", "/data/none/versions/1/startPendingUpload", None, RUN),
    ("POST", "/models/none/versions/1/startPendingUpload", None, RUN),
    ("GET", "/providers/Muster.Cost/ledger", None, READ),
    ("GET", "/providers/Muster.Quota/usages", None, READ),
    # With a revision that does not exist yet, the response is an error, not an endless stream.
    ("GET", "/providers/Muster.Events/events?since=999999999", None, READ),
    ("GET", "/providers/Muster.Why/jobs/none", None, READ),
    ("GET", "/providers/Muster.Jobs/jobs/none/attempts", None, READ),
    ("PUT", "/providers/Muster.Jobs/trees/none", None, RUN),
    ("PUT", "/providers/Muster.Jobs/blobs/none", None, RUN),
    ("GET", "/providers/Muster.Why/computes/none", None, READ),
    ("GET", "/providers/Muster.History/computes/none", None, READ),
    ("GET", "/providers/Muster.Environments/substitutes", None, READ),
    ("GET", "/providers/Muster.Environments/substitutes/none", None, READ),
    ("GET", "/providers/Muster.Environments/environments/none/versions/1/buildLog", None, READ),
    ("GET", "/providers/Muster.PostMortem/computes/none/nodes", None, READ),
    ("GET", "/providers/Muster.PostMortem/computes/none/nodes/none", None, READ),
    ("POST", "/providers/Muster.Rehearsal/computes/none/nodes/none/evict", None, COMPUTES),
    ("GET", f"/{ROLES}", None, READ),
    ("PUT", f"/{ROLES}/r", {}, ACCESS),
    ("DELETE", f"/{ROLES}/none", None, ACCESS),
    ("PATCH", "/computes/none", {"tags": {}}, COMPUTES),
    ("POST", "/computes/none/start", None, COMPUTES),
    ("POST", "/computes/none/stop", None, COMPUTES),
    ("POST", "/computes/none/restart", None, COMPUTES),
    ("POST", "/computes/none/listKeys", None, COMPUTES),
    ("GET", f"/{ROLES}/none", None, READ),
    ("GET", "/providers/Microsoft.Authorization/roleDefinitions", None, None),
    # The workspace is locked against this, and callers who may delete it are told so.
    ("DELETE", "", None, WORKSPACES),
    ("PATCH", "", {"tags": {"a": "b"}}, WORKSPACES),
    ("GET", f"/{LOCKS}", None, READ),
    ("GET", f"/{LOCKS}/none", None, READ),
    ("PUT", f"/{LOCKS}/mine", {}, ACCESS),
    ("DELETE", f"/{LOCKS}/none", None, ACCESS),
    ("PUT", f"/computes/none/{LOCKS}/mine", {}, ACCESS),
]

# Endpoints above a workspace: whether a user with a role on one may use them.
LOCATIONS = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/eastus"
ABOVE = [
    ("GET", f"{REGION}/usages", None, True),
    ("GET", f"{REGION}/quotas", None, True),
    ("GET", f"{REGION}/vmSizes", None, True),
    ("POST", f"{REGION}/updateQuotas", {"value": []}, False),
    ("GET", f"/subscriptions/{SUBSCRIPTION}/providers/{ML}/workspaces", None, True),
    ("GET", f"{GROUP}/providers/{ML}/workspaces", None, True),
    ("GET", f"/subscriptions/{SUBSCRIPTION}", None, True),
    ("GET", f"/subscriptions/{SUBSCRIPTION}/locations", None, True),
    ("GET", f"/subscriptions/{SUBSCRIPTION}/providers", None, True),
    ("GET", f"/subscriptions/{SUBSCRIPTION}/providers/{ML}", None, True),
    ("GET", f"/subscriptions/{SUBSCRIPTION}/resourceGroups", None, True),
    ("GET", GROUP, None, True),
    ("HEAD", GROUP, None, True),
    ("PUT", GROUP, {"location": "eastus"}, False),
    ("PATCH", GROUP, {"tags": {}}, False),
    ("DELETE", GROUP, None, False),
    # Each resource of a template is checked; callers who may create none only learn about its form.
    ("GET", f"{GROUP}/{DEPLOYMENTS}", None, True),
    ("GET", f"{GROUP}/{DEPLOYMENTS}/none", None, True),
    ("HEAD", f"{GROUP}/{DEPLOYMENTS}/none", None, True),
    ("PUT", f"{GROUP}/{DEPLOYMENTS}/none", {}, True),
    ("PUT", f"{GROUP}/{DEPLOYMENTS}/none", NOTHING, False),
    ("DELETE", f"{GROUP}/{DEPLOYMENTS}/none", None, True),
    ("GET", f"{GROUP}/{DEPLOYMENTS}/none/operations", None, True),
    ("GET", f"{GROUP}/{DEPLOYMENTS}/none/operations/1", None, True),
    ("GET", f"{GROUP}/{DEPLOYMENTS}/none/operationStatuses/1", None, True),
    ("POST", f"{GROUP}/{DEPLOYMENTS}/none/validate", NOTHING, False),
    ("POST", f"{GROUP}/{DEPLOYMENTS}/none/whatIf", NOTHING, False),
    ("GET", f"/subscriptions/{SUBSCRIPTION}/{EVENTS}", None, True),
    ("GET", f"/{EVENTS}", None, False),
    ("GET", "/providers/Muster.Activity/chain", None, False),
    ("GET", f"/subscriptions/{SUBSCRIPTION}/resources", None, True),
    ("GET", f"{GROUP}/resources", None, True),
    ("GET", f"{LOCATIONS}/vmSizes", None, True),
    ("GET", f"{LOCATIONS}/usages", None, True),
    ("GET", USERS, None, False),
    ("GET", f"{USERS}/another", None, False),
    ("PUT", f"{USERS}/another", {}, False),
    ("DELETE", f"{USERS}/another", None, False),
    ("POST", f"{USERS}/another/rotateKey", None, False),
    ("POST", f"{USERS}/another/revokeKey", None, False),
    ("PUT", f"/{ROLES}/mine", {}, False),
    ("GET", HOSTS, None, False),
    ("GET", f"{HOSTS}/another", None, False),
    ("DELETE", f"{HOSTS}/another", None, False),
    ("POST", f"{HOSTS}/another/cordon", None, False),
    ("POST", f"{HOSTS}/another/uncordon", None, False),
    ("POST", f"{HOSTS}/another/drain", None, False),
    ("POST", f"{HOSTS}/another/giveUp", None, False),
    ("POST", "/providers/Muster.Hosts/token", {}, False),
    ("POST", "/providers/Muster.Storage/collectGarbage", {}, False),
    ("GET", "/providers/Muster.Storage/sizes", None, False),
]
# Open to every caller with a token, or even without one.
FOR_ALL = [
    ("GET", "/providers/Muster.Identity/me"),
    ("GET", "/tenants"),
    ("GET", "/subscriptions"),
    ("GET", "/metadata/endpoints"),
    ("GET", "/discovery"),
    # Visible to the caller who requested it; for others it does not exist.
    ("GET", f"{REGION}/computeOperationsStatus/none"),
    ("GET", "/t/.well-known/openid-configuration"),
    ("GET", "/common/discovery/instance"),
]
# Run history only reads, except for updates of a job's metadata.
HISTORY = [
    ("GET", "history/v1.0", "/runs/none/details", None, READ),
    ("GET", "history/v1.0", "/runs/none/children", None, READ),
    ("GET", "history/v1.0", "/runs/none/serviceinstances/0", None, READ),
    ("GET", "history/v1.0", "/runs/none", None, READ),
    ("PATCH", "history/v1.0", "/runs/none", {"hidden": True}, RUN),
    ("POST", "history/v1.0", "/rundata", {"runId": "none"}, READ),
    ("POST", "data/v1.0", "/dataversion/batchGetResolvedUris", {"values": []}, READ),
    ("POST", "modelregistry/v1.0", "/models/batchGetResolvedUris", {"values": []}, READ),
    ("GET", "rp/workspaces", "/computes", None, READ),
    ("GET", "rp/workspaces", "/computes/none", None, READ),
    ("GET", "history/v1.0", "/experiments", None, READ),
    ("POST", "history/v1.0", "/experiments", {}, RUN),
    ("PUT", "history/v1.0", "/experiments", {}, RUN),
    ("PATCH", "history/v1.0", "/experiments", {}, RUN),
    ("DELETE", "history/v1.0", "/experiments", None, RUN),
]
# These need a key instead of a token (test_tokens.py), or are tested with their workspace.
ELSEWHERE = [
    ("GET", "/msi/token"),
    ("POST", "/msi/token"),
    ("POST", "/t/oauth2/token"),
    ("GET", "/t/oauth2/authorize"),
    ("POST", "/t/oauth2/devicecode"),
    ("GET", "/metadata/identity/oauth2/token"),
    ("POST", "/metadata/identity/oauth2/token"),
    ("GET", "/obo/token"),
    *[(method, f"/{service}{OWN}{rest}") for method, service, rest, *_ in HISTORY],
]


class Caller:
    """Speaks HTTP with one user's key."""

    def __init__(self, server, env, key):
        self.server, self.env, self.key = server, env, key
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.verify = env["REQUESTS_CA_BUNDLE"]

    def token(self):
        return self.session.get(
            self.env["IDENTITY_ENDPOINT"],
            params={"api-version": "2019-08-01", "resource": self.server.url},
            headers={"X-IDENTITY-HEADER": self.key},
            timeout=10,
        )

    def log_in(self):
        answer = self.token()
        assert answer.status_code == 200, answer.text
        self.session.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
        return self

    def __call__(self, method, path, body=None):
        url = self.server.url + path
        return self.session.request(method, url, params=V, json=body, timeout=10)


@pytest.fixture(scope="module")
def owner(server, server_env):
    caller = Caller(server, server_env, server_env["IDENTITY_HEADER"]).log_in()
    for workspace in (OWN, OTHER):
        assert caller("PUT", workspace, {"location": "eastus"}).status_code == 200
        lock = {"properties": {"level": "CanNotDelete"}}
        assert caller("PUT", f"{workspace}/{LOCKS}/stays", lock).status_code in (200, 201)
    return caller


@pytest.fixture
def new_user(owner, server, server_env):
    """Creates users that are deleted afterwards: `new_user("Reader", OWN)`."""
    names = []

    def make(role=None, scope=OWN):
        name = f"user-{uuid.uuid4().hex[:12]}"
        made = owner("PUT", f"{USERS}/{name}", {"principalType": "ServicePrincipal"})
        assert made.status_code == 200, made.text
        names.append(name)
        user = made.json()
        if role:
            body = {"properties": {"roleDefinitionId": role, "principalId": user["objectId"]}}
            given = owner("PUT", f"{scope}/{ROLES}/{uuid.uuid4()}", body)
            assert given.status_code == 201, given.text
        caller = Caller(server, server_env, user["key"])
        caller.name, caller.object_id = name, user["objectId"]
        return caller.log_in()

    yield make
    for name in names:
        owner("DELETE", f"{USERS}/{name}")


@pytest.mark.parametrize("role", ALLOWED)
def test_every_endpoint_for_every_role(role, new_user, owner):
    caller = new_user(None if role == "stranger" else role)
    wrong = []
    for workspace, allowed in ((OWN, ALLOWED[role]), (OTHER, set())):
        for method, path, body, needs in OF_WORKSPACE:
            status = caller(method, workspace + path, body).status_code
            if (status != 403) != (needs is None or needs in allowed) or status in (401, 500):
                wrong.append((method, workspace + path, needs, status))
    above = [(*row[:3], row[3] and bool(ALLOWED[role])) for row in ABOVE]
    above += [(method, path, None, True) for method, path in FOR_ALL]
    above += [
        (method, f"/{service}{workspace}{rest}", body, needed in allowed)
        for workspace, allowed in ((OWN, ALLOWED[role]), (OTHER, set()))
        for method, service, rest, body, needed in HISTORY
    ]
    for method, path, body, is_allowed in above:
        status = caller(method, path, body).status_code
        if (status != 403) != is_allowed or status in (401, 500):
            wrong.append((method, path, status))
    assert not wrong
    assert owner("GET", f"{USERS}/another").status_code == 404


def test_no_endpoint_is_missing_above():
    """The page lists every route: it is written from the table of routes."""
    tested = {(method, OWN + path.split("?")[0]) for method, path, *_ in OF_WORKSPACE}
    tested |= {(method, path) for method, path, *_ in ABOVE}
    tested |= set(FOR_ALL) | set(ELSEWHERE)
    page = REPOSITORY / "docs/reference/arm.md"
    rows = [line.split("|") for line in page.read_text().splitlines() if line.startswith("| `/")]
    assert len(rows) > 100
    missing = []
    for _, path, methods, *_ in rows:
        path = path.strip().strip("`").replace("/WORKSPACE", OWN)
        path = path.replace("/SCOPE", OWN)
        pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))
        for method in methods.strip().split(", "):
            found = any(one == method and re.fullmatch(pattern, path) for one, path in tested)
            if not found:
                missing.append((method, path))
    assert not missing


def test_lists_show_only_what_one_may_read(new_user):
    caller = new_user("Reader")
    for scope in (f"/subscriptions/{SUBSCRIPTION}", GROUP):
        listed = caller("GET", f"{scope}/providers/{ML}/workspaces").json()["value"]
        assert [item["name"] for item in listed] == ["own"]


def test_a_role_above_holds_below(new_user):
    caller = new_user("Reader", GROUP)
    assert caller("GET", f"{OWN}/computes").status_code == 200
    assert caller("GET", f"{OTHER}/computes").status_code == 200
    assert caller("PUT", f"{OTHER}/computes/cpu", CLUSTER).status_code == 403


def test_users_do_not_learn_what_exists_elsewhere(new_user):
    caller = new_user("Owner")
    there = caller("GET", f"{OTHER}/computes/none")
    nowhere = caller("GET", f"{GROUP}/providers/{ML}/workspaces/nowhere/computes/none")
    assert (there.status_code, nowhere.status_code) == (403, 403)
    assert there.json()["error"]["code"] == "AuthorizationFailed"
    assert (
        there.json()["error"]["message"].replace("other", "nowhere")
        == (nowhere.json()["error"]["message"])
    )


def test_operations_of_others_are_as_unknown_as_none(new_user, owner, server):
    made = owner("PUT", f"{OTHER}/computes/elsewhere", CLUSTER)
    url = made.headers["Azure-AsyncOperation"].removeprefix(server.url).split("?")[0]
    assert owner("GET", url).status_code == 200
    assert new_user("Reader", OTHER)("GET", url).status_code == 200
    assert new_user("Owner")("GET", url).status_code == 404


def test_a_workspace_that_one_may_not_make_is_not_made(new_user, owner):
    caller = new_user("AzureML Data Scientist", GROUP)
    missing = f"{GROUP}/providers/{ML}/workspaces/slip"
    assert caller("GET", missing).status_code == 404
    assert caller("PUT", f"{missing}/jobs/j1", JOB).status_code in (400, 404)
    listed = owner("GET", f"{GROUP}/providers/{ML}/workspaces").json()["value"]
    assert "slip" not in [item["name"] for item in listed]


def test_a_revoked_key_and_its_tokens_are_dead_at_once(new_user, owner):
    caller = new_user("Reader")
    assert caller("GET", OWN).status_code == 200
    rotated = owner("POST", f"{USERS}/{caller.name}/rotateKey")
    assert rotated.status_code == 200
    assert caller("GET", OWN).status_code == 401
    assert caller.token().status_code == 401
    caller.key = rotated.json()["key"]
    assert caller.log_in()("GET", OWN).status_code == 200
    assert owner("POST", f"{USERS}/{caller.name}/revokeKey").status_code == 200
    assert caller("GET", OWN).status_code == 401
    assert caller.token().status_code == 401


def test_a_deleted_user_has_no_access(new_user, owner):
    caller = new_user("Owner")
    assert owner("DELETE", f"{USERS}/{caller.name}").status_code == 200
    assert caller("GET", OWN).status_code == 401
    left = owner("GET", f"{OWN}/{ROLES}").json()["value"]
    assert caller.object_id not in [item["properties"]["principalId"] for item in left]


def test_keys_are_shown_once_and_kept_only_as_digests(new_user, owner, server):
    caller = new_user("Reader")
    assert "key" not in owner("GET", f"{USERS}/{caller.name}").json()
    assert caller.key.startswith("msk_") and len(caller.key) == 4 + 64
    database = b"".join(path.read_bytes() for path in server.state_dir.glob("muster.db*"))
    assert caller.object_id.encode() in database
    assert caller.key.encode() not in database and caller.key[4:].encode() not in database


SDK_PROGRAM = """
import json, sys
from azure.ai.ml import MLClient
from azure.ai.ml.entities import AmlCompute
from azure.core.exceptions import HttpResponseError
from azure.identity import DefaultAzureCredential

client = MLClient(DefaultAzureCredential(), sys.argv[1], "g", "own")
found = [compute.name for compute in client.compute.list()]
try:
    cluster = AmlCompute(name="denied", size="STANDARD_DS3_V2")
    client.compute.begin_create_or_update(cluster).result()
    outcome = "created"
except HttpResponseError as refused:
    outcome = f"{refused.status_code} {refused.error.code}"
print(json.dumps([found, outcome]))
"""


def run_sdk(caller, env):
    return run_program(SDK_PROGRAM, {**env, "IDENTITY_HEADER": caller.key}, SUBSCRIPTION)


def run_program(program, env, *arguments):
    """The real SDK in a process of its own; returns the JSON in the last line that it prints."""
    kept = [name for name in os.environ if not name.startswith(STRAY_PREFIXES)]
    clean = {name: os.environ[name] for name in kept}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**clean, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# Takes 13 s: azure-ai-ml is imported by a process for each user.
def test_the_sdk_acts_as_the_user_whose_key_it_has(new_user, owner, server_env):
    made = owner("PUT", f"{OWN}/computes/shared", CLUSTER)
    assert made.status_code == 201, made.text
    reader = run_sdk(new_user("Reader"), server_env)
    assert reader == [["shared"], "403 AuthorizationFailed"]
    operator = run_sdk(new_user("AzureML Compute Operator"), server_env)
    assert operator == [["shared"], "created"]


def test_two_identities_submit_to_one_cluster(new_user, owner):
    made = owner("PUT", f"{OWN}/computes/shared", CLUSTER)
    assert made.status_code == 201, made.text
    body = {
        "properties": {
            "jobType": "Command",
            "command": "true",
            "computeId": f"{OWN}/computes/shared",
        }
    }
    for number in range(2):
        caller = new_user("AzureML Data Scientist")
        name = f"by-{caller.name}"
        put = caller("PUT", f"{OWN}/jobs/{name}", body)
        assert put.status_code in (200, 201), (number, put.text)
        seen = owner("GET", f"{OWN}/jobs/{name}").json()
        assert seen["systemData"]["createdBy"] == caller.name


def test_health_is_the_only_thing_served_without_a_token(server, server_env):
    with requests.Session() as session:
        session.trust_env = False
        session.verify = server_env["REQUESTS_CA_BUNDLE"]
        for path, text in (("/healthz", "ok\n"), ("/readyz", "ready\n")):
            answer = session.get(server.url + path, timeout=10)
            assert (answer.status_code, answer.text) == (200, text)
        assert session.get(server.url + OWN, timeout=10).status_code == 401
