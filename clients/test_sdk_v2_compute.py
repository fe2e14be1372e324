"""Compute clusters through the unmodified azure-ai-ml client."""

import time

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
)
from conftest import WORKSPACE_FLAGS, new_ml_client, sdk_version, wait_for

SIZE = "STANDARD_DS3_V2"
IDLE_S = 5


def aml_compute(name, **changes):
    from azure.ai.ml.entities import AmlCompute

    settings = {
        "size": SIZE,
        "min_instances": 0,
        "max_instances": 2,
        "idle_time_before_scale_down": IDLE_S,
        "tier": "Dedicated",
    }
    return AmlCompute(name=name, **{**settings, **changes})


@pytest.fixture
def create(ml_client):
    """Creates clusters and deletes those that the test has left."""
    names = []

    def create(name, **changes):
        names.append(name)
        return ml_client.compute.begin_create_or_update(aml_compute(name, **changes)).result()

    yield create
    for name in names:
        if name in listed(ml_client):
            ml_client.compute.begin_delete(name).wait()


def listed(ml_client):
    return {compute.name for compute in ml_client.compute.list()}


def nodes(ml_client, name):
    return list(ml_client.compute.list_nodes(name))


def test_create_get_list(ml_client, create):
    created = create("sdk-create", description="made by a test", tags={"team": "blue"})
    for seen in (created, ml_client.compute.get("sdk-create")):
        assert seen.name == "sdk-create"
        assert seen.type == "amlcompute"
        assert seen.size.upper() == SIZE
        assert (seen.min_instances, seen.max_instances) == (0, 2)
        assert seen.idle_time_before_scale_down == IDLE_S
        assert seen.tier == "dedicated"
        assert seen.description == "made by a test"
        assert seen.tags == {"team": "blue"}
        assert seen.provisioning_state == "Succeeded"
    assert "sdk-create" in listed(ml_client)
    assert nodes(ml_client, "sdk-create") == []


def test_defaults(ml_client, create):
    create("sdk-defaults", idle_time_before_scale_down=None, tier=None)
    seen = ml_client.compute.get("sdk-defaults")
    assert seen.idle_time_before_scale_down == 120
    assert seen.tier == "dedicated"


def test_create_again_changes_nothing(ml_client, create):
    create("sdk-again")
    create("sdk-again")
    assert [c.name for c in ml_client.compute.list()].count("sdk-again") == 1


def test_update_keeps_what_it_does_not_change(ml_client, create):
    create("sdk-update", tier="low_priority", description="keep me", tags={"team": "blue"})
    compute = ml_client.compute.get("sdk-update")
    compute.max_instances = 3
    updated = ml_client.compute.begin_update(compute).result()
    for seen in (updated, ml_client.compute.get("sdk-update")):
        assert (seen.min_instances, seen.max_instances) == (0, 3)
        assert seen.idle_time_before_scale_down == IDLE_S
        assert seen.tier == "low_priority"
        assert seen.size.upper() == SIZE
        assert seen.description == "keep me"
        assert seen.tags == {"team": "blue"}


def test_update_of_what_was_read_keeps_network_and_account(ml_client, create, session, server):
    from azure.ai.ml.entities import AmlComputeSshSettings, NetworkSettings

    network = NetworkSettings(vnet_name="net", subnet="inner")
    account = AmlComputeSshSettings(admin_username="ada", admin_password="not-Shown-1")
    options = {"network_settings": network, "ssh_settings": account}
    create("sdk-lossy", ssh_public_access_enabled=True, **options)
    compute = ml_client.compute.get("sdk-lossy")
    compute.max_instances = 3
    # The client sends an empty subnet and no password.
    ml_client.compute.begin_update(compute).result()
    seen = session.get(server.url + compute.id, params={"api-version": "2025-12-01"}).json()
    aml = seen["properties"]["properties"]
    assert aml["scaleSettings"]["maxNodeCount"] == 3
    assert aml["subnet"]["id"].endswith("/virtualNetworks/net/subnets/inner")
    assert aml["userAccountCredentials"] == {"adminUserName": "ada"}
    assert aml["remoteLoginPortPublicAccess"] == "Enabled"


# Takes 10 s: five of them are the node's idle time.
def test_a_job_takes_the_cluster_from_zero_to_one_and_back(ml_client, create, muster):
    create("sdk-elastic")
    job = f"sdk-elastic-{time.time_ns()}"
    muster(
        "job", "create", "--name", job, "--compute", "sdk-elastic", "--command", "sleep 5",
        *WORKSPACE_FLAGS,
    )  # fmt: skip

    def running():
        return [n for n in nodes(ml_client, "sdk-elastic") if n.node_state == "running"]

    wait_for("a running node", 30, running)
    started = time.monotonic()
    (node,) = nodes(ml_client, "sdk-elastic")
    assert node.node_id
    assert node.node_state == "running"
    assert node.run_id == job
    assert node.current_job_name == job

    wait_for("no nodes", 60, lambda: not nodes(ml_client, "sdk-elastic"))
    assert time.monotonic() - started >= IDLE_S


def test_nodes_come_in_pages(ml_client, create):
    create("sdk-pages", min_instances=3, max_instances=3)
    wait_for("three nodes", 60, lambda: len(nodes(ml_client, "sdk-pages")) == 3)
    whole = [node.node_id for node in nodes(ml_client, "sdk-pages")]
    operations, place = ml_client.compute._operation, ml_client.compute
    names = (place._resource_group_name, place._workspace_name, "sdk-pages")
    pages = [list(page) for page in operations.list_nodes(*names, params={"$top": "2"}).by_page()]
    assert [len(page) for page in pages] == [2, 1]
    assert [node.node_id for page in pages for node in page] == whole


def test_delete(ml_client, create):
    create("sdk-delete")
    ml_client.compute.begin_delete("sdk-delete").wait()
    assert "sdk-delete" not in listed(ml_client)
    with pytest.raises(ResourceNotFoundError, match="sdk-delete"):
        ml_client.compute.get("sdk-delete")


BAD_NAMES = [
    "ab",  # shorter than 3
    "a" * 25,  # longer than 24
    "1cluster",  # starts with a digit
    "-cluster",  # starts with a dash
    "my_cluster",
    "my.cluster",
    "my cluster",
    "my/cluster",
    "cluster!",
    "clüster",
    "cluster-",  # no letter after the dash
    "cluster-1",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_name(ml_client, name):
    refused(ml_client, aml_compute(name), name)


# Clients before 1.35 convert these to numbers, or refuse them themselves.
BAD_TYPES = [
    ({"max_instances": "four"}, "four"),
    ({"max_instances": "17"}, "17"),
    ({"min_instances": 1.5}, "1.5"),
]
if not sdk_version().startswith("1.35."):
    BAD_TYPES = []


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"min_instances": 7, "max_instances": 3}, "7"),
        ({"max_instances": -4}, "-4"),
        ({"min_instances": -4}, "-4"),
        ({"size": "STANDARD_NOPE_V9"}, "STANDARD_NOPE_V9"),
        ({"tier": "sometimes"}, "sometimes"),
        *BAD_TYPES,
        ({"idle_time_before_scale_down": -30}, "30"),
    ],
    ids=lambda part: str(part) if isinstance(part, dict) else "",
)
def test_bad_setting(ml_client, changes, value):
    refused(ml_client, aml_compute("sdk-bad", **changes), value)


def refused(ml_client, compute, value):
    """The server returns 400, names the wrong value, and stores nothing."""
    before = listed(ml_client)
    with pytest.raises(HttpResponseError) as raised:
        ml_client.compute.begin_create_or_update(compute).result()
    assert raised.value.status_code == 400
    assert value.lower() in raised.value.message.lower()
    assert listed(ml_client) == before


def test_wrong_key(client_env, monkeypatch):
    monkeypatch.setenv("IDENTITY_HEADER", "not-the-key")
    # No other credential of the chain may be used.
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    with pytest.raises(ClientAuthenticationError):
        list(new_ml_client().compute.list())
