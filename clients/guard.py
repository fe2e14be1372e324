"""The start of programs that may reach this machine only; `asked` lists other hosts they tried."""

GUARD = """
import json, socket, sys

asked = []
look_up, connect = socket.getaddrinfo, socket.socket.connect

def guarded_look_up(host, *rest, **more):
    if host not in ("localhost", "127.0.0.1", "::1"):
        asked.append(str(host))
        raise socket.gaierror("not for this test")
    return look_up(host, *rest, **more)

def guarded_connect(self, address):
    if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1"):
        asked.append(str(address[0]))
        raise OSError("not for this test")
    return connect(self, address)

socket.getaddrinfo, socket.socket.connect = guarded_look_up, guarded_connect
"""
