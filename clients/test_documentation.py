"""Every command block of README.md and docs/ is run as from a fresh checkout, against one server.

A block is a command block if one of its lines begins with a program that people run. Comments
before it, which are not shown on the rendered page, say what it needs:

    <!-- not run: REASON -->        the block is skipped for this reason
    <!-- before: SHELL -->          setup for the block; may have several lines
    <!-- with: TEXT=SHELL -->       what the reader fills in, such as NAME=$JOB, one per line
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from conftest import REPOSITORY, running

# A job on a new node takes a second or two; a hang is noticed long before the whole run would be.
LIMIT_S = 90
PROGRAMS = (
    "muster", "make", "cargo", "python3", "venv/bin/", "eval", "export", "az ", "curl", "sudo",
    "systemctl", "pip", "git ", "apt", "docker", "uv ", "target/",
)  # fmt: skip
MARKER = re.compile(r"<!--\s*(not run|before|with):(.*?)-->", re.DOTALL)
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("**/*.md"))]


class Block:
    def __init__(self, page, number, text, markers):
        self.place = f"{page.relative_to(REPOSITORY)}:{number}"
        self.text = text
        self.not_run = next((words.strip() for kind, words in markers if kind == "not run"), None)
        self.before = "\n".join(words.strip() for kind, words in markers if kind == "before")
        pairs = "\n".join(words for kind, words in markers if kind == "with").splitlines()
        self.replaced = [pair.strip().split("=", 1) for pair in pairs if pair.strip()]

    def is_command(self):
        return any(line.startswith(PROGRAMS) for line in self.text.splitlines())

    def script(self):
        text = self.text
        for word, value in self.replaced:
            assert word in text, f"{self.place}: there is no {word}"
            text = re.sub(rf"(?<![\w$]){re.escape(word)}(?!\w)", lambda _, v=value: v, text)
        return f"echo '{MARK} {self.place}' >&2\n{self.before}\n{text}\n"


MARK = "=== block"


def blocks_of(page):
    """Indented and fenced blocks with the comments directly before them."""
    lines = page.read_text().splitlines()
    index, comment_from = 0, None
    while index < len(lines):
        line = lines[index]
        if line.startswith("<!--") and comment_from is None:
            comment_from = index
        start = index
        if line.startswith("```"):
            end = next(at for at in range(index + 1, len(lines)) if lines[at].startswith("```"))
            text, index = lines[index + 1 : end], end + 1
            # Other languages are not commands.
            text = text if line in ("```", "```sh", "```bash", "```console") else []
        elif line.startswith("    ") and (index == 0 or not lines[index - 1].strip()):
            while index < len(lines) and lines[index][:4].strip() == "":
                index += 1
            text = [line[4:] for line in lines[start:index]]
        else:
            # A comment applies to the next block only, with nothing but blank lines between them.
            before = "\n".join(lines[comment_from:index]) if comment_from is not None else ""
            is_closed = before.count("<!--") == before.count("-->")
            if is_closed and line.strip() and not line.startswith("<!--"):
                comment_from = None
            index += 1
            continue
        said = "\n".join(lines[comment_from:start]) if comment_from is not None else ""
        comment_from = None
        yield Block(page, start + 1, "\n".join(text).rstrip(), MARKER.findall(said))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, muster_bin):
    """The tracked files, the program where the README expects it, a server, and an empty home."""
    folder = tmp_path_factory.mktemp("documentation")
    here = folder / "checkout"
    shutil.copytree(REPOSITORY / "examples", here / "examples")
    (here / "target/quick").mkdir(parents=True)
    (here / "target/quick/muster").symlink_to(muster_bin)
    (here / "venv").symlink_to(sys.prefix)
    (folder / "home").mkdir()
    with running(muster_bin, folder) as (server, _):
        (here / ".muster-demo").symlink_to(server.state_dir)
        keep = ("LANG", "TERM", "SSL_CERT_FILE")
        environment = {name: os.environ[name] for name in keep if name in os.environ}
        path = f"{here / 'target/quick'}:{os.environ['PATH']}"
        environment |= {"HOME": str(folder / "home"), "PATH": path}
        environment["MUSTER_STATE_DIR"] = str(server.state_dir)
        environment["AZURE_CORE_COLLECT_TELEMETRY"] = "false"
        yield here, environment
        listed = run_script("muster compute list -o tsv --query '[].name'", here, environment)
        for name in listed.stdout.split():
            run_script(f"muster compute delete --yes --no-wait --name {name}", here, environment)


def run_script(script, folder, environment):
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_the_commands_of_a_page_work(page, checkout):
    folder, environment = checkout
    commands = [block for block in blocks_of(page) if block.is_command()]
    for block in commands:
        assert block.not_run != "", f"{block.place}: give the reason"
    runnable = [block for block in commands if block.not_run is None]
    if not runnable:
        return
    script = "set -eu -o pipefail\n" + "".join(block.script() for block in runnable)
    # Defaults that a page sets do not apply to the next one.
    shutil.rmtree(pathlib.Path(environment["HOME"]) / ".config", ignore_errors=True)
    done = run_script(script, folder, environment)
    said = done.stderr.split(MARK)[-1]
    assert done.returncode == 0, f"in block{said}\nwhich printed\n{done.stdout[-2000:]}"


def test_a_command_that_fails_is_noticed(tmp_path, checkout):
    folder, environment = checkout
    text = "<!-- with: NAME=nowhere -->\n\n    muster job show -n NAME\n    echo after\n"
    page = REPOSITORY / "docs" / "page.md"
    fake = tmp_path / "page.md"
    fake.write_text(text)
    (block,) = blocks_with(fake, page)
    assert block.is_command() and "show -n nowhere" in block.script()
    done = run_script("set -e\n" + block.script(), folder, environment)
    assert done.returncode == 3 and "after" not in done.stdout


def blocks_with(fake, page):
    """The blocks of a page outside of docs/."""

    class Elsewhere:
        def read_text(self):
            return fake.read_text()

        def relative_to(self, root):
            return page.relative_to(root)

    return list(blocks_of(Elsewhere()))


def test_every_page_was_looked_through():
    pages = [page for page in PAGES if any(block.is_command() for block in blocks_of(page))]
    assert len(pages) >= 10
    left_out = [block.not_run for page in PAGES for block in blocks_of(page) if block.not_run]
    assert all(len(reason) > 10 for reason in left_out), left_out
