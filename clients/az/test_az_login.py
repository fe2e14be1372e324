"""The unmodified azure-cli signs in as a service principal, and contacts no other host."""

import json
import os
import pathlib
import socket
import subprocess
import threading

import pytest
from conftest import REPOSITORY

AZ = REPOSITORY / ".venv-az/bin/python"
PLACE = ("--subscription=az-login", "--resource-group=az-rg", "--workspace-name=az-ws")
# The first run with a new configuration checks there, without a token, for a newer az;
# no setting of az turns that off.
NEWER_AZ = {"CONNECT azcliprod.blob.core.windows.net:443 HTTP/1.0"}
GUID = "11111111-2222-3333-4444-555555555555"


class Recorder:
    """A proxy that lets nothing through, and records the requests."""

    def __init__(self):
        self.asked = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                self.asked.append(connection.recv(4096).split(b"\r\n")[0].decode())
                connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")


@pytest.fixture
def proxy():
    recorder = Recorder()
    yield recorder
    recorder.socket.close()


@pytest.fixture
def run_az(muster_bin, server, proxy):
    """az with the variables of `muster env` only; everything but our server is behind the proxy."""
    plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    # The user's own variable, which must not take precedence.
    stray = {"AZURE_CLOUD_NAME": "AzureCloud", "AZURE_CLIENT_ID": GUID, "AZURE_TENANT_ID": GUID}
    command = f'eval "$("{muster_bin}" env)"; exec env -0'
    printed = subprocess.run(
        ["sh", "-c", command],
        env={
            **plain,
            **stray,
            "MUSTER_STATE_DIR": str(server.state_dir),
            "HTTPS_PROXY": proxy.url,
            "https_proxy": proxy.url,
            "HTTP_PROXY": proxy.url,
        },
        check=True,
        capture_output=True,
    )
    pairs = [pair.split("=", 1) for pair in printed.stdout.decode().split("\0") if pair]
    variables = dict(pairs)
    assert not variables.keys() & stray.keys()

    def run(*arguments, **changes):
        return subprocess.run(
            [AZ, "-m", "azure.cli", *arguments],
            env={**variables, **changes},
            capture_output=True,
            text=True,
            timeout=120,
        )

    run.variables = variables
    return run


def good(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_service_principal_logs_in(run_az, muster, server, proxy, tmp_path):
    muster("compute", "create", "--name", "az-login-pool", "--max-instances", "1", *PLACE)
    user = json.loads(
        muster("user", "create", "--name", "az-robot", "--service", "-o", "json").stdout
    )
    scope = ("--scope", "/subscriptions/az-login")
    muster("role", "assignment", "create", "--assignee", "az-robot", "--role", "Reader", *scope)
    own = {"AZURE_CONFIG_DIR": str(tmp_path / "az")}
    login = ("login", "--service-principal", "-u", user["object_id"], "--tenant", GUID)
    wrong = run_az(*login, "-p", "wrong", **own)
    assert wrong.returncode == 1 and "no service principal has this" in wrong.stderr
    accounts = json.loads(good(run_az(*login, "-p", user["key"], **own)))
    assert [account["user"]["type"] for account in accounts] == ["servicePrincipal"]
    shown = json.loads(good(run_az("account", "show", **own)))
    assert (shown["id"], shown["user"]["name"]) == ("az-login", user["object_id"])
    assert shown["environmentName"] == "Muster"
    listed = json.loads(good(run_az("resource", "list", **own)))
    assert {item["name"] for item in listed} == {"az-ws", "az-ws/az-login-pool"}
    denied = run_az("resource", "tag", "--tags", "a=b", "--ids", listed[-1]["id"], **own)
    assert denied.returncode != 0 and "AuthorizationFailed" in denied.stderr
    # A new key invalidates the tokens of the old one, also in az's cache.
    muster("user", "rotate-key", "--name", "az-robot")
    ended = run_az("resource", "list", **own)
    assert ended.returncode != 0, ended.stdout
    good(run_az("logout", **own))
    muster("user", "delete", "--name", "az-robot", "--yes")
    muster("compute", "delete", "--name", "az-login-pool", "--yes", *PLACE)
    assert set(proxy.asked) <= NEWER_AZ


def test_login_account_and_defaults_with_what_env_prints(run_az, muster, proxy):
    flags = ("--subscription=az-login", "--resource-group=az-rg")
    muster("workspace", "create", "--name", "az-ws", *flags)
    muster("workspace", "create", "--name", "az-ws", "--subscription=az-other", "-g", "az-rg")
    good(run_az("login", "--identity"))
    for name in ("az-other", "az-login"):
        good(run_az("account", "set", "--name", name))
        assert json.loads(good(run_az("account", "show")))["name"] == name
    # As on a compute instance of Azure ML, which has these two variables.
    instance = {"CI_RESOURCE_GROUP": "az-rg", "CI_WORKSPACE": "az-ws"}
    defaults = [f"group={instance['CI_RESOURCE_GROUP']}", f"workspace={instance['CI_WORKSPACE']}"]
    good(run_az("configure", "--defaults", *defaults))
    listed = json.loads(good(run_az("configure", "--list-defaults")))
    assert {item["name"]: item["value"] for item in listed} == {
        "group": "az-rg",
        "workspace": "az-ws",
    }
    kind = ("--resource-type", "Microsoft.MachineLearningServices/workspaces")
    shown = json.loads(good(run_az("resource", "show", "-n", "az-ws", *kind)))
    assert shown["resourceGroup"] == "az-rg"
    # Separate from the logins for the real Azure.
    kept = pathlib.Path(run_az.variables["AZURE_CONFIG_DIR"])
    assert (kept / "cloudEndpoints.json").is_file() and kept != pathlib.Path.home() / ".azure"
    assert set(proxy.asked) <= NEWER_AZ


# Does what a browser does with the page: sends the form. az opens the program in BROWSER.
BROWSER = """
import html, re, ssl, sys, urllib.parse, urllib.request
trusted = ssl.create_default_context(cafile=sys.argv[1])
page = urllib.request.urlopen(sys.argv[2], context=trusted).read().decode()
action = re.search(r'<form method="post" action="([^"]+)"', page)[1]
fields = re.findall(r'name="([^"]+)" value="([^"]*)"', page)
form = urllib.parse.urlencode([(name, html.unescape(value)) for name, value in fields])
urllib.request.urlopen(html.unescape(action), data=form.encode())
"""
NOT_IN_A_BROWSER = (
    "Signing in through a browser or with a device code is not supported in this version. Run"
    " `az login --identity`, which uses the key that `muster env` has set"
)


def test_a_login_without_an_identity_says_how_to_sign_in(run_az, proxy, tmp_path):
    program = tmp_path / "browser.py"
    program.write_text(BROWSER)
    ca = run_az.variables["REQUESTS_CA_BUNDLE"]
    # The trailing & keeps webbrowser from waiting for it, because az answers it.
    changes = {
        "AZURE_CONFIG_DIR": str(tmp_path / "az"),
        "BROWSER": f"{AZ} {program} {ca} %s &",
        "NO_PROXY": "localhost",
    }
    refused = run_az("login", **changes)
    assert refused.returncode == 1 and NOT_IN_A_BROWSER in refused.stderr, refused.stderr
    refused = run_az("login", "--use-device-code", **changes)
    assert refused.returncode == 1 and NOT_IN_A_BROWSER in refused.stderr, refused.stderr
    assert set(proxy.asked) <= NEWER_AZ


@pytest.mark.parametrize("trouble", ["the server is down", "another CA"])
def test_az_fails_and_contacts_no_other_host(run_az, proxy, tmp_path, trouble):
    changes = {"AZURE_CONFIG_DIR": str(tmp_path / "az")}
    if trouble == "another CA":
        other = "/etc/ssl/certs/ca-certificates.crt"
        changes |= {"REQUESTS_CA_BUNDLE": other, "SSL_CERT_FILE": other}
    else:
        with socket.create_server(("127.0.0.1", 0)) as free:
            unused = f"https://localhost:{free.getsockname()[1]}"
        here = run_az.variables["IDENTITY_ENDPOINT"].removesuffix("/msi/token")
        moved = {
            name: value.replace(here, unused)
            for name, value in run_az.variables.items()
            if here in value
        }
        assert len(moved) >= 4
        changes |= moved
    for command in (("login", "--identity"), ("group", "list"), ("account", "get-access-token")):
        failed = run_az(*command, **changes)
        assert failed.returncode != 0, failed.stdout
        assert failed.stderr
    assert proxy.asked == []
