"""The blob storage when things go wrong: bad signatures, half a blob, a full disk."""

import hashlib
import hmac
import http.client
import random
import ssl
import subprocess
import time
from urllib.parse import quote

import own_server
from own_server import Own
from test_storage import Place

own = own_server.own


def place_of(server, store="workspaceblobstore"):
    return Place(server.session(), server.url, server.ca, store)


def sign(server, place, rights, scope="c", at="", depth=0, expires="2099-01-01T00:00:00Z"):
    """A signature as the server computes it, for scopes that its API never issues."""
    secret = bytes.fromhex((server.state / "keys" / "token.key").read_text().strip())
    fields = [scope, str(depth), rights, "", expires, "https", "2023-11-03", place.container]
    text = "\n".join(fields) + "\n" + at
    mac = hmac.new(secret, b"blob\0" + text.encode(), hashlib.sha256).hexdigest()
    deep = f"&sdd={depth}" if depth else ""
    return f"sv=2023-11-03&sr={scope}{deep}&sp={rights}&se={quote(expires)}&spr=https&sig={mac}"


def bytes_kept(server):
    """The names of all files of blobs, and of those that are being uploaded."""
    root = server.state / "blobs"
    return [path for path in root.rglob("*") if path.is_file()]


def begin_upload(server, place, name, size, query=""):
    """A connection on which this many bytes are announced, and none was sent."""
    base, path = place.account.removeprefix("https://").split("/", 1)
    host, port = base.rsplit(":", 1)
    context = ssl.create_default_context(cafile=server.ca)
    line = http.client.HTTPSConnection(host, int(port), context=context, timeout=20)
    line.putrequest("PUT", f"/{path}/{place.container}/{name}?{query}{place.sas}")
    line.putheader("Content-Length", str(size))
    line.endheaders()
    return line


def test_signatures_are_as_narrow_as_they_say(own):
    server = own()
    place = place_of(server)
    for name in ("a/b/c", "a/b/d/e", "a/bc", "a/b", "x"):
        assert place.raw("PUT", name, data=b"1").status_code == 201

    def code(method, name, sas, query="", **more):
        answer = place.raw(method, name, query, sas=sas, **more)
        return answer.headers.get("x-ms-error-code", answer.status_code)

    outside, forbidden = "AuthenticationFailed", "AuthorizationPermissionMismatch"
    everything = sign(server, place, "rcwdl")
    assert code("GET", "x", everything) == 200, "the test signs as the server does"
    blob = sign(server, place, "rw", "b", "a/b/c")
    assert code("GET", "a/b/c", blob) == 200
    assert code("GET", "a/b/d/e", blob) == outside
    assert code("GET", "", blob, "restype=container&comp=list") == outside
    folder = sign(server, place, "rl", "d", "a/b", 2)
    assert [code("GET", name, folder) for name in ("a/b/c", "a/b/d/e")] == [200, 200]
    assert {code("GET", name, folder) for name in ("a/bc", "a/b", "x")} == {outside}
    assert code("GET", "a%2Fb%2Fc", folder) == 200, "the same name, however it is encoded"
    assert code("GET", "a/b/../bc", folder) == "BlobNotFound", "a name, not a path upwards"
    listing = "restype=container&comp=list&prefix="
    assert code("GET", "", folder, listing + "a%2Fb%2F") == 200
    assert {code("GET", "", folder, listing + way) for way in ("", "a", "a%2Fb")} == {outside}
    assert code("PUT", "a/b/new", folder, data=b"") == forbidden
    assert code("DELETE", "a/b/c", folder) == forbidden
    reader = sign(server, place, "r")
    assert code("GET", "", reader, listing) == forbidden
    assert code("PUT", "x", reader, "comp=metadata") == forbidden
    maker = sign(server, place, "c")
    assert code("PUT", "new", maker, data=b"1") == 201
    assert code("PUT", "new", maker, data=b"2") == forbidden
    assert place.raw("GET", "new").content == b"1"
    expired = sign(server, place, "rl", expires="2020-01-01T00:00:00Z")
    answer = place.raw("GET", "x", sas=expired)
    assert (answer.status_code, answer.headers["x-ms-error-code"]) == (403, outside)
    assert "expired at 2020-01-01T00:00:00Z" in answer.text
    soon = time.time() + 3
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(soon))
    brief = sign(server, place, "rw", expires=until)
    assert code("GET", "x", brief) == 200
    time.sleep(max(0, soon + 0.5 - time.time()))
    assert code("GET", "x", brief) == outside
    assert code("PUT", "late", brief, data=b"1") == outside
    assert code("HEAD", "late", everything) == "BlobNotFound"
    log = server.log.read_text()
    assert place.sas.split("sig=")[1] not in log and "a/b/c" not in log, "no signed URL is logged"


def test_a_client_that_stops_half_way_leaves_nothing(own):
    server = own()
    place = place_of(server)
    for query in ("", "comp=block&blockid=YQ%3D%3D&"):
        line = begin_upload(server, place, "half", 50 << 20, query)
        line.send(bytes(5 << 20))
        deadline = time.monotonic() + 20
        while not bytes_kept(server) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert bytes_kept(server), "the upload has started"
        line.close()
        while bytes_kept(server) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert bytes_kept(server) == []
    assert place.raw("HEAD", "half").headers["x-ms-error-code"] == "BlobNotFound"
    assert list(place.client().list_blobs()) == []


def test_slow_uploads_do_not_delay_other_clients(own):
    """More of them than the server has threads that may block."""
    server = own()
    place = place_of(server)
    assert place.raw("PUT", "there", data=b"1").status_code == 201
    slow = [begin_upload(server, place, f"slow{number}", 64 << 20) for number in range(600)]
    try:
        for line in slow:
            line.send(b"1")
        assert "<Name>there</Name>" in place.raw("GET", "", "restype=container&comp=list").text
        assert place.raw("GET", "there").content == b"1"
        assert place.raw("PUT", "new", data=bytes(5 << 20)).status_code == 201
    finally:
        for line in slow:
            line.close()


def test_what_is_deleted_or_replaced_goes_with_gc_and_the_rest_stays(own):
    server = own()
    place = place_of(server)
    for number in range(6):
        place.client().upload_blob(f"b{number}", bytes([number]) * 1_000)
    place.client().upload_blob("same", bytes([0]) * 1_000)
    place.raw("PUT", "waits", "comp=block&blockid=YQ%3D%3D", data=b"w" * 1_000)
    place.client().delete_blob("b1")
    place.client().delete_blob("b0")
    place.raw("PUT", "b2", data=b"replaced")
    assert len(bytes_kept(server)) == 8, "equal content is stored once"
    time.sleep(1.1)  # The time of a file is compared with a tolerance of a second.
    server.muster("storage", "gc")
    assert len(bytes_kept(server)) == 8, "ten minutes have not passed"
    would = server.muster("storage", "gc", "--grace-seconds", "0", "--dry-run", "-o", "json")
    assert '"files": 2' in would and '"bytes": 2000' in would
    assert len(bytes_kept(server)) == 8
    server.muster("storage", "gc", "--grace-seconds", "0")
    assert len(bytes_kept(server)) == 6
    assert place.raw("GET", "same").content == bytes([0]) * 1_000
    assert place.raw("GET", "b2").content == b"replaced"
    done = place.raw("PUT", "waits", "comp=blocklist", data=LIST)
    assert done.status_code == 201
    assert place.raw("GET", "waits").content == b"w" * 1_000


LIST = b"<BlockList><Latest>YQ==</Latest></BlockList>"

# In a mount namespace of its own, so that it disappears with the server.
SMALL_DISK = """#!/bin/sh
exec unshare -rm sh -c 'mount -t tmpfs -o size=30m none "$SMALL_DISK" && exec "$@"' \\
    sh {binary} "$@"
"""


def test_a_full_disk_is_reported_and_existing_blobs_are_kept(muster_bin, tmp_path):
    """A sixteenth is reserved for the server itself, so a disk of 30 MiB has room for 28."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
        print("no user namespaces here: nothing shown")
        return
    script, disk = tmp_path / "on-a-small-disk", tmp_path / "state" / "blobs"
    script.write_text(SMALL_DISK.format(binary=muster_bin))
    script.chmod(0o755)
    disk.mkdir(parents=True)
    server = Own(script, tmp_path, "--isolation", "none", SMALL_DISK=str(disk))
    server.binary = muster_bin
    try:
        place = place_of(server)
        content = random.Random(3).randbytes(9 << 20)
        place.client().upload_blob("first", content)
        for name in ("whole", "whole-again"):
            full = place.raw("PUT", name, data=random.Random(name).randbytes(25 << 20))
            assert (full.status_code, full.headers["x-ms-error-code"]) == (409, "StorageFull")
            assert "is full" in full.text
        staged = 0
        while True:
            piece = random.Random(staged).randbytes(4 << 20)
            answer = place.raw("PUT", "blocks", f"comp=block&blockid={staged:04}", data=piece)
            if answer.status_code != 201:
                break
            staged += 1
        assert answer.headers["x-ms-error-code"] == "StorageFull" and 0 < staged < 6
        assert [blob.name for blob in place.client().list_blobs()] == ["first"]
        assert place.client().download_blob("first").readall() == content
        # The uncommitted blocks are dropped, and there is room again.
        assert place.raw("PUT", "blocks", data=b"").status_code == 201
        time.sleep(1.1)
        server.muster("storage", "gc", "--grace-seconds", "0")
        assert place.raw("PUT", "whole", data=bytes(15 << 20)).status_code == 201
    finally:
        server.process.kill()
        server.process.wait()
