"""azureml-core, unmodified: clusters work, and experiments say what to use instead."""

import json
import os
import subprocess

import pytest
from conftest import STRAY_PREFIXES
from guard import GUARD
from own_server import own  # noqa: F401  (a fixture)
from source_documents import text_of
from test_sdk_v1 import V1

# Runs blocks one after the other, like the cells of a notebook, and prints how each one ended.
NOTEBOOK = GUARD + """
import contextlib, io

names, outcomes = {}, []
for block in json.loads(sys.argv[1]):
    printed, error = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            exec(block, names)
        except (Exception, SystemExit) as failed:
            error = f"{type(failed).__name__}: {failed}"
    outcomes.append([printed.getvalue(), error])
print(json.dumps({"asked": asked, "outcomes": outcomes}))
"""

OWN_BLOCK = """
from azureml.core import Workspace
from azureml.core.compute import AmlCompute, ComputeTarget
from azureml.exceptions import ComputeTargetException

ws = Workspace("your_subscription_id", "own-rg", "own-workspace")
name = "own-v1-cluster"
if name in ws.compute_targets:
    print("found")
else:
    config = AmlCompute.provisioning_configuration(
        vm_size="Standard_DS3_v2", min_nodes=0, max_nodes=4, idle_seconds_before_scaledown=600
    )
    cluster = ComputeTarget.create(ws, name, config)
    cluster.wait_for_completion(show_output=True, min_node_count=None, timeout_in_minutes=2)
    print("created")
"""
READS = """
import json

cluster = ComputeTarget(workspace=ws, name=name)
status = cluster.get_status().serialize()
scale = status["scaleSettings"]
print(json.dumps({
    "kind": type(cluster).__name__,
    "state": status["provisioningState"],
    "nodes": status["nodeStateCounts"],
    "scale": [scale["minNodeCount"], scale["maxNodeCount"], scale["nodeIdleTimeBeforeScaleDown"]],
    "listed": list(ws.compute_targets),
    "list_nodes": cluster.list_nodes(),
    "sizes": [size["name"] for size in AmlCompute.supported_vmsizes(ws)],
}))
"""
CHANGES = """
cluster.update(min_nodes=0, max_nodes=2, idle_seconds_before_scaledown=300)
cluster.refresh_state()
scale = cluster.scale_settings
print(scale.maximum_node_count, scale.idle_seconds_before_scaledown)
"""
DELETES = """
cluster.delete()
import time
until = time.monotonic() + 30
while name in ws.compute_targets and time.monotonic() < until:
    time.sleep(0.2)
print(list(ws.compute_targets))
"""
NOT_FOUND = "ComputeTarget(workspace=ws, name='no-such')"
EXPERIMENT = """
from azureml.core import Experiment, ScriptRunConfig
experiment = Experiment(workspace=ws, name="first")
import pathlib, tempfile
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "train.py").write_text("print(1)")
config = ScriptRunConfig(str(folder), script="train.py", compute_target=name)
experiment.submit(config)
"""
ELSEWHERE = """
Workspace("3f2504e0-4f89-11d3-9a0c-0305e82c3301", "own-rg", "own-workspace")
"""


@pytest.fixture
def run(own, tmp_path):  # noqa: F811
    server = own()

    def run(*blocks):
        kept = [name for name in os.environ if not name.startswith(STRAY_PREFIXES)]
        env = {**{name: os.environ[name] for name in kept}, **server.env()}
        # It writes to the home folder.
        env["HOME"] = str(tmp_path)
        done = subprocess.run(
            [V1, "-c", NOTEBOOK, json.dumps(blocks)],
            env=env,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout.splitlines()[-1])
        assert said["asked"] == [], said
        return said["outcomes"]

    run.server = server
    return run


# Takes 20 s: azureml-core polls every 5 s.
def test_a_cluster_is_made_read_changed_and_deleted(run):
    outcomes = run(OWN_BLOCK, READS, OWN_BLOCK, CHANGES, NOT_FOUND, EXPERIMENT, DELETES, ELSEWHERE)
    made, read, again, changed, missing, experiment, deleted, elsewhere = outcomes
    assert made[1] is None and made[0].endswith("created\n"), made
    assert "Succeeded" in made[0]
    assert read[1] is None, read
    seen = json.loads(read[0])
    assert (seen["kind"], seen["state"]) == ("AmlCompute", "Succeeded")
    assert seen["scale"] == [0, 4, "PT600S"]
    assert seen["listed"] == ["own-v1-cluster"] and seen["list_nodes"] == []
    assert "STANDARD_DS3_V2" in {size.upper() for size in seen["sizes"]}
    assert set(seen["nodes"]) == {
        "preparingNodeCount", "runningNodeCount", "idleNodeCount", "unusableNodeCount",
        "leavingNodeCount", "preemptedNodeCount",
    }  # fmt: skip
    assert again == ["found\n", None]
    assert changed == ["2 300\n", None]
    assert missing[1].startswith("ComputeTargetException") and "NotFound" in missing[1], missing
    # For unsupported features, the client prints a message with an alternative.
    assert "not supported" in experiment[1] and "azure-ai-ml" in experiment[1], experiment
    assert deleted == ["[]\n", None]
    # The client itself refuses an unlisted subscription; the listed ones have a hint.
    assert "You don't have access" in elsewhere[1], elsewhere
    assert "muster workspace create --subscription ID" in elsewhere[1], elsewhere


def test_the_blocks_of_the_third_document(run):
    """The first block creates its cluster as printed; the client refuses what it cannot do."""
    create, submit, status = (text_of(place) for place in ("S2:18", "S2:78", "S2:120"))
    first, again, printed_status, submitted = run(create, create, status, submit)
    assert first[1] is None, first
    assert "Creating new compute target: my-dynamic-cluster" in first[0]
    assert "Compute Target Created: my-dynamic-cluster" in first[0]
    # The document passes a function as if it were a number, and reads properties that this
    # client never had.
    assert again[0].startswith("Found existing compute target: my-dynamic-cluster."), again
    assert again[1] == "TypeError: Object of type function is not JSON serializable", again
    assert "no attribute" in printed_status[1], printed_status
    assert "not supported" in submitted[1] and "azure-ai-ml" in submitted[1], submitted
