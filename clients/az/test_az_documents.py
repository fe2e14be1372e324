"""The commands of the source documents as printed, in a shell, with the unmodified azure-cli.

`az ml` is an extension that az downloads from its publisher's site; no package index has it. Here
`muster` takes its place, with the same words and options. Commands that store something for later
ones (the login, and the defaults) run with both.
"""

import json
import os
import re
import subprocess

import pytest
from conftest import REPOSITORY
from source_documents import text_of

AZ = REPOSITORY / ".venv-az/bin/python"
SHELL = f"""
set -e
az() {{
    case "$1" in
    ml) shift; "$MUSTER_BIN" "$@" ;;
    login | account | configure) "$MUSTER_BIN" "$@" && "{AZ}" -m azure.cli "$@" ;;
    *) "{AZ}" -m azure.cli "$@" ;;
    esac
}}
"""
# As on a compute instance of Azure ML, which has the last two.
PLACE = {"CI_RESOURCE_GROUP": "ml-project-rg", "CI_WORKSPACE": "ml-workspace-production"}
SUBSCRIPTION = "documents"
WORKSPACE = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/ml-project-rg/providers"
    "/Microsoft.MachineLearningServices/workspaces/ml-workspace-production"
)


@pytest.fixture(scope="module")
def shell(client_env, muster, muster_bin, server, tmp_path_factory):
    """Runs a script in a folder of its own, as a user who has never signed in."""
    folder = tmp_path_factory.mktemp("documents")
    place = ("-g", PLACE["CI_RESOURCE_GROUP"], "--subscription", SUBSCRIPTION)
    muster("workspace", "create", "--name", PLACE["CI_WORKSPACE"], *place)
    environment = {
        **os.environ,
        **PLACE,
        "MUSTER_BIN": str(muster_bin),
        "MUSTER_STATE_DIR": str(server.state_dir),
        "MUSTER_CONFIG_DIR": str(folder / "muster"),
        "AZURE_CONFIG_DIR": str(folder / "az"),
        "AZURE_CORE_COLLECT_TELEMETRY": "no",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # It would be read again for each command.

    def run(script, code=0):
        done = subprocess.run(
            ["bash", "-c", SHELL + script],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    run.folder = folder
    signed_in = text_of("S1:80").replace("<SUBSCRIPTION-NAME>", SUBSCRIPTION)
    run(signed_in)
    yield run
    muster("workspace", "delete", "--yes", "--name", PLACE["CI_WORKSPACE"], *place)


def test_placeholders_are_refused_by_name(shell):
    refused = shell(text_of("S1:80"), code=3)
    hint = "there is no subscription '<SUBSCRIPTION-NAME>' in which you have a role"
    assert hint in refused.stderr
    by_az = shell(f'"{AZ}" -m azure.cli account set --subscription "<SUBSCRIPTION-NAME>"', code=1)
    assert "The subscription of '<subscription-name>' doesn't exist in cloud" in by_az.stderr


def test_clusters_are_made_listed_shown_and_deleted(shell):
    shell(text_of("S0:94"))
    for file, command in (("S1:163", "S1:160"), ("S1:278", "S1:275")):
        (shell.folder / "create-cluster.yml").write_text(text_of(file))
        shell(text_of(command))
    listed = shell(text_of("S3:169").replace("<resource-group>", "ml-project-rg")).stdout
    names = {line.split()[0] for line in listed.splitlines()[2:]}
    inside = ("cpu-training-cluster", "gpu-training-cluster", "location-example", "low-pri-example")
    assert names == {"ml-workspace-production"} | {
        f"ml-workspace-production/{name}" for name in inside
    }
    for name, size, tier, scale, location in [
        ("cpu-training-cluster", "Standard_DS3_v2", "Dedicated", [0, 4, "PT3M"], "eastus"),
        ("gpu-training-cluster", "Standard_NC6s_v3", "Dedicated", [0, 2, "PT5M"], "eastus"),
        ("location-example", "Standard_DS3_v2", "Dedicated", [0, 2, "PT2M"], "westus"),
        ("low-pri-example", "Standard_DS3_v2", "LowPriority", [0, 2, "PT2M"], "eastus"),
    ]:
        one = f"{WORKSPACE}/computes/{name}"
        shown = json.loads(shell(text_of("S3:171").replace("<resource-id>", one)).stdout)
        inner = shown["properties"]["properties"]
        assert (inner["vmSize"].upper(), inner["vmPriority"]) == (size.upper(), tier)
        keys = ("minNodeCount", "maxNodeCount", "nodeIdleTimeBeforeScaleDown")
        assert [inner["scaleSettings"][key] for key in keys] == scale
        assert shown["properties"]["computeLocation"] == location
    # Without a terminal, a delete needs --yes.
    delete = text_of("S1:316").strip()
    refused = shell(delete, code=2)
    assert "--yes" in refused.stderr
    shell("az ml compute create --name basic-example --size STANDARD_DS3_v2 --max-instances 2")
    shell(f"{delete} --yes")
    shell("az ml compute show --name basic-example", code=3)


def test_ssh_is_not_served_and_a_cluster_that_asks_for_it_says_so(shell):
    """The two commands need a connection string that nothing here prints."""
    user = re.search(r"(\w+)@", text_of("S1:234"))[1]
    assert f" {user}@" in text_of("S1:240")
    create = (
        "az ml compute create --name ssh-example --type AmlCompute --max-instances 1"
        f" --admin-username {user} --ssh-key-value 'ssh-rsa AAAA'"
    )
    said = shell(create).stderr
    note = "note: the SSH settings are stored but have no effect: "
    assert note + "nodes do not accept SSH connections\n" in said
    connect = shell("az ml compute connect-ssh --name ssh-example", code=2).stderr
    assert "nodes accept jobs from this server only and have no SSH port" in connect, connect
    shell("az ml compute delete --name ssh-example --yes")
