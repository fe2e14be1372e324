"""Malicious requests: bytes on a socket, against a real server."""

import gzip
import json
import time

import pytest
import raw
import requests

ML = "Microsoft.MachineLearningServices"
GROUP = "/subscriptions/hostile/resourceGroups/g"
OWN = f"{GROUP}/providers/{ML}/workspaces/own"
OTHER = f"{GROUP}/providers/{ML}/workspaces/other"
SECRET = "secret-pool"
V = "api-version=2023-08-01-preview"
CLUSTER = {
    "location": "eastus",
    "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "STANDARD_DS3_V2"}},
}
EVIL = "evil.example"


@pytest.fixture(scope="module")
def ca_file(server_env):
    return server_env["REQUESTS_CA_BUNDLE"]


@pytest.fixture(scope="module")
def owner(session, server):
    for workspace, pool in ((OWN, "own-pool"), (OTHER, SECRET)):
        made = session.put(f"{server.url}{workspace}/computes/{pool}?{V}", json=CLUSTER)
        assert made.status_code == 201, made.text
    return session.headers["Authorization"]


@pytest.fixture(scope="module")
def reader(session, owner, server, server_env):
    """A token that reads one workspace and nothing else."""
    user = session.put(
        f"{server.url}/providers/Muster.Identity/users/hostile?{V}",
        json={"principalType": "ServicePrincipal"},
    ).json()
    role = f"{OWN}/providers/Microsoft.Authorization/roleAssignments/{user['objectId']}"
    body = {"properties": {"roleDefinitionId": "Reader", "principalId": user["objectId"]}}
    assert session.put(f"{server.url}{role}?{V}", json=body).status_code == 201
    token = requests.get(
        server_env["IDENTITY_ENDPOINT"],
        params={"api-version": "2019-08-01", "resource": server.url},
        headers={"X-IDENTITY-HEADER": user["key"]},
        verify=server_env["REQUESTS_CA_BUNDLE"],
    ).json()["access_token"]
    yield f"Bearer {token}"
    session.delete(f"{server.url}/providers/Muster.Identity/users/hostile?{V}")


@pytest.fixture
def ask(server, ca_file):
    """Sends bytes and returns the only response, or None if the server just closed."""

    def ask(data):
        answers = raw.send(server, ca_file, data)
        assert len(answers) <= 1, answers
        return answers[0] if answers else None

    return ask


@pytest.fixture(autouse=True)
def goes_on(session, server):
    yield
    assert session.get(f"{server.url}/healthz", timeout=10).status_code == 200


def put(path, body, owner, *lines, length=None):
    length = len(body) if length is None else length
    lines = (*lines, f"Content-Length: {length}".encode())
    given = {"Authorization": owner, "Content-Type": "application/json"}
    return raw.head("PUT", path, *lines, **given) + body


FORWARDED = (
    f"X-Forwarded-Host: {EVIL}".encode(),
    b"X-Forwarded-Proto: http",
    b"X-Forwarded-Port: 1",
    f"Forwarded: host={EVIL};proto=http".encode(),
    f"X-Original-Host: {EVIL}".encode(),
    f"X-Original-URL: /{EVIL}".encode(),
    f"X-Rewrite-URL: /{EVIL}".encode(),
)


def test_no_address_comes_from_the_request(ask, server, session, owner):
    for number in range(3):
        pool = f"{OWN}/computes/page-{'abc'[number]}?{V}"
        assert session.put(server.url + pool, json=CLUSTER).status_code == 201
    body = json.dumps(CLUSTER).encode()
    found = []
    for host in (EVIL, f"{EVIL}:443", "", f"127.0.0.1@{EVIL}"):
        given = {"Host": host, "Authorization": owner}
        asked = [
            raw.head("GET", b"/metadata/endpoints?api-version=2019-05-01", *FORWARDED, **given),
            raw.head("GET", f"{OWN}?{V}".encode(), *FORWARDED, **given),
            raw.head("GET", f"{OWN}/computes?{V}&$top=1".encode(), *FORWARDED, **given),
            raw.head("GET", f"{GROUP}/resources?{V}&$top=1".encode(), *FORWARDED, **given),
            raw.head("GET", b"/subscriptions?api-version=1", *FORWARDED, Host=host),
            put(f"{OWN}/computes/own-pool?{V}".encode(), body, owner, *FORWARDED).replace(
                b"Host: x", f"Host: {host}".encode()
            ),
        ]
        for data in asked:
            answer = ask(data)
            assert answer and answer.status in (200, 201, 400, 401), answer
            everything = answer.body.decode() + json.dumps(answer.headers)
            assert EVIL not in everything, everything
            found.append(everything)
        discovery = json.loads(ask(asked[1]).body)["properties"]["discoveryUrl"]
        assert discovery.startswith(f"{server.url}/")
    together = "".join(found)
    for kind in ("nextLink", "azure-asyncoperation", "www-authenticate", "resourceManager"):
        assert kind in together, f"none of these has {kind}"


def test_an_address_with_a_host_of_its_own(ask, server, owner):
    absolute = f"https://{EVIL}{OWN}/computes?{V}&$top=1".encode()
    answer = ask(raw.head("GET", absolute, Authorization=owner))
    assert answer.status in (200, 400)
    assert EVIL not in answer.body.decode()


# Spellings of paths into the other workspace, for a user who may read this one only.
TRICKS = [
    OTHER,
    f"{OWN}/../other",
    f"{OWN}/..//other",
    f"{OWN}/./../other",
    f"{OWN}/%2e%2e/other",
    f"{OWN}/%2E./other",
    f"{OWN}/.%2e/other",
    f"{OWN}/..%2fother",
    f"{OWN}%2f..%2fother",
    f"{OWN}%2f%2e%2e%2fother",
    f"{OWN}/..%5cother",
    f"{OWN}/..;/other",
    f"{OWN};/../other",
    f"{OWN}%00/../other",
    f"{OWN}/%252e%252e/other",
    OTHER.upper(),
    OTHER.lower(),
    OTHER.replace("/", "//"),
    f"/{OTHER}",
    OTHER.replace("other", "OTHER"),
    OTHER.replace("other", "other."),
    OTHER.replace("other", "other%20"),
    OTHER.replace("other", "other%09"),
    OTHER.replace("other", "other%00"),
    OTHER.replace("other", "oth%65r"),
    OTHER.replace("other", "azureml:other"),
    OTHER.replace("other", "%EF%BD%8Fther"),
    OTHER.replace("workspaces", "work\u017fpaces"),
    OTHER.replace("/g/", "/%67/"),
    OTHER.replace("hostile", "HOSTILE"),
    f"{GROUP}/providers/{ML}/workspaces/own/providers/{ML}/workspaces/other",
    f"{OWN}#/../../other",
    f"{OWN}?/../other",
    f"{OWN}/computes/own-pool/../../../other",
]


@pytest.mark.parametrize("trick", TRICKS)
def test_no_spelling_leads_into_another_workspace(ask, reader, trick):
    for end in ("", "/computes", f"/computes/{SECRET}"):
        for method in ("GET", "DELETE", "POST"):
            path = f"{trick}{end}?{V}".encode()
            answer = ask(raw.head(method, path, Authorization=reader))
            if answer is None:
                continue
            assert SECRET not in answer.body.decode("utf-8", "replace").split('"message"')[0]
            if answer.status == 200:
                # It was another spelling of a path that they may read.
                assert method == "GET" and "other" not in json.loads(answer.body).get("id", "")
            else:
                assert 400 <= answer.status < 500, answer


def test_the_reader_reads_what_is_theirs(ask, reader):
    answer = ask(raw.head("GET", f"{OWN}/computes?{V}".encode(), Authorization=reader))
    assert answer.status == 200 and b"own-pool" in answer.body


@pytest.mark.parametrize(
    "path",
    [
        b"/" + b"a" * 9_000,
        b"/" + b"a/" * 4_000,
        b"/\xff\xfe",
        b"/%ff%fe",
        b"/%",
        b"/%zz",
        b"/a b",
        b"//",
        b"*",
        b"a",
        b"",
        b"/?" + b"a=b&" * 5_000,
        b"/\x00",
        b"/\x7f",
    ],
    ids=lambda path: repr(path[:12]),
)
def test_paths_that_are_none(ask, owner, path):
    answer = ask(raw.head("GET", path, Authorization=owner))
    assert answer is None or 400 <= answer.status < 500


@pytest.mark.parametrize(
    "lines, statuses",
    [
        # Headers that must occur only once.
        ((b"Authorization: Bearer x",), (401,)),
        ((b"Host: other",), (200, 400)),
        ((b"Content-Length: 0", b"Content-Length: 1"), (400,)),
        ((b"Content-Length: 1, 2",), (400,)),
        ((b"Content-Length: -1",), (400,)),
        ((b"Content-Length: +1",), (400,)),
        ((b"Content-Length: 0x1",), (400,)),
        ((b"Content-Length: 18446744073709551616",), (400,)),
        ((b"Transfer-Encoding: gzip",), (400,)),
        ((b"Transfer-Encoding: chunked, identity",), (400,)),
        ((b"Transfer-Encoding: xchunked",), (400,)),
        # Obsolete line folding, a space before the colon, bytes that are invalid in headers.
        ((b"X-A: b\r\n c",), (400,)),
        ((b"Content-Length : 1",), (400,)),
        ((b"X-A: b\x00c",), (400,)),
        ((b"X-A: b\rX-B: c",), (400,)),
        ((b"X\x01A: b",), (400,)),
        # Too long or too many.
        ((b"X-A: " + b"a" * 100_000,), (431,)),
        (tuple(f"X-{n}: a".encode() for n in range(150)), (431,)),
    ],
    ids=lambda value: repr(value[0])[:40],
)
def test_headers(ask, owner, lines, statuses):
    answer = ask(raw.head("GET", f"{OWN}?{V}".encode(), *lines, Authorization=owner))
    assert answer is not None and answer.status in statuses, answer


def test_nothing_is_smuggled(server, ca_file, owner):
    """If two lengths are given, both ends must agree on one, or the rest becomes a request."""
    inner = raw.head("DELETE", f"{OTHER}/computes/{SECRET}?{V}".encode(), Authorization=owner)
    chunked = b"0\r\n\r\n" + inner
    for lines in (
        (b"Transfer-Encoding: chunked", f"Content-Length: {len(chunked)}".encode()),
        (f"Content-Length: {len(chunked)}".encode(), b"Transfer-Encoding: chunked"),
        (b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", b"Content-Length: 5"),
        (b"Transfer-Encoding:\x0bchunked", f"Content-Length: {len(chunked)}".encode()),
    ):
        data = raw.head("GET", f"{OWN}?{V}".encode(), *lines, Authorization=owner)
        answers = raw.send(server, ca_file, data.replace(b"Connection: close\r\n", b"") + chunked)
        assert len(answers) == 1, (lines, answers)


@pytest.mark.parametrize(
    "chunks",
    [b"fffffffffffffffff\r\n", b"-1\r\n", b"zz\r\n", b"1;" + b"a" * 100_000 + b"\r\n"],
    ids=lambda value: repr(value[:20]),
)
def test_chunks_that_are_none(server, ca_file, owner, chunks):
    lines = (b"Transfer-Encoding: chunked",)
    data = raw.head("PUT", f"{OWN}/computes/bad?{V}".encode(), *lines, Authorization=owner)
    answers = raw.send(server, ca_file, data + chunks)
    assert all(400 <= answer.status < 500 for answer in answers)


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(server, ca_file, ask, owner):
    for length in (1 << 40, 1 << 62, 3 << 30):
        started = time.monotonic()
        answer = ask(put(f"{OWN}/jobs/large?{V}".encode(), b"{", owner, length=length))
        assert answer.status == 413 and "bytes" in answer.error["message"]
        assert time.monotonic() - started < 5
    # A client that has sent everything gets the response, too.
    body = b'{"a":"' + b"x" * (4 << 20) + b'"}'
    answer = ask(put(f"{OWN}/jobs/large?{V}".encode(), body, owner))
    assert answer.status == 413
    # A client that asks first (100-continue) sends no body.
    expects = b"Expect: 100-continue"
    data = put(f"{OWN}/jobs/large?{V}".encode(), b"", owner, expects, length=1 << 33)
    assert ask(data).status == 413


def nested(depth):
    return b'{"properties":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize(
    "body",
    [
        nested(100),
        nested(30_000),
        b"[" * 500_000,
        b'{"properties":' + b"9" * 100_000 + b"}",
        b'{"properties":{"computeType":"AmlCompute","properties":{"scaleSettings":'
        b'{"maxNodeCount":1e999999999}}}}',
        b'{"properties":{"computeType":"AmlCompute","properties":{"scaleSettings":'
        b'{"maxNodeCount":99999999999999999999999999}}}}',
        b'\xef\xbb\xbf{"properties":{}}',
        b'{"properties":"\xff"}',
        b'{"properties":"\\ud800"}',
        b'{"properties":NaN}',
        b"\x00",
        '{"properties":{}}'.encode("utf-16"),
        '{"properties":{}}'.encode("utf-32"),
        b'{"properties":{"computeType":"AmlCompute","computeType":"Other","properties":{}}}',
    ],
    ids=lambda body: repr(body[:24]),
)
def test_json_that_is_none(ask, owner, body):
    answer = ask(put(f"{OWN}/computes/json?{V}".encode(), body, owner))
    assert answer.status == 400, answer
    assert answer.error["code"] and answer.error["message"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity, gzip", "x"])
def test_packed_bodies_are_not_unpacked(ask, owner, encoding):
    bomb = gzip.compress(b" " * (50 << 20))
    line = f"Content-Encoding: {encoding}".encode()
    answer = ask(put(f"{OWN}/computes/packed?{V}".encode(), bomb, owner, line))
    assert answer.status == 415 and encoding in answer.error["message"]


def test_http_2_is_not_spoken(server, ca_file, ask):
    assert ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 64) is None
    upgrade = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk")
    answer = ask(raw.head("GET", b"/healthz", *upgrade))
    assert answer.status == 200 and "upgrade" not in answer.headers
