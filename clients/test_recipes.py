"""The three recipes of docs/recipes.md, each in a situation where it is needed."""

import json
import os
import re
import subprocess

import pytest
from conftest import REPOSITORY, wait_for
from test_documentation import blocks_of

PAGE = REPOSITORY / "docs/recipes.md"
PLACE = {
    "MUSTER_SUBSCRIPTION": "recipes",
    "MUSTER_RESOURCE_GROUP": "lab",
    "MUSTER_WORKSPACE_NAME": "ops",
}
FAMILY = "standardDSv2Family"


@pytest.fixture(scope="module")
def shell(muster_bin, server):
    """Runs commands in a subscription of its own, as its limits are changed."""
    environment = {
        **os.environ,
        **PLACE,
        "MUSTER_STATE_DIR": str(server.state_dir),
        "MUSTER_CONFIG_DIR": str(server.state_dir / "no-defaults"),
    }

    def run(script):
        done = subprocess.run(
            ["bash", "-c", f'muster() {{ "{muster_bin}" "$@"; }}\nset -e\n{script}'],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("muster compute create --name cpu --max-instances 4 --idle-time-before-scale-down 600")
    yield run
    for job in ("first", "second"):
        run(f"muster job cancel --name {job}")
    run("muster compute delete --name cpu --yes")


@pytest.fixture(scope="module")
def recipes():
    before, incident, after = [block.text for block in blocks_of(PAGE)]
    return before, incident, after


@pytest.fixture(scope="module")
def two_jobs(shell):
    """One job runs, and the other waits for quota."""
    shell(f"muster quota update --location eastus --name {FAMILY} --limit 4")
    for job in ("first", "second"):
        shell(f"muster job create --name {job} --compute cpu --command 'sleep 600'")
    show = "muster job show --name first --query status -o tsv"
    wait_for("it runs", 30, lambda: shell(show) == "Running\n")


def test_what_there_is_is_listed_before_a_job_is_submitted(shell, recipes, two_jobs):
    printed = shell(recipes[0])
    assert "recipes" in printed and "owner" in printed
    (cluster,) = [line for line in printed.splitlines() if line.startswith("cpu ")]
    assert "Standard_DS3_v2".upper() in cluster.upper()
    (usage,) = [line for line in printed.splitlines() if line.startswith(FAMILY)]
    assert "16" in usage.split(), "four nodes of four vCPUs are reserved"
    (waiting,) = [line for line in printed.splitlines() if line.startswith("second ")]
    assert waiting.split()[-1].startswith("QuotaReached")


def test_a_cluster_is_shown_during_an_incident(shell, recipes, two_jobs):
    printed = shell(recipes[1])
    assert '"current_node_count": 1' in printed
    assert f"quota {FAMILY} is 4; 8 would be needed" in printed
    lift = f"muster quota update --location eastus --name '{FAMILY}' --limit 8"
    assert lift in printed, printed
    nodes = [line for line in printed.splitlines() if re.match(r"cpu-\w+ ", line)]
    assert len(nodes) == 1 and "first" in nodes[0]
    assert "Microsoft.MachineLearningServices" in printed, "the changes are listed"
    # The suggested command helps.
    shell(lift)
    show = "muster job show --name second --query status -o tsv"
    wait_for("it runs", 30, lambda: shell(show) == "Running\n")


def test_the_scale_is_changed_after_a_look_at_its_use(shell, recipes, two_jobs):
    look, dry_run, change = recipes[2].splitlines()
    costs = shell(f"{look.split('#')[0]} -o json")
    assert {"run", "start"} & {line["group"] for line in json.loads(costs)["lines"]}
    scale = "muster compute show --name cpu -o json"
    shell(dry_run)
    assert json.loads(shell(scale))["max_instances"] == 4
    shell(change)
    changed = json.loads(shell(scale))
    assert (changed["max_instances"], changed["idle_time_before_scale_down"]) == (2, 60)
