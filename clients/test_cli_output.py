"""`az ml` prints the SDK's entities: our command line must print every key that they have."""

import json

from conftest import WORKSPACE, WORKSPACE_FLAGS

CLUSTER = "shown-pool"


def printed(muster, *arguments):
    return json.loads(muster(*arguments, *WORKSPACE_FLAGS, "--output", "json").stdout)


def check(ours, entity):
    theirs = json.loads(json.dumps(entity._to_dict(), default=str))
    # az shows the value of this one, and adds the group from the id.
    theirs.pop("provisioning_state", None)
    assert {key: ours.get(key) for key in theirs} == theirs
    assert ours["resourceGroup"] == ours["id"].split("/")[4]
    assert list(ours) == sorted(ours)


def test_a_cluster_is_printed_with_the_keys_of_az(ml_client, muster):
    from azure.ai.ml.entities import AmlCompute

    wanted = AmlCompute(name=CLUSTER, max_instances=2, tags={"team": "blue"}, description="shown")
    ml_client.compute.begin_create_or_update(wanted).result()
    try:
        shown = printed(muster, "compute", "show", "--name", CLUSTER)
        check(shown, ml_client.compute.get(CLUSTER))
        assert shown["provisioning_state"] == "Succeeded"
        assert shown in printed(muster, "compute", "list")
        updated = printed(muster, "compute", "update", "--name", CLUSTER, "--max-instances=3")
        check(updated, ml_client.compute.get(CLUSTER))
    finally:
        muster("compute", "delete", "--yes", "--name", CLUSTER, *WORKSPACE_FLAGS)


def test_a_workspace_is_printed_with_the_keys_of_az(ml_client, muster):
    shown = printed(muster, "workspace", "show")
    check(shown, ml_client.workspaces.get(WORKSPACE))
    assert shown in printed(muster, "workspace", "list")
