"""Published Azure ML code runs as printed: nothing but environment variables is set."""

import json
import re
import subprocess
import sys

import pytest
from conftest import REPOSITORY, new_ml_client

SEEDS = sorted((REPOSITORY.parent / "shared" / "seeds").glob("*.txt"))
needs_seeds = pytest.mark.skipif(
    not SEEDS, reason="the source documents are not beside this repository"
)

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


@needs_seeds
def test_first_block_of_the_first_document(client_env, tmp_path):
    section = SEEDS[0].read_text().split("## Method 2", 1)[1]
    block = re.search(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE).group(1)
    printed = run_as_printed(block, client_env, tmp_path)
    assert "'cpu-training-cluster' created successfully" in printed
    workspace = ("your-subscription-id", "ml-project-rg", "ml-workspace-production")
    check_and_delete(workspace, "cpu-training-cluster")


# Runs blocks one after the other, as the cells of a notebook, and says how each one ended.
NOTEBOOK = """
import contextlib, io, json

names, outcomes = {}, []
for block in json.load(open("blocks.json")):
    printed, error = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            exec(block, names)
        except Exception as failed:
            error = [type(failed).__name__, str(failed)]
    outcomes.append([printed.getvalue(), error])
print(json.dumps(outcomes))
"""


def run_notebook(blocks, environment, directory):
    (directory / "blocks.json").write_text(json.dumps(blocks))
    return json.loads(run_as_printed(NOTEBOOK, environment, directory).splitlines()[-1])


@needs_seeds
def test_all_blocks_of_the_first_document(client_env, tmp_path):
    found = re.findall(r"^```python\n(.*?)^```", SEEDS[0].read_text(), re.DOTALL | re.MULTILINE)
    cpu, gpu, spot, private, status, listing, tagged = found
    create = "\nml_client.compute.begin_create_or_update(cpu_cluster).result()"
    # The client's own words for a network.
    network = re.sub(
        r'vnet_name="(.+)",\s+subnet_name="(.+)",',
        r'network_settings=NetworkSettings(vnet_name="\1", subnet="\2"),',
        private,
    )
    blocks = [
        cpu, gpu, spot, private,
        "from azure.ai.ml.entities import NetworkSettings\n" + network,
        status, listing, tagged + create,
        "print(ml_client.compute.get('cpu-training-cluster').tags['team'])",
        "for one in list(ml_client.compute.list()):\n"
        "    ml_client.compute.begin_delete(one.name).wait()",
        "print(list(ml_client.compute.list()))",
    ]  # fmt: skip
    outcomes = run_notebook(blocks, client_env, tmp_path)
    printed = [text for text, _ in outcomes]
    errors = {number: error for number, (_, error) in enumerate(outcomes) if error}
    # As printed, one call is refused, by the client itself.
    assert set(errors) == {3} and errors[3][0] == "TypeError", errors
    assert "GPU cluster 'gpu-training-cluster' created successfully" in printed[1]
    assert "succeeded" in printed[5].lower()
    for name in ("cpu", "gpu", "spot", "private"):
        assert f"  {name}-training-cluster (" in printed[6]
    assert "Min/Max instances: 0/8" in printed[6]
    assert printed[8] == "data-science\n"
    assert printed[10] == "[]\n"


@needs_seeds
def test_all_blocks_of_the_second_document(client_env, tmp_path):
    """Its code has no fences, and each block is printed twice."""
    text = SEEDS[1].read_text()
    names = (
        'subscription_id = "<SUBSCRIPTION_ID>"\n'
        'resource_group = "<RESOURCE_GROUP>"\n'
        'workspace = "<AML_WORKSPACE_NAME>"\n'
    )
    assert names in text
    handle = re.search(
        r"^from azure\.ai\.ml import MLClient\n.*\n\nml_client = MLClient\(\n.*\n\)\n", text, re.M
    )[0]
    about_clusters = re.findall(
        r"^from azure\.ai\.ml\.entities import AmlCompute\n\n(?:.+\n)*?ml_client.+\)\n", text, re.M
    )
    basic, low_priority, deletion = dict.fromkeys(about_clusters)
    blocks = [
        # The text asks to fill these in.
        names.replace("<", "").replace(">", ""), handle, basic, low_priority,
        "print(sorted(one.name for one in ml_client.compute.list()))",
        "print(ml_client.compute.get('low-pri-example').tier)",
        deletion,
        "print([one.name for one in ml_client.compute.list()])",
        "ml_client.compute.begin_delete('low-pri-example').wait()",
    ]  # fmt: skip
    outcomes = run_notebook(blocks, client_env, tmp_path)
    assert [error for _, error in outcomes] == [None] * len(blocks)
    printed = [text for text, _ in outcomes]
    assert printed[4] == "['basic-example', 'low-pri-example']\n"
    assert printed[5] == "low_priority\n"
    assert printed[7] == "['low-pri-example']\n"


# The lines of the source documents about computes, and the files that they name. Where az itself
# refuses a line (a delete that nobody confirms), its corrected form follows.
COMMANDS = """\
compute create --name cpu-training-cluster --type AmlCompute --size Standard_DS3_v2 \
--resource-group ml-project-rg --workspace-name ml-workspace-production \
--min-instances 0 --max-instances 4 --idle-time-before-scale-down 180
compute create --name gpu-training-cluster --type AmlCompute --size Standard_NC6s_v3 \
--resource-group ml-project-rg --workspace-name ml-workspace-production \
--min-instances 0 --max-instances 2 --idle-time-before-scale-down 300
compute create -f basic.yml
compute create -f location.yml
compute create -f low-priority.yml
compute delete --name basic-example --yes
resource list --resource-group ml-project-rg --output table
"""
STAY = ("cpu-training-cluster", "gpu-training-cluster", "location-example", "low-pri-example")
SCHEMA = "$schema: https://azuremlschemas.azureedge.net/latest/amlCompute.schema.json\n"
CLUSTER_FILE = SCHEMA + """\
name: {name}
type: amlcompute
size: STANDARD_DS3_v2
min_instances: 0
max_instances: 2
idle_time_before_scale_down: 120
"""
FILES = {
    "basic.yml": CLUSTER_FILE.format(name="basic-example"),
    "location.yml": CLUSTER_FILE.format(name="location-example") + "location: westus\n",
    "low-priority.yml": CLUSTER_FILE.format(name="low-pri-example") + "tier: low_priority\n",
}


def test_commands_of_the_documents(muster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    # Where az takes the place from its configuration, so does muster.
    monkeypatch.setenv("MUSTER_RESOURCE_GROUP", "ml-project-rg")
    monkeypatch.setenv("MUSTER_WORKSPACE_NAME", "ml-workspace-production")
    for line in COMMANDS.splitlines():
        printed = muster(*line.split()).stdout
    for name in STAY:
        assert f"ml-workspace-production/{name}" in printed
    assert "basic-example" not in printed
    for name, query, wanted in [
        ("low-pri-example", "tier", "low_priority"),
        ("location-example", "location", "westus"),
        ("gpu-training-cluster", "max_instances", "2"),
    ]:
        shown = muster("compute", "show", "--name", name, "--query", query, "-o", "tsv").stdout
        assert shown == f"{wanted}\n"
    named = "[?name=='ml-workspace-production']"
    (first,) = json.loads(muster("resource", "list", "--query", named).stdout)
    shown = json.loads(muster("resource", "show", "--ids", first["id"]).stdout)
    assert shown["name"] == first["name"]
    # Without a word of consent nobody deletes anything, there as here.
    refused = muster("compute", "delete", "--name", "location-example", check=False)
    assert refused.returncode == 2 and "--yes" in refused.stderr
    for name in STAY:
        muster("compute", "delete", "--yes", "--name", name)
