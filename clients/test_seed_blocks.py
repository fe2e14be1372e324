"""Published Azure ML code runs as printed: nothing but environment variables is set."""

import re
import subprocess
import sys

import pytest
from conftest import REPOSITORY, new_ml_client

SEEDS = sorted((REPOSITORY.parent / "shared" / "seeds").glob("000*.txt"))

OWN_BLOCK = """\
from azure.ai.ml import MLClient
from azure.ai.ml.entities import AmlCompute
from azure.identity import DefaultAzureCredential

client = MLClient(
    DefaultAzureCredential(),
    subscription_id="my-subscription",
    resource_group_name="own-rg",
    workspace_name="own-workspace",
)
cluster = AmlCompute(
    name="own-block",
    type="amlcompute",
    size="Standard_DS3_v2",
    min_instances=0,
    max_instances=4,
    idle_time_before_scale_down=180,
    tier="Dedicated",
    description="CPU nodes for a first try",
)
client.compute.begin_create_or_update(cluster).result()
print(f"created {cluster.name}")
"""


def run_as_printed(block, environment, directory):
    program = directory / "block.py"
    program.write_text(block)
    done = subprocess.run(
        [sys.executable, program],
        env=environment, cwd=directory, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_and_delete(workspace, name):
    compute = new_ml_client(*workspace).compute
    cluster = compute.get(name)
    assert cluster.provisioning_state == "Succeeded"
    assert cluster.size.upper() == "STANDARD_DS3_V2"
    assert (cluster.min_instances, cluster.max_instances) == (0, 4)
    assert cluster.idle_time_before_scale_down == 180
    assert cluster.tier == "dedicated"
    compute.begin_delete(name).wait()


def test_own_block(client_env, tmp_path):
    assert "own-block" in run_as_printed(OWN_BLOCK, client_env, tmp_path)
    check_and_delete(("my-subscription", "own-rg", "own-workspace"), "own-block")


@pytest.mark.skipif(not SEEDS, reason="the source documents are not beside this repository")
def test_first_block_of_the_first_document(client_env, tmp_path):
    section = SEEDS[0].read_text().split("## Method 2", 1)[1]
    block = re.search(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE).group(1)
    printed = run_as_printed(block, client_env, tmp_path)
    assert "'cpu-training-cluster' created successfully" in printed
    workspace = ("your-subscription-id", "ml-project-rg", "ml-workspace-production")
    check_and_delete(workspace, "cpu-training-cluster")
