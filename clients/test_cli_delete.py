"""Deleting from a terminal: the command asks, and accepts a no."""

import os
import pty
import subprocess

import pytest
from conftest import WORKSPACE_FLAGS, wait_for


@pytest.fixture
def cluster(muster):
    muster("compute", "create", "--name", "cli-delete", "--max-instances", "1", *WORKSPACE_FLAGS)
    yield "cli-delete"
    muster("compute", "delete", "--yes", "--name", "cli-delete", *WORKSPACE_FLAGS, check=False)


def is_there(muster, name):
    shown = muster("compute", "show", "--name", name, *WORKSPACE_FLAGS, check=False)
    assert shown.returncode in (0, 3), shown.stderr
    return shown.returncode == 0


def answer_on_a_terminal(muster_bin, server, name, answer):
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        return subprocess.run(
            [muster_bin, "compute", "delete", "--name", name, *WORKSPACE_FLAGS],
            env={**os.environ, "MUSTER_STATE_DIR": str(server.state_dir)},
            stdin=theirs, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)


def test_it_asks_on_a_terminal(muster, muster_bin, server, cluster):
    for answer in ("n", "", "perhaps"):
        kept = answer_on_a_terminal(muster_bin, server, cluster, answer)
        assert kept.returncode == 1
        assert "delete compute 'cli-delete' with its nodes and jobs? (y/n)" in kept.stderr
        assert "was not deleted" in kept.stderr
        assert is_there(muster, cluster)
    gone = answer_on_a_terminal(muster_bin, server, cluster, "y")
    assert gone.returncode == 0, gone.stderr
    assert not is_there(muster, cluster)


def test_without_a_terminal_it_wants_a_yes(muster, cluster):
    refused = muster("compute", "delete", "--name", cluster, *WORKSPACE_FLAGS, check=False)
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    assert is_there(muster, cluster)
    muster("compute", "delete", "--yes", "--name", cluster, *WORKSPACE_FLAGS)
    assert not is_there(muster, cluster)


def test_it_does_not_wait_with_no_wait(muster, cluster):
    left = muster("compute", "delete", "--yes", "--no-wait", "--name", cluster, *WORKSPACE_FLAGS)
    assert "Succeeded" not in left.stderr
    wait_for("the cluster is deleted", 30, lambda: not is_there(muster, cluster))
