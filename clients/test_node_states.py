"""Nodes are counted by their state, and evicted ones are distinguished from leaving ones."""

from conftest import wait_for
from own_server import WS, V, own  # noqa: F401  (a fixture)

CLUSTER = f"{WS}/computes/spot"
STATES = ("preparing", "running", "idle", "unusable", "leaving", "preempted")
# It ignores the notice of eviction, so that there is time to check.
STAYS = "trap '' TERM INT; while true; do sleep 0.1; done"


def test_a_preempted_node_is_counted_apart(own):  # noqa: F811
    server = own("--eviction-grace-seconds", "60")
    session = server.session()

    def put(path, properties):
        body = {"properties": properties}
        answer = session.put(server.url + path, params=V, json=body)
        assert answer.status_code in (200, 201), answer.text

    def counts():
        shown = session.get(server.url + CLUSTER, params=V).json()["properties"]["properties"]
        found = shown["nodeStateCounts"]
        assert set(found) == {f"{state}NodeCount" for state in STATES}
        return {state: found[f"{state}NodeCount"] for state in STATES if found[f"{state}NodeCount"]}

    def wait(what):
        wait_for(f"{what}, not {counts()}", 30, lambda: counts() == what)

    scale = {"minNodeCount": 1, "maxNodeCount": 1, "nodeIdleTimeBeforeScaleDown": "PT1S"}
    inner = {"vmPriority": "LowPriority", "scaleSettings": scale}
    put(CLUSTER, {"computeType": "AmlCompute", "properties": inner})
    wait({"idle": 1})
    job = {"jobType": "Command", "command": STAYS, "computeId": CLUSTER}
    put(f"{WS}/jobs/stays", job)
    wait({"running": 1})
    (node,) = session.post(f"{server.url}{CLUSTER}/listNodes", params=V).json()["nodes"]
    rehearsal = f"{WS}/providers/Muster.Rehearsal/computes/spot/nodes/{node['nodeId']}/evict"
    assert session.post(server.url + rehearsal, params=V).status_code == 200
    wait({"preempted": 1})
    (node,) = session.post(f"{server.url}{CLUSTER}/listNodes", params=V).json()["nodes"]
    assert node["nodeState"] == "preempted"
    session.post(f"{server.url}{WS}/jobs/stays/cancel", params=V)
    # Another node replaces it.
    wait({"idle": 1})
    assert session.delete(server.url + CLUSTER, params=V).status_code == 202
    gone = lambda: session.get(server.url + CLUSTER, params=V).status_code == 404  # noqa: E731
    wait_for("the cluster is deleted", 30, gone)
