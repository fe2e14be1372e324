"""Every form of AmlCompute, the other calls about compute and workspaces, every kind of error.

These run with each version of the client; see test_sdk_v2_older.py.
"""

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from conftest import RESOURCE_GROUP, SUBSCRIPTION, WORKSPACE, sdk_version

NAME = "matrix-pool"
SUBNETS = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}/providers"
    "/Microsoft.Network/virtualNetworks"
)
IDENTITY = (
    "/subscriptions/s/resourcegroups/r/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i"
)
V = {"api-version": "2023-08-01-preview"}


def network(**names):
    from azure.ai.ml.entities import NetworkSettings

    return {"network_settings": NetworkSettings(**names)}


def account():
    from azure.ai.ml.entities import AmlComputeSshSettings

    return {
        "ssh_settings": AmlComputeSshSettings(
            admin_username="ada", admin_password="pass-Word-1", ssh_key_value="ssh-rsa AAA"
        )
    }


def identity(kind, *resource_ids):
    from azure.ai.ml.entities import IdentityConfiguration, ManagedIdentityConfiguration

    users = [ManagedIdentityConfiguration(resource_id=one) for one in resource_ids]
    return {"identity": IdentityConfiguration(type=kind, user_assigned_identities=users or None)}


def at(document, path):
    for part in path.split("."):
        document = document[part]
    return document


AML = "properties.properties"
IDLE = f"{AML}.scaleSettings.nodeIdleTimeBeforeScaleDown"
SUBNET = f"{AML}.subnet.id"
ACCESS = f"{AML}.remoteLoginPortPublicAccess"

# What the client writes, and what the server stores.
TAKEN = [
    *[
        (lambda word=word: {"tier": word}, {f"{AML}.vmPriority": "LowPriority"})
        for word in ("LowPriority", "low_priority", "lowpriority", "LOWPRIORITY", "low-priority")
    ],
    *[
        (lambda word=word: {"tier": word}, {f"{AML}.vmPriority": "Dedicated"})
        for word in ("Dedicated", "dedicated", None, "")
    ],
    *[
        (lambda word=word: {"type": word}, {"properties.computeType": "AmlCompute"})
        for word in ("amlcompute", "AmlCompute")
    ],
    *[
        (lambda value=value: {"idle_time_before_scale_down": value}, {IDLE: kept})
        for value, kept in [
            (0, "PT2M"),  # The client omits it.
            (1, "PT1S"),
            (30, "PT30S"),
            (59, "PT59S"),
            (60, "PT1M"),
            (90, "PT1M30S"),
            (120, "PT2M"),
            (121, "PT2M1S"),
            (1800, "PT30M"),
            (3600, "PT1H"),
            (3661, "PT1H1M1S"),
            (86400, "P1D"),
            (90061, "P1DT1H1M1S"),
            (None, "PT2M"),
            ("120", "PT2M"),
            (120.5, "PT2M"),
        ]
    ],
    (lambda: network(vnet_name="v", subnet="s"), {SUBNET: f"{SUBNETS}/v/subnets/s"}),
    (lambda: network(subnet=f"{SUBNETS}/v/subnets/s"), {SUBNET: f"{SUBNETS}/v/subnets/s"}),
    (
        lambda: {"ssh_public_access_enabled": True, **account()},
        {ACCESS: "Enabled", f"{AML}.userAccountCredentials.adminUserName": "ada"},
    ),
    (lambda: {"ssh_public_access_enabled": False}, {ACCESS: "Disabled"}),
    (lambda: identity("system_assigned"), {"identity.type": "SystemAssigned"}),
    (lambda: identity("SystemAssigned"), {"identity.type": "SystemAssigned"}),
    (lambda: identity("user_assigned", IDENTITY), {"identity.type": "UserAssigned"}),
    (lambda: identity("UserAssigned", IDENTITY), {"identity.type": "UserAssigned"}),
    (
        lambda: {"enable_node_public_ip": False, "description": "d", "tags": {"a": "b"}},
        {f"{AML}.enableNodePublicIp": False, "properties.description": "d", "tags": {"a": "b"}},
    ),
]

# What the client sends and the server refuses, and a word of the message.
REFUSED = [
    (lambda: {"tier": "Spot"}, "Spot"),
    # The client sends "None" for the network's name.
    (lambda: network(subnet="s"), "subnet"),
    (lambda: {"min_instances": 5, "max_instances": 2}, "5"),
    (lambda: {"min_instances": -1}, "-1"),
]

# What the client itself refuses to send.
NOT_SENT = [
    (lambda: {"vnet_name": "v", "subnet_name": "s"}, TypeError),
    (lambda: {"subnet": "s"}, TypeError),
    (lambda: {"vm_size": "STANDARD_DS3_V2"}, TypeError),
    (lambda: {"identity": {"type": "system_assigned"}}, AttributeError),
]

FILE = "name: matrix-pool\ntype: amlcompute\n"
FILE_OF_ALL = f"""{FILE}
location: eastus
tags: {{a: b}}
network_settings: {{vnet_name: v, subnet: s}}
identity: {{type: system_assigned}}
ssh_public_access_enabled: true
ssh_settings: {{admin_username: ada, ssh_key_value: k}}
enable_node_public_ip: false
"""
FILES_TAKEN = [
    (FILE + "size: STANDARD_DS3_v2\ntier: low_priority\n", {f"{AML}.vmPriority": "LowPriority"}),
    (FILE + "tier: Dedicated\n", {f"{AML}.vmPriority": "Dedicated"}),
    ("name: matrix-pool\ntype: AmlCompute\n", {"properties.computeType": "AmlCompute"}),
    (
        FILE_OF_ALL,
        {
            SUBNET: f"{SUBNETS}/v/subnets/s",
            ACCESS: "Enabled",
            "identity.type": "SystemAssigned",
            "location": "eastus",
        },
    ),
]
FILES_NOT_SENT = [
    FILE + "tier: LowPriority\n",
    FILE + "tier: lowpriority\n",
    FILE + "vnet_name: v\n",
    "name: matrix-pool\ntype: foo\n",
    "type: amlcompute\n",
]


@pytest.fixture
def create(ml_client):
    from azure.ai.ml.entities import AmlCompute

    def create(compute=None, **settings):
        compute = compute or AmlCompute(name=NAME, **settings)
        return ml_client.compute.begin_create_or_update(compute).result()

    yield create
    if NAME in [compute.name for compute in ml_client.compute.list()]:
        ml_client.compute.begin_delete(NAME).wait()


@pytest.fixture
def kept(session, server):
    path = (
        f"{server.url}/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}/providers"
        f"/Microsoft.MachineLearningServices/workspaces/{WORKSPACE}/computes/{NAME}"
    )
    return lambda: session.get(path, params=V).json()


@pytest.mark.parametrize("settings, wanted", TAKEN)
def test_what_is_taken(create, kept, settings, wanted):
    create(**settings())
    seen = kept()
    # Some of these have no effect, which test_nothing_ignored.py checks.
    seen["tags"].pop("muster.note", None)
    for path, value in wanted.items():
        assert at(seen, path) == value, path


@pytest.mark.parametrize("settings, word", REFUSED)
def test_what_is_refused(ml_client, create, settings, word):
    with pytest.raises(HttpResponseError) as refused:
        create(**settings())
    assert refused.value.status_code == 400
    assert word in refused.value.message
    assert NAME not in [compute.name for compute in ml_client.compute.list()]


@pytest.mark.parametrize("settings, error", NOT_SENT)
def test_what_the_client_refuses(create, settings, error):
    with pytest.raises(error):
        create(**settings())


def test_a_name_is_not_positional(client_env):
    from azure.ai.ml.entities import AmlCompute

    with pytest.raises(TypeError):
        AmlCompute(NAME)


@pytest.mark.parametrize("content, wanted", FILES_TAKEN)
def test_files_that_are_taken(create, kept, tmp_path, content, wanted):
    from azure.ai.ml import load_compute

    file = tmp_path / "cluster.yml"
    file.write_text(content)
    create(load_compute(file))
    seen = kept()
    for path, value in wanted.items():
        assert at(seen, path) == value, path


@pytest.mark.parametrize("content", FILES_NOT_SENT)
def test_files_that_the_client_refuses(client_env, tmp_path, content):
    from azure.ai.ml import load_compute

    file = tmp_path / "cluster.yml"
    file.write_text(content)
    # Its own error, or that of the underlying library.
    with pytest.raises(Exception, match="Validation|Unknown compute type"):
        load_compute(file)


def test_the_type_of_a_list(ml_client, create):
    create()
    for kind in ("AmlCompute", "amlcompute", None):
        found = [compute.name for compute in ml_client.compute.list(compute_type=kind)]
        assert NAME in found, kind
    assert list(ml_client.compute.list(compute_type="VirtualMachine")) == []


def test_sizes_and_usages(ml_client, create):
    create(max_instances=2)
    for given in ({}, {"location": "eastus"}):
        sizes = {size.name: size for size in ml_client.compute.list_sizes(**given)}
        assert sizes["Standard_DS3_v2"].v_cp_us == 4
        usages = ml_client.compute.list_usage(**given)
        used = {usage.name["value"]: usage.current_value for usage in usages}
        assert used["TotalDedicatedCores"] >= 8


@pytest.mark.parametrize("action", ["start", "stop", "restart"])
def test_a_cluster_is_not_started_by_hand(ml_client, create, action):
    create()
    with pytest.raises(HttpResponseError, match="minNodeCount") as refused:
        getattr(ml_client.compute, f"begin_{action}")(NAME).result()
    assert refused.value.status_code == 400
    with pytest.raises(ResourceNotFoundError):
        getattr(ml_client.compute, f"begin_{action}")("matrix-none").result()


def test_workspaces(ml_client):
    seen = ml_client.workspaces.get(WORKSPACE)
    assert (seen.name, seen.resource_group) == (WORKSPACE, RESOURCE_GROUP)
    assert seen.location and seen.discovery_url.startswith("https://")
    assert WORKSPACE in [workspace.name for workspace in ml_client.workspaces.list()]
    everywhere = ml_client.workspaces.list(scope="subscription")
    assert WORKSPACE in [workspace.name for workspace in everywhere]


def test_the_shapes_of_errors(ml_client, create):
    calls = [
        (ResourceNotFoundError, 404, lambda: ml_client.compute.get("matrix-none")),
        (ResourceNotFoundError, 404, lambda: list(ml_client.compute.list_nodes("matrix-none"))),
        (HttpResponseError, 400, lambda: create(size="STANDARD_NOPE")),
    ]
    for kind, status, call in calls:
        with pytest.raises(kind) as refused:
            call()
        error = refused.value
        assert error.status_code == status
        # "(Code) message" and, below it, both separately: the client's format for known errors.
        assert error.error.code and error.error.message
        assert str(error).startswith(f"({error.error.code}) {error.error.message}")
    # Deleting something that does not exist succeeds.
    ml_client.compute.begin_delete("matrix-none").wait()
    create(size="STANDARD_DS3_V2")
    with pytest.raises(HttpResponseError, match="(?i)vmSize"):
        create(size="STANDARD_DS12_V2")


def test_the_version_is_the_one_that_was_asked_for(client_env):
    import azure.ai.ml

    assert azure.ai.ml.__version__ == sdk_version()
