"""The program of a job in test_services.py: a small web server, and a port that sends noise."""

import base64
import hashlib
import http.server
import json
import os
import socket
import struct
import sys
import threading
import time
import urllib.parse

WEB, NOISE = int(sys.argv[1]), int(sys.argv[2])
OVER = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body, status=200, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path, _, query = self.path.partition("?")
        query = dict(urllib.parse.parse_qsl(query))
        if self.headers.get("Upgrade") == "websocket":
            return self.echo_frames()
        if path == "/headers":
            heard = {name.lower(): value for name, value in self.headers.items()}
            seen = {"path": self.path, "rank": os.environ["NODE_RANK"], **heard}
            return self.answer(json.dumps(seen).encode())
        if path == "/chunked":
            return self.chunked(int(query["pieces"]), int(query["size"]))
        if path == "/redirect":
            return self.answer(b"", 302, Location=query["to"])
        if path == "/cookie":
            return self.answer(
                b"",
                Set_Cookie="own=1; Path=/; Domain=localhost",
                Clear_Site_Data='"*"',
                Access_Control_Allow_Origin="*",
            )
        if path == "/huge":
            return self.answer(b"", X_Huge="x" * 200_000)
        if path == "/hold":
            time.sleep(float(query["seconds"]))
            return self.answer(b"held")
        return self.answer(b"<h1>hello</h1>", Content_Type="text/html")

    def chunked(self, pieces, size):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(pieces):
            piece = bytes([number % 256]) * size
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def do_POST(self):
        if self.path == "/quit":
            self.answer(b"bye")
            OVER.set()
            return
        digest, total = hashlib.sha256(), 0
        for piece in self.pieces():
            digest.update(piece)
            total += len(piece)
        self.answer(json.dumps({"bytes": total, "sha256": digest.hexdigest()}).encode())

    def pieces(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers["Content-Length"])
        while left:
            piece = self.rfile.read(min(left, 1 << 16))
            left -= len(piece)
            yield piece

    def echo_frames(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        self.close_connection = True
        while len(head := self.rfile.read(2)) == 2:
            length = head[1] & 127
            if length == 126:
                (length,) = struct.unpack(">H", self.rfile.read(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self.rfile.read(8))
            mask, data = self.rfile.read(4), self.rfile.read(length)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
            if head[0] & 15 == 8:
                return
            size = (
                struct.pack(">B", length)
                if length < 126
                else struct.pack(">BH", 126, length)
                if length < 1 << 16
                else struct.pack(">BQ", 127, length)
            )
            self.wfile.write(bytes([head[0]]) + size + data)
            self.wfile.flush()

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256


def noise():
    listener = socket.create_server(("127.0.0.1", NOISE), backlog=64)
    while True:
        caller, _ = listener.accept()
        caller.recv(1 << 16)
        caller.sendall(b"\x00\xff this is no HTTP\r\n\r\n" * 10)
        caller.close()


threading.Thread(target=noise, daemon=True).start()
server = Server(("127.0.0.1", WEB), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("serving", flush=True)
OVER.wait()
