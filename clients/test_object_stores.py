"""Bytes in object stores: in S3 as moto serves it, and in another Muster's blob storage.

Rows are kept in the state directory, and every promise holds: what was acknowledged is there,
complete, even after a kill.
"""

import os
import random
import signal
import socket
import subprocess
import time

import own_server
import pytest
import requests
from conftest import REPOSITORY, wait_for
from own_server import WS, V
from test_storage import Place

own = own_server.own

MOTO = REPOSITORY / ".venv-s3" / "bin" / "moto_server"
LIST = b"<BlockList><Latest>YQ==</Latest><Latest>Yg==</Latest></BlockList>"


class S3:
    """A bucket of a server of its own."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [MOTO, "-H", "127.0.0.1", "-p", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=(folder / "moto.txt").open("wb"),
            stderr=subprocess.STDOUT,
            env={**os.environ, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"},
        )
        wait_for("moto", 60, self.is_up)
        assert requests.put(f"{self.url}/bucket", timeout=10).status_code == 200
        self.address = "s3://bucket/some/prefix"
        self.variables = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "y",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def is_up(self):
        try:
            return requests.get(self.url, timeout=1).status_code < 500
        except requests.RequestException:
            assert self.process.poll() is None
            return False

    def names(self):
        import xml.etree.ElementTree as xml

        page = requests.get(f"{self.url}/bucket?list-type=2&max-keys=1000", timeout=10).text
        keys = [key.text for key in xml.fromstring(page).iter() if key.tag.endswith("}Key")]
        assert all(key.startswith("some/prefix/w") for key in keys), keys
        return keys

    def end(self):
        self.process.kill()
        self.process.wait()


class Other:
    """A container of another Muster, opened with a signed URL."""

    def __init__(self, server):
        self.place = Place(server.session(), server.url, server.ca)
        self.address = f"az://{self.place.container}/some/prefix"
        self.variables = {
            "AZURE_STORAGE_ACCOUNT_NAME": "muster",
            "AZURE_STORAGE_ENDPOINT": self.place.account.rsplit("/", 1)[0],
            "AZURE_STORAGE_SAS_KEY": self.place.sas,
            "SSL_CERT_FILE": server.ca,
        }

    def names(self):
        return [blob.name for blob in self.place.client().list_blobs()]

    def end(self):
        pass


@pytest.fixture(params=["s3", "azure"])
def elsewhere(request, own, tmp_path):
    store = S3(tmp_path) if request.param == "s3" else Other(own())
    yield store
    store.end()


def start(own, store, folder):
    flags = ("--isolation", "none", "--blob-store", store.address)
    return own(*flags, folder=folder, **store.variables)


def test_blobs_go_there_and_come_back_and_gc_cleans_up(own, elsewhere, tmp_path):
    folder = tmp_path / "with-rows"
    folder.mkdir()
    server = start(own, elsewhere, folder)
    place = Place(server.session(), server.url, server.ca)
    chance = random.Random(5)
    small, large = chance.randbytes(70_000), chance.randbytes(21_000_000)
    client = place.client()
    client.upload_blob("small", small)
    client.upload_blob("empty", b"")
    # In one request, which becomes several parts in the object store.
    assert place.raw("PUT", "large", data=large).status_code == 201
    blob = place.in_blocks().get_blob_client("blocks")
    blob.upload_blob(large[:5_000_001], max_concurrency=3)

    def check():
        assert client.download_blob("small").readall() == small
        assert client.download_blob("empty").readall() == b""
        assert client.download_blob("large").readall() == large
        assert client.download_blob("blocks").readall() == large[:5_000_001]
        part = client.get_blob_client("blocks").download_blob(offset=1_000_000, length=200_000)
        assert part.readall() == large[1_000_000:1_200_000]

    check()
    names = elsewhere.names()
    assert len(names) == 3 + 5, "each file is stored once; there are five blocks"
    local = [path.name for path in (server.state / "blobs").rglob("*") if path.is_file()]
    assert local == ["elsewhere"], "no bytes are kept locally"

    # Acknowledged blobs and uncommitted blocks are there after a kill.
    for block in (b"YQ", b"Yg"):
        query = f"comp=block&blockid={block.decode()}%3D%3D"
        assert place.raw("PUT", "waits", query, data=block * 1_000).status_code == 201
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    server = start(own, elsewhere, folder)
    check()
    assert place.raw("PUT", "waits", "comp=blocklist", data=LIST).status_code == 201
    assert client.download_blob("waits").readall() == b"YQ" * 1_000 + b"Yg" * 1_000

    client.delete_blob("large")
    place.raw("PUT", "small", data=b"replaced")
    time.sleep(2.1)  # The time of an object has whole seconds.
    server.muster("storage", "gc")
    assert len(elsewhere.names()) == 11, "ten minutes have not passed"
    would = server.muster("storage", "gc", "--grace-seconds", "0", "--dry-run", "-o", "json")
    assert '"files": 2' in would and f'"bytes": {len(small) + len(large)}' in would, would
    server.muster("storage", "gc", "--grace-seconds", "0")
    assert len(elsewhere.names()) == 9
    assert client.download_blob("small").readall() == b"replaced"
    assert client.download_blob("blocks").readall() == large[:5_000_001]
    assert server.stop() == 0

    # The same rows with another byte store would be blobs without bytes.
    refused = subprocess.run(
        [server.binary, "up", "--state-dir", server.state, "--listen", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert refused.returncode != 0 and "set it back" in refused.stderr, refused.stderr


def test_jobs_bring_and_leave_files_there(own, elsewhere, tmp_path):
    folder, code = tmp_path / "with-rows", tmp_path / "code"
    folder.mkdir()
    code.mkdir()
    (code / "run.sh").write_text("mkdir -p outputs; seq 100000 > outputs/numbers; cat more/data\n")
    (code / "more").mkdir()
    (code / "more" / "data").write_text("brought\n")
    server = start(own, elsewhere, folder)
    where = WS.split("/")
    flags = (f"--subscription={where[2]}", f"--resource-group={where[4]}", f"-w={where[-1]}")
    server.muster("compute", "create", "--name", "pool", "--max-instances", "1", *flags)
    job = ("job", "create", "--name", "leaves", "--compute", "pool", "--code", str(code))
    server.muster(*job, "--command", "sh run.sh", *flags)
    session = server.session()

    def status():
        seen = session.get(f"{server.url}{WS}/jobs/leaves", params=V).json()
        status = seen["properties"]["status"]
        return status if status in ("Completed", "Failed") else None

    assert wait_for("the job", 60, status) == "Completed"
    artifacts = Place(session, server.url, server.ca, "workspaceartifactstore").client()
    left = artifacts.download_blob("ExperimentRun/dcid.leaves/outputs/numbers").readall()
    assert left == b"".join(b"%d\n" % number for number in range(1, 100_001))
    log = artifacts.download_blob("ExperimentRun/dcid.leaves/user_logs/std_log.txt").readall()
    assert b"brought" in log
    before = len(elsewhere.names())
    time.sleep(2.1)
    server.muster("storage", "gc", "--grace-seconds", "0")
    assert len(elsewhere.names()) == before > 4, "the job references all of it"
    server.muster("compute", "delete", "--name", "pool", "--yes", *flags)
    assert server.stop() == 0


def test_an_invalid_store_is_refused_and_an_unreachable_one_is_reported(own, muster_bin, tmp_path):
    def refused(address, **variables):
        done = subprocess.run(
            [muster_bin, "up", "--blob-store", address, "--state-dir", tmp_path / "refused"],
            capture_output=True,
            text=True,
            timeout=30,
            env={**os.environ, **variables},
        )
        assert done.returncode != 0
        return done.stderr

    for address in ("ftp://x/y", "s3:/x", "s3://", "/a/folder", "s3://bucket/ü", "gs://b?x=1"):
        assert "s3://BUCKET/PREFIX" in refused(address), address
    # The name of the account is missing.
    assert "AZURE_" in refused("az://container/prefix")

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{unused.getsockname()[1]}"
        server = own(
            *("--isolation", "none", "--blob-store", "s3://bucket/prefix"),
            AWS_ENDPOINT_URL=gone,
            AWS_ALLOW_HTTP="true",
            AWS_ACCESS_KEY_ID="x",
            AWS_SECRET_ACCESS_KEY="y",
        )
        place = Place(server.session(), server.url, server.ca)
        answer = place.raw("PUT", "x", data=b"1")
        assert answer.status_code == 503 and "see its log" in answer.text
        assert list(place.client().list_blobs()) == []
        assert "cannot store or read" in server.log.read_text()
