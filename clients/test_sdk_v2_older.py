"""The same tests with older versions of azure-ai-ml: scripts pin what they were written with.

Two versions cannot be in one process, so each has its own, with the older one found first.
"""

import os
import pathlib
import subprocess
import sys

import pytest
from conftest import REPOSITORY

VERSIONS = ("1.33.0", "1.20.0")
MODULES = sorted(
    str(path.relative_to(REPOSITORY))
    for path in (REPOSITORY / "clients").glob("test_sdk_v2_*.py")
    if path != pathlib.Path(__file__).resolve()
)
# These files do not cover how the services of a job are requested and shown.
SERVICES = [
    f"clients/test_services.py::{name}"
    for name in (
        "test_a_job_shows_its_services",
        "test_each_node_has_its_own",
        "test_after_the_end_there_is_nothing",
    )
]
# It waits for real nodes, whatever the client.
SAME_FOR_ALL = (
    "clients/test_sdk_v2_compute.py::test_a_job_takes_the_cluster_from_zero_to_one_and_back"
)
LIMIT_S = 900


@pytest.fixture(scope="module")
def runs(muster_bin):
    """Runs all versions at once, because they mostly wait."""
    runs = {}
    for version in VERSIONS:
        environment = {
            **os.environ,
            "MUSTER_BIN": str(muster_bin),
            "MUSTER_TEST_SDK": version,
            "PYTHONPATH": str(pathlib.Path(sys.prefix) / f"ai-ml-{version}"),
        }
        # Reading a package this large without its bytecode takes ten seconds.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = ["-m", "pytest", "--quiet", "--disable-warnings", "-p", "no:cacheprovider"]
        runs[version] = subprocess.Popen(
            [sys.executable, *command, f"--deselect={SAME_FOR_ALL}", *MODULES, *SERVICES],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    yield runs
    for process in runs.values():
        process.kill()
        process.wait()


# Takes minutes: all tests of azure-ai-ml again, for each version.
@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_version(runs, version):
    said, _ = runs[version].communicate(timeout=LIMIT_S)
    assert runs[version].returncode == 0, said
    assert "1 deselected" in said, said
