"""Requests recorded with Azure, sent to this server: the responses have its status and keys.

The differences are in docs/reference/azure-differences.md, each with its reason; no others exist.
"""

import pathlib
import re
import sys
import uuid

import pytest
import recorded
from conftest import REPOSITORY, wait_for

RECORDINGS = REPOSITORY.parent / "shared/wire/azure-recorded"
PAGE = REPOSITORY / "docs/reference/azure-differences.md"
# Request, what kind of difference, the keys (each in backquotes), and why.
ROW = re.compile(r"^\| `(.+?)` \| (\w+) \| (.+?) \| (.{10,}) \|$", re.MULTILINE)
# The template that azure-ai-ml of that time sends when it creates a workspace.
TEMPLATE = (
    pathlib.Path(sys.prefix)
    / "ai-ml-1.20.0/azure/ai/ml/_arm_deployments/arm_templates/workspace_base.json"
)
V = {"api-version": "2023-08-01-preview"}
END_LIMIT_S = 30


class Replay:
    """One scenario in a workspace of its own."""

    def __init__(self, session, server, scenario):
        self.session, self.server = session, server
        group = f"/subscriptions/{uuid.uuid4()}/resourceGroups/recorded"
        workspaces = f"{group}/providers/Microsoft.MachineLearningServices/workspaces"
        workspace = f"{workspaces}/w{scenario[-30:].replace('_', '-')}"
        self.paths = {
            "workspaces": workspaces,
            "workspace": workspace,
            "computes": f"{workspace}/computes",
            "jobs": f"{workspace}/jobs",
            "job": f"{workspace}/jobs/{{name}}",
            "compute": f"{workspace}/computes/{{name}}",
            "instance": f"{workspace}/computes/{{name}}",
            "nodes": f"{workspace}/computes/{{name}}/listNodes",
            "diagnosis": f"{workspace}/diagnose",
            "resync": f"{workspace}/resyncKeys",
            "deployment": f"{group}/providers/Microsoft.Resources/deployments/{{name}}",
        }
        for word, one in recorded.ASSETS.items():
            self.paths[f"{one}s"] = f"{workspace}/{word}"
            for kind in (one, f"{one}-versions", f"{one}-version"):
                self.paths[kind] = f"{workspace}/{word}/{{name}}"
        self.files = re.sub("/providers/[^/]+", "", workspace).lower().lstrip("/")
        self.operation = None
        self.location = "westus2"
        # Lists are compared with items in them.
        if "_job_" in scenario:
            self.prepare_jobs()
        elif "_list" in scenario:
            body = {"location": "eastus", "properties": {"computeType": "AmlCompute"}}
            name = scenario.removeprefix("test_").replace("_", "-")
            made = self.send("PUT", "compute", name, body)
            assert made.status_code == 201, made.text
        if scenario == "test_workspace":
            self.send("GET", "workspace", None, None)

    def prepare_jobs(self):
        """The compute and the assets of recorded jobs. How they end was not recorded."""
        made = self.send("PUT", "workspace", None, {"location": self.location})
        assert made.status_code in (200, 201), made.text
        for name in ("cpu-cluster", "compute-cluster"):
            scale = {"maxNodeCount": 1, "minNodeCount": 0}
            properties = {"computeType": "AmlCompute", "properties": {"scaleSettings": scale}}
            body = {"location": self.location, "properties": properties}
            made = self.send("PUT", "compute", name, body)
            assert made.status_code == 201, made.text
        image = {"properties": {"image": "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04"}}
        made = self.send("PUT", "environment-version", "recorded/versions/1", image)
        assert made.status_code == 201, made.text

    def prepare(self, steps):
        """What existed before the recording began: resources that it changes but did not create."""
        made = set()
        for step in steps:
            if step["request"].startswith("PUT") and step["request"].endswith("-version"):
                if step["status"] == 200 and step["name"] not in made:
                    kind = step["request"].split()[1]
                    answer = self.send("PUT", kind, step["name"], step["body"])
                    assert answer.status_code == 201, answer.text
                made.add(step["name"])

    def send(self, method, kind, name, body):
        if kind == "deployment":
            body["properties"]["template"] = recorded.json.loads(TEMPLATE.read_text())
        if kind == "operation":
            url = self.operation
        else:
            url = self.server.url + self.paths[kind].format(name=name)
        # This workspace has the same content as the recorded one.
        if body is not None and kind.split("-")[0] in recorded.ASSETS.values():
            body = recorded.json.loads(
                recorded.json.dumps(body).replace(recorded.NOWHERE, self.files)
            )
        params = None if kind == "operation" else V
        answer = self.session.request(method, url, params=params, json=body, timeout=30)
        self.operation = answer.headers.get("Azure-AsyncOperation", self.operation)
        return answer

    def settled(self, method, kind, name, body):
        """Waits for a response like the recorded one: the operation ended, the node is ready."""

        def look():
            answer = self.send(method, kind, name, body)
            document = answer.json() if answer.content else None
            is_early = (kind == "operation" and document.get("status") == "InProgress") or (
                kind == "nodes" and not document.get("nodes")
            )
            return None if is_early else (answer, document)

        return wait_for(f"{method} {kind}", END_LIMIT_S, look)


def of_item(request, whose, key):
    """Keys that an item of a list lacks are reported for the item only."""
    if key.startswith("value[]."):
        return request.removesuffix("s"), whose, key.removeprefix("value[].")
    return request, whose, key


def listed():
    return {
        (request, whose, what)
        for request, whose, cell, _ in ROW.findall(PAGE.read_text())
        for what in re.findall(r"`(.+?)`", cell)
    }


def differences(session, server, steps):
    """Over all steps: (request, missing or more or status, what)."""
    found = set()
    replay, scenario, over = None, None, None
    for step in steps:
        if step["scenario"] == over:
            continue
        if step["scenario"] != scenario:
            scenario = step["scenario"]
            replay = Replay(session, server, scenario)
            replay.prepare([other for other in steps if other["scenario"] == scenario])
        request = step["request"]
        method, kind = request.split()
        answer, document = replay.settled(method, kind, step["name"], step["body"])
        headers = {name.lower() for name in answer.headers}
        seen = recorded.shape(kind, answer.status_code, headers, document)
        if seen["status"] != step["status"]:
            found.add((request, "status", f"{step['status']} there, {seen['status']} here"))
            # What was not created cannot be compared; after a conflict something exists.
            is_made = step["status"] < 400 and answer.status_code in (200, 201, 409)
            over = scenario if method == "PUT" and not is_made else None
            continue
        azure, here = set(step["keys"]), set(seen["keys"])
        found |= {of_item(request, "missing", key) for key in azure - here}
        found |= {of_item(request, "more", key) for key in here - azure}
    # Keys below a key that differs add nothing new.
    return {
        (request, whose, key)
        for request, whose, key in found
        if not any(
            (request, whose, key[:end]) in found
            for end in range(1, len(key))
            if key[end] in ".["
        )
    }


def test_answers_have_azures_shape(session, server):
    steps = recorded.json.loads(recorded.FILE.read_text())
    assert len(steps) > 20
    known = listed()
    found = differences(session, server, steps)
    assert not found - known, f"not on {PAGE.name}: {sorted(found - known)}"
    assert not known - found, f"on {PAGE.name}, but no longer different: {sorted(known - found)}"


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the recordings are not beside this repository")
def test_the_shapes_are_those_of_the_recordings():
    assert recorded.json.loads(recorded.FILE.read_text()) == recorded.extract(RECORDINGS)
