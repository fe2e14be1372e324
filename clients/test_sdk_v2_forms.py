"""The forms in which published code requests clusters, as azure-ai-ml itself sends them."""

import time

import pytest
import requests
from azure.core.exceptions import HttpResponseError
from conftest import (
    RESOURCE_GROUP,
    SUBSCRIPTION,
    WORKSPACE,
    WORKSPACE_FLAGS,
    new_ml_client,
    sdk_version,
    wait_for,
)

SIZE = "STANDARD_DS3_V2"
# Apart from the resources of other tests, so that the figures are this file's alone.
REGION = "northeurope"
MANY = 120
# The client's own defaults. The manual says 1, and so do older clients.
NODES_MAX = 1 if sdk_version() == "1.20.0" else 4


def aml_compute(name, **settings):
    from azure.ai.ml.entities import AmlCompute

    return AmlCompute(name=name, **settings)


@pytest.fixture
def create(ml_client):
    """Creates clusters and deletes those that the test has left."""
    names = []

    def create(name, **settings):
        names.append(name)
        return ml_client.compute.begin_create_or_update(aml_compute(name, **settings)).result()

    yield create
    left = {compute.name for compute in ml_client.compute.list()}
    for name in left.intersection(names):
        ml_client.compute.begin_delete(name).wait()


@pytest.fixture
def exchanges(monkeypatch):
    """What the client sends and receives from here on: (method, status, names of headers)."""
    seen = []
    send = requests.Session.send

    def watched(session, request, **options):
        answer = send(session, request, **options)
        seen.append((request.method, answer.status_code, {name.lower() for name in answer.headers}))
        return answer

    monkeypatch.setattr(requests.Session, "send", watched)
    return seen


def test_a_client_is_made_with_names_and_by_position(client_env, create):
    from azure.ai.ml import MLClient
    from azure.identity import DefaultAzureCredential

    create("forms-client")
    credential = DefaultAzureCredential()
    by_position = MLClient(credential, SUBSCRIPTION, RESOURCE_GROUP, WORKSPACE)
    by_name = MLClient(
        credential=credential,
        subscription_id=SUBSCRIPTION,
        resource_group_name=RESOURCE_GROUP,
        workspace_name=WORKSPACE,
    )
    assert by_position.compute.get("forms-client").id == by_name.compute.get("forms-client").id


def test_a_create_is_an_operation_to_follow(create, exchanges):
    created = create("forms-create", location="eastus")
    assert created.provisioning_state == "Succeeded"
    (put,) = [exchange for exchange in exchanges if exchange[0] == "PUT"]
    assert put[1] == 201
    assert "azure-asyncoperation" in put[2]


def test_a_delete_is_an_operation_to_follow(ml_client, create, exchanges):
    create("forms-delete")
    with pytest.raises(HttpResponseError, match="Detach") as refused:
        ml_client.compute.begin_delete("forms-delete", action="Detach").wait()
    assert refused.value.status_code == 400
    assert ml_client.compute.get("forms-delete").provisioning_state == "Succeeded"

    ml_client.compute.begin_delete("forms-delete", action="Delete").wait()
    accepted = [exchange for exchange in exchanges if exchange[:2] == ("DELETE", 202)]
    assert len(accepted) == 1
    assert "azure-asyncoperation" in accepted[0][2]
    assert "forms-delete" not in {compute.name for compute in ml_client.compute.list()}


def test_the_client_itself_creates_too(ml_client):
    wanted = aml_compute("forms-top", size=SIZE, max_instances=2, location="westus")
    created = ml_client.begin_create_or_update(wanted).result()
    assert (created.name, created.max_instances) == ("forms-top", 2)
    assert ml_client.compute.get("forms-top").provisioning_state == "Succeeded"
    ml_client.compute.begin_delete("forms-top").wait()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Dedicated", "dedicated"),
        ("dedicated", "dedicated"),
        ("LowPriority", "low_priority"),
        ("low_priority", "low_priority"),
    ],
)
def test_a_tier_has_several_spellings(ml_client, create, written, meant):
    create("forms-tier", tier=written)
    assert ml_client.compute.get("forms-tier").tier == meant


def test_a_network_is_named_by_its_settings(ml_client, create):
    from azure.ai.ml.entities import NetworkSettings

    # As printed in one document; this client has no such arguments.
    with pytest.raises(TypeError):
        aml_compute("forms-network", vnet_name="ml-vnet", subnet_name="training-subnet")
    settings = NetworkSettings(vnet_name="ml-vnet", subnet="training-subnet")
    create("forms-network", network_settings=settings)
    subnet = ml_client.compute.get("forms-network").network_settings.subnet
    assert subnet == (
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}/providers"
        "/Microsoft.Network/virtualNetworks/ml-vnet/subnets/training-subnet"
    )


@pytest.mark.parametrize(
    ("settings", "nodes_max"),
    [({}, NODES_MAX), ({"size": SIZE, "max_instances": 2}, 2)],
    ids=["nothing but a name", "size and maximum"],
)
def test_omitted_settings_have_defaults(ml_client, create, settings, nodes_max):
    create("forms-default", **settings)
    check_defaults(ml_client.compute.get("forms-default"), nodes_max)


def test_what_a_file_does_not_say_has_a_default(ml_client, tmp_path):
    from azure.ai.ml import load_compute

    file = tmp_path / "cluster.yml"
    file.write_text("name: forms-file\ntype: amlcompute\n")
    created = ml_client.compute.begin_create_or_update(load_compute(file)).result()
    check_defaults(created, NODES_MAX)
    ml_client.compute.begin_delete("forms-file").wait()


def check_defaults(seen, nodes_max):
    assert seen.size.upper() == SIZE
    assert (seen.min_instances, seen.max_instances) == (0, nodes_max)
    assert seen.idle_time_before_scale_down == 120
    assert seen.tier == "dedicated"


def test_a_cluster_without_nodes_keeps_its_quota_until_it_is_deleted(ml_client, create):
    def used():
        usages = ml_client.compute.list_usage(location=REGION)
        return {usage.name["value"]: usage.current_value for usage in usages}

    assert used().get("standardDSv2Family", 0) == 0
    create("forms-quota", location=REGION, max_instances=2)
    assert list(ml_client.compute.list_nodes("forms-quota")) == []
    assert used()["standardDSv2Family"] == 8, "two nodes of four vCPUs"
    ml_client.compute.begin_delete("forms-quota").wait()
    assert used().get("standardDSv2Family", 0) == 0


def test_jobs_within_the_idle_time_use_one_node(ml_client, create, muster):
    create("forms-reuse", max_instances=2, idle_time_before_scale_down=60)
    nodes = []
    for number in range(2):
        job = f"forms-reuse-{number}-{time.time_ns()}"
        flags = ("--name", job, "--compute", "forms-reuse", "--command", "true", "--stream")
        muster("job", "create", *flags, *WORKSPACE_FLAGS)

        def idle():
            listed = list(ml_client.compute.list_nodes("forms-reuse"))
            return [node.node_id for node in listed if node.node_state == "idle"]

        nodes.append(wait_for("an idle node", 30, idle))
    assert len(nodes[0]) == 1
    assert nodes[0] == nodes[1], "the second job ran on the first one's node"


@pytest.fixture(scope="module")
def crowd(client_env):
    """A workspace of its own with more clusters than fit on a page, of several kinds."""
    client = new_ml_client(subscription="forms-crowd", workspace="crowd")
    sizes = ("Standard_DS3_v2", "Standard_NC24ads_A100_v4", "Standard_F4s_v2")
    names = [f"crowd-{number:03}a" for number in range(MANY)]
    for number, name in enumerate(names):
        settings = {"size": sizes[number % len(sizes)], "max_instances": 1, "location": "eastus"}
        client.compute.begin_create_or_update(aml_compute(name, **settings))
    yield client, set(names)
    for name in names:
        client.compute.begin_delete(name)


def test_a_list_goes_on_over_its_pages(crowd, exchanges):
    client, names = crowd
    listed = [compute.name for compute in client.compute.list()]
    assert len(listed) == MANY
    assert set(listed) == names
    assert len([exchange for exchange in exchanges if exchange[0] == "GET"]) > 1
