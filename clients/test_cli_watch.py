"""`muster compute watch` on a real terminal, and where there is none."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
from conftest import WORKSPACE_FLAGS

LIMIT_S = 30
TAKE, GIVE_BACK = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture
def cluster(muster):
    muster("compute", "create", "--name", "watched", "--max-instances", "3", *WORKSPACE_FLAGS)
    yield "watched"
    muster("compute", "delete", "--yes", "--name", "watched", *WORKSPACE_FLAGS, check=False)


class Terminal:
    """A pseudo-terminal with a command on it."""

    def __init__(self, command, environment, columns=120, rows=30):
        self.ours, self.theirs = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.theirs)
        self.seen = b""
        self.process = subprocess.Popen(
            command, env=environment, stdin=self.theirs, stdout=self.theirs, stderr=self.theirs,
            start_new_session=True,
        )  # fmt: skip

    def resize(self, columns, rows):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, is_there):
        deadline = time.monotonic() + LIMIT_S
        while not is_there(self.seen):
            ready, _, _ = select.select([self.ours], [], [], 0.2)
            if ready:
                self.seen += os.read(self.ours, 65536)
            assert time.monotonic() < deadline, self.seen[-2000:]
        return self.seen

    def end(self):
        code = self.process.wait(LIMIT_S)
        while select.select([self.ours], [], [], 0.2)[0]:
            self.seen += os.read(self.ours, 65536)
        after = termios.tcgetattr(self.theirs)
        os.close(self.ours)
        os.close(self.theirs)
        assert after == self.before, "the terminal was not restored"
        return code


@pytest.fixture
def watch(muster_bin, server):
    def start(*arguments, **size):
        environment = {**os.environ, "MUSTER_STATE_DIR": str(server.state_dir)}
        watching = [muster_bin, "compute", "watch", "--interval", "0.2", *WORKSPACE_FLAGS]
        return Terminal([*watching, *arguments], environment, **size)

    return start


def last_screen(seen):
    return seen.rsplit(b"\x1b[H", 1)[-1]


@pytest.mark.parametrize("leave", [b"q", b"\x03", signal.SIGINT, signal.SIGTERM])
def test_a_screen_is_taken_and_given_back(watch, cluster, leave):
    terminal = watch()
    terminal.read_until(lambda seen: seen.count(b"\x1b[H") > 2 and b"watched" in seen)
    assert TAKE in terminal.seen
    assert b"0 of 0-3" in terminal.seen
    if isinstance(leave, bytes):
        os.write(terminal.ours, leave)
    else:
        terminal.process.send_signal(leave)
    assert terminal.end() == 0
    assert terminal.seen.endswith(b"\x1b[?25h" + GIVE_BACK)


def test_a_screen_follows_changes_and_its_size(muster, watch, cluster):
    terminal = watch("--name", cluster)
    terminal.read_until(lambda seen: b"0 of 0-3" in seen)
    muster("compute", "update", "--name", cluster, "--max-instances", "7", *WORKSPACE_FLAGS)
    terminal.read_until(lambda seen: b"0 of 0-7" in seen)
    terminal.resize(20, 4)
    terminal.process.send_signal(signal.SIGWINCH)
    drawn = terminal.seen.count(b"\x1b[H")
    terminal.read_until(lambda seen: seen.count(b"\x1b[H") > drawn + 2)
    screen = last_screen(terminal.seen[: terminal.seen.rindex(b"\x1b[H")])
    lines = screen.replace(b"\x1b[K", b"").replace(b"\x1b[J", b"").split(b"\n")
    lines = [line.rstrip(b"\r") for line in lines]
    assert len(lines) <= 4
    assert all(len(line.decode()) <= 20 for line in lines), lines
    os.write(terminal.ours, b"xyq")
    assert terminal.end() == 0


def test_a_name_that_is_not_there_leaves_the_screen_alone(watch):
    terminal = watch("none-such")
    assert terminal.end() == 3
    assert TAKE not in terminal.seen


def test_without_a_terminal_there_is_a_line_per_change(muster, muster_bin, server, cluster):
    watching = [muster_bin, "compute", "watch", cluster, "--interval", "0.1", *WORKSPACE_FLAGS]
    process = subprocess.Popen(
        [*watching, "-o", "json"],
        env={**os.environ, "MUSTER_STATE_DIR": str(server.state_dir)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        first = json.loads(process.stdout.readline())
        assert (first["name"], first["max_instances"], first["nodes"]) == (cluster, 3, 0)
        muster("compute", "update", "--name", cluster, "--max-instances", "5", *WORKSPACE_FLAGS)
        second = json.loads(process.stdout.readline())
        assert second["max_instances"] == 5
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0


def test_it_ends_after_as_many_looks_as_asked_for(muster, cluster):
    three = ("--count", "3", "--interval", "0.1")
    watched = muster("compute", "watch", cluster, *three, *WORKSPACE_FLAGS)
    assert watched.stdout.startswith("watched: Succeeded, 0 of 0-3 nodes")
    assert watched.stdout.count("\n") == 1, "nothing changed"
