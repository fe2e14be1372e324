"""azureml-core, unmodified, in an environment of its own: it contacts only this server."""

import json
import os
import subprocess

import pytest
from conftest import REPOSITORY, STRAY_PREFIXES
from guard import GUARD
from own_server import own  # noqa: F401  (a fixture)

V1 = REPOSITORY / ".venv-v1/bin/python"
PLACE = ("v1-sub", "v1-rg", "v1-ws")
PROGRAM = GUARD + """
from azureml.core import Workspace
from azureml.core.authentication import MsiAuthentication, ServicePrincipalAuthentication

place, secret = sys.argv[1:4], sys.argv[4:]
try:
    if secret:
        # Without the cloud's name it looks for Azure's own first, whatever the environment says.
        auth = ServicePrincipalAuthentication("adfs", *secret, cloud="Muster")
    else:
        auth = MsiAuthentication()
    found = Workspace(*place, auth=auth)
    said = [found.name, found.resource_group, found.location]
except Exception as failed:
    said = f"{type(failed).__name__}: {failed}"
print(json.dumps({"asked": asked, "said": said}))
"""


@pytest.fixture
def run(own, tmp_path):  # noqa: F811
    server = own()
    subscription, group, name = PLACE
    flags = ("--subscription", subscription, "--resource-group", group, "--location", "westus2")
    server.muster("workspace", "create", "--name", name, *flags)

    def run(*secret, **changed):
        kept = [name for name in os.environ if not name.startswith(STRAY_PREFIXES)]
        env = {**{name: os.environ[name] for name in kept}, **server.env(), **changed}
        # It writes to the home folder.
        env["HOME"] = str(tmp_path)
        done = subprocess.run(
            [V1, "-c", PROGRAM, *PLACE, *secret],
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    run.server = server
    return run


# Takes 10 s, and 20 s the first time: azureml-core is imported in two processes.
def test_a_managed_identity_finds_the_workspace_and_contacts_no_other_host(run):
    assert run() == {"asked": [], "said": ["v1-ws", "v1-rg", "westus2"]}
    wrong = run(IDENTITY_HEADER="msk_wrong", MSI_SECRET="msk_wrong")
    assert wrong["asked"] == [] and isinstance(wrong["said"], str), wrong


def test_a_service_principal_finds_the_workspace_and_contacts_no_other_host(run):
    server = run.server
    user = f"{server.url}/providers/Muster.Identity/users/robot"
    version = {"api-version": "2020-06-01"}
    session = server.session()
    made = session.put(user, params=version, json={"principalType": "ServicePrincipal"}).json()
    scope = f"{server.url}/subscriptions/v1-sub/providers/Microsoft.Authorization"
    role = {"properties": {"principalId": made["objectId"], "roleDefinitionId": "Reader"}}
    given = session.put(f"{scope}/roleAssignments/robot", params=version, json=role)
    assert given.status_code == 201, given.text
    found = run(made["objectId"], made["key"])
    assert found == {"asked": [], "said": ["v1-ws", "v1-rg", "westus2"]}
    wrong = run(made["objectId"], "msk_wrong")
    assert wrong["asked"] == [] and isinstance(wrong["said"], str), wrong
