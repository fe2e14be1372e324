"""The unmodified azure-mgmt-machinelearningservices, in the versions that people have."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

FLOW = pathlib.Path(__file__).with_name("mgmt_flow.py")
# The newer version is installed with everything else; the other is in a folder that comes first.
OLDER = pathlib.Path(sys.prefix) / "mgmt-1.0.1"


@pytest.mark.parametrize("version, path", [("2.0.0b2", None), ("1.0.1", OLDER)])
def test_the_life_of_a_cluster(server, client_env, version, path):
    # A subscription of its own, so that nothing else is reserved in it.
    place = (f"mgmt-{version}", "mgmt-rg", "mgmt-ws", "mgmt-" + version[0] + "-pool")
    environment = {**os.environ, "PYTHONPATH": str(path)} if path else dict(os.environ)
    done = subprocess.run(
        [sys.executable, FLOW, server.url, *place],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    quotas = seen.pop("quotas")
    assert "TotalDedicatedCores" in quotas
    assert seen == {
        "version": version,
        "created": 3,
        "got": 3,
        "listed": [place[-1]],
        "updated": 5,
        "nodes": 0,
        "vcpus": 4,
        "reserved": 20,
        "workspace": "mgmt-ws",
        "stop": 400,
        "keys": 400,
        "detach": 400,
        "after": 404,
    }
