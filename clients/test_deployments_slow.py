"""Templates that take time: an instance is ready once it has a node, and a client waits for it."""

import json
import shutil

import pytest
from own_server import Own, own  # noqa: F401  (one is a fixture)
from test_access import run_program
from test_deployments import DEPLOYMENTS, ML, body, cluster, workspace

GROUP = "/subscriptions/slow-sub/resourceGroups/slow-rg"
V = {"api-version": "2020-06-01"}
WAIT = """
import json, sys
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.policies import RequestIdPolicy
from azure.core.polling import LROPoller
from azure.core.rest import HttpRequest
from azure.identity import DefaultAzureCredential
from azure.mgmt.core import ARMPipelineClient
from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy
from azure.mgmt.core.polling.arm_polling import ARMPolling

url, body = sys.argv[1], json.loads(sys.argv[2])
base = url.split("/subscriptions")[0]
asked = []

class Watched(ARMPolling):
    def update_status(self):
        super().update_status()
        asked.append(self.status())

policy = ARMChallengeAuthenticationPolicy(DefaultAzureCredential(), f"{base}/.default")
client = ARMPipelineClient(base_url=base, policies=[RequestIdPolicy(), policy])
sent = client._pipeline.run(HttpRequest("PUT", url, json=body))
shown = sent.http_response.json()["properties"]["provisioningState"]
read = lambda done: done.http_response.json()["properties"]["provisioningState"]
try:
    ended = LROPoller(client, sent, read, Watched(timeout=0.2)).result()
except HttpResponseError as failed:
    ended = [failed.error.code, failed.error.details[0].message]
print(json.dumps({"shown": shown, "asked": asked, "ended": ended}))
"""


def instance(name):
    inner = {"vmSize": "Standard_DS3_v2"}
    properties = {"computeType": "ComputeInstance", "properties": inner}
    return {"type": f"{ML}/computes", "name": name, "location": "eastus", "properties": properties}


def deploy(server, name, *resources):
    """A client of Azure's, which polls until the deployment is over."""
    url = f"{server.url}{GROUP}/{DEPLOYMENTS}/{name}?api-version=2020-06-01"
    return run_program(WAIT, server.env(), url, json.dumps(body(list(resources))))


def test_a_client_waits_for_a_deployment_until_its_instance_is_there(own):  # noqa: F811
    server = own()
    found = deploy(server, "waits", workspace("slow"), cluster("slow/pool"), instance("slow/mine"))
    assert found["shown"] == "Running"
    assert found["asked"][0] == "InProgress" and found["asked"][-1] == "Succeeded"
    assert found["ended"] == "Succeeded"
    shown = server.session().get(f"{server.url}{GROUP}/{DEPLOYMENTS}/waits", params=V).json()
    assert shown["properties"]["duration"] > "PT0.000000S"
    # A cluster is ready at once: nodes are created when there are jobs.
    found = deploy(server, "at-once", cluster("slow/pool2"))
    assert found["shown"] == "Succeeded" and set(found["asked"]) <= {"Succeeded"}


@pytest.fixture
def barren(muster_bin, tmp_path):
    """A server that cannot create nodes, because the agent's program was deleted."""
    copy = tmp_path / "muster"
    shutil.copy2(muster_bin, copy)
    server = Own(copy, tmp_path)
    copy.unlink()
    server.binary = muster_bin
    yield server
    server.process.kill()
    server.process.wait()


def test_a_deployment_whose_instance_never_comes_up_fails_and_says_why(barren):
    server = barren
    found = deploy(server, "fails", workspace("slow"), instance("slow/broken"))
    assert found["shown"] == "Running" and found["asked"][0] == "InProgress"
    code, why = found["ended"]
    assert code == "DeploymentFailed"
    assert "the node failed to start 3 times in a row" in why

    session, url = server.session(), f"{server.url}{GROUP}/{DEPLOYMENTS}"
    shown = session.get(f"{url}/fails", params=V).json()["properties"]
    assert shown["provisioningState"] == "Failed"
    assert shown["error"]["details"][0]["target"].endswith("/computes/broken")
    lines = session.get(f"{url}/fails/operations", params=V).json()["value"]
    states = [line["properties"]["provisioningState"] for line in lines]
    assert states == ["Succeeded", "Failed"]
    assert "the node failed to start" in lines[1]["properties"]["statusMessage"]["error"]["message"]
    for state, names in (("Failed", ["fails"]), ("Succeeded", [])):
        query = {**V, "$filter": f"provisioningState eq '{state}'"}
        listed = session.get(url, params=query).json()["value"]
        assert [item["name"] for item in listed] == names


def test_a_list_comes_in_pages_newest_first(own):  # noqa: F811
    server = own()
    session, url = server.session(), f"{server.url}{GROUP}/{DEPLOYMENTS}"
    for number in range(5):
        made = session.put(f"{url}/d{number}", params=V, json=body([workspace("slow")]))
        assert made.status_code == 201, made.text
    names, page, pages = [], {"url": url, "params": {**V, "$top": 2}}, 0
    while page:
        found = session.get(**page).json()
        names += [item["name"] for item in found["value"]]
        page = {"url": found["nextLink"]} if found["nextLink"] else None
        pages += 1
    assert (names, pages) == (["d4", "d3", "d2", "d1", "d0"], 3)
