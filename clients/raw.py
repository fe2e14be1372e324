"""Bytes to the server and bytes back, as no well-behaved client would send them."""

import contextlib
import json
import socket
import ssl
import urllib.parse
from dataclasses import dataclass

LIMIT_S = 20


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict
    body: bytes

    @property
    def error(self):
        return json.loads(self.body)["error"]


def address(server):
    host, port = urllib.parse.urlsplit(server.url).netloc.split(":")
    return host, int(port)


def connect(server, ca_file, timeout=LIMIT_S):
    host, port = address(server)
    context = ssl.create_default_context(cafile=ca_file)
    plain = socket.create_connection((host, port), timeout=timeout)
    return context.wrap_socket(plain, server_hostname=host)


def read_answers(connection, count=None):
    """The responses on a connection: `count` of them, or all until the server closes it."""
    stream = connection.makefile("rb")
    answers = []
    while count is None or len(answers) < count:
        try:
            line = stream.readline()
        except (ConnectionError, ssl.SSLError):
            break
        if not line:
            break
        status = int(line.split()[1])
        headers = {}
        while (line := stream.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", 0)))
        if status != 100:
            answers.append(Answer(status, headers, body))
    return answers


def send(server, ca_file, data):
    """Sends the bytes, and returns all responses until the server closes the connection."""
    with connect(server, ca_file) as connection:
        # If the server stops reading, its response can still be read.
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            connection.sendall(data)
        return read_answers(connection)


def head(method, path, *lines, **headers):
    """A request without a body, unless `lines` announce one. The server then closes."""
    given = {"Host": "x", "Connection": "close", **headers}
    text = [f"{method} ".encode() + path + b" HTTP/1.1"]
    for name, value in given.items():
        text.append(f"{name.replace('_', '-')}: {value}".encode("latin-1"))
    return b"\r\n".join([*text, *lines, b"", b""])
