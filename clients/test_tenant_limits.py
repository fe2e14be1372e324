"""The limits of a user and a workspace: refusals have a message that Azure's clients show."""

import base64
import contextlib
import http.client
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.parse

import requests
from conftest import RESOURCE_GROUP, STRAY_PREFIXES, SUBSCRIPTION, WORKSPACE
from own_server import WS, V, own  # noqa: F401
from test_storage import Place

SUBMIT = f"""
from azure.ai.ml import MLClient, command
from azure.ai.ml.entities import Environment
from azure.core.exceptions import HttpResponseError
from azure.identity import DefaultAzureCredential

client = MLClient(DefaultAzureCredential(), "{SUBSCRIPTION}", "{RESOURCE_GROUP}", "{WORKSPACE}")
image = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04"
job = command(command="true", compute="closed", environment=Environment(image=image))
try:
    client.jobs.create_or_update(job)
except HttpResponseError as refused:
    print(refused.status_code, refused.error.code, refused.message)
"""


def job(compute="closed"):
    compute_id = f"{WS}/computes/{compute}"
    return {"properties": {"jobType": "Command", "command": "true", "computeId": compute_id}}


def with_closed_pool(server):
    """A cluster that may not have nodes: its jobs wait."""
    session = server.session()
    scale = {"minNodeCount": 0, "maxNodeCount": 0}
    properties = {"vmSize": "STANDARD_DS3_V2", "scaleSettings": scale}
    body = {"properties": {"computeType": "AmlCompute", "properties": properties}}
    made = session.put(f"{server.url}{WS}/computes/closed", params=V, json=body)
    assert made.ok, made.text
    return session


def test_azure_ai_ml_says_that_too_many_jobs_wait(own):  # noqa: F811
    server = own("--queued-jobs-per-user", "2")
    session = with_closed_pool(server)
    for number in range(2):
        made = session.put(f"{server.url}{WS}/jobs/j{number}", params=V, json=job())
        assert made.status_code == 201, made.text
    refused = session.put(f"{server.url}{WS}/jobs/j2", params=V, json=job())
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (403, "QuotaExceeded"), refused.text
    assert "2 jobs of" in error["message"] and "queued-jobs-per-user" in error["message"]
    assert "Retry-After" not in refused.headers
    assert session.get(f"{server.url}{WS}/jobs/j2", params=V).status_code == 404

    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(STRAY_PREFIXES)
    }
    done = subprocess.run(
        [sys.executable, "-c", SUBMIT],
        env=kept | server.env(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith("403 QuotaExceeded"), done.stdout + done.stderr
    assert "2 jobs of" in done.stdout and "cancel some" in done.stdout


def test_too_many_requests_are_refused_with_a_retry_time(own):  # noqa: F811
    server = own("--user-requests-per-second", "1")
    made = json.loads(server.muster("user", "create", "--name", "other", "--output", "json"))
    session = server.session()
    answers = [session.get(f"{server.url}{WS}/jobs", params=V)]
    while answers[-1].ok and len(answers) < 1000:
        answers.append(session.get(f"{server.url}{WS}/jobs", params=V))
    refused = answers[-1:]
    assert refused[0].status_code == 429, refused[0].text
    assert answers[0].ok, answers[0].text
    assert refused[0].headers["Retry-After"] == "1"
    error = refused[0].json()["error"]
    assert error["code"] == "TooManyRequests"
    assert "1 requests per second" in error["message"]
    assert "user-requests-per-second" in error["message"]
    # Other users are not affected.
    with requests.Session() as other:
        other.trust_env, other.verify = False, server.ca
        token = other.get(
            f"{server.url}/msi/token",
            params={"api-version": "2019-08-01", "resource": server.url},
            headers={"X-IDENTITY-HEADER": made["key"]},
        ).json()["access_token"]
        other.headers["Authorization"] = f"Bearer {token}"
        assert other.get(f"{server.url}/providers/Muster.Identity/me").status_code != 429


def test_the_command_line_waits_when_it_asks_too_fast(own):  # noqa: F811
    server = own("--user-requests-per-second", "1")
    arguments = [server.binary, "compute", "list", "--state-dir", server.state]
    notes = []
    # The first ten requests of a second are accepted.
    for _ in range(50):
        if notes:
            break
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        notes += [line for line in done.stderr.splitlines() if "retrying in" in line]
    assert notes and "429 Too Many Requests" in notes[0]


def test_too_many_blob_requests_are_refused_and_azures_client_retries(own):  # noqa: F811
    server = own("--workspace-file-requests-per-second", "1")
    place = Place(with_closed_pool(server), server.url, server.ca)
    answers = [place.raw("GET", "", "restype=container&comp=list")]
    while answers[-1].ok and len(answers) < 1000:
        answers.append(place.raw("GET", "", "restype=container&comp=list"))
    refused = answers[-1]
    assert answers[0].ok, answers[0].text
    assert refused.status_code == 503, refused.text
    assert refused.headers["Retry-After"] == "1"
    assert refused.headers["x-ms-error-code"] == "ServerBusy"
    assert "1 requests per second" in refused.text
    assert "workspace-file-requests-per-second" in refused.text
    # A client that continues at once is refused first, waits as requested, and loses nothing.
    with place.client(retry_total=5) as client:
        for number in range(3):
            client.upload_blob(f"late{number}", b"it came")
        assert client.download_blob("late2").readall() == b"it came"
    # The API has a limit of its own.
    assert server.session().get(f"{server.url}{WS}/jobs", params=V).ok


def test_a_workspace_has_its_share_of_the_storage(own):  # noqa: F811
    server = own("--workspace-storage-gb", "1")
    place = Place(with_closed_pool(server), server.url, server.ca)
    small = place.raw("PUT", "small", data=b"x" * 1000, headers={"x-ms-blob-type": "BlockBlob"})
    assert small.status_code == 201, small.text

    # A body that is larger than the available space is refused long before its end.
    url = urllib.parse.urlsplit(f"{place.account}/{place.container}/large?{place.sas}")
    context = ssl.create_default_context(cafile=server.ca)
    caller = http.client.HTTPSConnection(url.netloc, context=context, timeout=30)
    with contextlib.closing(caller):
        caller.putrequest("PUT", f"{url.path}?{url.query}")
        caller.putheader("x-ms-blob-type", "BlockBlob")
        caller.putheader("Content-Length", str((1 << 30) + 1))
        caller.endheaders(b"y" * (4 << 20))
        refused = caller.getresponse()
        said = refused.read(4096).decode()
    assert refused.status == 403, said
    assert refused.headers["x-ms-error-code"] == "QuotaExceeded"
    assert "1073741824" in said and "workspace-storage-gb" in said


def test_blocks_of_a_refused_upload_are_dropped_and_the_usage_is_shown(own):  # noqa: F811
    server = own("--workspace-storage-gb", "1")
    place = Place(with_closed_pool(server), server.url, server.ca)

    def used():
        scope = ("--subscription", SUBSCRIPTION, "-g", RESOURCE_GROUP)
        said = server.muster("workspace", "list-usage", WORKSPACE, *scope, "-o", "json")
        rows = json.loads(said)
        return {row["name"]: (row["used"], row.get("limit")) for row in rows}

    def put_block(name, number, content, length=None):
        block = base64.b64encode(b"%05d" % number).decode()
        query = f"comp=block&blockid={urllib.parse.quote(block)}"
        if length is None:
            return place.raw("PUT", name, query, data=content).status_code
        url = urllib.parse.urlsplit(f"{place.account}/{place.container}/{name}?{query}&{place.sas}")
        context = ssl.create_default_context(cafile=server.ca)
        caller = http.client.HTTPSConnection(url.netloc, context=context, timeout=30)
        with contextlib.closing(caller):
            caller.putrequest("PUT", f"{url.path}?{url.query}")
            caller.putheader("Content-Length", str(length))
            caller.endheaders(content)
            answer = caller.getresponse()
            return answer.status, answer.read(4096).decode()

    headers = {"x-ms-blob-type": "BlockBlob"}
    assert place.raw("PUT", "small", data=b"x" * 1000, headers=headers).status_code == 201
    assert put_block("large", 0, b"a" * 5_000_000) == 201
    assert put_block("kept", 0, b"b" * 2_000_000) == 201
    before = used()
    assert before["StoredBytes"] == (7_001_000, 1 << 30)
    assert before["BlobBytes"][0] == 1000
    assert before["UncommittedBlockBytes"][0] == 7_000_000
    assert before["QueuedJobs"] == (0, 100_000)

    status, said = put_block("large", 1, b"c" * (4 << 20), length=1 << 30)
    assert status == 403, said
    for word in ("muster workspace list-usage", "muster job delete", "have been dropped"):
        assert word in said
    after = until(lambda: (now := used())["StoredBytes"][0] < 7_000_000 and now)
    assert after["UncommittedBlockBytes"][0] == 2_000_000, "another upload continues"
    assert after["StoredBytes"][0] == 2_001_000
    listed = place.raw("GET", "large", "comp=blocklist&blocklisttype=uncommitted")
    assert "<Name>" not in listed.text

    # An abandoned upload is deleted when the operator requests it.
    server.muster("storage", "gc", "--block-seconds", "0", "--grace-seconds", "0")
    assert used()["UncommittedBlockBytes"][0] == 0


def until(look, limit_s=20):
    end = time.monotonic() + limit_s
    while not (seen := look()):
        assert time.monotonic() < end, "the expected state was not reached in time"
        time.sleep(0.2)
    return seen
