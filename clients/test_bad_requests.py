"""Bad input to every endpoint: a 4xx that says what is wrong, and nothing is written."""

import json
import socket
import sqlite3
import ssl
import urllib.parse

import pytest
import requests

WS = "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w"
LOCATION = "/subscriptions/s/providers/Microsoft.MachineLearningServices/locations/x"
COMPUTE = f"{WS}/computes/target"
JOB = f"{WS}/jobs/target"
V = {"api-version": "2023-08-01-preview"}


@pytest.fixture(scope="module", autouse=True)
def workspace(session, server):
    assert session.get(server.url + WS, params=V).status_code == 200


def revision(server):
    """How many changes have ever been written, without the records of refused requests."""
    uri = f"file:{urllib.parse.quote(str(server.state_dir / 'muster.db'))}?mode=ro"
    connection = sqlite3.connect(uri, uri=True)
    try:
        refused = "SELECT count(*) FROM activity WHERE doc LIKE '%\"Refused\"%'"
        count = f"SELECT last_revision - ({refused}) FROM meta"
        return connection.execute(count).fetchone()[0]
    finally:
        connection.close()


def aml(**properties):
    return {"properties": {"computeType": "AmlCompute", "properties": properties}}


def scale(**settings):
    return aml(scaleSettings=settings)


def command(**properties):
    return {"properties": {"jobType": "Command", "command": "true", **properties}}


# The body, and a word that the message must contain.
BAD_CLUSTERS = [
    (b"", ""),
    (b"{", ""),
    (b"\xff\xfe", ""),
    (b"[]", ""),
    (b"null", ""),
    (b"5", ""),
    (b"{}" * 2, ""),
    (b"[" * 100_000, ""),
    ({"properties": 5}, "properties"),
    ({"properties": {"computeType": "Kubernetes"}}, "Kubernetes"),
    ({"properties": {"computeType": 7}}, "computeType"),
    (aml(vmSize="Standard_Nope"), "Standard_Nope"),
    (aml(vmSize=5), "vmSize"),
    (aml(vmSize="Standard_NC6"), "Standard_NC6"),
    (aml(vmPriority="Sometimes"), "Sometimes"),
    (aml(vmPriority="LowPriority1"), "did you mean 'LowPriority'?"),
    ({"properties": {"computeType": "AmlComputer"}}, "did you mean 'AmlCompute'?"),
    ({"identity": {"type": "SystemAssigned1"}, **aml()}, "did you mean 'SystemAssigned'?"),
    ({"location": "eastsu", **aml()}, "did you mean 'eastus'?"),
    ({"location": "nowhere", **aml()}, 'regions = "nowhere"'),
    (aml(osType="Windows"), "Windows"),
    (aml(osType="Plan9"), "Plan9"),
    (aml(enableNodePublicIp="yes"), "enableNodePublicIp"),
    (aml(remoteLoginPortPublicAccess="Maybe"), "Maybe"),
    (aml(subnet={"id": 5}), "subnet"),
    (aml(subnet="x"), "subnet"),
    (aml(userAccountCredentials={"adminUserName": "Root User"}), "Root User"),
    (aml(userAccountCredentials={"adminUserPassword": "x"}), "adminUserName"),
    (scale(maxNodeCount="4"), "maxNodeCount"),
    (scale(maxNodeCount=1.5), "1.5"),
    (scale(maxNodeCount=-1), "-1"),
    (scale(maxNodeCount=10_001), "10001"),
    (scale(maxNodeCount=1e300), "maxNodeCount"),
    (scale(maxNodeCount=[4]), "maxNodeCount"),
    (scale(maxNodeCount=2, minNodeCount=3), "3"),
    (scale(maxNodeCount=2, nodeIdleTimeBeforeScaleDown="soon"), "soon"),
    (scale(maxNodeCount=2, nodeIdleTimeBeforeScaleDown="-PT2M"), "-PT2M"),
    (scale(maxNodeCount=2, nodeIdleTimeBeforeScaleDown="P400D"), "34560000"),
    (scale(maxNodeCount=2, nodeIdleTimeBeforeScaleDown=120), "120"),
    ({**aml(), "tags": {"a": 5}}, "tags"),
    ({**aml(), "tags": ["a"]}, "tags"),
    ({**aml(), "tags": {f"t{n}": "" for n in range(51)}}, "51"),
    ({**aml(), "tags": {"a": "x" * 257}}, "257"),
    ({**aml(), "location": 5}, "location"),
    ({**aml(), "location": "x" * 65}, "65"),
    ({**aml(), "identity": {"type": "Mine"}}, "Mine"),
    ({**aml(), "identity": 5}, "identity"),
    ({"properties": {"computeType": "AmlCompute", "description": "x" * 5000}}, "5000"),
]

BAD_JOBS = [
    (b"{", ""),
    ({}, "properties"),
    ({"properties": {"jobType": "Sweep"}}, "Sweep"),
    ({"properties": {"jobType": "Command"}}, "command"),
    (command(resources={"instanceType": "Standard_DS3_v9"}), "Standard_DS3_v"),
    (command(computeId="nowhere"), "nowhere"),
    (command(computeId=f"{WS}/computes/nowhere"), "nowhere"),
    (command(computeId=f"{WS}x/computes/nowhere"), ""),
    (command(computeId=5), "computeId"),
    (command(computeId="pool", command=""), "command"),
    (command(computeId="pool", command="  \n"), "command"),
    (command(computeId="pool", command="a\0b"), "NUL"),
    (command(computeId="pool", command="x" * 120_001), "120001"),
    (command(computeId="pool", resources={"instanceCount": 0}), "0"),
    (command(computeId="pool", resources={"instanceCount": 3}), "3"),
    (command(computeId="pool", resources={"instanceCount": "1"}), "instanceCount"),
    (command(computeId="pool", queueSettings={"priority": 4}), "high"),
    (command(computeId="pool", resources={"properties": {"cpus": 1.5}}), "cpus"),
    (command(computeId="pool", resources={"properties": {"cpus": 64}}), "64"),
    (command(computeId="pool", resources={"properties": {"memory": "lots"}}), "lots"),
    (command(computeId="pool", limits={"timeout": "never"}), "never"),
    (command(computeId="pool", limits={"jobLimitsType": "Sweep"}), "'Command'"),
    (command(computeId="pool", queueSettings={"jobTier": "Standard1"}), "did you mean 'Standard'?"),
    (command(computeId="pool", limits={"timeout": "PT0S"}), "timeout"),
    (command(computeId="pool", limits={"timeout": "P31D"}), "timeout"),
    (command(computeId="pool", environmentVariables={"A=B": "x"}), "A=B"),
    (command(computeId="pool", environmentVariables={"A": 5}), "environmentVariables"),
    (command(computeId="pool", environmentVariables={"A": "x" * 130_000}), "environment"),
    (command(computeId="pool", tags={"": "x"}), "tag"),
    (command(computeId="pool", codeId="/codes/x/versions/1"), "codeId"),
    (command(computeId="pool", environmentId="azureml:x@latest"), "environmentId"),
    (command(computeId="pool", inputs={"a": {"jobInputType": "literal"}}), "inputs"),
    (command(computeId="pool", inputs={"a/b": {"value": "x"}}), "a/b"),
    (
        command(computeId="pool", inputs={"a": {"jobInputType": "uri_nothing", "uri": "x"}}),
        "inputs.a",
    ),
    (
        command(computeId="pool", inputs={"a": {"jobInputType": "uri_file", "uri": "../x"}}),
        "inputs.a",
    ),
    (
        command(computeId="pool", inputs={"a": {"jobInputType": "uri_file", "uri": "s3://b/x"}}),
        "s3",
    ),
    (command(computeId="pool", command="echo ${{inputs.a}}"), "inputs.a"),
    (command(computeId="pool", command="echo ${{inputs.a"), "}}"),
    (command(computeId="pool", outputs={"a": {"uri": "https://elsewhere/x"}}), "outputs.a"),
    (command(computeId="pool", outputs={"a": {"assetVersion": "1"}}), "assetName"),
    (command(computeId="pool", distribution={"distributionType": "Smoke"}), "Smoke"),
    (
        command(
            computeId="pool",
            distribution={"distributionType": "PyTorch", "processCountPerInstance": 0},
        ),
        "processCountPerInstance",
    ),
    (command(computeId="pool", resources={"shmSize": "much"}), "much"),
    (command(computeId="pool", experimentName="x" * 300), "300"),
]

# Method, path, status, a word of the message.
BAD_ADDRESSES = [
    ("GET", "/", 404, ""),
    ("POST", "/subscriptions", 405, "POST"),
    ("GET", "/subscriptions/no-such", 404, "no-such"),
    ("GET", "/subscriptions/s/resourceGroups/no-such", 404, "no-such"),
    ("GET", "/subscriptions/s/resourceGroups/no-such/resources", 404, "no-such"),
    ("PUT", "/subscriptions/s/resourceGroups/new", 400, "body"),
    ("POST", "/subscriptions/s/resourceGroups/g", 405, "POST"),
    ("GET", "/subscriptions/s/providers/Microsoft.Nothing", 404, "Microsoft.Nothing"),
    ("GET", "/subscriptions/s/resources?$filter=name%20gt%20'x'", 400, "gt"),
    ("GET", "/subscriptions/s/resources?$expand=everything", 400, "everything"),
    ("GET", "/subscriptions/s/resources?$top=0", 400, "$top"),
    ("GET", "/nothing/here", 404, "nothing"),
    ("GET", f"{WS}/computes/no-such", 404, "no-such"),
    ("GET", f"{WS}/jobs/no-such", 404, "no-such"),
    ("POST", f"{WS}/jobs/no-such/cancel", 404, "no-such"),
    ("POST", f"{WS}/computes/no-such/listNodes", 404, "no-such"),
    ("GET", f"/history/v1.0{WS}/runs/no-such/details", 404, "no-such"),
    ("PATCH", COMPUTE, 400, "empty"),
    ("POST", COMPUTE, 405, "POST"),
    ("POST", JOB, 405, "POST"),
    ("POST", WS, 405, "POST"),
    ("DELETE", f"{COMPUTE}?underlyingResourceAction=Detach", 400, "Detach"),
    ("POST", f"{WS}/computes/pool/start", 400, "raise minNodeCount"),
    ("POST", f"{WS}/computes/pool/stop", 400, "nodeIdleTimeBeforeScaleDown"),
    ("POST", f"{WS}/computes/pool/RESTART", 400, "restart"),
    ("POST", f"{WS}/computes/pool/listKeys", 400, "no keys"),
    ("POST", f"{WS}/computes/no-such/start", 404, "no-such"),
    ("GET", f"{WS}/computes/pool/start", 405, "GET"),
    ("POST", f"{LOCATION}/vmSizes", 405, "POST"),
    ("GET", f"{LOCATION}/usages", 400, "the region 'x' is not known"),
    ("GET", f"{LOCATION}/quotas", 400, "the region 'x' is not known"),
    ("GET", f"{WS}/jobs?listViewType=ArchiveOnly", 400, "did you mean 'ArchivedOnly'?"),
    ("DELETE", f"{COMPUTE}?underlyingResourceAction=Burn", 400, "Burn"),
    ("GET", f"{WS}/computes?$skipToken=%FF", 400, ""),
    ("GET", f"{WS}/jobs?$skipToken=nonsense", 400, ""),
    ("GET", f"{WS}/computes/%2e%2e", 400, ""),
    ("GET", f"{WS}/computes/a%00b", 400, ""),
    ("GET", f"{WS}/computes/a%ff", 400, ""),
    ("GET", f"{WS}/computes/{'x' * 20_000}", 400, ""),
    ("PUT", f"{WS}/computes/a", 400, "1 character"),
    ("PUT", f"{WS}/computes/1abc", 400, "1abc"),
    ("PUT", f"{WS}/computes/a_bc", 400, "a_bc"),
    ("PUT", f"{WS}/computes/{'a' * 25}", 400, "25"),
    ("PUT", f"{WS}/jobs/-rf", 400, "-rf"),
    ("PUT", f"{WS}/jobs/{'a' * 256}", 400, "256"),
    ("GET", f"{LOCATION}/computeOperationsStatus/o1", 404, "o1"),
    ("GET", f"{WS}/providers/Muster.Why/jobs/no-such", 404, "no-such"),
    ("GET", f"{WS}/providers/Muster.Why/computes/no-such", 404, "no-such"),
    ("GET", f"{WS}/providers/Muster.History/computes/no-such", 404, "no-such"),
    ("POST", f"{WS}/providers/Muster.Why/jobs/no-such", 405, "POST"),
    ("GET", f"{WS}/providers/Muster.Cost/ledger?by=colour", 400, "tag:KEY"),
    ("GET", f"{WS}/providers/Muster.Cost/ledger?since=yesterday", 400, "yesterday"),
    ("POST", f"{LOCATION}/usages", 405, "POST"),
    ("GET", f"{LOCATION}/updateQuotas", 405, "GET"),
    ("POST", f"{LOCATION}/updateQuotas", 400, "empty"),
]


def check(response, word, statuses=(400,)):
    assert response.status_code in statuses, response.text
    error = response.json()["error"]
    assert error["code"] and error["message"]
    assert word in error["message"] + (error.get("target") or ""), error
    return error


@pytest.fixture(scope="module")
def pool(session, server):
    body = scale(maxNodeCount=2)
    made = session.put(f"{server.url}{WS}/computes/pool", params=V, json=body)
    assert made.status_code == 201, made.text
    return "pool"


@pytest.mark.parametrize("body, word", BAD_CLUSTERS, ids=lambda value: repr(value)[:60])
def test_bad_clusters(session, server, body, word):
    before = revision(server)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    check(session.put(server.url + COMPUTE, params=V, data=data, headers=headers), word)
    assert revision(server) == before, "something was written"


@pytest.mark.parametrize("body, word", BAD_JOBS, ids=lambda value: repr(value)[:60])
def test_bad_jobs(session, server, pool, body, word):
    before = revision(server)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    check(session.put(server.url + JOB, params=V, data=data, headers=headers), word)
    assert revision(server) == before, "something was written"


@pytest.mark.parametrize("method, path, status, word", BAD_ADDRESSES)
def test_bad_addresses(session, server, pool, method, path, status, word):
    before = revision(server)
    body = None
    if method == "PUT" and "/computes/" in path:
        body = scale(maxNodeCount=1)
    elif method == "PUT" and "/jobs/" in path:
        body = command(computeId="pool")
    # Prepared by hand, because requests would normalise the path before it is sent.
    request = requests.Request(method, server.url, json=body, headers=session.headers)
    prepared = request.prepare()
    prepared.url = server.url + path
    check(session.send(prepared), word, (status,))
    assert revision(server) == before, "something was written"


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer x",
        "Bearer a.b.c",
        "Basic b3duZXI6a2V5",
        "Bearer eyJhbGciOiJub25lIn0.eyJhdWQiOiJ4In0.",
    ],
)
def test_no_entry_without_a_token(session, server, authorization):
    before = revision(server)
    headers = {"Authorization": authorization}
    for method, path in [("GET", WS), ("PUT", COMPUTE), ("DELETE", COMPUTE), ("PUT", JOB)]:
        response = requests.request(
            method,
            server.url + path,
            headers={k: v for k, v in headers.items() if v is not None},
            json=aml(),
            verify=session.verify,
        )
        check(response, "", (401,))
        assert "WWW-Authenticate" in response.headers
    assert revision(server) == before


def test_the_identity_endpoint_gives_nothing_away(session, server, server_env):
    endpoint, key = server_env["IDENTITY_ENDPOINT"], server_env["IDENTITY_HEADER"]

    def ask(params, headers):
        return requests.get(endpoint, params=params, headers=headers, verify=session.verify)

    good = {"api-version": "2019-08-01", "resource": server.url}
    assert ask(good, {}).status_code == 401
    assert ask(good, {"X-IDENTITY-HEADER": key + "x"}).status_code == 401
    assert ask(good, {"X-IDENTITY-HEADER": ""}).status_code == 401
    named = {"X-IDENTITY-HEADER": key}
    check(ask({"api-version": "2019-08-01"}, named), "resource")
    check(ask({**good, "resource": "https://example.org"}, named), "example.org")


def test_a_token_for_storage_does_not_open_the_rest(session, server, server_env):
    token = requests.get(
        server_env["IDENTITY_ENDPOINT"],
        params={"api-version": "2019-08-01", "resource": "https://storage.azure.com"},
        headers={"X-IDENTITY-HEADER": server_env["IDENTITY_HEADER"]},
        verify=session.verify,
    ).json()["access_token"]
    headers = {"Authorization": f"Bearer {token}"}
    check(requests.get(server.url + WS, headers=headers, verify=session.verify), "", (401,))


def test_nodes_must_prove_their_name(session, server):
    before = revision(server)
    report = {"boot_id": "b", "address": "a", "floor": 0, "attempts": []}
    body = {"sequence": 1, "report": report, "wait_ms": 0}
    for headers in (
        {},
        {"x-muster-node": "pool-1"},
        {"x-muster-node": "pool-1", "Authorization": "Bearer 00"},
        {"x-muster-node": "", "Authorization": "Bearer "},
    ):
        for method, path in (
            ("POST", "/agent/v1/sync"),
            ("POST", "/agent/v1/logs/a0000000000000001?offset=0"),
            ("GET", "/agent/v1/specs/0"),
        ):
            answer = requests.request(
                method, server.url + path, json=body, headers=headers, verify=session.verify
            )
            assert answer.status_code in (400, 401), (path, answer.text)
    assert revision(server) == before


def test_logs_need_a_signature(session, server):
    path = "/logs/j0000000000000001/a0000000000000001.0.log"
    port = json.loads((server.state_dir / "connection.json").read_text())["files_port"]
    for query in ("", "?se=99999999999&sig=00", "?se=x&sig=00", "?sig=00"):
        answer = requests.get(f"https://localhost:{port}{path}{query}", verify=session.verify)
        assert answer.status_code in (400, 403), answer.text


def test_a_refusal_leaves_the_connection_usable(session, server):
    """The body arrives after the refusal; if it were not read, the connection would end."""
    host, port = urllib.parse.urlsplit(server.url).netloc.split(":")
    context = ssl.create_default_context(cafile=session.verify)
    plain = socket.create_connection((host, int(port)), timeout=10)
    with context.wrap_socket(plain, server_hostname=host) as connection:
        for _ in range(3):
            head = f"PUT {WS} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
            connection.sendall(head.encode())
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(1)
            connection.settimeout(10)
            connection.sendall(b"{}")
            assert connection.recv(4000).startswith(b"HTTP/1.1 401 ")


def test_oversized_and_mistyped_bodies(session, server):
    before = revision(server)
    large = b'{"a":"' + b"x" * (3 << 20) + b'"}'
    headers = {"Content-Type": "application/json"}
    check(session.put(server.url + JOB, data=large, headers=headers), "", (400, 413))
    headers = {"Content-Type": "text/xml"}
    check(session.put(server.url + JOB, data=b"<a/>", headers=headers), "xml", (415,))
    assert revision(server) == before


def test_a_slow_or_broken_client_does_no_harm(session, server):
    host, port = urllib.parse.urlsplit(server.url).netloc.split(":")
    plain = socket.create_connection((host, int(port)))
    plain.sendall(b"GET / HTTP/1.1\r\n\r\n")  # No TLS.
    context = ssl.create_default_context(cafile=session.verify)
    half = context.wrap_socket(socket.create_connection((host, int(port))), server_hostname=host)
    half.sendall(b"PUT /subscriptions HTTP/1.1\r\nHost: x\r\nContent-Le")  # Nothing follows.
    many = [socket.create_connection((host, int(port))) for _ in range(50)]
    try:
        assert session.get(server.url + WS, params=V, timeout=5).status_code == 200
    finally:
        for connection in [plain, half, *many]:
            connection.close()
