"""Kills the server fifty times with SIGKILL during uploads of blobs, blocks, code and job outputs.

What was acknowledged is there, complete; what is there was sent; and after `muster storage gc` a
row references every file on disk. `MUSTER_SEED` chooses other moments.
"""

import copy
import hashlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import own_server
import requests
from conftest import STRAY_PREFIXES, wait_for
from own_server import WS, V
from test_storage import Place
from test_storage_hostile import sign

own = own_server.own

KILLS = 50
SIZES = [0, 10, 5_000, 60_000, 60_000, 300_000, 1_500_000]
# The number of files in the named output of each job.
FILES_LEFT = 4

# Uploads folders as code, again and again, and prints which of them the server has.
UPLOADS = """
import hashlib, pathlib, random, sys
from azure.ai.ml import MLClient
from azure.ai.ml.entities._assets import Code
from azure.identity import DefaultAzureCredential

top, seed, *place = sys.argv[1:]
client = MLClient(DefaultAzureCredential(), *place)
chance = random.Random(seed)
print("ready", flush=True)
number = 0
while not pathlib.Path(top, "stop").exists():
    number += 1
    source = pathlib.Path(top, f"code{number}")
    (source / "deep").mkdir(parents=True)
    for name in ("train.py", "deep/data.bin", "deep/empty"):
        size = 0 if name.endswith("empty") else chance.choice([200, 40_000, 400_000])
        (source / name).write_bytes(chance.randbytes(size))
    while not pathlib.Path(top, "stop").exists():
        try:
            made = client._code.create_or_update(Code(path=str(source)))
        except Exception as failed:
            # Sent again, as a user would do who sees this.
            print("failed", type(failed).__name__, flush=True)
        else:
            print("made", made.id, source.name, flush=True)
            break
"""

LEAVES = f"""
set -e; mkdir -p outputs
for file in $(seq {FILES_LEFT - 1}); do
    head -c $((RANDOM * 20)) /dev/urandom > ${{{{outputs.model}}}}/$file
done
(cd ${{{{outputs.model}}}} && sha256sum * > sums)
cp ${{{{outputs.model}}}}/sums outputs/
"""


def digest(content):
    return hashlib.sha256(content).hexdigest()


class Sent:
    """The uploads of a client that waits for responses: the last acknowledged, and those since."""

    def __init__(self):
        self.lock, self.kept, self.maybe = threading.Lock(), {}, {}

    def sends(self, name, content):
        with self.lock:
            self.maybe.setdefault(name, set()).add(digest(content))

    def has(self, name, content):
        with self.lock:
            self.kept[name] = digest(content)
            self.maybe[name] = set()

    def possible(self, name):
        return {*self.maybe.get(name, ()), *filter(None, [self.kept.get(name)])}


class Storm:
    def __init__(self, place, seed):
        self.place, self.seed = place, seed
        self.is_over = threading.Event()
        self.sent, self.shared = Sent(), {}
        self.jobs, self.blocks = [], 0
        self.failures = []

    def put(self, session, name, query, content):
        """The response, or None if the server was killed."""
        url = f"{self.place.account}/{self.place.container}/{name}?{query}&{self.place.sas}"
        try:
            return session.put(url, data=content, verify=self.place.ca, timeout=30)
        except requests.RequestException:
            self.is_over.wait(0.03)
            return None

    def new_session(self):
        session = requests.Session()
        session.trust_env = False
        return session

    def whole(self, worker):
        chance, session, number = random.Random(f"{self.seed}-{worker}"), self.new_session(), 0
        while not self.is_over.is_set():
            number += chance.random() < 0.7
            name = f"whole/{worker}/{number}"
            content = chance.randbytes(chance.choice(SIZES))
            self.sent.sends(name, content)
            answer = self.put(session, name, "", content)
            if answer is not None:
                assert answer.status_code == 201, answer.text
                self.sent.has(name, content)

    def of_two(self, worker):
        """Two clients put the same blobs at once: afterwards, one of the sent versions is there."""
        chance, session = random.Random(f"{self.seed}-{worker}"), self.new_session()
        while not self.is_over.is_set():
            name = f"shared/{chance.randrange(3)}"
            content = chance.randbytes(chance.choice(SIZES))
            with self.sent.lock:
                self.shared.setdefault(name, set()).add(digest(content))
            answer = self.put(session, name, "", content)
            assert answer is None or answer.status_code == 201, answer.text

    def in_blocks(self, worker):
        """Each block is sent until it is acknowledged; then it is there, whatever is killed."""
        chance, session, number = random.Random(f"{self.seed}-{worker}"), self.new_session(), 0
        while not self.is_over.is_set():
            number += chance.random() < 0.8
            name, parts = f"blocks/{worker}/{number}", []
            for block in range(chance.randrange(1, 6)):
                content = chance.randbytes(chance.choice(SIZES[2:]))
                while self.put(session, name, f"comp=block&blockid={block:04}", content) is None:
                    if self.is_over.is_set():
                        return
                parts.append(content)
                self.blocks += 1
            names = "".join(f"<Latest>{block:04}</Latest>" for block in range(len(parts)))
            body = f"<BlockList>{names}</BlockList>".encode()
            content = b"".join(parts)
            self.sent.sends(name, content)
            while (answer := self.put(session, name, "comp=blocklist", body)) is None:
                if self.is_over.is_set():
                    return
            assert answer.status_code == 201, answer.text
            self.sent.has(name, content)

    def start(self):
        def guarded(work, worker):
            try:
                work(worker)
            except Exception as failed:
                self.failures.append(failed)

        works = [self.whole, self.whole, self.of_two, self.of_two, self.in_blocks, self.in_blocks]
        threads = [threading.Thread(target=guarded, args=one[::-1]) for one in enumerate(works)]
        for thread in threads:
            thread.start()
        return threads

    def submit(self, session, url):
        """Submits one more job; if the server is killed meanwhile, the job does not count."""
        name = f"leaves-{len(self.jobs)}"
        properties = {
            "jobType": "Command",
            "computeId": f"{WS}/computes/leaving",
            "environmentId": f"{WS}/environments/plain/versions/1",
            "command": LEAVES,
            "outputs": {"model": {"jobOutputType": "uri_folder"}},
        }
        answer = session.put(
            f"{url}{WS}/jobs/{name}", params=V, json={"properties": properties}, timeout=30
        )
        assert answer.status_code in (200, 201), answer.text
        self.jobs.append(name)


def blobs_below(place, prefix=""):
    found = place.client().list_blobs(name_starts_with=prefix)
    return {blob.name: blob.size for blob in found}


def left_by_jobs(place):
    """The files of every job whose named output is visible."""
    jobs = {}
    for name in blobs_below(place, "azureml/leaves-"):
        _, job, rest = name.split("/", 2)
        jobs.setdefault(job, set()).add(rest)
    return jobs


def content_of(place, name):
    return place.client().download_blob(name).readall()


def check_sums(place, folder):
    sums = content_of(place, f"{folder}/sums").decode().splitlines()
    assert len(sums) == FILES_LEFT - 1
    for line in sums:
        wanted, name = line.split()
        assert digest(content_of(place, f"{folder}/{name}")) == wanted, f"{folder}/{name} is torn"


def named_by_rows(state):
    """(workspace, digest) of every file that a row references. The server is not running."""
    named = set()
    with sqlite3.connect(state / "storage.db") as rows:
        for table in ("segments", "staged"):
            for workspace, found in rows.execute(f"SELECT workspace, digest FROM {table}"):
                named.add((f"w{workspace:016x}", found.hex()))
    with sqlite3.connect(state / "muster.db") as rows:
        for workspace, tree in rows.execute("SELECT workspace, tree FROM job_trees"):
            workspace = f"w{workspace:016x}"
            named.add((workspace, tree))
            text = (state / "blobs" / workspace / tree[:2] / tree).read_text()
            named |= {(workspace, line.split()[0]) for line in text.splitlines()[1:]}
    return named


def environment_of(server):
    clean = {name: it for name, it in os.environ.items() if not name.startswith(STRAY_PREFIXES)}
    return {**clean, **server.env()}


# Takes a minute: fifty restarts with writers in between.
def test_fifty_kills_lose_nothing_tear_nothing_and_leave_no_orphans(own, tmp_path):
    seed = os.environ.get("MUSTER_SEED", "1")
    chance = random.Random(seed)
    folder, code = tmp_path / "server", tmp_path / "code"
    folder.mkdir()
    code.mkdir()

    def start():
        return own("--isolation", "none", folder=folder)

    server = start()
    session, place = server.session(), Place(server.session(), server.url, server.ca)
    image = {"properties": {"image": "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04"}}
    session.put(f"{server.url}{WS}/environments/plain/versions/1", params=V, json=image)
    create = ("compute", "create", "--name", "leaving", "--max-instances", "2")
    where = WS.split("/")
    flags = (f"--subscription={where[2]}", f"--resource-group={where[4]}", f"-w={where[-1]}")
    server.muster(*create, "--idle-time-before-scale-down", "600", *flags)
    uploads = subprocess.Popen(
        [sys.executable, "-c", UPLOADS, code, seed, where[2], where[4], where[-1]],
        env=environment_of(server),
        stdout=(tmp_path / "uploads.txt").open("wb"),
        stderr=(tmp_path / "uploads-err.txt").open("wb"),
    )
    said = tmp_path / "uploads.txt"
    storm = Storm(place, seed)
    try:
        wait_for("azure-ai-ml", 60, lambda: b"ready" in said.read_bytes())
        threads = storm.start()
        try:
            for _ in range(KILLS):
                storm.submit(session, server.url)
                until = time.monotonic() + chance.random() * 0.8
                for job, files in left_by_jobs(place).items():
                    assert len(files) == FILES_LEFT, f"seed {seed}: {job} is visible in part"
                while time.monotonic() < until:
                    time.sleep(0.005)
                server.process.send_signal(signal.SIGKILL)
                server.process.wait()
                server = start()
        finally:
            storm.is_over.set()
            (code / "stop").touch()
            for thread in threads:
                thread.join(60)
        assert storm.failures == [] and not any(thread.is_alive() for thread in threads)
        assert uploads.wait(60) == 0, (tmp_path / "uploads-err.txt").read_text()
    finally:
        uploads.kill()
        uploads.wait()

    sent = storm.sent
    found = blobs_below(place)
    assert set(sent.kept) <= set(found), f"seed {seed}: an acknowledged blob is lost"
    for name in found:
        if name.startswith(("whole/", "blocks/")):
            assert digest(content_of(place, name)) in sent.possible(name), f"{seed}: {name} is torn"
        if name.startswith("shared/"):
            assert digest(content_of(place, name)) in storm.shared[name], f"{seed}: {name} is torn"

    made = [line.split()[1:] for line in said.read_text().splitlines() if line.startswith("made")]
    for asset, source in made:
        seen = session.get(f"{server.url}{asset}", params=V).json()["properties"]["codeUri"]
        at = copy.copy(place)
        at.container, below = seen.removeprefix(place.account + "/").split("/", 1)
        at.sas = sign(server, at, "rl")
        files = [path for path in (code / source).rglob("*") if path.is_file()]
        assert len(files) == 3
        for file in files:
            name = f"{below}/{file.relative_to(code / source)}"
            assert content_of(at, name) == file.read_bytes(), f"seed {seed}: {name}"

    artifacts = Place(session, server.url, server.ca, "workspaceartifactstore")
    for job in storm.jobs:

        def ended(job=job):
            seen = session.get(f"{server.url}{WS}/jobs/{job}", params=V).json()
            status = seen["properties"]["status"]
            return status if status in ("Completed", "Failed", "Canceled") else None

        assert wait_for(job, 60, ended) == "Completed", job
        check_sums(place, f"azureml/{job}/model")
        kept = content_of(artifacts, f"ExperimentRun/dcid.{job}/outputs/sums")
        assert kept == content_of(place, f"azureml/{job}/model/sums")

    server.muster("compute", "delete", "--name", "leaving", "--yes", *flags)
    time.sleep(1.1)  # The time of a file is compared with a tolerance of a second.
    swept = json.loads(server.muster("storage", "gc", "--grace-seconds", "0", "-o", "json"))
    assert server.stop() == 0
    blobs = server.state / "blobs"
    kept = {path.parts[-3::2] for path in blobs.rglob("*") if path.is_file()}
    assert kept == named_by_rows(server.state), f"seed {seed}: unreferenced or lost bytes"
    assert list((blobs / "incoming").iterdir()) == []
    print(
        f"{len(sent.kept)} blobs, {storm.blocks} blocks, {len(made)} folders of code, "
        f"{len(storm.jobs)} jobs; {swept['files']} files went"
    )
    assert len(sent.kept) > KILLS and storm.blocks > KILLS and made and swept["files"] > 0
