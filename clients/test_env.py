"""`muster env`: every shell can read it, and clients that use it never contact another server."""

import json
import os
import re
import socket
import subprocess
import sys

import pytest
from conftest import RESOURCE_GROUP, STRAY_PREFIXES, SUBSCRIPTION, WORKSPACE
from guard import GUARD

# Variables of a user's shell: another identity, another cloud, no certificate checks.
STRAY = {
    "AZURE_CLIENT_ID": "stray",
    "AZURE_CLIENT_SECRET": "stray",
    "AZURE_TENANT_ID": "stray",
    "AZURE_FEDERATED_TOKEN_FILE": "/stray",
    "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com",
    "AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://169.254.169.254",
    "AZURE_TOKEN_CREDENTIALS": "dev",
    "AZURE_CLI_DISABLE_CONNECTION_VERIFICATION": "1",
    "AZUREML_CURRENT_CLOUD": "AzureCloud",
    "AZUREML_DEV_URL_MFE": "https://management.azure.com",
    "ARM_CLOUD_METADATA_URL": "https://management.azure.com/metadata/endpoints",
    "IDENTITY_ENDPOINT": "https://stray.invalid",
    "IDENTITY_SERVER_THUMBPRINT": "stray",
    "IMDS_ENDPOINT": "http://stray.invalid",
    "MSI_ENDPOINT": "http://stray.invalid",
}

PROGRAM = GUARD + """
try:
    from azure.ai.ml import MLClient
    from azure.identity import DefaultAzureCredential

    client = MLClient(DefaultAzureCredential(), *sys.argv[1:])
    said = [workspace.name for workspace in client.workspaces.list()]
except BaseException as failed:
    said = f"{type(failed).__name__}: {failed}"
print(json.dumps({"asked": asked, "said": said}))
"""


def bare(**more):
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(STRAY_PREFIXES)
    }
    return {**kept, **more}


def printed(muster_bin, server, shell, **more):
    done = subprocess.run(
        [muster_bin, "env", "--shell", shell, "--state-dir", server.state_dir],
        check=True,
        capture_output=True,
        text=True,
        env=bare(**more),
    )
    return done.stdout


def after(shell, script, **more):
    """The variables of a shell that has read the script."""
    done = subprocess.run(
        [shell, "-c", f"{script}\nenv -0"], check=True, capture_output=True, env=bare(**more)
    )
    assert done.stderr == b""
    return dict(pair.split("=", 1) for pair in done.stdout.decode().split("\0") if pair)


@pytest.fixture
def wanted(muster_bin, server):
    return json.loads(printed(muster_bin, server, "json"))


def run_sdk(variables):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, SUBSCRIPTION, RESOURCE_GROUP, WORKSPACE],
        env=variables,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("shell", ["sh", "bash", "fish"])
def test_shells_read_it_back(muster_bin, server, wanted, shell):
    script = printed(muster_bin, server, "fish" if shell == "fish" else "sh")
    found = after(shell, script, **STRAY)
    assert {name: found.get(name) for name in wanted} == wanted
    left = {name for name in STRAY if found.get(name) == STRAY[name]}
    assert left == set()


def test_powershell_is_plain_assignments(muster_bin, server, wanted):
    """Parses strictly: each line assigns one literal or removes a variable."""
    assignment = re.compile(r"\$env:([A-Za-z_]+) = '((?:[^'\n\u2018-\u201b]|'')*)'")
    removal = re.compile(r"Remove-Item Env:([A-Z_]+) -ErrorAction SilentlyContinue")
    set_to, removed = {}, set()
    for line in printed(muster_bin, server, "powershell").splitlines():
        if found := assignment.fullmatch(line):
            set_to[found[1]] = found[2].replace("''", "'")
        else:
            found = removal.fullmatch(line)
            assert found, line
            removed.add(found[1])
    assert set_to == wanted
    assert {name for name in STRAY if name not in wanted} <= removed


def test_the_bundle_keeps_the_public_cas(wanted):
    with open(wanted["REQUESTS_CA_BUNDLE"]) as bundle:
        ours_and_theirs = bundle.read().count("BEGIN CERTIFICATE")
    with open(wanted["NODE_EXTRA_CA_CERTS"]) as ca:
        assert ca.read().count("BEGIN CERTIFICATE") == 1
    assert ours_and_theirs > 50


def test_the_sdk_comes_here_though_the_shell_was_set_up_for_azure(muster_bin, server):
    variables = after("sh", printed(muster_bin, server, "sh"), **STRAY)
    found = run_sdk(variables)
    assert found["asked"] == []
    assert isinstance(found["said"], list), found


@pytest.mark.parametrize("trouble", ["the server is down", "another CA", "a wrong key"])
def test_the_sdk_fails_and_contacts_no_other_host(muster_bin, server, wanted, trouble):
    variables = bare(**wanted)
    if trouble == "another CA":
        public = "/etc/ssl/certs/ca-certificates.crt"
        variables |= {"REQUESTS_CA_BUNDLE": public, "SSL_CERT_FILE": public}
    elif trouble == "a wrong key":
        variables |= {"IDENTITY_HEADER": "msk_wrong", "MSI_SECRET": "msk_wrong"}
    else:
        with socket.create_server(("127.0.0.1", 0)) as free:
            unused = f"https://localhost:{free.getsockname()[1]}"
        moved = {name: value.replace(server.url, unused) for name, value in variables.items()}
        assert moved != variables
        variables = moved
    found = run_sdk(variables)
    assert found["asked"] == []
    assert isinstance(found["said"], str), found
