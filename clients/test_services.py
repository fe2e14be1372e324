"""Services of jobs through azure-ai-ml, on real nodes: what people can open, and who may."""

import base64
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import socket
import ssl
import struct
import time
import urllib.parse
import uuid

import pytest
import requests
from conftest import (
    REPOSITORY,
    RESOURCE_GROUP,
    SUBSCRIPTION,
    WORKSPACE,
    WORKSPACE_FLAGS,
    wait_for,
)
from test_access import ROLES, USERS, Caller

CLUSTER = "services-cpu"
PROGRAM = pathlib.Path(__file__).with_name("services_job.py")
WS = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}"
    f"/providers/Microsoft.MachineLearningServices/workspaces/{WORKSPACE}"
)
V = {"api-version": "2024-04-01"}


@pytest.fixture(scope="module")
def cluster(ml_client):
    from azure.ai.ml.entities import AmlCompute

    wanted = AmlCompute(name=CLUSTER, min_instances=0, max_instances=3)
    wanted.idle_time_before_scale_down = 60
    yield ml_client.compute.begin_create_or_update(wanted).result().name
    ml_client.compute.begin_delete(CLUSTER).result()


@pytest.fixture(scope="module")
def environment(ml_client):
    from azure.ai.ml.entities import Environment

    image = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04"
    return ml_client.environments.create_or_update(Environment(name="services", image=image))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def submit(ml_client, command_line, services, **options):
    from azure.ai.ml import command

    job = command(
        code=str(PROGRAM),
        command=command_line,
        compute=CLUSTER,
        services=services,
        **{"environment": "azureml:services@latest", **options},
    )
    return ml_client.jobs.create_or_update(job).name


def shown(ml_client, name, service, node_index=0):
    found = ml_client.jobs.show_services(name, node_index) or {}
    return found.get(service)


def until_running(ml_client, name, service, node_index=0, limit_s=30):
    def look():
        found = shown(ml_client, name, service, node_index)
        return found if found and found.status == "Running" else None

    return wait_for(f"{service} of {name}", limit_s, look)


@pytest.fixture(scope="module")
def job(ml_client, cluster, environment):
    """A job that serves on both of its nodes, and has a notebook that is not installed."""
    from azure.ai.ml.entities import JobService, JupyterLabJobService

    web, noise = free_port(), free_port()
    name = submit(
        ml_client,
        f"python3 {PROGRAM.name} {web} {noise}",
        {
            "web": JobService(type="custom", port=web, nodes="all"),
            "noise": JobService(port=noise),
            "jl": JupyterLabJobService(),
        },
        instance_count=2,
    )
    until_running(ml_client, name, "web")
    until_running(ml_client, name, "noise")
    yield name
    if ml_client.jobs.get(name).status == "Running":
        ml_client.jobs.begin_cancel(name).result()


@pytest.fixture(scope="module")
def base(job, ml_client):
    """The URL of the web service, without its access token."""
    return shown(ml_client, job, "web").endpoint.partition("?")[0]


@pytest.fixture
def stranger(server, server_env, session):
    """Creates users with a role in this workspace, or with none."""
    names = []

    def make(role=None):
        name = f"user-{uuid.uuid4().hex[:12]}"
        made = session.put(
            f"{server.url}{USERS}/{name}", params=V, json={"principalType": "ServicePrincipal"}
        )
        names.append(name)
        user = made.json()
        if role:
            body = {"properties": {"roleDefinitionId": role, "principalId": user["objectId"]}}
            given = session.put(f"{server.url}{WS}/{ROLES}/{uuid.uuid4()}", params=V, json=body)
            assert given.status_code == 201, given.text
        caller = Caller(server, server_env, user["key"])
        caller.name = name
        return caller.log_in()

    yield make
    for name in names:
        session.delete(f"{server.url}{USERS}/{name}", params=V)


def browser(server_env):
    session = requests.Session()
    session.trust_env = False
    session.verify = server_env["REQUESTS_CA_BUNDLE"]
    return session


def test_a_job_shows_its_services(ml_client, job, muster, session, server):
    web, notebook = shown(ml_client, job, "web"), shown(ml_client, job, "jl")
    assert (web.type, web.status, web.error) == ("Custom", "Running", None)
    assert re.match(r"https://localhost:\d+/services/[^/]+/0/web/\?user=.*&sig=", web.endpoint)
    assert notebook.status == "Failed"
    assert "jupyter-lab is not installed" in notebook.error and "jupyterlab" in notebook.error
    seen = ml_client.jobs.get(job).services
    assert seen["web"].status == "Running" and seen["web"].port == web.port
    # Users who may list jobs see no URL that opens a service.
    assert seen["web"].endpoint == web.endpoint.partition("?")[0]
    raw = session.get(f"{server.url}{WS}/jobs/{job}", params=V).json()["properties"]["services"]
    assert raw["web"]["nodes"] == {"nodesValueType": "All"}
    assert raw["jl"]["errorMessage"] == notebook.error
    printed = muster(
        "job", "show-services", "--name", job, "-g", RESOURCE_GROUP, "-w", WORKSPACE,
        "--subscription", SUBSCRIPTION, "-o", "json",
    )  # fmt: skip
    assert json.loads(printed.stdout)["web"]["status"] == "Running"
    nodes = ml_client.jobs.get(job).resources.instance_count
    beyond = session.get(f"{server.url}/history/v1.0{WS}/runs/{job}/serviceinstances/{nodes}")
    assert beyond.status_code == 404 and "its nodes are 0 to" in beyond.text


def test_a_link_opens_in_a_browser(ml_client, job, server_env, base):
    link = shown(ml_client, job, "web").endpoint
    with browser(server_env) as page:
        opened = page.get(link, allow_redirects=False)
        assert opened.status_code == 303, opened.text
        cookie = opened.headers["Set-Cookie"]
        path = urllib.parse.urlsplit(base).path
        assert "HttpOnly" in cookie and "Secure" in cookie and f"Path={path};" in cookie
        answered = page.get(base)
        assert (answered.status_code, answered.text) == (200, "<h1>hello</h1>")
        policy = answered.headers["Content-Security-Policy"]
        assert f"connect-src {base} wss:" in policy and "allow-popups" not in policy
        # The job itself sees no token of its visitors.
        page.cookies.set("own", "1")
        seen = page.get(f"{base}headers?x=%2F", headers={"X-Forwarded-For": "1.2.3.4"}).json()
        assert seen["path"] == "/headers?x=%2F"
        assert seen["x-forwarded-prefix"] == path.rstrip("/")
        assert seen["cookie"] == "own=1" and "x-forwarded-for" not in seen
        # Pages of other servers cannot use it.
        for other in ("https://evil.example", "null"):
            refused = page.post(f"{base}quit", headers={"Origin": other})
            assert refused.status_code == 403 and "another server" in refused.text
        refused = page.get(base, headers={"Service-Worker": "script"})
        assert refused.status_code == 403


def test_what_a_job_says_stays_its_own(session, base):
    said = session.get(f"{base}cookie")
    path = urllib.parse.urlsplit(base).path
    assert said.headers["Set-Cookie"] == f"own=1; Path={path}; Secure; SameSite=Lax"
    assert not {"Clear-Site-Data", "Access-Control-Allow-Origin"} & set(said.headers)
    for to, led in (("/x", f"{path}x"), ("../../x", None), ("//evil.example/", None)):
        answer = session.get(f"{base}redirect", params={"to": to}, allow_redirects=False)
        assert answer.status_code == 302 and answer.headers.get("Location") == led


def test_only_who_may_run_jobs_gets_in(session, server, server_env, base, stranger, job):
    with browser(server_env) as visitor:
        refused = visitor.get(base)
        assert refused.status_code == 401 and "show-services" in refused.text
        assert visitor.get(base, headers={"Authorization": "Bearer no"}).status_code == 401
        assert visitor.get(f"{base}?user=x&until=9999999999&sig=00").status_code == 401
        link = session.get(f"{server.url}/history/v1.0{WS}/runs/{job}/serviceinstances/0").json()
        link = link["instances"]["web"]["endpoint"]
        # It is valid for this service and this user, for a limited time.
        assert visitor.get(link.replace("/web/", "/noise/")).status_code == 401
        assert visitor.get(re.sub(r"until=\d+", "until=1", link)).status_code == 401
        assert visitor.get(link.replace("user=", "user=a")).status_code == 401
    for role, status in ((None, 403), ("Reader", 403), ("AzureML Data Scientist", 200)):
        caller = stranger(role)
        with browser(server_env) as page:
            headers = {"Authorization": caller.session.headers["Authorization"]}
            answer = page.get(f"{base}headers", headers=headers)
            assert answer.status_code == status, (role, answer.text)
            assert status != 200 or "authorization" not in answer.json()
    # A reader sees that there is a service, but gets no link that opens it.
    reader = stranger("Reader")
    told = reader("GET", f"/history/v1.0{WS}/runs/{job}/serviceinstances/0").json()
    assert told["instances"]["web"]["endpoint"] == base


def test_a_link_dies_with_the_key_that_it_was_made_with(
    session, server, server_env, base, stranger, job
):
    caller = stranger("AzureML Data Scientist")
    told = caller("GET", f"/history/v1.0{WS}/runs/{job}/serviceinstances/0").json()
    link = told["instances"]["web"]["endpoint"]
    with browser(server_env) as page:
        assert page.get(link).status_code == 200
        assert page.get(base).status_code == 200
        rotated = session.post(f"{server.url}{USERS}/{caller.name}/rotateKey", params=V)
        assert rotated.status_code == 200, rotated.text
        assert page.get(base).status_code == 401
        assert page.get(link).status_code == 401


def test_large_and_chunked_bodies_go_both_ways(session, base):
    answer = session.get(f"{base}chunked", params={"pieces": 300, "size": 100_000}, stream=True)
    digest, total = hashlib.sha256(), 0
    for piece in answer.iter_content(1 << 16):
        digest.update(piece)
        total += len(piece)
    wanted = hashlib.sha256(b"".join(bytes([n % 256]) * 100_000 for n in range(300)))
    assert (total, digest.hexdigest()) == (30_000_000, wanted.hexdigest())
    body = os.urandom(1 << 20) * 24
    wanted = {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    assert session.post(f"{base}echo", data=body).json() == wanted
    pieces = (body[at : at + 70_000] for at in range(0, len(body), 70_000))
    assert session.post(f"{base}echo", data=pieces).json() == wanted


def dial(address, server_env, headers):
    """A connection to the listener with a request on it, and its response."""
    parts = urllib.parse.urlsplit(address)
    context = ssl.create_default_context(cafile=server_env["REQUESTS_CA_BUNDLE"])
    raw = socket.create_connection((parts.hostname, parts.port), timeout=20)
    stream = context.wrap_socket(raw, server_hostname=parts.hostname)
    lines = [f"GET {parts.path} HTTP/1.1", f"Host: {parts.netloc}", *headers, "", ""]
    stream.sendall("\r\n".join(lines).encode())
    head = b""
    while b"\r\n\r\n" not in head:
        piece = stream.recv(1)
        if not piece:
            break
        head += piece
    return stream, head.decode(errors="replace")


def upgrade(key="dGhlIHNhbXBsZSBub25jZQ=="):
    return [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
    ]


def frame(data, opcode=2):
    mask = os.urandom(4)
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
    if len(data) < 126:
        size = struct.pack(">B", 128 | len(data))
    else:
        size = struct.pack(">BH", 254, len(data))
    return bytes([0x80 | opcode]) + size + mask + masked


def read_exactly(stream, count):
    data = b""
    while len(data) < count:
        piece = stream.recv(count - len(data))
        assert piece, "closed"
        data += piece
    return data


def read_frame(stream):
    length = read_exactly(stream, 2)[1] & 127
    if length == 126:
        (length,) = struct.unpack(">H", read_exactly(stream, 2))
    elif length == 127:
        (length,) = struct.unpack(">Q", read_exactly(stream, 8))
    return read_exactly(stream, length)


def test_a_websocket_goes_through(session, base, server_env):
    key = base64.b64encode(os.urandom(16)).decode()
    wanted = upgrade(key)
    stream, head = dial(f"{base}ws", server_env, wanted)
    assert " 401 " in head
    stream.close()
    token = f"Authorization: {session.headers['Authorization']}"
    stream, head = dial(f"{base}ws", server_env, [*wanted, token])
    with stream:
        assert head.startswith("HTTP/1.1 101"), head
        accept = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        assert base64.b64encode(accept).decode() in head
        for data in (b"hello", os.urandom(60_000), b"again"):
            stream.sendall(frame(data))
            assert read_frame(stream) == data


def test_bad_responses_and_bad_requests_do_no_harm(session, base, server_env):
    noise = session.get(base.replace("/web/", "/noise/"))
    assert noise.status_code == 502 and "did not send a valid HTTP response" in noise.text
    huge = session.get(f"{base}huge")
    assert huge.status_code == 502, huge.text
    failed = session.get(base.replace("/web/", "/jl/"))
    assert failed.status_code == 502 and "not installed" in failed.text
    assert session.get(base.replace("/web/", "/none/")).status_code == 404
    assert session.get(base.replace("/0/web/", "/7/web/")).status_code == 503
    token = f"Authorization: {session.headers['Authorization']}"
    stream, head = dial(base, server_env, [token, f"X-Huge: {'x' * 100_000}"])
    stream.close()
    assert " 431 " in head
    assert session.get(base).status_code == 200


def test_too_many_at_once_are_refused(session, base):
    """200 at a time, of which 64 are served; the others are refused at once."""

    def hold(_):
        answer = session.get(f"{base}hold", params={"seconds": 2}, timeout=30)
        return answer.status_code, answer.headers.get("Retry-After")

    adapter = requests.adapters.HTTPAdapter(pool_connections=1, pool_maxsize=200)
    session.mount(base, adapter)
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(hold, range(200)))
    statuses = [status for status, _ in answers]
    assert statuses.count(200) >= 64 and set(statuses) == {200, 503}
    assert all(retry for status, retry in answers if status == 503)
    assert time.monotonic() - began < 30
    assert session.get(base).status_code == 200


def test_each_node_has_its_own(ml_client, job, session):
    second = until_running(ml_client, job, "web", node_index=1)
    assert "/1/web/" in second.endpoint
    for rank in (0, 1):
        address = shown(ml_client, job, "web", rank).endpoint.partition("?")[0]
        assert session.get(f"{address}headers").json()["rank"] == str(rank)
    assert shown(ml_client, job, "noise", 1) is None, "that service is on the first node only"


def test_what_cannot_be_served_is_refused_at_submit(ml_client, cluster, environment):
    from azure.ai.ml.entities import JobService
    from azure.core.exceptions import HttpResponseError

    for services, words in (
        ({"s": JobService(type="custom")}, "has no port"),
        ({"s": JobService(type="custom", port=22)}, "give 1024 to 65535"),
        ({"a b": JobService(type="custom", port=2222)}, "cannot be the name of a service"),
        ({"a": JobService(port=2222), "b": JobService(port=2222)}, "both have port 2222"),
    ):
        with pytest.raises(HttpResponseError, match=re.escape(words)) as refused:
            submit(ml_client, "true", services)
        assert refused.value.status_code == 400


def test_an_interactive_job_runs_as_azure_has_it(ml_client, cluster, environment, muster):
    """A service that fails does not stop the job: the service and the job's log say why."""
    from azure.ai.ml import load_job
    from azure.ai.ml.entities import JobService

    job = load_job(REPOSITORY / "examples/jobs/interactive.yml")
    job.compute, job.environment = CLUSTER, "azureml:services@latest"
    dashboard = free_port()
    job.services["ray"] = JobService(type="RayDashboard", port=dashboard)
    job.command = f"python3 -m http.server --bind 127.0.0.1 {dashboard}"
    missing = {
        "my_vs_code": "code-server is not installed",
        "my_jupyter_lab": "jupyter-lab is not installed",
        "my_tensor_board": "tensorboard is not installed",
        "my_ssh": "jobs here do not support ssh; use a service of type JupyterLab",
    }
    name = ml_client.jobs.create_or_update(job).name
    try:
        until_running(ml_client, name, "ray")
        for service, words in missing.items():
            found = shown(ml_client, name, service)
            assert found.status == "Failed" and words in found.error, found.error
        assert ml_client.jobs.get(name).status == "Running"
    finally:
        ml_client.jobs.begin_cancel(name).result()
    log = muster("job", "stream", "--name", name, *WORKSPACE_FLAGS, check=False).stdout
    for service, words in missing.items():
        assert f"service '{service}' is not available: {words}" in log


def execute(stream, code):
    """Runs code in a notebook's kernel, and returns its messages until it has printed."""
    header = {"msg_id": uuid.uuid4().hex, "session": uuid.uuid4().hex, "username": "u"}
    message = {
        "header": {**header, "msg_type": "execute_request", "version": "5.3"},
        "parent_header": {},
        "metadata": {},
        "channel": "shell",
        "content": {"code": code, "silent": False, "user_expressions": {}, "allow_stdin": False},
    }
    stream.sendall(frame(json.dumps(message).encode(), opcode=1))
    while True:
        said = json.loads(read_frame(stream))
        if said["msg_type"] in ("stream", "error"):
            return said["content"]


# A curve for TensorBoard, written without a training library.
CURVE = """
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

writer = EventFileWriter("outputs/runs/first")
for step in range(20):
    value = Summary.Value(tag="loss", simple_value=1 / (1 + step))
    writer.add_event(Event(step=step, wall_time=step, summary=Summary(value=[value])))
writer.close()
"""


def submit_tools(ml_client, folder):
    """A job that has JupyterLab, and TensorBoard with a curve."""
    from azure.ai.ml.entities import Environment, JupyterLabJobService, TensorBoardJobService

    conda = folder / "conda.yml"
    packages = ("jupyterlab==4.4.9", "tensorboard==2.20.0", "setuptools<81")
    pip = "".join(f"  - {package}\n" for package in packages)
    conda.write_text(f"dependencies:\n- python=3.11\n- pip\n- pip:\n{pip}")
    image = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04"
    return submit(
        ml_client,
        f"python3 -c '{CURVE}' && sleep 1000",
        {"jl": JupyterLabJobService(), "tb": TensorBoardJobService(log_dir="outputs/runs")},
        environment=Environment(name="tools", image=image, conda_file=str(conda)),
    )


# Takes 16 s: JupyterLab and TensorBoard start.
def test_notebooks_and_boards_that_are_installed_open(
    ml_client, cluster, session, server_env, tmp_path
):
    """JupyterLab and TensorBoard, from the environment of the job, each under its own path."""
    name = submit_tools(ml_client, tmp_path)
    try:
        board = until_running(ml_client, name, "tb", limit_s=180).endpoint.partition("?")[0]
        page = session.get(board)
        assert page.status_code == 200 and "<title>TensorBoard</title>" in page.text
        told = session.get(f"{board}data/environment").json()
        assert told["data_location"].endswith("outputs/runs")
        link = until_running(ml_client, name, "jl", limit_s=60).endpoint
        base = link.partition("?")[0]
        origin = base.partition("/services/")[0]
        with browser(server_env) as page:
            lab = page.get(link)
            assert lab.status_code == 200 and "jupyter-config-data" in lab.text
            assert lab.url.startswith(base)
            kernel = page.post(f"{base}api/kernels", json={}, headers={"Origin": origin})
            assert kernel.status_code == 201, kernel.text
            cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in page.cookies)
        wanted = [*upgrade(), f"Cookie: {cookies}", f"Origin: {origin}"]
        address = f"{base}api/kernels/{kernel.json()['id']}/channels"
        stream, head = dial(address, server_env, wanted)
        with stream:
            assert head.startswith("HTTP/1.1 101"), head
            said = execute(stream, "import os; print(6 * 7, os.environ['AZUREML_RUN_ID'])")
            assert said["text"] == f"42 {name}\n"
    finally:
        ml_client.jobs.begin_cancel(name).result()


def test_a_cancelled_job_whose_services_are_over_says_so(ml_client, cluster, environment, session):
    from azure.ai.ml.entities import JobService

    port = free_port()
    # It ends its service when it is asked to end, and continues for a while.
    line = (
        f"python3 -m http.server --bind 127.0.0.1 {port} & server=$!; "
        "trap 'kill $server; sleep 4; exit 1' TERM; wait"
    )
    name = submit(ml_client, line, {"web": JobService(port=port)})
    base = until_running(ml_client, name, "web").endpoint.partition("?")[0]
    wait_for("its page", 10, lambda: session.get(base).status_code == 200)
    ml_client.jobs.begin_cancel(name)

    def other():
        answer = session.get(base)
        return (answer.status_code, answer.text) if answer.status_code != 200 else None

    status, text = wait_for("another answer", 20, other)
    assert status == 410 and "was cancelled and is ending" in text, text
    wait_for("its end", 30, lambda: ml_client.jobs.get(name).status == "Canceled")
    assert "no longer running" in session.get(base).text


def test_after_the_end_there_is_nothing(ml_client, job, session, base, server_env):
    link = shown(ml_client, job, "web").endpoint
    for rank in range(ml_client.jobs.get(job).resources.instance_count):
        assert session.post(f"{base.replace('/0/web/', f'/{rank}/web/')}quit").text == "bye"
    wait_for("its end", 30, lambda: ml_client.jobs.get(job).status == "Completed")
    gone = session.get(base)
    assert gone.status_code == 410 and "no longer running" in gone.text
    with browser(server_env) as page:
        assert page.get(link).status_code == 410
    over = shown(ml_client, job, "web")
    assert (over.status, over.endpoint) == ("Stopped", None)
