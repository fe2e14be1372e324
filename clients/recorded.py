"""What Azure itself returned: for each recorded request its status and the keys of the response.

`python clients/recorded.py FOLDER` writes azure_shapes.json from a folder of recordings. Only facts
are kept: no value of a response, and of the requests only what is needed to send them again.
"""

import json
import pathlib
import re
import sys

FILE = pathlib.Path(__file__).with_name("azure_shapes.json")
SCENARIOS = (
    "test_compute_aml",
    "test_compute_aml_no_location",
    "test_compute_compute_instance",
    "test_compute_compute_instance_with_no_public_ip",
    "test_compute_compute_instance_with_schedules",
    "test_compute_list",
    "test_compute_list_nodes",
    "test_compute_list_type",
    "test_workspace",
    "test_environment",
    "test_data",
    "test_model",
    "test_component",
    "test_job_command_job_archive_restore",
    "test_job_command_job_create_skip_validation",
    "test_job_command_job_list",
    "test_job_command_git_path",
    "test_job_command_job_with_asset_registry",
)
# Versioned assets, by the word in their path: what one is called here.
ASSETS = {
    "environments": "environment",
    "data": "dataset",
    "models": "model",
    "components": "component",
}
# The workspace in the URL of a file; and the places where such a URL is recorded.
FILES = re.compile(r"subscriptions/[^/]+/resourcegroups/[^/]+/workspaces/[^/]+", re.IGNORECASE)
NOWHERE = "subscriptions/s/resourcegroups/g/workspaces/w"
IMAGE = re.compile(r'"[a-z.]+/azureml/[^"]*"')
ASSET = re.compile(rf"/workspaces/[^/]+/(?P<word>{'|'.join(ASSETS)})(?P<rest>/.*|)$")
# Paths, and what they are called here. The order matters.
KINDS = [
    ("operation", r"/computeOperationsStatus/"),
    ("diagnosis", r"/workspaces/[^/]+/diagnose$"),
    ("resync", r"/workspaces/[^/]+/resyncKeys$"),
    ("deployment", r"/Microsoft.Resources/deployments/(?P<name>[^/]+)$"),
    ("nodes", r"/workspaces/[^/]+/computes/(?P<name>[^/]+)/listNodes$"),
    ("compute", r"/workspaces/[^/]+/computes/(?P<name>[^/]+)$"),
    ("computes", r"/workspaces/[^/]+/computes$"),
    ("job", r"/workspaces/[^/]+/jobs/(?P<name>[^/]+)$"),
    ("jobs", r"/workspaces/[^/]+/jobs$"),
    ("workspace", r"/workspaces/[^/]+$"),
    ("workspaces", r"/workspaces$"),
]
# Their keys are names that a user chose.
MAPS = ("tags", "userAssignedIdentities", "parameters", "flavors")
# The environment of recorded jobs.
ENVIRONMENT = "azureml:recorded:1"
HEADERS = ("azure-asyncoperation", "location")


def keys(document, path=""):
    """All keys as paths; `[]` is every item of a list."""
    if isinstance(document, list):
        return set.intersection(*(keys(item, f"{path}[]") for item in document or [None]))
    if not isinstance(document, dict):
        return set()
    found = set()
    for key, value in document.items():
        below = f"{path}.{key}" if path else key
        found.add(below)
        if key not in MAPS:
            found |= keys(value, below)
    return found


def to_keep(kind, body):
    """A template is replaced by the name of the client that sends it."""
    if kind == "deployment":
        kept = {key: value for key, value in body["properties"].items() if key != "template"}
        return {**body, "properties": kept}
    if body and kind == "job":
        return job_to_keep(body)
    if body and kind.split("-")[0] in ASSETS.values():
        return json.loads(IMAGE.sub('"image"', FILES.sub(NOWHERE, json.dumps(body))))
    return body


def job_to_keep(body):
    """The compute of the job is in this workspace; its code was in the recorded one."""
    job = {key: value for key, value in body["properties"].items() if key != "codeId"}
    job["computeId"] = job["computeId"].split("/")[-1]
    job["environmentId"] = ENVIRONMENT
    job["properties"] = {key: value and "noted" for key, value in job["properties"].items()}
    for service in job.get("services", {}).values():
        service["endpoint"] = "somewhere"
    return {"properties": job}


def without_names(document):
    """Jobs with maps whose keys do not matter: those a user chose, and those the service added."""
    if isinstance(document, dict) and "value" in document:
        return {**document, "value": [without_names(item) for item in document["value"]]}
    if not isinstance(document, dict) or "properties" not in document:
        return document
    job = dict(document["properties"])
    for name in ("properties", "environmentVariables", "services"):
        if job.get(name) is not None:
            job[name] = {}
    for name in ("inputs", "outputs"):
        entries = [value for key, value in job.get(name, {}).items() if key != "default"]
        job[name] = {"each": entries}
    return {**document, "properties": job}


def clusters_only(document):
    """Lists of a real workspace also have computes of other kinds."""
    if isinstance(document, dict) and isinstance(document.get("value"), list):
        of_clusters = [
            item
            for item in document["value"]
            if item.get("properties", {}).get("computeType", "AmlCompute") == "AmlCompute"
        ]
        return {**document, "value": of_clusters}
    return document


def shape(kind, status, headers, document):
    """The parts of a response that are compared."""
    if kind == "computes":
        document = clusters_only(document)
    if kind in ("job", "jobs"):
        document = without_names(document)
    found = {f"header {name}" for name in HEADERS if name in headers}
    return {"status": status, "keys": sorted(found | keys(document))}


def diagnosis(recording):
    """Azure returns it later, at another URL; the two requests count as one."""
    marker = "userDefinedRouteResults"
    return next(entry for entry in recording if marker in str(entry["response"]))


def asset(entry):
    """For the path of an asset: what it is called here, and what follows the word.

    Only the response has the name.
    """
    match = ASSET.search(entry["uri"].split("?")[0])
    if not match or entry["status"]["code"] >= 400:
        return None, None
    answer, rest = entry["response"], match["rest"]
    ids = [item["id"] for item in answer["value"]] if "value" in answer else [answer["id"]]
    word, one = match["word"], ASSETS[match["word"]]
    if not rest:
        return f"{one}s", ""
    name = re.search(rf"/{word}/([^/]+)", ids[0])[1] if ids else rest.split("/")[1]
    below = rest.split("/")[2:]
    kind = {0: one, 1: f"{one}-versions", 2: f"{one}-version"}[len(below)]
    return kind, "/".join([name, *below])


def steps(scenario, recording):
    found = []
    for entry in recording:
        path = entry["uri"].split("?")[0]
        matches = ((kind, re.search(pattern, path)) for kind, pattern in KINDS)
        kind, match = next((pair for pair in matches if pair[1]), (None, None))
        name = match and match.groupdict().get("name")
        if not match:
            kind, name = asset(entry)
        if not kind:
            continue
        # The responses for the two kinds of computes have little in common.
        if kind == "compute" and "compute_instance" in scenario:
            kind = "instance"
        if kind == "diagnosis":
            entry = {**diagnosis(recording), "method": entry["method"], "body": entry["body"]}
        request = f"{entry['method']} {kind}"
        headers = {name.lower() for name in entry["headers"]}
        step = {
            "scenario": scenario,
            "request": request,
            "name": name,
            "body": to_keep(kind, entry["body"]),
            **shape(kind, entry["status"]["code"], headers, entry["response"]),
        }
        # An operation is polled to its end, however many requests that takes.
        if kind == "operation" and found and found[-1]["request"] == request:
            found.pop()
        if step not in found[-1:]:
            found.append(step)
    return found


def extract(folder):
    return [
        step
        for scenario in SCENARIOS
        for step in steps(scenario, json.loads((folder / f"{scenario}.json").read_text()))
    ]


if __name__ == "__main__":
    FILE.write_text(json.dumps(extract(pathlib.Path(sys.argv[1])), indent=1) + "\n")
