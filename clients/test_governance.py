"""Resource groups, locks, deletion and the activity log, as clients use them."""

import json
import time

import pytest
from test_access import (  # noqa: F401  (fixtures)
    CLUSTER,
    EVENTS,
    JOB,
    LOCKS,
    ML,
    new_user,
    owner,
    run_program,
)

SUB = "/subscriptions/governance-sub"


@pytest.fixture
def group(owner, request):  # noqa: F811
    """A resource group of its own, empty again afterwards."""
    path = f"{SUB}/resourceGroups/{request.node.name[:60].replace('_', '-')}"
    assert owner("PUT", path, {"location": "eastus"}).status_code == 201
    yield path
    for lock in owner("GET", f"{path}/{LOCKS}").json()["value"]:
        owner("DELETE", lock["id"])
    owner("DELETE", path)


def wait_gone(caller, answer):
    """Follows a delete as Azure's clients do."""
    assert answer.status_code == 202, answer.text
    url = answer.headers["Azure-AsyncOperation"].removeprefix(caller.server.url).split("?")[0]
    deadline = time.monotonic() + 30
    while True:
        state = caller("GET", url)
        assert state.status_code == 200, state.text
        if state.json()["status"] == "Succeeded":
            return
        assert time.monotonic() < deadline, "the delete does not end"
        time.sleep(0.1)


def refused(answer, lock):
    assert answer.status_code == 409, answer.text
    error = answer.json()["error"]
    assert error["code"] == "ScopeLocked"
    assert f"'{lock}'" in error["message"] and "muster lock delete --ids" in error["message"]
    return error["message"]


def test_a_lock_on_the_group_refuses_with_its_name_and_scope(owner, group):  # noqa: F811
    workspace = f"{group}/providers/{ML}/workspaces/w"
    owner("PUT", workspace, {"location": "eastus"})
    made = owner("PUT", f"{workspace}/computes/locked-one", CLUSTER)
    assert made.status_code == 201, made.text
    lock = {"properties": {"level": "CanNotDelete", "notes": "ours"}}
    made = owner("PUT", f"{group}/{LOCKS}/keep", lock)
    assert made.status_code == 201 and made.json()["properties"] == lock["properties"]
    assert made.json()["id"].lower() == f"{group}/{LOCKS}/keep".lower()

    message = refused(owner("DELETE", f"{workspace}/computes/locked-one"), "keep")
    assert group.lower() in message.lower()
    refused(owner("PUT", f"{workspace}/computes/another", CLUSTER), "keep")
    refused(owner("PATCH", f"{workspace}/computes/locked-one", {"tags": {"a": "b"}}), "keep")
    refused(owner("DELETE", workspace), "keep")
    refused(owner("DELETE", group), "keep")

    # Never a silent "resizing 0 → 0": the waiting job says why.
    compute = f"{workspace}/computes/locked-one"
    body = {"properties": {**JOB["properties"], "command": "true", "computeId": compute}}
    assert owner("PUT", f"{workspace}/jobs/waits", body).status_code == 201
    for what in ("jobs/waits", "computes/locked-one"):
        why = owner("GET", f"{workspace}/providers/Muster.Why/{what}").json()["value"][0]
        assert why["code"] == "Locked" and "'keep'" in why["message"]
        assert why["command"].startswith("muster lock delete --ids ")
    job = owner("GET", f"{workspace}/jobs/waits").json()
    assert job["properties"]["status"] == "Queued"

    listed = owner("GET", f"{SUB}/{LOCKS}").json()["value"]
    assert [lock["name"] for lock in listed] == ["keep"]
    assert owner("DELETE", f"{group}/{LOCKS}/KEEP").status_code == 200
    assert owner("DELETE", f"{group}/{LOCKS}/keep").status_code == 204
    deadline = time.monotonic() + 60
    while owner("GET", f"{workspace}/jobs/waits").json()["properties"]["status"] != "Completed":
        assert time.monotonic() < deadline, "unlocked, but the job does not run"
        time.sleep(0.1)


def test_a_group_is_deleted_with_everything_in_it(owner, group):  # noqa: F811
    workspace = f"{group}/providers/{ML}/workspaces/w"
    owner("PUT", workspace, {"location": "eastus", "tags": {"team": "a"}})
    owner("PUT", f"{workspace}/computes/goes-with-it", CLUSTER)
    assert owner("PATCH", group, {"tags": {"k": "v"}}).json()["tags"] == {"k": "v"}
    wait_gone(owner, owner("DELETE", group))
    assert owner("HEAD", group).status_code == 404
    assert owner("GET", f"{group}/resources").status_code == 404
    assert owner("DELETE", group).status_code == 404
    listed = owner("GET", f"{SUB}/providers/{ML}/workspaces").json()["value"]
    assert workspace.lower() not in [item["id"].lower() for item in listed]


def test_roles_do_not_outlive_what_they_are_on(owner, group, new_user):  # noqa: F811
    workspace = f"{group}/providers/{ML}/workspaces/w"
    owner("PUT", workspace, {"location": "eastus"})
    user = new_user("Contributor", workspace)
    # The caller has no role after the delete, but can still see how it ended.
    wait_gone(user, user("DELETE", workspace))
    owner("PUT", workspace, {"location": "eastus"})
    assert user("GET", workspace).status_code == 403


def test_what_is_written_on_a_workspace_is_changed_alone(owner, group):  # noqa: F811
    workspace = f"{group}/providers/{ML}/workspaces/w"
    body = {
        "location": "eastus",
        "tags": {"a": "1"},
        "properties": {"friendlyName": "Mine", "description": "for tests"},
    }
    owner("PUT", workspace, body)
    changed = owner("PATCH", workspace, {"tags": {"b": "2"}}).json()
    assert changed["tags"] == {"b": "2"}
    assert changed["properties"]["friendlyName"] == "Mine"
    assert changed["properties"]["description"] == "for tests"
    moved = owner("PUT", workspace, {"location": "westus"})
    assert moved.status_code == 409 and "eastus" in moved.json()["error"]["message"]
    missing = owner("PATCH", f"{workspace}-missing", {"tags": {}})
    assert missing.status_code == 404
    bad = owner("PATCH", workspace, {"tags": {"": "x"}})
    assert bad.status_code == 400


def events(caller, filter_):
    url = caller.server.url + f"{SUB}/{EVENTS}"
    params = {"api-version": "2015-04-01", "$filter": filter_}
    found = []
    while url:
        page = caller.session.get(url, params=params, timeout=10)
        assert page.status_code == 200, page.text
        found += page.json()["value"]
        url, params = page.json().get("nextLink"), None
    return found


def test_every_change_and_refusal_is_in_the_activity_log(owner, group, new_user):  # noqa: F811
    workspace = f"{group}/providers/{ML}/workspaces/w"
    owner("PUT", workspace, {"location": "eastus"})
    compute = f"{workspace}/computes/noted"
    scale = {"minNodeCount": 0, "maxNodeCount": 1}
    put = {"properties": {**CLUSTER["properties"], "properties": {"scaleSettings": scale}}}
    assert owner("PUT", compute, put).status_code == 201
    scale["maxNodeCount"] = 3
    owner("PUT", compute, put)
    reader = new_user("Reader", workspace)
    assert reader("DELETE", compute).status_code == 403
    assert owner("PUT", f"{workspace}/computes/9bad", put).status_code == 400
    wait_gone(owner, owner("DELETE", compute))

    found = events(owner, f"resourceGroupName eq '{group.rsplit('/', 1)[1]}'")
    found.reverse()
    seen = [
        (
            event["operationName"]["value"].removeprefix("Microsoft.MachineLearningServices/"),
            event["status"]["value"],
            event["resourceId"].rsplit("/", 1)[1],
        )
        for event in found
    ]
    assert seen == [
        ("Microsoft.Resources/subscriptions/resourceGroups/write", "Succeeded", seen[0][2]),
        ("workspaces/write", "Succeeded", "w"),
        ("workspaces/computes/write", "Succeeded", "noted"),
        ("workspaces/computes/write", "Succeeded", "noted"),
        ("Microsoft.Authorization/roleAssignments/write", "Succeeded", seen[4][2]),
        ("workspaces/computes/delete", "Failed", "noted"),
        ("workspaces/computes/write", "Failed", "9bad"),
        ("workspaces/computes/delete", "Succeeded", "noted"),
    ]
    update, denied, deleted = found[3], found[5], found[7]
    before, after = (json.loads(update["properties"][key]) for key in ("before", "after"))
    assert (before["maxNodeCount"], after["maxNodeCount"]) == (1, 3)
    assert denied["caller"] == reader.name
    assert denied["properties"]["statusCode"] == "AuthorizationFailed"
    assert json.loads(deleted["properties"]["after"])["provisioningState"] == "Deleting"
    # A reader of the workspace sees what happened in it, and nothing of its group.
    own = events(reader, f"resourceId eq '{workspace}'")
    assert {event["operationName"]["value"].split("/")[0] for event in own} == {
        "Microsoft.MachineLearningServices",
        "Microsoft.Authorization",
    }
    failed = events(owner, f"status eq 'Failed' and resourceId eq '{compute}'")
    assert [event["caller"] for event in failed] == [reader.name]
    wrong = owner.session.get(
        owner.server.url + f"{SUB}/{EVENTS}", params={"$filter": "colour eq 'red'"}, timeout=10
    )
    assert wrong.status_code == 400


def test_the_log_is_a_chain(owner, group):  # noqa: F811
    chain = owner("GET", "/providers/Muster.Activity/chain").json()
    assert chain["entries"] > 0 and chain["brokenAt"] is None
    owner("PATCH", group, {"tags": {"one": "more"}})
    longer = owner("GET", "/providers/Muster.Activity/chain").json()
    assert longer["head"] != chain["head"] and longer["entries"] == chain["entries"] + 1


def test_workspaces_of_the_sdk(server_env, owner, group):  # noqa: F811
    """`workspaces.begin_update` and `begin_delete` of azure-ai-ml, in a process of its own."""
    workspace = f"{group}/providers/{ML}/workspaces/sdk"
    owner("PUT", workspace, {"location": "eastus"})
    found = run_program(SDK_PROGRAM, server_env, "governance-sub", group.rsplit("/", 1)[1])
    assert found == ["changed by hand", {"a": "b"}, True]


SDK_PROGRAM = """
import json, sys
from azure.ai.ml import MLClient
from azure.identity import DefaultAzureCredential

client = MLClient(DefaultAzureCredential(), sys.argv[1], sys.argv[2])
found = client.workspaces.get("sdk")
found.description, found.tags = "changed by hand", {"a": "b"}
client.workspaces.begin_update(found).result()
found = client.workspaces.get("sdk")
client.workspaces.begin_delete("sdk", delete_dependent_resources=False).result()
names = [workspace.name for workspace in client.workspaces.list()]
print(json.dumps([found.description, found.tags, "sdk" not in names]))
"""
