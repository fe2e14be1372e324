"""A server of a test's own: for tests that configure it, stop it, or read its log."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import tempfile

import pytest
import requests
from conftest import RESOURCE_GROUP, STOP_LIMIT_S, SUBSCRIPTION, WORKSPACE, wait_until_ready

WS = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}"
    f"/providers/Microsoft.MachineLearningServices/workspaces/{WORKSPACE}"
)
V = {"api-version": "2024-04-01"}


class Own:
    """A server of a test's own, with its log in a file."""

    def __init__(self, binary, folder, *arguments, how="up", **variables):
        self.binary, self.folder = binary, folder
        self.state, self.log = folder / "state", folder / "log.txt"
        said = folder / "said.txt"
        with said.open("wb") as out, self.log.open("wb") as err:
            self.process = subprocess.Popen(
                [binary, how, "--state-dir", self.state, "--listen", "127.0.0.1:0", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **variables},
            )
        self.url = wait_until_ready(self.process, said)
        self.port = int(self.url.rsplit(":", 1)[1])

    def muster(self, *arguments):
        flags = (*arguments, "--state-dir", self.state)
        done = subprocess.run([self.binary, *flags], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def env(self):
        return json.loads(self.muster("env", "--shell", "json"))

    @property
    def key(self):
        return (self.state / "keys" / "owner.key").read_text().strip()

    @property
    def ca(self):
        return str(self.state / "pki" / "ca.pem")

    def session(self):
        session = requests.Session()
        session.trust_env, session.verify = False, self.ca
        env = self.env()
        answer = session.get(
            env["IDENTITY_ENDPOINT"],
            params={"api-version": "2019-08-01", "resource": self.url},
            headers={"X-IDENTITY-HEADER": self.key},
        )
        session.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
        return session

    def connect(self):
        context = ssl.create_default_context(cafile=self.ca)
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        return context.wrap_socket(plain, server_hostname="localhost")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_LIMIT_S)


@pytest.fixture
def own(muster_bin, tmp_path):
    with contextlib.ExitStack() as stack:

        def start(*arguments, folder=None, **more):
            if folder is None:
                folder = pathlib.Path(tempfile.mkdtemp(dir=tmp_path))
            server = Own(muster_bin, folder, *arguments, **more)
            stack.callback(server.process.wait)
            stack.callback(server.process.kill)
            return server

        yield start
