"""The decision chart of an elastic cluster: every branch on real nodes, through azure-ai-ml.

`muster` does what the client cannot: it explains why a job waits, and evicts a node.
"""

import itertools
import time

import pytest
from azure.core.exceptions import HttpResponseError
from conftest import WORKSPACE_FLAGS, wait_for

LIMIT_S = 60
# Long enough for a job to come back to a warm node.
LONG_S = 600
# It ends when it gets a signal.
HOLD = "exec sleep 600"
SIZE = "Standard_DS1_v2"
# The host's own Python is its substitute.
IMAGE = "docker.io/library/ubuntu:22.04"


class Pool:
    """A cluster of one test, its nodes and its jobs."""

    numbers = itertools.count()

    def __init__(self, client, muster, name, **settings):
        self.client, self.muster, self.name = client, muster, name
        self.settings = {"size": SIZE, "min_instances": 0, **settings}
        self.put()

    def put(self, **changes):
        from azure.ai.ml.entities import AmlCompute

        self.settings |= changes
        wanted = AmlCompute(name=self.name, **self.settings)
        return self.client.compute.begin_create_or_update(wanted).result()

    def submit(self, text, **options):
        from azure.ai.ml import command
        from azure.ai.ml.entities import Environment

        name = f"{self.name}-{next(Pool.numbers)}-{time.time_ns()}"
        place = {"compute": self.name, "environment": Environment(image=IMAGE)}
        job = command(name=name, command=text, **place, **options)
        return self.client.jobs.create_or_update(job).name

    def status(self, job):
        return self.client.jobs.get(job).status

    def wait_for_job(self, job, status):
        wait_for(f"{job} is {status}", LIMIT_S, lambda: self.status(job) == status)

    def node_of(self, job):
        """The node on which a job has run, from its log."""
        return self.muster("job", "stream", "--name", job, *WORKSPACE_FLAGS).stdout.split()[-1]

    def cancel(self, job):
        self.client.jobs.begin_cancel(job).wait()

    def nodes(self):
        return {n.node_id: n.node_state for n in self.client.compute.list_nodes(self.name)}

    def wait_for_nodes(self, *states):
        wanted = sorted(states)
        wait_for(f"nodes {wanted}", LIMIT_S, lambda: sorted(self.nodes().values()) == wanted)
        return self.nodes()

    def hold(self):
        """A job that runs until it is canceled."""
        job = self.submit(HOLD)
        self.wait_for_job(job, "Running")
        return job


@pytest.fixture
def pool(ml_client, muster):
    made = []

    def pool(name, **settings):
        made.append(Pool(ml_client, muster, name, **settings))
        return made[-1]

    yield pool
    for one in made:
        ml_client.compute.begin_delete(one.name).wait()


def test_from_nothing_to_a_node_and_back_to_nothing(pool):
    # Submit → idle nodes? no → fewer than the maximum? yes → provision → run → more waiting? no →
    # idle timer → reached? yes → scale down → more than the minimum? no → at the minimum.
    chart = pool("chart-elastic", max_instances=2, idle_time_before_scale_down=2)
    assert chart.nodes() == {}
    job = chart.submit("hostname -I; echo $MUSTER_NODE")
    chart.wait_for_job(job, "Completed")
    seen = chart.nodes()
    assert len(seen) <= 1, "one job brings one node"
    assert set(seen) <= {chart.node_of(job)}
    chart.wait_for_nodes()
    # And again from zero nodes.
    again = chart.submit("echo $MUSTER_NODE")
    chart.wait_for_job(again, "Completed")
    assert chart.node_of(again) != chart.node_of(job), "the first node is not used again"
    chart.wait_for_nodes()


def test_an_idle_node_is_used_again(pool):
    # Idle nodes? yes → use it → run; and: the timer is not reached, a new job arrives → run.
    chart = pool("chart-reuse", max_instances=4, idle_time_before_scale_down=LONG_S)
    homes = set()
    for _ in range(3):
        job = chart.submit("echo $MUSTER_NODE")
        chart.wait_for_job(job, "Completed")
        homes.add(chart.node_of(job))
        assert chart.wait_for_nodes("idle").keys() == homes


def test_a_full_pool_makes_jobs_wait_until_something_gives(pool):
    # Fewer than the maximum? no → the job waits; more waiting? yes → run the next.
    chart = pool("chart-full", max_instances=1, idle_time_before_scale_down=LONG_S)
    first = chart.hold()
    (node,) = chart.nodes()
    waiting = [chart.submit("echo $MUSTER_NODE") for _ in range(2)]
    why = chart.muster("why", waiting[0], *WORKSPACE_FLAGS).stdout
    assert "maximum" in why, why
    assert [chart.status(job) for job in waiting] == ["Queued"] * 2
    assert chart.status(first) == "Running"
    assert chart.nodes() == {node: "running"}
    chart.cancel(first)
    for job in waiting:
        chart.wait_for_job(job, "Completed")
        assert chart.node_of(job) == node
    assert chart.nodes().keys() == {node}

    # The queue has two more exits: a raised maximum and a cancel.
    second, blocked, unwanted = chart.hold(), chart.submit("true"), chart.submit("true")
    assert chart.status(blocked) == "Queued"
    chart.cancel(unwanted)
    assert chart.status(unwanted) == "Canceled"
    chart.put(max_instances=2)
    chart.wait_for_job(blocked, "Completed")
    assert len(chart.nodes()) == 2
    assert chart.status(second) == "Running"


def test_a_job_of_two_nodes_brings_two(pool):
    chart = pool("chart-wide", max_instances=3, idle_time_before_scale_down=LONG_S)
    job = chart.submit("true", instance_count=2)
    chart.wait_for_job(job, "Completed")
    chart.wait_for_nodes("idle", "idle")
    too_wide = ("--instance-count", "4", "--compute", chart.name, *WORKSPACE_FLAGS)
    refused = chart.muster("job", "create", "--command", "true", *too_wide, check=False)
    assert refused.returncode == 2 and "3" in refused.stderr, refused.stderr


def test_a_pool_shrinks_to_its_minimum_and_no_further(pool):
    # Scaled down → more than the minimum? yes → the timer continues; no → at the minimum, which
    # is checked before any node is deleted.
    chart = pool("chart-floor", min_instances=1, max_instances=3, idle_time_before_scale_down=1)
    chart.wait_for_nodes("idle")
    holds = [chart.submit(HOLD) for _ in range(3)]
    for job in holds:
        chart.wait_for_job(job, "Running")
    chart.wait_for_nodes("running", "running", "running")
    for job in holds:
        chart.cancel(job)
    (last,) = chart.wait_for_nodes("idle")
    for _ in range(10):  # Several times the idle time.
        time.sleep(0.3)
        assert chart.nodes() == {last: "idle"}
    chart.put(min_instances=0)
    chart.wait_for_nodes()


def test_an_evicted_low_priority_node_is_replaced_for_its_job(pool):
    settings = {"tier": "low_priority", "max_instances": 1, "idle_time_before_scale_down": 2}
    chart = pool("chart-spot", **settings)
    job = chart.submit(f"echo $MUSTER_NODE; [ $MUSTER_ATTEMPT = 2 ] || {HOLD}")
    chart.wait_for_job(job, "Running")
    (node,) = chart.nodes()
    evict = ("compute", "evict", "--cluster", chart.name, "--node", node, *WORKSPACE_FLAGS)
    chart.muster(*evict)
    chart.wait_for_job(job, "Completed")
    assert chart.node_of(job) not in ("", node), "it ran again, on another node"
    chart.wait_for_nodes()


def test_what_the_chart_cannot_do_is_refused(pool):
    with pytest.raises(HttpResponseError, match="maxNodeCount"):
        pool("chart-bad", min_instances=3, max_instances=2)
