"""What ssh is elsewhere, between the members of one attempt: `reach.py HOST COMMAND...` runs a command there, `reach.py`
alone does what it is told. Whoever tells proves that it has the attempt's key: nodes of others are on the same network."""

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
# All members are ready when the first one starts, but not each at the same moment.
REACH_WITHIN_S = 60


def port():
    return int(os.environ["MASTER_PORT"]) + 1


def proof(nonce, text):
    with open(os.path.join(HERE, "key"), "rb") as file:
        return hmac.new(file.read(), nonce + text, hashlib.sha256).digest()


def tell(host, text):
    deadline = time.monotonic() + REACH_WITHIN_S
    while True:
        try:
            call = socket.create_connection((host, port()), 5)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                sys.exit(f"muster: member {host} does not answer: {error}")
            time.sleep(0.05)
    call.settimeout(None)
    with call, call.makefile("rb") as heard:
        nonce = heard.read(32)
        call.sendall(proof(nonce, text) + text)
        call.shutdown(socket.SHUT_WR)
        answer = heard.read(1)
    sys.exit(answer[0] if answer else 1)


def hear(call):
    """What a caller with the key wants, else nothing."""
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
    # A request to end is for what runs here; whoever started that says when all is over.
    signal.signal(signal.SIGTERM, lambda *_: None)
    door = socket.create_server(("", port()))
    while True:
        call, _ = door.accept()
        with call:
            try:
                wanted = hear(call)
            except OSError:
                continue
            if wanted == DONE:
                call.sendall(b"\0")
                return
            if wanted is not None:
                code = subprocess.run(["/bin/sh", "-c", wanted], stdin=subprocess.DEVNULL).returncode
                call.sendall(bytes([code & 0xFF]))


if len(sys.argv) > 1:
    tell(sys.argv[1], " ".join(sys.argv[2:]).encode())
serve()
