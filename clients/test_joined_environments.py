"""Jobs with Python environments on a joined host, which builds and keeps them itself."""

import contextlib
import subprocess
import uuid

import pytest
from conftest import RESOURCE_GROUP, SUBSCRIPTION, WORKSPACE, wait_for
from own_server import WS, V, own  # noqa: F401  (a fixture)

IN_WORKSPACE = (
    *("--subscription", SUBSCRIPTION, "--resource-group", RESOURCE_GROUP),
    *("--workspace-name", WORKSPACE),
)
CONDA = "dependencies:\n- python\n- pip:\n  - six\n"


class Lab:
    """A server, and requests to it without a client library."""

    def __init__(self, server):
        self.server, self.session = server, server.session()

    def put(self, path, properties, **more):
        body = {"properties": properties, **more}
        answer = self.session.put(f"{self.server.url}{WS}{path}", params=V, json=body)
        assert answer.status_code in (200, 201, 202), answer.text
        return answer.json()

    def cluster(self, nodes=1):
        scale = {"minNodeCount": 0, "maxNodeCount": nodes, "nodeIdleTimeBeforeScaleDown": "PT5S"}
        size = {"vmSize": "Standard_DS1_v2", "scaleSettings": scale}
        self.put(
            "/computes/cpu", {"computeType": "AmlCompute", "properties": size}, location="eastus"
        )

    def environment(self, name, conda):
        self.put(f"/environments/{name}/versions/1", {"condaFile": conda, "image": "ubuntu:22.04"})
        return f"{WS}/environments/{name}/versions/1"

    def submit(self, command, environment, name=None, **more):
        name = name or f"job-{uuid.uuid4().hex[:10]}"
        job = {"jobType": "Command", "command": command, "environmentId": environment}
        job |= {"computeId": f"{WS}/computes/cpu", "experimentName": "lab", **more}
        self.put(f"/jobs/{name}", job)
        return name

    def job(self, name):
        answer = self.session.get(f"{self.server.url}{WS}/jobs/{name}", params=V)
        return answer.json()["properties"]

    def names(self):
        """The flags for its workspace on the command line."""
        return IN_WORKSPACE

    def log(self, name):
        flags = ("-n", name, *IN_WORKSPACE, "--state-dir", self.server.state)
        stream = [self.server.binary, "job", "stream", *flags]
        # The command fails as well if the job failed.
        return subprocess.run(stream, capture_output=True, text=True, timeout=60).stdout

    def ended(self, name, limit_s=90):
        over = ("Completed", "Failed", "Canceled")
        wait_for("the job has ended", limit_s, lambda: self.job(name)["status"] in over)
        return self.job(name)["status"]


@contextlib.contextmanager
def joined(server, folder, **options):
    """Joins this machine as host `box`, with a folder of its own."""
    query = ("-o", "tsv", "--query", "token")
    token = server.muster("host", "token", *query).strip()
    log = folder / "box.log"
    state = folder / "box"
    with log.open("wb") as said:
        host_agent = subprocess.Popen(
            [server.binary, "agent", "--join", server.url, "--state", state, "--name", "box"]
            + ["--token", token, "--leave"],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            **options,
        )
    try:
        wait_for("the host joins", 30, lambda: "this host joined" in log.read_text())
        yield state
    finally:
        host_agent.terminate()
        host_agent.wait(30)


@pytest.fixture
def lab(own):  # noqa: F811
    return Lab(own("--trusted-users", "--isolation", "sandbox"))


def test_a_machine_that_joined_builds_environments_once(lab, tmp_path):
    with joined(lab.server, tmp_path) as box:
        lab.cluster()
        environment = lab.environment("six", CONDA)
        command = 'python -c "import six; print(six.__name__, six.__file__)"; nproc'
        first = lab.submit(command, environment)
        status, said = lab.ended(first), lab.log(first)
        assert status == "Completed", said
        ready = [path.name for path in (box / "environments" / "ready").iterdir()]
        [built] = [name for name in ready if len(name) == 64]
        assert f"six /environments/{built}/" in said
        made = (box / "environments" / "ready" / built).stat()
        at_home = lab.server.state / "environments" / "ready"
        assert not (at_home / built).exists(), "nothing is built on the server's own host"

        second = lab.submit(command, environment)
        assert lab.ended(second) == "Completed"
        assert f"six /environments/{built}/" in lab.log(second)
        same = (box / "environments" / "ready" / built).stat()
        assert (same.st_ino, same.st_ctime) == (made.st_ino, made.st_ctime), "it was built once"

        absent = lab.environment("none", CONDA.replace("six", "no-such-package-as-this==99"))
        failed = lab.submit("true", absent)
        assert lab.ended(failed) == "Failed"
        said = lab.log(failed)
        assert "cannot be built" in said and "no-such-package-as-this" in said, said
        lab.server.muster("compute", "delete", "-n", "cpu", "--yes", *IN_WORKSPACE)
