"""A job that runs as its user: Azure's own credential works in it, and its URL nowhere else."""

import json
import pathlib
import shlex
import shutil
import sys
import tempfile
import time

import pytest
import requests
from own_server import WS, V, own  # noqa: F401  (a fixture)
from test_identity_on_nodes import IN_WORKSPACE, ME, with_all_it_needs

# Runs as a job. Prints what Azure's client finds, and then each change in the URL's responses.
PROGRAM = """
import json, os, sys, time
import requests
from azure.ai.ml import MLClient
from azure.ai.ml.identity import AzureMLOnBehalfOfCredential

url = os.environ["OBO_ENDPOINT"]
print("address:" + url, flush=True)
credential = AzureMLOnBehalfOfCredential()
names = ("SUBSCRIPTION", "RESOURCEGROUP", "WORKSPACE_NAME")
place = [os.environ["AZUREML_ARM_" + name] for name in names]
job = MLClient(credential, *place).jobs.get(os.environ["AZUREML_RUN_ID"])
print("submitted by:" + job.creation_context.created_by, flush=True)
print("token:" + credential.get_token(sys.argv[1] + "/.default").token, flush=True)
before = None
while True:
    answer = requests.get(url, params={"resource": sys.argv[1]})
    if answer.status_code != before:
        before = answer.status_code
        print("answer:" + json.dumps([answer.status_code, answer.text]), flush=True)
    time.sleep(0.1)
"""
WITHOUT = """
import os
import requests

assert "OBO_ENDPOINT" not in os.environ
url = os.environ["MSI_ENDPOINT"].removesuffix("/msi/token") + "/obo/token"
resource = os.environ["AZUREML_SERVICE_ENDPOINT"]
for run in (os.environ["AZUREML_RUN_TOKEN"], "wrong"):
    answer = requests.get(url, params={"resource": resource, "run": run})
    print("answer:", answer.status_code, answer.text)
"""


@pytest.fixture(scope="module")
def packages():
    """azure-ai-ml where a node can see it: jobs have a /tmp of their own."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=".muster-packages-", dir=pathlib.Path.home()))
    folder.chmod(0o755)
    seen = set()
    for source, file in with_all_it_needs("azure-ai-ml", seen):
        if ".." not in file.parts and pathlib.Path(source).is_file():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / file)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def server(own, packages):  # noqa: F811
    folders = [str(packages)]
    if not sys.base_prefix.startswith("/usr"):
        folders.append(sys.base_prefix)
    server = own("--isolation", "sandbox", "--node-folders", ":".join(folders))
    size = ("--size", "Standard_DS1_v2", "--max-instances", "1")
    server.muster("compute", "create", "--name", "cpu", *IN_WORKSPACE, *size)
    return server


def command(packages, program, *arguments):
    python = pathlib.Path(sys.base_prefix) / "bin" / "python3"
    words = [f"PYTHONPATH={packages}", str(python), "-c", program, *arguments]
    return " ".join(["env", *map(shlex.quote, words)])


def user(server, name):
    """A new user who may run jobs, and a session of that user."""
    key = json.loads(server.muster("user", "create", "--name", name, "-o", "json"))["key"]
    role = ("--assignee", name, "--role", "AzureML Data Scientist", "--scope", WS)
    server.muster("role", "assignment", "create", *role)
    session = requests.Session()
    session.trust_env, session.verify = False, server.ca
    asked = {"api-version": "2019-08-01", "resource": server.url}
    headers = {"X-IDENTITY-HEADER": key}
    token = session.get(f"{server.url}/msi/token", params=asked, headers=headers).json()
    session.headers["Authorization"] = f"Bearer {token['access_token']}"
    return session


def submit(server, session, name, line, **more):
    job = {"jobType": "Command", "computeId": "cpu", "command": line, **more}
    answer = session.put(f"{server.url}{WS}/jobs/{name}", params=V, json={"properties": job})
    assert answer.status_code == 201, answer.text


def said(server, name, mark):
    """What the job has printed after this mark, newest last."""
    log = server.muster("job", "logs", name, *IN_WORKSPACE)
    return [line.removeprefix(mark) for line in log.splitlines() if line.startswith(mark)]


def wait_for(server, name, mark, is_enough=bool):
    ends = time.monotonic() + 60
    while not is_enough(found := said(server, name, mark)):
        log = server.muster("job", "logs", name, *IN_WORKSPACE)
        assert time.monotonic() < ends, log
        time.sleep(0.2)
    return found


def test_a_job_acts_as_its_user(server, packages):
    ada = user(server, "ada")
    line = command(packages, PROGRAM, server.url)
    submit(server, ada, "as-ada", line, identity={"identityType": "UserIdentity"})
    assert wait_for(server, "as-ada", "submitted by:") == ["ada"]
    [token] = wait_for(server, "as-ada", "token:")
    [first] = wait_for(server, "as-ada", "answer:")
    assert json.loads(first)[0] == 200
    outside = requests.Session()
    outside.trust_env, outside.verify = False, server.ca
    shown = {"Authorization": f"Bearer {token}"}
    assert outside.get(server.url + ME, params=V, headers=shown).json()["name"] == "ada"

    # Outside of the job, the URL is of no use, although the job runs.
    [address] = said(server, "as-ada", "address:")
    answer = outside.get(address, params={"resource": server.url})
    assert answer.status_code == 401 and "on the nodes that run it" in answer.text, answer.text

    # The tokens end with the user, and no more are issued.
    server.muster("user", "delete", "--name", "ada", "--yes")
    assert outside.get(server.url + ME, params=V, headers=shown).status_code == 401
    last = wait_for(server, "as-ada", "answer:", lambda found: len(found) > 1)[-1]
    status, text = json.loads(last)
    assert status == 403 and "has no key any more" in text, text
    server.muster("job", "cancel", "-n", "as-ada", *IN_WORKSPACE)


def test_its_token_ends_with_the_job(server, packages):
    line = command(packages, PROGRAM, server.url)
    submit(server, user(server, "bob"), "as-bob", line, identity={"identityType": "UserIdentity"})
    [token] = wait_for(server, "as-bob", "token:")
    outside = requests.Session()
    outside.trust_env, outside.verify = False, server.ca
    outside.headers["Authorization"] = f"Bearer {token}"
    assert outside.get(server.url + ME, params=V).json()["name"] == "bob"
    server.muster("job", "cancel", "-n", "as-bob", *IN_WORKSPACE)
    ends = time.monotonic() + 60
    while (answer := outside.get(server.url + ME, params=V)).status_code == 200:
        assert time.monotonic() < ends, "the token outlives its job"
        time.sleep(0.2)
    assert answer.status_code == 401 and "has ended" in answer.text, answer.text


def test_an_operator_can_forbid_it(own):  # noqa: F811
    server = own("--isolation", "sandbox", "--user-identity=false")
    size = ("--size", "Standard_DS1_v2", "--max-instances", "1")
    server.muster("compute", "create", "--name", "cpu", *IN_WORKSPACE, *size)
    line = 'curl -s "$OBO_ENDPOINT&resource=$AZUREML_SERVICE_ENDPOINT"'
    submit(server, server.session(), "no", line, identity={"identityType": "UserIdentity"})
    ends = time.monotonic() + 60
    while "user-identity is not enabled" not in server.muster("job", "logs", "no", *IN_WORKSPACE):
        assert time.monotonic() < ends, server.muster("job", "logs", "no", *IN_WORKSPACE)
        time.sleep(0.2)


def test_other_jobs_do_not(server, packages):
    line = command(packages, WITHOUT)
    submit(server, user(server, "eve"), "as-itself", line)
    refused, wrong = wait_for(server, "as-itself", "answer: ", lambda found: len(found) == 2)
    assert refused.startswith("403") and "does not run as its user" in refused
    assert wrong.startswith("401") and "no token of a run" in wrong

    part = {"properties": {"cpus": 1}}
    shared = {"identity": {"identityType": "UserIdentity"}, "resources": part}
    submit(server, server.session(), "part", 'echo "address:${OBO_ENDPOINT-none}"', **shared)
    assert wait_for(server, "part", "address:") == ["none"]
    assert "shares its node" in server.muster("job", "logs", "part", *IN_WORKSPACE)

    services = {"board": {"jobServiceType": "TensorBoard"}}
    both = {"identity": {"identityType": "UserIdentity"}, "services": services}
    submit(server, server.session(), "open", 'echo "address:${OBO_ENDPOINT-none}"', **both)
    assert wait_for(server, "open", "address:") == ["none"]
    assert "no effect in a job with services" in server.muster("job", "logs", "open", *IN_WORKSPACE)
