"""`az ml` prints the SDK's entities: our command line must print every key that they have."""

import json

from conftest import WORKSPACE, WORKSPACE_FLAGS, wait_for

CLUSTER = "shown-pool"


def printed(muster, *arguments):
    return json.loads(muster(*arguments, *WORKSPACE_FLAGS, "--output", "json").stdout)


def check(ours, entity, without=()):
    theirs = json.loads(json.dumps(entity._to_dict(), default=str))
    theirs = {key: value for key, value in theirs.items() if key not in without}
    # az shows the value of this key, and adds the group from the id.
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


def test_an_instance_is_printed_with_the_keys_of_az(ml_client, muster):
    # Keys that the client makes up itself, and keys that it writes in another form.
    own = {"enable_root_access", "enable_sso", "enable_os_patching", "created_on", "state"}
    create = ("compute", "create", "--name", "shown-instance", "--type", "ComputeInstance")
    made = printed(muster, *create, "--tags", "team=blue", "--description", "shown")
    try:
        theirs = ml_client.compute.get("shown-instance")
        check(made, theirs, without=own)
        assert made["state"] == theirs.state == "Running"
        assert made in printed(muster, "compute", "list", "--type", "ComputeInstance")
        stopped = printed(muster, "compute", "stop", "--name", "shown-instance")
        check(stopped, ml_client.compute.get("shown-instance"), without=own)
    finally:
        muster("compute", "delete", "--yes", "--name", "shown-instance", *WORKSPACE_FLAGS)


def test_a_workspace_is_printed_with_the_keys_of_az(ml_client, muster):
    theirs = ml_client.workspaces.get(WORKSPACE)
    shown = printed(muster, "workspace", "show")
    check(shown, theirs)
    assert shown in printed(muster, "workspace", "list")


def test_nodes_are_printed_with_the_keys_of_az(ml_client, muster):
    create = ("compute", "create", "--name", CLUSTER, "--min-instances=1", "--max-instances=1")
    muster(*create, *WORKSPACE_FLAGS)
    try:

        def idle_node():
            nodes = list(ml_client.compute.list_nodes(CLUSTER))
            return next((node for node in nodes if node.node_state == "idle"), None)

        node = wait_for("an idle node", 30, idle_node)
        theirs = json.loads(json.dumps(node._to_dict(), default=str))
        theirs = {key: value for key, value in theirs.items() if value is not None}
        [ours] = printed(muster, "compute", "list-nodes", "--name", CLUSTER)
        assert {key: ours.get(key) for key in theirs} == theirs
        assert theirs["node_id"] == ours["node_id"]
        assert isinstance(ours.get("port", ""), str)
    finally:
        muster("compute", "delete", "--yes", "--name", CLUSTER, *WORKSPACE_FLAGS)
