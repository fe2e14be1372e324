"""JupyterLab and TensorBoard of a job in a real browser: Debian's Chromium with playwright."""

import json
import os
import pathlib
import select
import subprocess

import pytest
from conftest import REPOSITORY, wait_for
from test_services import cluster, submit_tools, until_running  # noqa: F401  (a fixture)

BROWSER = REPOSITORY / ".venv-browser/bin/python"
PROGRAM = pathlib.Path(__file__).with_name("browser_flow.py")
# TensorBoard requests its fonts at the root of the server, whatever path it is given.
OWN_FAULT = "/font-roboto/"
CHROMIUM = pathlib.Path("/usr/bin/chromium")
ANSWER_LIMIT_S = 120


class Browser:
    """The program that opens pages, in an environment of its own."""

    def __init__(self, folder):
        for path in (BROWSER, CHROMIUM):
            if not path.exists():
                pytest.fail(f"there is no {path}: run `make setup-browser`")
        self.said = folder / "said.txt"
        self.process = subprocess.Popen(
            [BROWSER, PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said.open("wb"),
            # It stores more than its profile; all of it is deleted with the test.
            env={**os.environ, "HOME": str(folder)},
            text=True,
        )

    def ask(self, value):
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()
        heard, _, _ = select.select([self.process.stdout], [], [], ANSWER_LIMIT_S)
        assert heard, f"no answer within {ANSWER_LIMIT_S} s; {self.said.read_text()}"
        # It exits if a page does not behave as expected, and then there is no line.
        line = self.process.stdout.readline()
        assert line, self.said.read_text()
        return json.loads(line)

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def browser(tmp_path):
    browser = Browser(tmp_path)
    yield browser
    browser.end()


# Takes 20 s: a browser, JupyterLab and TensorBoard start.
def test_a_notebook_a_terminal_and_a_board_work_in_a_browser(
    ml_client,
    cluster,  # noqa: F811
    browser,
    tmp_path,
):
    name = submit_tools(ml_client, tmp_path)
    try:
        board = until_running(ml_client, name, "tb", limit_s=180).endpoint
        lab = until_running(ml_client, name, "jl", limit_s=60).endpoint
        seen = browser.ask({"lab": lab, "board": board, "folder": str(tmp_path)})
        assert seen["lab"]["cell"].strip() == "42"
        assert seen["lab"]["terminal"] == f"42 {name}\n"
        assert "loss" in seen["board"]["card"]
        for service, link in (("lab", lab), ("board", board)):
            page, base = seen[service], link.partition("?")[0]
            # The token must not end up in the history or in a bookmark.
            assert page["address"].startswith(base) and "sig=" not in page["address"]
            assert [error for error in page["errors"] if OWN_FAULT not in error] == []
            assert [stopped for stopped in page["stopped"] if OWN_FAULT not in stopped] == []
    finally:
        ml_client.jobs.begin_cancel(name).result()
    # A cancel returns before the attempt has ended; until then its pages only break off.
    wait_for("its end", 30, lambda: ml_client.jobs.get(name).status == "Canceled")
    for status, text in browser.ask("again"):
        assert status == 410 and "no longer running" in text, text
