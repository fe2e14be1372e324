"""A cluster's identity: on its nodes, and only there, a token is issued without a secret."""

import importlib.metadata
import json
import pathlib
import re
import shlex
import shutil
import sys
import tempfile

import pytest
from conftest import RESOURCE_GROUP, SUBSCRIPTION, WORKSPACE
from own_server import WS, V, own  # noqa: F401  (a fixture)

IN_WORKSPACE = (
    *("--subscription", SUBSCRIPTION, "--resource-group", RESOURCE_GROUP),
    *("--workspace-name", WORKSPACE),
)
ME = "/providers/Muster.Identity/me"

# Runs as a job. It depends only on the variables that a job has.
PROGRAM = """
import json, os, sys
import requests
from azure.identity import DefaultAzureCredential, ManagedIdentityCredential

def try_(what):
    try:
        return [True, what().token]
    except Exception as refused:
        return [False, str(refused)]

wanted, workspace = sys.argv[1] + "/.default", sys.argv[2]
here = os.environ["MSI_ENDPOINT"].removesuffix("/msi/token")
found = {"cloud shell": try_(lambda: ManagedIdentityCredential().get_token(wanted))}
found["default"] = try_(lambda: DefaultAzureCredential().get_token(wanted))
del os.environ["MSI_ENDPOINT"]
os.environ["AZURE_POD_IDENTITY_AUTHORITY_HOST"] = here
other = "11111111-2222-4333-8444-555555555555"
found["other"] = try_(lambda: ManagedIdentityCredential(client_id=other).get_token(wanted))
found["machine"] = try_(lambda: ManagedIdentityCredential().get_token(wanted))
metadata, asked = f"{here}/metadata/identity/oauth2/token", {"resource": sys.argv[1]}
found["without header"] = requests.get(metadata, params=asked).status_code
session = requests.Session()
session.headers["Authorization"] = "Bearer " + found["machine"][1]
answer = lambda path: session.get(here + path, params={"api-version": "2024-04-01"})
found["me"] = answer("/providers/Muster.Identity/me").json()
found["computes"] = answer(workspace + "/computes").status_code
print("found:" + json.dumps(found))
"""


def with_all_it_needs(name, seen):
    """A distribution and its requirements, as files relative to the site-packages folder."""
    if name in seen:
        return
    seen.add(name)
    try:
        package = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return
    yield from ((package.locate_file(file), file) for file in package.files or ())
    for requirement in package.requires or ():
        if "extra ==" not in requirement:
            yield from with_all_it_needs(re.split(r"[^\w.-]", requirement)[0], seen)


@pytest.fixture(scope="module")
def packages():
    """azure-identity where a node can see it: jobs have a /tmp of their own."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=".muster-packages-", dir=pathlib.Path.home()))
    folder.chmod(0o755)
    seen = set()
    for name in ("azure-identity", "requests"):
        for source, file in with_all_it_needs(name, seen):
            if ".." not in file.parts and pathlib.Path(source).is_file():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, folder / file)
    yield folder
    shutil.rmtree(folder)


def run_on_node(server, packages, name):
    python = pathlib.Path(sys.base_prefix) / "bin" / "python3"
    words = [f"PYTHONPATH={packages}", str(python), "-c", PROGRAM, server.url, WS]
    command = " ".join(["env", *map(shlex.quote, words)])
    flags = ("--name", name, "--compute", "id-pool", "--command", command, "--stream")
    log = server.muster("job", "create", *flags, *IN_WORKSPACE)
    [line] = [line for line in log.splitlines() if line.startswith("found:")]
    return json.loads(line.removeprefix("found:"))


def test_a_cluster_acts_as_itself_on_its_nodes(own, packages):  # noqa: F811
    folders = [str(packages)]
    if not sys.base_prefix.startswith("/usr"):
        folders.append(sys.base_prefix)
    server = own("--isolation", "sandbox", "--node-folders", ":".join(folders))
    pool = ("--name", "id-pool", *IN_WORKSPACE)
    size = ("--type", "AmlCompute", "--size", "Standard_DS1_v2", "--max-instances", "1")
    made = json.loads(server.muster("compute", "create", *pool, *size, "-o", "json"))
    assert "identity" not in made

    bare = run_on_node(server, packages, "without-identity")
    for way in ("cloud shell", "default", "machine"):
        works, said = bare[way]
        assert not works and "identity" in said.lower(), (way, said)

    changed = server.muster(
        "compute", "update", *pool, "--identity-type", "SystemAssigned", "-o", "json"
    )
    identity = json.loads(changed)["identity"]
    principal = identity["principal_id"]
    assert identity["type"] == "system_assigned" and identity["tenant_id"]
    found = run_on_node(server, packages, "without-a-role")
    for way in ("cloud shell", "default", "machine"):
        assert found[way][0], (way, found[way][1])
    assert found["me"]["objectId"] == principal and found["me"]["name"].endswith(
        "/computes/id-pool"
    )
    assert found["computes"] == 403, "a new identity has no role"
    assert found["without header"] == 400
    works, said = found["other"]
    assert not works and "Identity not found" in said and principal in said

    role = ("role", "assignment", "create", "--assignee", principal, "--role", "Reader")
    server.muster(*role, "--scope", WS)
    reader = run_on_node(server, packages, "with-a-role")
    assert reader["computes"] == 200

    # Its tokens and roles end with the cluster.
    session = server.session()
    token = {"Authorization": f"Bearer {reader['machine'][1]}"}
    assert session.get(server.url + ME, params=V, headers=token).json()["objectId"] == principal
    assert principal in server.muster("user", "list", "-o", "json")
    server.muster("compute", "delete", *pool, "--yes")
    assert session.get(server.url + ME, params=V, headers=token).status_code == 401
    assert principal not in server.muster("user", "list", "-o", "json")
    assert principal not in server.muster("role", "assignment", "list", "--scope", WS, "-o", "json")
