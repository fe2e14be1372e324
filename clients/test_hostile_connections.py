"""Clients that use up connections and time: many idle ones, slow ones, and no descriptors left."""

import contextlib
import os
import pathlib
import resource
import select
import socket
import ssl
import threading
import time

import pytest
import raw
import requests
from conftest import running, wait_for

# crates/server/src/http/limits.rs
PATIENCE_S = 10
BODY_PATIENCE_S = 30
WRITE_PATIENCE_S = 30
SLACK_S = 15
IDLE = 10_000
# One address may use a quarter of the 8,192 connections.
PER_ADDRESS = 2_000
TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def own(muster_bin, tmp_path_factory):
    with running(muster_bin, tmp_path_factory.mktemp("hostile")) as (server, process):
        yield server, process


@pytest.fixture(scope="module")
def ca_file(own):
    return own[0].state_dir / "pki/ca.pem"


@pytest.fixture(scope="module", autouse=True)
def room():
    """Raises this process's limit of descriptors as far as possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield min(IDLE, hard - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_well(server, ca_file, timeout=5):
    with requests.Session() as session:
        session.trust_env = False
        return session.get(f"{server.url}/healthz", verify=ca_file, timeout=timeout).text == "ok\n"


def resident_bytes(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line) * 1024


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextlib.contextmanager
def idle(server, count):
    """Connects from as many addresses as needed, none of which other clients use."""
    connections = []
    try:
        for number in range(count):
            source = (f"127.0.0.{number // PER_ADDRESS + 2}", 0)
            connections.append(
                socket.create_connection(raw.address(server), timeout=30, source_address=source)
            )
        yield connections
    finally:
        for connection in connections:
            connection.close()


def seconds_until_dropped(begin, go_on):
    """How long the server tolerates a client that calls `go_on` once in a while."""
    started = time.monotonic()
    with begin() as connection:
        connection.settimeout(0.5)
        while time.monotonic() - started < BODY_PATIENCE_S + SLACK_S:
            try:
                go_on(connection)
            except TimeoutError:
                continue
            except OSError:  # Includes TLS's error for a closed connection.
                break
    return time.monotonic() - started


def drip(text):
    """Sends one byte each time and checks whether the server has closed the connection."""

    def go_on(connection):
        if text:
            connection.sendall(text)
        if connection.recv(1) == b"":
            raise ConnectionError

    return go_on


def stall(connection):
    """Does not read, and detects the end only from the state of the connection."""
    time.sleep(0.5)
    poll = select.poll()
    poll.register(connection, select.POLLHUP | select.POLLERR)
    if poll.poll(0):
        raise ConnectionError


@pytest.fixture(scope="module")
def slow(own, ca_file):
    """All kinds of slow clients at once, in the background of the other tests: kind to seconds."""
    server, _ = own

    def after(data):
        def begin():
            connection = raw.connect(server, ca_file)
            connection.sendall(data)
            return connection

        return begin

    def no_handshake():
        return socket.create_connection(raw.address(server))

    def takes_no_answer():
        # A small window, and far more responses than fit into it and the server's buffers.
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.connect(raw.address(server))
        context = ssl.create_default_context(cafile=ca_file)
        connection = context.wrap_socket(plain, server_hostname="127.0.0.1")
        connection.settimeout(0.5)
        request = b"GET /metadata/endpoints?api-version=2019-05-01 HTTP/1.1\r\nHost: x\r\n\r\n"
        with contextlib.suppress(OSError):
            for _ in range(100_000):
                connection.sendall(request * 100)
        return connection

    announced = b"Host: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    kinds = {
        "handshake": (no_handshake, drip(b"")),
        "headers": (after(b"GET / HTTP/1.1\r\n"), drip(b"X")),
        "idle": (after(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), drip(b"")),
        "report": (after(b"POST /agent/v1/sync HTTP/1.1\r\n" + announced), drip(b"{")),
        "log": (after(b"POST /agent/v1/logs/a1?offset=0 HTTP/1.1\r\n" + announced), drip(b"{")),
        "answer": (takes_no_answer, stall),
    }
    seconds = {}

    def run(kind, begin, go_on):
        seconds[kind] = seconds_until_dropped(begin, go_on)

    threads = [
        threading.Thread(target=run, args=(kind, *steps), daemon=True)
        for kind, steps in kinds.items()
    ]
    for thread in threads:
        thread.start()
    return threads, seconds


# Takes 40 s: ten thousand connections, twice, each until the server has waited ten seconds.
def test_ten_thousand_idle_connections(own, ca_file, room, slow):
    server, process = own
    assert is_well(server, ca_file)
    before = resident_bytes(process)
    sizes = []
    for _ in range(2):
        with idle(server, room) as connections:
            # A new connection replaces one that has sent nothing.
            assert is_well(server, ca_file, timeout=PATIENCE_S - 1)
            sizes.append(resident_bytes(process))
            poll = select.poll()
            for connection in connections:
                poll.register(connection, select.POLLIN)
            wait_for(
                "all are dropped",
                PATIENCE_S + SLACK_S,
                lambda poll=poll: len(poll.poll(0)) == room,
            )
    # Each uses 8 KiB. If the first ones released nothing, the second ones would double that.
    per_connection = (max(sizes) - before) / room
    assert per_connection < 16 << 10, f"{per_connection} bytes"


def test_no_descriptors_left(own, ca_file):
    """The server neither ends nor spins, and continues when there are descriptors again."""
    server, process = own
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{process.pid}/fd"))
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used + 5, hard))
    try:
        with idle(server, 100):
            before = cpu_seconds(process)
            time.sleep(2)
            assert process.poll() is None
            assert cpu_seconds(process) - before < 1
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (soft, hard))
    wait_for("it answers again", 10, lambda: is_well(server, ca_file))


def dropped(connections):
    poll = select.poll()
    for connection in connections:
        poll.register(connection, select.POLLIN)
    return len(poll.poll(0))


def test_one_address_has_its_part_of_the_places(muster_bin, tmp_path):
    """Beyond the limit, silent connections are dropped first; others are unaffected."""
    env = os.environ | {"MUSTER_CONNECTIONS_PER_ADDRESS": "20"}
    with running(muster_bin, tmp_path, env=env) as (server, _):
        ca_file = server.state_dir / "pki/ca.pem"
        with idle(server, 50) as connections:
            wait_for("30 are dropped", PATIENCE_S / 2, lambda: dropped(connections) == 30)
            assert dropped(connections[:30]) == 30, "the oldest are dropped"
            assert is_well(server, ca_file)
            with contextlib.ExitStack() as stack:
                # Connections with a request are kept, so the next new one is closed at once.
                for _ in range(20):
                    connection = stack.enter_context(raw.connect(server, ca_file))
                    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                    assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
                with pytest.raises(OSError):
                    raw.connect(server, ca_file)
            wait_for("there is room again", PATIENCE_S, lambda: is_well(server, ca_file))


def test_at_the_limit_those_that_say_nothing_go_first(muster_bin, tmp_path):
    """With few descriptors, the next client still gets a connection, and a stop is not delayed."""

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    with running(muster_bin, tmp_path, preexec_fn=few) as (server, process):
        ca_file = server.state_dir / "pki/ca.pem"
        assert is_well(server, ca_file)
        with idle(server, 16) as connections:
            assert is_well(server, ca_file)
            assert 8 < dropped(connections) < 16, "some are still connected"
        with idle(server, 50):
            time.sleep(0.2)
            started = time.monotonic()
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
            assert time.monotonic() - started < PATIENCE_S - 1


@pytest.mark.parametrize(
    "kind, limit",
    [
        ("handshake", PATIENCE_S),
        ("headers", PATIENCE_S),
        ("idle", PATIENCE_S),
        ("report", BODY_PATIENCE_S),
        ("log", BODY_PATIENCE_S),
        ("answer", WRITE_PATIENCE_S),
    ],
)
def test_slow_clients_are_dropped(slow, kind, limit):
    threads, seconds = slow
    for thread in threads:
        thread.join(BODY_PATIENCE_S + 2 * SLACK_S)
    assert limit - 2 < seconds[kind] < limit + SLACK_S, seconds
