"""Fixtures that start a real server and point unmodified clients at it."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import time
from dataclasses import dataclass

import pytest
import requests

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
READY_LIMIT_S = 30
STOP_LIMIT_S = 15

# Any workspace that the owner names is created on first use.
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
RESOURCE_GROUP = "clients-rg"
WORKSPACE = "clients-ws"
JOB_CLUSTER = "life-cpu"
WORKSPACE_FLAGS = (
    f"--subscription={SUBSCRIPTION}",
    f"--resource-group={RESOURCE_GROUP}",
    f"--workspace-name={WORKSPACE}",
)

# If these were set, they would be tried before the server's own credential.
STRAY_PREFIXES = ("AZURE_", "AZUREML_", "ARM_", "MSI_", "IDENTITY_")


# The files with the longest tests. Each worker takes whole files, so start the slowest files first.
# Otherwise the run would end waiting for them.
LONGEST = (
    "test_sdk_v2_older.py",
    "test_identity_older.py",
    "test_storage_kills.py",
    "test_hostile_connections.py",
    "test_sdk_v2_nodes.py",
    "test_sdk_v2_jobs.py",
)


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: needs the machine to itself; nothing runs beside it")


def pytest_collection_modifyitems(items):
    def place(item):
        return LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST)

    items.sort(key=place)


@dataclass(frozen=True)
class Server:
    url: str
    state_dir: pathlib.Path


@pytest.fixture(scope="session")
def muster_bin():
    path = pathlib.Path(os.environ.get("MUSTER_BIN", REPOSITORY / "target/debug/muster"))
    if not path.is_file():
        pytest.fail(f"no binary at {path}: run `cargo build -p muster-cli` or set MUSTER_BIN")
    return path.resolve()


@contextlib.contextmanager
def running(muster_bin, directory, **options):
    """A server of its own, until the end of the block: (Server, its process)."""
    output, state_dir = directory / "output.txt", directory / "state"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [muster_bin, "up", "--state-dir", state_dir, "--listen", "127.0.0.1:0"],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            **options,
        )
    try:
        yield Server(wait_until_ready(process, output), state_dir), process
    finally:
        process.terminate()
        try:
            # A debug build checks at its end that its memory matches its rows.
            assert process.wait(STOP_LIMIT_S) == 0, output.read_text()
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail(f"the server did not stop within {STOP_LIMIT_S} s of SIGTERM")


@pytest.fixture(scope="session")
def server(muster_bin, tmp_path_factory):
    with running(muster_bin, tmp_path_factory.mktemp("muster")) as (server, _):
        yield server


def wait_until_ready(process, output):
    """The address in the server's `ready https://HOST:PORT` line."""
    deadline = time.monotonic() + READY_LIMIT_S
    while True:
        ended = process.poll()
        for line in output.read_text().splitlines(keepends=True):
            if line.startswith("ready https://") and line.endswith("\n"):
                return line.split()[1]
        if ended is not None:
            pytest.fail(f"the server ended with {ended}; it said:\n{output.read_text()}")
        if time.monotonic() > deadline:
            pytest.fail(f"not ready within {READY_LIMIT_S} s; it said:\n{output.read_text()}")
        time.sleep(0.05)


@pytest.fixture(scope="session")
def server_env(muster_bin, server):
    """The variables that `muster env` prints for clients, as a dict."""
    printed = subprocess.run(
        [muster_bin, "env", "--shell", "json", "--state-dir", server.state_dir],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(printed.stdout)


@pytest.fixture(scope="session")
def client_env(server_env):
    """The same, set in this process. Request it before anything of azure.ai.ml is imported."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(STRAY_PREFIXES)]:
            patch.delenv(name)
        for name, value in server_env.items():
            patch.setenv(name, value)
        yield dict(os.environ)


@pytest.fixture(scope="session")
def muster(muster_bin, server):
    """Runs the command line: `muster("compute", "list")` gives a CompletedProcess."""

    def run(*arguments, check=True):
        done = subprocess.run(
            [muster_bin, *arguments],
            env={
                **os.environ,
                "MUSTER_STATE_DIR": str(server.state_dir),
                # The defaults of the user who runs the tests would lead elsewhere.
                "MUSTER_CONFIG_DIR": str(server.state_dir / "no-defaults"),
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        if check and done.returncode != 0:
            pytest.fail(
                f"muster {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}"
            )
        return done

    return run


@pytest.fixture(scope="session")
def session(server, server_env):
    """A requests session with a valid token."""
    with requests.Session() as session:
        session.trust_env = False  # Its CA bundle would take precedence over ours.
        session.verify = server_env["REQUESTS_CA_BUNDLE"]
        token = session.get(
            server_env["IDENTITY_ENDPOINT"],
            params={"api-version": "2019-08-01", "resource": server.url},
            headers={"X-IDENTITY-HEADER": server_env["IDENTITY_HEADER"]},
        ).json()
        session.headers["Authorization"] = f"Bearer {token['access_token']}"
        yield session


def sdk_version():
    """The version of azure-ai-ml that these tests run with; test_sdk_v2_older.py sets others."""
    pinned = re.search(
        r"^azure-ai-ml==(\S+)$", (REPOSITORY / "clients/requirements.txt").read_text(), re.MULTILINE
    )
    return os.environ.get("MUSTER_TEST_SDK", pinned[1])


def new_ml_client(subscription=SUBSCRIPTION, resource_group=RESOURCE_GROUP, workspace=WORKSPACE):
    from azure.ai.ml import MLClient
    from azure.identity import DefaultAzureCredential

    return MLClient(DefaultAzureCredential(), subscription, resource_group, workspace)


@pytest.fixture(scope="session")
def ml_client(client_env):
    return new_ml_client()


@pytest.fixture(scope="module")
def job_cluster(ml_client):
    from azure.ai.ml.entities import AmlCompute

    wanted = AmlCompute(name=JOB_CLUSTER, min_instances=0, max_instances=2)
    wanted.idle_time_before_scale_down = 60
    yield ml_client.compute.begin_create_or_update(wanted).result().name
    # Other tests count the reserved vCPUs.
    ml_client.compute.begin_delete(JOB_CLUSTER).result()


@pytest.fixture(scope="module")
def job_environment(ml_client):
    from azure.ai.ml.entities import Environment

    image = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04"
    ml_client.environments.create_or_update(Environment(name="life", image=image))
    return "azureml:life@latest"


def wait_for(what, limit_s, look):
    """Polls until the result is true, and returns it."""
    deadline = time.monotonic() + limit_s
    while not (seen := look()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {limit_s} s, last seen {seen!r}")
        time.sleep(0.2)
    return seen
