"""The server from outside: its log, its metrics, its second origin, and how it stops."""

import contextlib
import json
import re
import signal
import socket
import time
import urllib.parse

import pytest
import requests
from conftest import (
    RESOURCE_GROUP,
    STOP_LIMIT_S,
    SUBSCRIPTION,
    WORKSPACE,
    WORKSPACE_FLAGS,
    wait_for,
)
from own_server import WS, V, own  # noqa: F401
from prometheus_client.parser import text_string_to_metric_families


@pytest.fixture(scope="module")
def finished_job(muster):
    """A job that printed something and has ended."""
    muster("compute", "create", "-n", "outside", "--max-instances", "1", *WORKSPACE_FLAGS)
    command = "echo from the inside; sleep 1"
    name = "outside-job"
    flags = ("-n", name, "--compute", "outside", "--command", command, "--stream")
    muster("job", "create", *flags, *WORKSPACE_FLAGS)
    yield name
    muster("compute", "delete", "-n", "outside", "--yes", *WORKSPACE_FLAGS)


def log_address(session, server, job):
    details = session.get(f"{server.url}/history/v1.0{WS}/runs/{job}/details", params=V).json()
    return details["logFiles"]["user_logs/std_log.txt"]


def test_the_sdk_streams_a_log(ml_client, muster, finished_job, capsys):
    # For a job that has ended, it shows the summary only.
    command = "sleep 1; echo from the inside; sleep 4"
    flags = ("-n", "outside-stream", "--compute", "outside", "--command", command)
    muster("job", "create", *flags, *WORKSPACE_FLAGS)
    ml_client.jobs.stream("outside-stream")
    assert "from the inside" in capsys.readouterr().out


def test_files_have_an_origin_of_their_own(session, server, finished_job):
    address = log_address(session, server, finished_job)
    there = urllib.parse.urlsplit(address)
    files = f"https://{there.netloc}"
    assert files != server.url
    log = requests.get(address, verify=session.verify)
    assert (log.status_code, log.text) == (200, "from the inside\n")
    nothing = [requests.get(files + path, verify=session.verify) for path in ("/", WS, "/metrics")]
    nothing.append(session.get(files + WS, params=V))  # Not even with a valid token.
    for answer in (log, *nothing):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"].startswith("sandbox")
        assert "Set-Cookie" not in answer.headers
    for answer in nothing:
        # There it would be the name of a container to which the caller has no access.
        assert answer.status_code in (401, 404)
        assert f"<Code>{answer.headers['x-ms-error-code']}</Code>" in answer.text
    # And no file on the API's port.
    here = session.get(f"{server.url}{there.path}?{there.query}")
    assert here.status_code == 404, here.text
    # The URL is valid for this file alone.
    forged = address.replace("sig=", "sig=0")
    assert requests.get(forged, verify=session.verify).status_code == 403


def test_every_answer_has_its_ids(session, server):
    guid = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
    seen = set()
    for url in (WS, "/no/such/thing", "/healthz", "/metadata/endpoints"):
        headers = {"x-ms-client-request-id": "mine-1", "x-ms-return-client-request-id": "true"}
        answer = session.get(server.url + url, params=V, headers=headers)
        assert guid.fullmatch(answer.headers["x-ms-request-id"])
        assert answer.headers["x-ms-correlation-request-id"] == answer.headers["x-ms-request-id"]
        assert answer.headers["x-ms-client-request-id"] == "mine-1"
        seen.add(answer.headers["x-ms-request-id"])
    assert len(seen) == 4
    unasked = {"x-ms-client-request-id": "mine", "x-ms-correlation-request-id": "story-7"}
    answer = session.get(server.url + WS, params=V, headers=unasked)
    assert "x-ms-client-request-id" not in answer.headers
    assert answer.headers["x-ms-correlation-request-id"] == "story-7"
    odd = {"x-ms-correlation-request-id": 'x" y=1 ' + "z" * 200}
    answer = session.get(server.url + WS, params=V, headers=odd)
    assert guid.fullmatch(answer.headers["x-ms-correlation-request-id"])


def samples(text):
    """{(name, labels): value}; the parser refuses text that is not in Prometheus' format."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.type != "unknown", family.name
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} is given twice"
            found[key] = sample.value
    return found


def total(found, name, **labels):
    wanted = set(labels.items())
    return sum(value for (key, has), value in found.items() if key == name and wanted <= has)


def test_metrics_tell_what_happened(session, server, finished_job):
    def look():
        return samples(session.get(server.url + "/metrics").text)

    there = wait_for("the ledger", 20, lambda: total(look(), "muster_cost_total") and look())
    cpu = {"cluster": "outside", "workspace": WORKSPACE}
    states = {dict(has)["state"] for key, has in there if key == "muster_cluster_nodes"}
    assert states == {"starting", "idle", "busy", "leaving"}
    assert total(there, "muster_jobs_ended_total", status="Completed", **cpu) >= 1
    assert total(there, "muster_job_queue_seconds_count", **cpu) >= 1
    assert total(there, "muster_job_run_seconds_count", **cpu) >= 1
    assert total(there, "muster_node_start_seconds_count", **cpu) >= 1
    assert total(there, "muster_hosts", state="open") == 1
    assert total(there, "muster_hosts") == 1
    assert total(there, "muster_environment_builds_running") == 0
    outcomes = {dict(has)["outcome"] for key, has in there if "environment_builds_total" in key}
    assert outcomes == {"built", "failed"}
    assert total(there, "muster_scale_decisions_total", direction="up", reason="jobs") >= 1
    assert total(there, "muster_cost_total", category="run", currency="USD", **cpu) > 0
    assert total(there, "muster_unused_node_starts_total", **cpu) == 0
    assert total(there, "muster_build_info") == 1
    assert total(there, "process_resident_memory_bytes") > 1e6
    route = f"{WS.replace(SUBSCRIPTION, '{}').replace(RESOURCE_GROUP, '{}')}/computes/{{}}"
    route = route.replace(f"/{WORKSPACE}/", "/{}/")
    assert total(there, "muster_http_request_seconds_count", route=route, method="PUT") >= 1
    text = session.get(server.url + "/metrics").text
    assert finished_job not in text and "sig=" not in text


BUSY = (
    "import time; held = bytearray(160 << 20); open('f', 'wb').write(bytes(16 << 20))\n"
    "while True: pass"
)


def test_metrics_tell_what_nodes_and_jobs_use(own):  # noqa: F811
    # With a short lease, nodes report their figures more often.
    server = own("--lease-seconds", "12")
    limits = json.loads(server.muster("host", "show", "local", "--query", "not_enforced || `[]`"))
    server.muster("compute", "create", "-n", "cpu", "--max-instances", "1", *WORKSPACE_FLAGS)
    flags = ("-n", "burner", "--compute", "cpu", "--command", f'python3 -c "{BUSY}"')
    server.muster("job", "create", *flags, *WORKSPACE_FLAGS)
    session = server.session()

    def look():
        return samples(session.get(server.url + "/metrics").text)

    def used():
        found = look()
        labels = {"cluster": "cpu", "workspace": WORKSPACE}
        [node] = {dict(has)["node"] for name, has in found if name == "muster_node_disk_bytes"} or [
            ""
        ]
        of = {**labels, "node": node}
        disk = total(found, "muster_job_disk_bytes", job_name="burner", **of)
        cpu = total(found, "muster_job_cpu_seconds_total", job_name="burner", **of)
        memory = total(found, "muster_job_memory_bytes", job_name="burner", **of)
        if limits:  # Without control groups, cores and memory are not measured.
            return disk > 16e6 and (found, of)
        return disk > 16e6 and cpu > 0.5 and memory > 160e6 and (found, of)

    found, of = wait_for("the resource use of the job", 30, used)
    assert total(found, "muster_job_memory_bytes") < 1e9
    assert (
        16e6
        < total(found, "muster_node_disk_bytes", **of)
        < total(found, "muster_node_disk_size_bytes", **of)
    )
    if not limits:
        job, node = "muster_job_cpu_seconds_total", "muster_node_cpu_seconds_total"
        assert total(found, job, job_name="burner", **of) <= total(found, node, **of) < 60

        def listed():
            table = server.muster("compute", "list-nodes", "cpu", "-o", "table", *WORKSPACE_FLAGS)
            [row] = [line.split() for line in table.splitlines() if line.startswith(of["node"])]
            # CPU use is computed from two reports, and on a busy machine it may be small.
            return row[2] != "-" and float(row[2]) > 0 and row

        [_, state, cores, memory, *_] = wait_for("a busy node", 30, listed)
        assert state == "running" and 0 < float(cores) < 4 and int(memory) > 150
    server.muster("job", "cancel", "-n", "burner", *WORKSPACE_FLAGS)
    # Only live jobs and live nodes have series.
    wait_for("its end", 30, lambda: not any("burner" in dict(has).values() for _, has in look()))
    server.muster("compute", "delete", "-n", "cpu", "--yes", *WORKSPACE_FLAGS)
    assert total(look(), "muster_node_disk_size_bytes") == 0


def test_pending_jobs_and_quota_are_counted(muster, session, server):
    muster("compute", "create", "-n", "full", "--max-instances", "0", *WORKSPACE_FLAGS)
    try:
        for name in ("full-1", "full-2"):
            flags = ("-n", name, "--compute", "full", "--command", "true")
            muster("job", "create", *flags, *WORKSPACE_FLAGS)
        found = samples(session.get(server.url + "/metrics").text)
        assert total(found, "muster_jobs", cluster="full", status="Queued") == 2
        assert total(found, "muster_pending_jobs", reason="MaximumTooLow") == 2
        assert "muster_quota_used" in {name for name, _ in found}
    finally:
        muster("compute", "delete", "-n", "full", "--yes", *WORKSPACE_FLAGS)
    gone = samples(session.get(server.url + "/metrics").text)
    assert total(gone, "muster_jobs", cluster="full") == 0
    assert total(gone, "muster_jobs_ended_total", cluster="(deleted)", status="Canceled") >= 2


def test_metrics_need_a_reader_of_everything_or_a_port_of_their_own(own):  # noqa: F811
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = own("--metrics-listen", f"127.0.0.1:{port}", how="serve")
    address = server.url + "/metrics"

    def status(token):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return requests.get(address, headers=headers, verify=server.ca).status_code

    user = json.loads(server.muster("user", "create", "-n", "ada"))["key"]
    assert [status(token) for token in (None, "wrong", user)] == [401, 401, 403]
    flags = ("--assignee", "ada", "--role", "reader", "--scope", "/")
    server.muster("role", "assignment", "create", *flags)
    assert [status(token) for token in (user, server.key)] == [200, 200]
    assert server.session().get(address).status_code == 200  # A token works, too.
    open_one = requests.get(f"http://127.0.0.1:{port}/metrics")
    assert samples(open_one.text)
    assert requests.get(f"http://127.0.0.1:{port}{WS}").status_code == 404
    assert server.stop() == 0


def test_the_log_has_a_line_per_request_and_no_secret(own):  # noqa: F811
    server = own("--log-format", "json", MUSTER_LOG="trace")
    session = server.session()
    token = session.headers["Authorization"].removeprefix("Bearer ")
    server.muster("compute", "create", "-n", "cpu", "--max-instances", "1", *WORKSPACE_FLAGS)
    flags = ("-n", "one", "--compute", "cpu", "--command", "echo hi", "--stream")
    server.muster("job", "create", *flags, *WORKSPACE_FLAGS)
    address = log_address(session, server, "one")
    assert requests.get(address, verify=server.ca).status_code == 200
    signature = urllib.parse.parse_qs(urllib.parse.urlsplit(address).query)["sig"][0]
    user = json.loads(server.muster("user", "create", "-n", "ada"))["key"]
    requests.get(server.url + WS, headers={"Authorization": f"Bearer {user}"}, verify=server.ca)
    requests.get(f"{server.url}{WS}?sig={signature}&key={user}", verify=server.ca)
    refused = session.get(server.url + WS + "/computes/none", params=V)
    server.muster("compute", "delete", "-n", "cpu", "--yes", *WORKSPACE_FLAGS)
    assert server.stop() == 0
    log = server.log.read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    for secret in (server.key, user, token, token.rsplit(".", 1)[1], signature, "Bearer"):
        assert secret not in log
    answered = [line for line in lines if line["message"] == "answered"]
    mine = [
        line
        for line in answered
        if line["span"]["id"] == refused.headers["x-ms-request-id"]
    ]
    assert len(mine) == 1
    assert (mine[0]["method"], mine[0]["status"]) == ("GET", 404)
    assert mine[0]["route"].endswith("/workspaces/{}/computes/{}")
    assert mine[0]["duration_us"] > 0 and mine[0]["caller"] not in ("", "-")
    routes = {line["route"] for line in answered}
    assert {"/agent/v1/sync", "/logs/{job}/{file}", "/msi/token"} <= routes
    assert not any("?" in route or "cpu" in route for route in routes)


BODY = b'{"location": "westeurope"}'


def under_way(server):
    """A request of which the server has read everything except the body."""
    token = server.session().headers["Authorization"]
    slow = server.connect()
    head = (
        f"PUT {WS}?api-version=2024-04-01 HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n"
        "Expect: 100-continue\r\n\r\n"
    )
    slow.sendall(head.encode())
    assert slow.recv(1000).startswith(b"HTTP/1.1 100 ")
    return slow


def test_a_stop_finishes_what_is_under_way(own):  # noqa: F811
    server = own()
    idle, silent = server.connect(), socket.create_connection(("127.0.0.1", server.port))
    idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"200 OK" in idle.recv(1000)
    slow = under_way(server)
    server.process.send_signal(signal.SIGTERM)
    assert idle.recv(1000) == b"", "an idle connection is closed at once"

    def refuses():
        with contextlib.closing(socket.socket()) as attempt:
            return attempt.connect_ex(("127.0.0.1", server.port)) != 0

    wait_for("new connections are refused", 5, refuses)
    assert server.process.poll() is None, "the server waits"
    slow.sendall(BODY)
    answer = slow.recv(4000)
    assert answer.startswith(b"HTTP/1.1 20"), answer
    started = time.monotonic()
    assert server.process.wait(STOP_LIMIT_S) == 0
    assert time.monotonic() - started < 5, "nothing else is waited for"
    silent.close()


@pytest.mark.parametrize(("drain", "signals", "code"), [("1", 1, 0), ("60", 2, 1)])
def test_a_stop_has_a_limit_and_a_second_interrupt_has_none(own, drain, signals, code):  # noqa: F811
    server = own("--drain-seconds", drain)
    slow = under_way(server)
    started = time.monotonic()
    for _ in range(signals):
        server.process.send_signal(signal.SIGINT)
        wait_for("its message", 5, lambda: "Ctrl-C stops at once" in server.log.read_text())
    assert server.process.wait(STOP_LIMIT_S) == code
    assert time.monotonic() - started < 8
    slow.close()


def test_long_polls_of_nodes_do_not_hold_up_a_stop(own):  # noqa: F811
    server = own()
    server.muster("compute", "create", "-n", "cpu", "--min-instances", "1", *WORKSPACE_FLAGS)

    session = server.session()

    def node_is_up():
        found = samples(session.get(server.url + "/metrics").text)
        return total(found, "muster_cluster_nodes", cluster="cpu", state="idle") == 1

    wait_for("a node", 20, node_is_up)
    started = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - started < 5
    again = own(folder=server.folder)  # Nodes outlive their server.
    again.muster("compute", "delete", "-n", "cpu", "--yes", *WORKSPACE_FLAGS)
    found = samples(again.session().get(again.url + "/metrics").text)
    assert total(found, "muster_unused_node_starts_total", cluster="(deleted)") == 1
    assert total(found, "muster_scale_decisions_total", direction="down", reason="deleted") == 1
    assert again.stop() == 0
