"""Priorities, shares of nodes and quota through the unmodified azure-ai-ml client.

The client submits no job without an environment, and environments are refused so far. So the
priority and the share that it would send are taken from its own entities and put unchanged; the job
is then read with the client.
"""

import pytest
import requests
from conftest import RESOURCE_GROUP, SUBSCRIPTION, WORKSPACE, new_ml_client, wait_for

REGION = "eastus"
WS = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}"
    f"/providers/Microsoft.MachineLearningServices/workspaces/{WORKSPACE}"
)
END_LIMIT_S = 30


@pytest.fixture
def pool(ml_client):
    from azure.ai.ml.entities import AmlCompute

    wanted = AmlCompute(name="sdk-wants", max_instances=1, idle_time_before_scale_down=60)
    yield ml_client.compute.begin_create_or_update(wanted).result()
    ml_client.compute.begin_delete("sdk-wants").wait()


def put(server, server_env, path, body):
    from azure.identity import DefaultAzureCredential

    token = DefaultAzureCredential().get_token(f"{server.url}/.default").token
    return requests.put(
        server.url + path,
        params={"api-version": "2025-01-01-preview"},
        headers={"Authorization": f"Bearer {token}"},
        json=body,
        verify=server_env["REQUESTS_CA_BUNDLE"],
        timeout=30,
    )


def test_priority_and_share(ml_client, server, server_env, pool):
    from azure.ai.ml.entities import JobResourceConfiguration, QueueSettings

    resources = JobResourceConfiguration(instance_count=1, properties={"cpus": 2, "memory": "4GB"})
    queue = QueueSettings(priority="high")
    properties = {
        "jobType": "Command",
        "command": "true",
        "computeId": pool.id,
        "resources": resources._to_rest_object().as_dict(),
        "queueSettings": queue._to_rest_object().as_dict(),
    }
    answer = put(server, server_env, f"{WS}/jobs/sdk-share", {"properties": properties})
    assert answer.status_code == 201, answer.text

    def ended():
        job = ml_client.jobs.get("sdk-share")
        return job if job.status == "Completed" else None

    job = wait_for("the job ends", END_LIMIT_S, ended)
    assert job.queue_settings.priority.lower() == "high"
    assert job.resources.properties == {"cpus": 2, "memory": "4GB"}


TOTAL, LOW_PRIORITY, FAMILY = "TotalDedicatedCores", "TotalLowPriorityCores", "standardDSv2Family"


def usages_of(ml_client, region=REGION):
    usages = ml_client.compute.list_usage(location=region)
    return {usage.name["value"]: usage for usage in usages}


@pytest.fixture
def elsewhere(ml_client):
    """A region with one cluster, of four vCPUs: no other test has any there."""
    from azure.ai.ml.entities import AmlCompute

    region = "swedencentral"
    wanted = AmlCompute(name="sdk-usages", location=region, max_instances=1)
    ml_client.compute.begin_create_or_update(wanted).result()
    yield region
    ml_client.compute.begin_delete("sdk-usages").wait()


def test_usages(ml_client, elsewhere):
    usages = usages_of(ml_client, elsewhere)
    assert usages[FAMILY].current_value == 4
    assert usages[TOTAL].current_value == 4
    # The totals of the region and every family have a limit, even if none was set.
    assert len(usages) > 20 and {TOTAL, LOW_PRIORITY, "standardNCSv3Family"} <= set(usages)
    assert {usage.limit for usage in usages.values()} == {100_000}
    name = usages[FAMILY].name
    # Older versions of the client spell it differently.
    shown = name.get("localizedValue") or name["localized_value"]
    assert shown == f"{FAMILY} Cluster Dedicated vCPUs"


def test_an_instance_counts_in_the_same_limits(ml_client, pool):
    from azure.ai.ml.entities import ComputeInstance

    before = usages_of(ml_client)
    wanted = ComputeInstance(name="sdk-shares", size="STANDARD_DS3_V2")
    ml_client.compute.begin_create_or_update(wanted).result()
    after = usages_of(ml_client)
    for name in (TOTAL, FAMILY):
        assert after[name].current_value == before[name].current_value + 4, name
    assert after[LOW_PRIORITY].current_value == before[LOW_PRIORITY].current_value
    ml_client.compute.begin_delete("sdk-shares").wait()
    assert usages_of(ml_client)[FAMILY].current_value == before[FAMILY].current_value


def test_sizes(ml_client, pool):
    sizes = {size.name: size for size in ml_client.compute.list_sizes(compute_type="AmlCompute")}
    small = sizes["Standard_DS3_v2"]
    assert (small.v_cp_us, small.gpus, small.memory_gb) == (4, 0, 14.0)
    assert "AmlCompute" in small.supported_compute_types


def test_a_job_that_waits_or_is_refused_for_quota_has_a_code(client_env, muster):
    from azure.ai.ml import command
    from azure.ai.ml.entities import AmlCompute, Environment
    from azure.core.exceptions import HttpResponseError

    place = ("quota-codes", RESOURCE_GROUP, WORKSPACE)
    client = new_ml_client(*place)
    wanted = AmlCompute(name="quota-cpu", max_instances=1)
    client.compute.begin_create_or_update(wanted).result()
    limit = ("--location", REGION, "--name", FAMILY, "--limit", "2")
    muster("quota", "update", "--subscription", place[0], *limit)
    environment = Environment(name="quota", image="none")
    job = command(command="true", environment=environment, compute="quota-cpu")
    waiting = client.jobs.create_or_update(job)
    waiting = client.jobs.get(waiting.name)
    assert waiting.status == "Queued"
    assert waiting.properties["muster.waitCode"] == "QuotaTooLow"
    assert f"'{FAMILY}'" in waiting.properties["muster.waitReason"]
    # A job without a compute could never run, so it is refused.
    with pytest.raises(HttpResponseError) as refused:
        client.jobs.create_or_update(command(command="true", environment=environment))
    assert refused.value.error.code == "QuotaExceeded"
    assert f"do not fit into the quota {FAMILY} of region 'eastus'" in refused.value.message
    client.jobs.begin_cancel(waiting.name).wait()
    client.compute.begin_delete("quota-cpu").wait()
