"""Signing in: with a secret there is a token, without one the request is refused.

A token is valid only for the requested resource, and only as long as its key.
"""

import base64
import concurrent.futures
import contextlib
import json
import os
import socket
import ssl
import time
import urllib.parse
import uuid
from http.client import HTTPSConnection

import pytest
import requests
from conftest import (
    RESOURCE_GROUP,
    STRAY_PREFIXES,
    SUBSCRIPTION,
    WORKSPACE,
    WORKSPACE_FLAGS,
    wait_for,
)

GUID = "11111111-2222-3333-4444-555555555555"
ML_RESOURCE = "https://ml.azure."
ROLE_SCOPE = f"/subscriptions/{SUBSCRIPTION}"

# For the CA; the tests below remove the other variables again.
pytestmark = pytest.mark.usefixtures("client_env")


@pytest.fixture
def http(server_env):
    """A session without a token, and without anything from this machine's environment."""
    with requests.Session() as session:
        session.trust_env = False
        session.verify = server_env["REQUESTS_CA_BUNDLE"]
        yield session


@pytest.fixture(scope="module")
def new_user(muster):
    """Creates a user with a role: a dict with `object_id` and `key`."""

    def make(*flags, role="Contributor"):
        name = f"user-{uuid.uuid4().hex[:8]}"
        user = json.loads(muster("user", "create", "--name", name, *flags, "-o", "json").stdout)
        assigned = ("--assignee", name, "--role", role, "--scope", ROLE_SCOPE)
        muster("role", "assignment", "create", *assigned)
        return user

    return make


@pytest.fixture(scope="module")
def principal(new_user):
    return new_user("--service")


@contextlib.contextmanager
def only_these(monkeypatch, **variables):
    """Sets exactly these of the variables that Azure's clients read."""
    with monkeypatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(STRAY_PREFIXES)]:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def only_our_host(server, monkeypatch):
    """Lets look-ups of any host but the server's fail, and records them."""
    strangers = []
    look_up, connect = socket.getaddrinfo, socket.socket.connect

    def guarded_look_up(host, *rest, **more):
        if host not in ("localhost", "127.0.0.1", "::1"):
            strangers.append(host)
            raise socket.gaierror(f"{host} is not for this test")
        return look_up(host, *rest, **more)

    def guarded_connect(self, address):
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1"):
            strangers.append(address[0])
            raise OSError(f"{address} is not for this test")
        return connect(self, address)

    monkeypatch.setattr(socket, "getaddrinfo", guarded_look_up)
    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    return strangers


def claims_of(token):
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def me(http, server, token):
    address = f"{server.url}/providers/Muster.Identity/me?api-version=1"
    return http.get(address, headers=bearer(token), timeout=10)


def key_token(http, server, key, resource=None, header="X-IDENTITY-HEADER"):
    return http.get(
        f"{server.url}/msi/token",
        params={"api-version": "2019-08-01", "resource": resource or server.url},
        headers={header: key} if key is not None else {},
        timeout=30,
    )


def client_token(http, server, client_id, secret, path="adfs/oauth2/token", **more):
    form = {
        "grant_type": "client_credentials",
        "client_id": client_id,
        "client_secret": secret,
        "scope": f"{server.url}//.default",
        **more,
    }
    form = {name: value for name, value in form.items() if value is not None}
    return http.post(f"{server.url}/{path}", data=form, timeout=30)


# The dialects, with the real azure-identity.


def test_managed_identity_in_both_dialects(server, server_env, http, monkeypatch, only_our_host):
    from azure.identity import DefaultAzureCredential, ManagedIdentityCredential

    key = server_env["IDENTITY_HEADER"]
    app_service = {"IDENTITY_ENDPOINT": f"{server.url}/msi/token", "IDENTITY_HEADER": key}
    azure_ml = {"MSI_ENDPOINT": f"{server.url}/msi/token", "MSI_SECRET": key}
    for variables in (app_service, azure_ml):
        with only_these(monkeypatch, **variables):
            for credential in (
                ManagedIdentityCredential(),
                ManagedIdentityCredential(client_id=GUID),
                DefaultAzureCredential(),
            ):
                token = credential.get_token(f"{server.url}/.default")
                assert me(http, server, token.token).json()["name"] == "owner"
                assert 3000 < token.expires_on - time.time() <= 3600
    assert only_our_host == []


@pytest.mark.parametrize(
    ("authority", "tenant"), [("/adfs", GUID), ("/adfs", "contoso.example"), ("", "adfs")]
)
def test_service_principal_from_variables(
    server, http, principal, monkeypatch, only_our_host, authority, tenant
):
    """As in programs that know nothing of Muster: no arguments, only variables."""
    from azure.identity import DefaultAzureCredential, EnvironmentCredential

    variables = {
        "AZURE_CLIENT_ID": principal["object_id"],
        "AZURE_CLIENT_SECRET": principal["key"],
        "AZURE_TENANT_ID": tenant,
        "AZURE_AUTHORITY_HOST": server.url + authority,
    }
    with only_these(monkeypatch, **variables):
        for credential in (EnvironmentCredential(), DefaultAzureCredential()):
            token = credential.get_token(f"{server.url}/.default").token
            assert me(http, server, token).json()["name"] == principal["name"]
            assert claims_of(token)["appid"] == principal["object_id"]
    assert only_our_host == []


def test_client_secret_credential_and_instance_discovery(
    server, http, principal, monkeypatch, only_our_host
):
    """With a plain authority, MSAL asks Microsoft whether it is one, unless told otherwise."""
    from azure.core.exceptions import ClientAuthenticationError
    from azure.identity import ClientSecretCredential

    with only_these(monkeypatch, AZURE_AUTHORITY_HOST=server.url):
        arguments = (GUID, principal["object_id"], principal["key"])
        credential = ClientSecretCredential(*arguments, disable_instance_discovery=True)
        token = credential.get_token(f"{server.url}/.default").token
        assert me(http, server, token).json()["name"] == principal["name"]
        assert only_our_host == []
        with pytest.raises(ClientAuthenticationError, match="login.microsoftonline.com"):
            ClientSecretCredential(*arguments).get_token(f"{server.url}/.default")
        assert set(only_our_host) == {"login.microsoftonline.com"}


def test_a_wrong_secret_is_explained_by_the_real_client(server, principal, monkeypatch):
    from azure.core.exceptions import ClientAuthenticationError
    from azure.identity import ClientSecretCredential

    with only_these(monkeypatch, AZURE_AUTHORITY_HOST=f"{server.url}/adfs"):
        credential = ClientSecretCredential(GUID, principal["object_id"], "wrong")
        with pytest.raises(ClientAuthenticationError, match="no service principal has this"):
            credential.get_token(f"{server.url}/.default")


def test_ways_without_a_secret_are_refused(server, server_env, http, monkeypatch):
    from azure.core.exceptions import ClientAuthenticationError
    from azure.identity import CredentialUnavailableError, ManagedIdentityCredential

    imds = http.get(
        f"{server.url}/metadata/identity/oauth2/token",
        params={"api-version": "2018-02-01", "resource": server.url},
        headers={"Metadata": "true"},
    )
    form = {"resource": server.url}
    cloud_shell = http.post(f"{server.url}/msi/token", data=form, headers={"Metadata": "true"})
    # Not even with a valid key: this protocol has no place for one.
    key = {"X-IDENTITY-HEADER": server_env["IDENTITY_HEADER"]}
    with_key = http.post(f"{server.url}/msi/token", data=form, headers=key)
    for refused in (imds, cloud_shell, with_key):
        assert refused.status_code == 401
        assert refused.headers["WWW-Authenticate"].startswith("Bearer ")
        message = refused.json()["error"]["message"]
        assert "without a secret" in message and "IDENTITY_HEADER" in message
    for variables in (
        {"MSI_ENDPOINT": f"{server.url}/msi/token"},
        {"AZURE_POD_IDENTITY_AUTHORITY_HOST": server.url},
    ):
        refusals = (ClientAuthenticationError, CredentialUnavailableError)
        with only_these(monkeypatch, **variables), pytest.raises(refusals):
            ManagedIdentityCredential().get_token(f"{server.url}/.default")


def test_workload_identity_is_refused_with_the_reason(
    server, principal, monkeypatch, tmp_path, only_our_host
):
    from azure.core.exceptions import ClientAuthenticationError
    from azure.identity import WorkloadIdentityCredential

    file = tmp_path / "token"
    file.write_text(principal["key"])
    variables = {
        "AZURE_CLIENT_ID": principal["object_id"],
        "AZURE_TENANT_ID": "adfs",
        "AZURE_AUTHORITY_HOST": server.url,
        "AZURE_FEDERATED_TOKEN_FILE": str(file),
    }
    refused = pytest.raises(ClientAuthenticationError, match="only its own signatures")
    with only_these(monkeypatch, **variables), refused:
        WorkloadIdentityCredential().get_token(f"{server.url}/.default")
    assert only_our_host == []


# The authority, by hand.


def test_every_address_of_the_authority(server, http, principal):
    for authority in ("adfs", GUID, f"{GUID}/v2.0", f"adfs/{GUID}", "common", "organizations"):
        found = http.get(f"{server.url}/{authority}/.well-known/openid-configuration").json()
        assert found["token_endpoint"].startswith(server.url + "/")
        path = found["token_endpoint"].removeprefix(server.url + "/")
        reply = client_token(http, server, principal["object_id"], principal["key"], path)
        assert reply.status_code == 200, reply.text
    reply = client_token(
        http, server, principal["object_id"].upper(), principal["key"], f"{GUID}/oauth2/v2.0/token"
    ).json()
    assert reply.keys() == {"token_type", "expires_in", "ext_expires_in", "access_token"}
    resource = {"scope": None, "resource": server.url}
    reply = client_token(
        http, server, principal["object_id"], principal["key"], f"{GUID}/oauth2/token", **resource
    ).json()
    assert reply["resource"] == server.url and int(reply["expires_on"]) > time.time()


def test_instance_discovery_knows_only_this_server(server, http):
    def asked(endpoint):
        return http.get(
            f"{server.url}/common/discovery/instance",
            params={"api-version": "1.1", "authorization_endpoint": endpoint},
        )

    ours = asked(f"{server.url}/{GUID}/oauth2/v2.0/authorize").json()
    assert http.get(ours["tenant_discovery_endpoint"]).status_code == 200
    foreign = asked("https://login.microsoftonline.com/common/oauth2/authorize")
    assert (foreign.status_code, foreign.json()["error"]) == (400, "invalid_instance")


def test_what_the_authority_refuses(server, server_env, http, principal, new_user):
    good = (principal["object_id"], principal["key"])

    def refused(status, error, *arguments, **more):
        answer = client_token(http, server, *arguments, **more)
        found = answer.json()
        assert (answer.status_code, found["error"]) == (status, error), answer.text
        return found["error_description"]

    assert "client_credentials" in refused(
        400, "unsupported_grant_type", *good, grant_type="password"
    )
    refused(400, "unsupported_grant_type", *good, grant_type=None)
    assert "signatures" in refused(400, "unsupported_grant_type", *good, client_assertion="x.y.z")
    refused(400, "invalid_request", None, principal["key"])
    refused(400, "invalid_request", principal["object_id"], None)
    refused(400, "invalid_request", *good, scope=None)
    refused(400, "invalid_scope", *good, scope="https://vault.azure.net/.default")
    refused(400, "invalid_scope", *good, scope=f"{server.url}/.default openid")
    # A secret is valid for its own client id only; unknown ids get the same message.
    other = new_user("--service")
    wrong = refused(401, "invalid_client", other["object_id"], principal["key"])
    assert wrong == refused(401, "invalid_client", GUID, "nonsense")
    person = new_user()
    said = refused(401, "invalid_client", person["object_id"], person["key"])
    assert "not a service principal" in said and "muster user create --service" in said
    answer = http.post(f"{server.url}/adfs/oauth2/token", data=b"\xff=%zz")
    assert answer.json()["error"] == "invalid_request"
    answer = http.post(f"{server.url}/adfs/oauth2/token", data=b"a" * 100_000)
    assert answer.status_code == 413
    assert http.get(f"{server.url}/adfs/oauth2/token").status_code == 405


# What a token is valid for.


def test_each_route_takes_its_own_audience(server, server_env, http):
    key = server_env["IDENTITY_HEADER"]

    def status(resource, path):
        token = key_token(http, server, key, resource).json()["access_token"]
        return http.get(f"{server.url}{path}?api-version=1", headers=bearer(token))

    workspace = (
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}/providers"
        f"/Microsoft.MachineLearningServices/workspaces/{WORKSPACE}"
    )
    history = f"/history/v1.0{workspace}/runs/none/details"
    for resource in (server.url, f"{server.url}/", "https://management.azure.com/"):
        assert status(resource, "/subscriptions").status_code == 200, resource
        assert status(resource, history).status_code == 404, resource
    for resource in (ML_RESOURCE, "https://ml.azure.com/"):
        assert status(resource, history).status_code == 404, resource
    for resource, path in [
        (ML_RESOURCE, "/subscriptions"),
        ("https://ml.azure.com", workspace),
        ("https://storage.azure.com/", "/subscriptions"),
        ("https://storage.azure.com", history),
    ]:
        refused = status(resource, path)
        assert refused.status_code == 401, resource
        assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]
        message = refused.json()["error"]["message"]
        assert resource.rstrip("/") in message and "resource" in message
    assert key_token(http, server, key, "https://vault.azure.net").status_code == 400


def test_what_azure_ai_ml_sends_where(ml_client, muster, monkeypatch):
    """Each part of the API accepts the audience that the real client uses for it."""
    from azure.core.pipeline.transport import RequestsTransport

    seen = set()
    send = RequestsTransport.send

    def recorded(self, request, **more):
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Bearer":
            part = "history" if "/history/" in request.url else "manager"
            seen.add((part, claims_of(token)["aud"]))
        return send(self, request, **more)

    monkeypatch.setattr(RequestsTransport, "send", recorded)
    muster("compute", "create", "--name", "tok-pool", "--max-instances", "1", *WORKSPACE_FLAGS)
    job = ("job", "create", "--name", f"tok-{uuid.uuid4().hex[:8]}", "--compute", "tok-pool")
    name = json.loads(muster(*job, "--command", "true", *WORKSPACE_FLAGS, "-o", "json").stdout)[
        "name"
    ]
    wait_for("the job", 60, lambda: ml_client.jobs.get(name).status == "Completed")
    ml_client.jobs.stream(name)
    list(ml_client.compute.list())
    muster("compute", "delete", "--name", "tok-pool", "--yes", *WORKSPACE_FLAGS)
    base = os.environ["IDENTITY_ENDPOINT"].removesuffix("/msi/token")
    assert seen == {("manager", base), ("history", base)}


def test_bad_tokens_are_refused_over_the_wire(server, server_env, http):
    good = key_token(http, server, server_env["IDENTITY_HEADER"]).json()["access_token"]
    assert me(http, server, good).status_code == 200
    head, claims, signature = good.split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
    for bad in [
        f"{none}.{claims}.",
        f"{none}.{claims}.{signature}",
        f"{head}.{claims}.",
        f"{head}.{claims}",
        good[:-1],
        good[: len(good) // 2],
        f"{head}.{claims}.{'A' * len(signature)}",
        "x" * 20_000,
    ]:
        refused = me(http, server, bad)
        assert refused.status_code == 401, bad[:80]
        assert refused.headers["WWW-Authenticate"].startswith("Bearer ")
    for headers in ({}, {"Authorization": "Basic b3duZXI6eA=="}, {"Authorization": "Bearer "}):
        address = f"{server.url}/providers/Muster.Identity/me?api-version=1"
        assert http.get(address, headers=headers).status_code == 401


def test_a_refusal_leaves_the_connection_usable(server, server_env):
    """The body may arrive after the refusal is decided; the next request must still be answered."""
    where = urllib.parse.urlsplit(server.url)
    trust = ssl.create_default_context(cafile=server_env["REQUESTS_CA_BUNDLE"])
    connection = HTTPSConnection(where.hostname, where.port, context=trust, timeout=10)
    connection.connect()
    connection.auto_open = 0
    for _ in range(2):
        connection.putrequest("PUT", "/providers/Muster.Identity/users/no-such?api-version=1")
        connection.putheader("Content-Length", "2")
        connection.endheaders()
        time.sleep(0.2)
        connection.send(b"{}")
        refused = connection.getresponse()
        assert refused.status == 401 and refused.read()
    connection.close()


# Valid as long as its key.


@pytest.mark.parametrize("end", ["rotate-key", "revoke-key", "delete"])
def test_the_sdks_token_ends_with_its_key(server, muster, new_user, monkeypatch, http, end):
    from azure.ai.ml import MLClient
    from azure.core.exceptions import ClientAuthenticationError
    from azure.identity import ManagedIdentityCredential

    user = new_user("--service", role="Reader")
    monkeypatch.setenv("IDENTITY_HEADER", user["key"])
    muster(
        "workspace",
        "create",
        "--name",
        WORKSPACE,
        "-g",
        RESOURCE_GROUP,
        f"--subscription={SUBSCRIPTION}",
    )
    credential = ManagedIdentityCredential()
    client = MLClient(credential, SUBSCRIPTION, RESOURCE_GROUP, WORKSPACE)
    list(client.compute.list())
    by_client = client_token(http, server, user["object_id"], user["key"]).json()["access_token"]
    mine = credential.get_token(f"{server.url}/.default").token
    assert me(http, server, mine).status_code == me(http, server, by_client).status_code == 200

    muster("user", end, "--name", user["name"], *(["--yes"] if end == "delete" else []))
    for token in (mine, by_client):
        refused = me(http, server, token)
        assert refused.status_code == 401 and "revoked" in refused.text
    with pytest.raises(ClientAuthenticationError):
        list(client.compute.list())
    assert client_token(http, server, user["object_id"], user["key"]).status_code == 401


# Guessing.


@pytest.mark.alone  # It measures how long others wait.
def test_many_wrong_guesses_at_once_do_not_keep_a_right_key_out(server, server_env, principal):
    def connected():
        session = requests.Session()
        session.trust_env = False
        session.verify = server_env["REQUESTS_CA_BUNDLE"]
        assert session.get(f"{server.url}/healthz").status_code == 200
        return session

    # Connected before, because the handshake takes longer than the server's response.
    guessers, honest = [connected() for _ in range(30)], connected()
    began = time.monotonic()

    def guess(http, by_key):
        answers = []
        while time.monotonic() < began + 3:
            if by_key:
                answer = key_token(http, server, f"msk_{uuid.uuid4().hex}")
            else:
                answer = client_token(http, server, principal["object_id"], "wrong")
            answers.append(answer.status_code)
            if answer.status_code == 429:
                assert answer.headers["Retry-After"] == "1"
                time.sleep(0.1)
        return answers

    with concurrent.futures.ThreadPoolExecutor(len(guessers)) as pool:
        guessing = [pool.submit(guess, http, at % 2) for at, http in enumerate(guessers)]
        waited = []
        while time.monotonic() < began + 2.5:
            started = time.monotonic()
            key = key_token(honest, server, server_env["IDENTITY_HEADER"])
            secret = client_token(honest, server, principal["object_id"], principal["key"])
            waited.append(time.monotonic() - started)
            assert (key.status_code, secret.status_code) == (200, 200)
        answers = [status for guessed in guessing for status in guessed.result()]
    assert set(answers) == {401, 429}
    # All come from one address: 8 refusals a second, for the 3 s and those under way at their end.
    assert answers.count(401) <= 8 * 4
    assert sorted(waited)[len(waited) // 2] < 0.5, waited
