"""A replacement for ssh between the members of one attempt: `reach.py HOST COMMAND...` runs a command there, `reach.py`
alone serves such commands. A caller proves that it has the attempt's key, because other users' nodes may be on the same network."""

import hashlib
import hmac
import os
import secrets
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
DONE = "done"
COMMAND_BYTES_MAX = 1 << 20
# All members are ready when the first one starts, but not all at the same moment.
REACH_WITHIN_S = 60


def port():
    return int(os.environ["MASTER_PORT"]) + 1


def proof(nonce, text):
    with open(os.path.join(HERE, "key"), "rb") as file:
        return hmac.new(file.read(), nonce + text, hashlib.sha256).digest()


def run_on(host, text):
    deadline = time.monotonic() + REACH_WITHIN_S
    while True:
        try:
            call = socket.create_connection((host, port()), 5)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                sys.exit(f"muster: member {host} does not respond: {error}")
            time.sleep(0.05)
    call.settimeout(None)
    with call, call.makefile("rb") as heard:
        nonce = heard.read(32)
        call.sendall(proof(nonce, text) + text)
        call.shutdown(socket.SHUT_WR)
        answer = heard.read(1)
    sys.exit(answer[0] if answer else 1)


def receive(call):
    """Returns the command of a caller that has the key, otherwise None."""
    call.settimeout(10)
    nonce = secrets.token_bytes(32)
    call.sendall(nonce)
    heard = b""
    while len(heard) <= COMMAND_BYTES_MAX and (piece := call.recv(65536)):
        heard += piece
    given, text = heard[:32], heard[32:]
    if not hmac.compare_digest(given, proof(nonce, text)):
        return None
    call.settimeout(None)
    return text.decode()


def serve():
    # A request to terminate is meant for the processes that run here; the first member reports when all is done.
    signal.signal(signal.SIGTERM, lambda *_: None)
    listener = socket.create_server(("", port()))
    while True:
        call, _ = listener.accept()
        with call:
            try:
                wanted = receive(call)
            except OSError:
                continue
            if wanted == DONE:
                call.sendall(b"\0")
                return
            if wanted is not None:
                code = subprocess.run(["/bin/sh", "-c", wanted], stdin=subprocess.DEVNULL).returncode
                call.sendall(bytes([code & 0xFF]))


if len(sys.argv) > 1:
    run_on(sys.argv[1], " ".join(sys.argv[2:]).encode())
serve()
