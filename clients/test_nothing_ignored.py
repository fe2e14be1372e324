"""Every setting has an effect, is refused, or is noted: nothing is silently ignored."""

import pytest
from conftest import WORKSPACE_FLAGS, new_ml_client
from test_sdk_v2_wants import WS, put

NOTE = "muster.note"
IDENTITY = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity"
    "/userAssignedIdentities/ada"
)


@pytest.fixture
def without_effect(ml_client):
    """A cluster with settings that have no effect here, as the client reads it back."""
    from azure.ai.ml.entities import (
        AmlCompute,
        AmlComputeSshSettings,
        IdentityConfiguration,
        ManagedIdentityConfiguration,
        NetworkSettings,
    )

    wanted = AmlCompute(
        name="ignored-cpu",
        max_instances=1,
        ssh_public_access_enabled=True,
        ssh_settings=AmlComputeSshSettings(admin_username="ada", ssh_key_value="ssh-rsa AAAA"),
        network_settings=NetworkSettings(vnet_name="v", subnet="n"),
        enable_node_public_ip=False,
        identity=IdentityConfiguration(
            type="user_assigned",
            user_assigned_identities=[ManagedIdentityConfiguration(resource_id=IDENTITY)],
        ),
        tags={"team": "a"},
    )
    ml_client.compute.begin_create_or_update(wanted).result()
    yield ml_client.compute.get("ignored-cpu")
    ml_client.compute.begin_delete("ignored-cpu").wait()


def test_settings_of_a_cluster_without_effect_are_noted(ml_client, muster, without_effect):
    assert without_effect.network_settings.subnet.endswith("/virtualNetworks/v/subnets/n")
    assert without_effect.enable_node_public_ip is False
    assigned = [it.resource_id for it in without_effect.identity.user_assigned_identities]
    assert assigned == [IDENTITY]
    note = without_effect.tags[NOTE]
    for word in ("SSH", "subnet", "enableNodePublicIp", "user-assigned identities"):
        assert word in note, note
    shown = muster("compute", "show", "-n", "ignored-cpu", *WORKSPACE_FLAGS)
    assert shown.stderr.startswith("note: ") and "SSH" in shown.stderr, shown.stderr
    assert NOTE not in shown.stdout, "the command line shows it once"
    assert "note: the SSH settings" in muster("why", "ignored-cpu", *WORKSPACE_FLAGS).stdout
    # A note that was shown is not stored when it is sent back.
    ml_client.compute.begin_update(without_effect).result()
    assert ml_client.compute.get("ignored-cpu").tags == {"team": "a", NOTE: note}


def test_a_plain_cluster_has_no_note(ml_client):
    from azure.ai.ml.entities import AmlCompute

    ml_client.compute.begin_create_or_update(AmlCompute(name="plain-cpu", max_instances=1)).result()
    assert not ml_client.compute.get("plain-cpu").tags
    ml_client.compute.begin_delete("plain-cpu").wait()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"resources": {"instanceType": "Standard_NC6"}}, "leave instanceType out"),
        ({"queueSettings": {"jobTier": "Spot"}}, "compute 'contrary-cpu' is dedicated"),
        (
            {"identity": {"identityType": "Managed", "clientId": "11111111-aaaa"}},
            "clientId is '11111111-aaaa', which is no identity of compute 'contrary-cpu'",
        ),
    ],
)
def test_a_job_that_contradicts_its_compute_is_refused(
    ml_client, server, server_env, asked, words
):
    from azure.ai.ml.entities import AmlCompute

    ml_client.compute.begin_create_or_update(
        AmlCompute(name="contrary-cpu", max_instances=1)
    ).result()
    job = {"jobType": "Command", "command": "true", "computeId": "contrary-cpu", **asked}
    answer = put(server, server_env, f"{WS}/jobs/contrary", {"properties": job})
    assert answer.status_code == 400, answer.text
    assert words in answer.json()["error"]["message"]


def test_what_a_job_asks_for_and_does_not_get_is_in_its_log(
    ml_client, muster, server, server_env
):
    from azure.ai.ml.entities import AmlCompute

    ml_client.compute.begin_create_or_update(
        AmlCompute(name="told-cpu", max_instances=1, idle_time_before_scale_down=60)
    ).result()
    job = {
        "jobType": "Command",
        "command": "echo ran",
        "computeId": "told-cpu",
        "notificationSetting": {"emails": ["ada@example.com"], "emailOn": ["JobCompleted"]},
        "identity": {"identityType": "UserIdentity"},
        "services": {"board": {"jobServiceType": "TensorBoard"}},
    }
    answer = put(server, server_env, f"{WS}/jobs/told", {"properties": job})
    assert answer.status_code == 201, answer.text
    log = muster("job", "stream", "-n", "told", *WORKSPACE_FLAGS).stdout
    assert "ran" in log
    for word in ("notificationSetting", "UserIdentity"):
        assert word in ml_client.jobs.get("told").properties[NOTE]
        assert word in log, log
    ml_client.compute.begin_delete("told-cpu").wait()


def test_a_managed_network_is_stored_and_noted(client_env):
    from azure.ai.ml.constants._workspace import IsolationMode
    from azure.ai.ml.entities import ManagedNetwork, Workspace

    client = new_ml_client()
    wanted = Workspace(
        name="networked-ws",
        location="eastus",
        managed_network=ManagedNetwork(isolation_mode=IsolationMode.ALLOW_INTERNET_OUTBOUND),
    )
    made = client.workspaces.begin_create(wanted).result()
    assert made.managed_network.isolation_mode == IsolationMode.ALLOW_INTERNET_OUTBOUND
    assert "managed network" in made.tags[NOTE]
    plain = client.workspaces.begin_create(Workspace(name="plain-ws", location="eastus")).result()
    assert NOTE not in (plain.tags or {})
