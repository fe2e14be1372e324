"""kill -9 of the server at random moments, while it builds environments and saves the outputs of
jobs: jobs continue, nothing incomplete is visible, and each environment is built exactly once."""

import os
import random
import signal
import threading
import time

import requests
from conftest import wait_for
from own_server import WS, V, own  # noqa: F401  (a fixture)
from test_joined_environments import IN_WORKSPACE, Lab

KILLS = 20
# Small, and without dependencies; each is an environment.
PACKAGES = ("six", "idna", "certifi", "packaging", "attrs")
FILES = 12

# Each file has its number in its first and last line, and appears complete under its name. A
# named output has all files or none.
CAPTURE = f"""
import os, pathlib, time
def write(folder, number, round):
    path = pathlib.Path(folder, f"{{number}}.txt")
    mark = f"{{number}} {{round}}\\n"
    new = path.with_suffix(".new")
    new.write_text(mark + "x" * (number * 20_000) + "\\n" + mark)
    os.rename(new, path)
began, round = time.time(), 0
while time.time() - began < float(os.environ["SECONDS_OF_WORK"]):
    for number in range({FILES}):
        write("outputs", number, round)
    pathlib.Path("logs/rounds").write_text(f"{{round}}\\n")
    round += 1
    time.sleep(2.5)
for number in range({FILES}):
    write(os.environ["AZURE_ML_OUTPUT_model"], number, "last")
    write("outputs", number, "last")
print("done", flush=True)
"""


def check_whole(name, text):
    first, last = text.splitlines()[0], text.splitlines()[-1]
    number = int(name.removesuffix(".txt"))
    assert first == last and first.split()[0] == str(number), (name, first, last)
    assert len(text) == 2 * len(first) + 3 + number * 20_000, name
    return first.split()[1]


class Blobs:
    def __init__(self, lab, store):
        at = f"{lab.server.url}{WS}/datastores/{store}"
        seen = lab.session.get(at, params=V).json()["properties"]
        body = {"expirableSecret": True, "expireAfterHours": 1}
        sas = lab.session.post(f"{at}/listSecrets", params=V, json=body).json()["sasToken"]
        from azure.storage.blob import ContainerClient

        account = f"https://{seen['accountName']}.blob.{seen['endpoint']}"
        more = {"connection_verify": lab.server.ca, "retry_total": 0}
        self.client = ContainerClient(account, seen["containerName"], sas, **more)

    def texts(self, below):
        """All blobs of one list, by name."""
        names = [blob.name for blob in self.client.list_blobs(name_starts_with=below)]
        read = self.client.download_blob
        return {name.removeprefix(below): read(name).readall().decode() for name in names}


def looked_at(lab, job, count):
    """Checks the outputs of a job so far, whatever the server is doing, and counts them."""
    from azure.core.exceptions import AzureError

    try:
        kept = Blobs(lab, "workspaceartifactstore").texts(f"ExperimentRun/dcid.{job}/outputs/")
        named = Blobs(lab, "workspaceblobstore").texts(f"azureml/{job}/model/")
    except (AzureError, requests.RequestException, KeyError, ValueError):
        return
    for name, text in kept.items():
        if name.endswith(".txt"):
            check_whole(name, text)
            count["files"] += 1
    assert len(named) in (0, FILES), "a named output is complete or absent"
    for name, text in named.items():
        assert check_whole(name, text) == "last"


def watch(lab, jobs, count, is_over, found):
    try:
        while not is_over.wait(0.3):
            for job in jobs:
                looked_at(lab, job, count)
    except AssertionError as torn:
        found.append(torn)


# Takes 30 s: twenty restarts, each in the middle of a capture.
def test_twenty_kills_tear_nothing(own):  # noqa: F811
    chance = random.Random(seed := int(os.environ.get("MUSTER_STORM_SEED", time.time())))
    print("MUSTER_STORM_SEED", seed)
    flags = ("--isolation", "sandbox")
    server = own(*flags)
    lab = Lab(server)
    lab.cluster(nodes=4)
    lab.put("/environments/plain/versions/1", {"image": "ubuntu:22.04"})
    output = {"jobOutputType": "uri_folder", "mode": "ReadWriteMount"}
    script = f"cat > capture.py <<'END'\n{CAPTURE}\nEND\npython3 capture.py"
    work = {"environmentVariables": {"SECONDS_OF_WORK": "25"}, "outputs": {"model": output}}
    captures = [
        lab.submit(script, f"{WS}/environments/plain/versions/1", name=f"capture-{n}", **work)
        for n in range(2)
    ]
    count, is_over, found = {"files": 0}, threading.Event(), []
    watcher = threading.Thread(target=watch, args=(lab, captures, count, is_over, found))
    watcher.start()
    builds, waiting = [], list(PACKAGES)
    running = server
    try:
        for number in range(KILLS):
            if waiting and number % 3 == 0:
                package = waiting.pop()
                conda = f"dependencies:\n- python\n- pip:\n  - {package}\n"
                environment = lab.environment(package, conda)
                name = f"build-{package}"
                builds.append(
                    lab.submit(f"python -c 'import {import_of(package)}'", environment, name)
                )
            time.sleep(chance.uniform(0.05, 1.5))
            running.process.send_signal(signal.SIGKILL)
            running.process.wait()
            # It listens on the same address as before.
            running = own(*flags, folder=server.folder)
            lab.server = running
            lab.session = running.session()
        over = time.monotonic()
        for job in captures + builds:
            assert lab.ended(job, 60) == "Completed", lab.log(job)
        print("ended", time.monotonic() - over, "s after the last kill;", count)
    finally:
        is_over.set()
        watcher.join()
    assert not found, found
    assert count["files"] > 0, "some outputs were seen while the job ran"
    for job in captures:
        attempts = running.muster("job", "list-attempts", "-n", job, "-o", "tsv", *IN_WORKSPACE)
        assert len(attempts.strip().splitlines()) == 1, "the job ran through all restarts"
        kept = Blobs(lab, "workspaceartifactstore").texts(f"ExperimentRun/dcid.{job}/outputs/")
        assert sorted(kept) == sorted(f"{number}.txt" for number in range(FILES))
        assert {check_whole(name, text) for name, text in kept.items()} == {"last"}
        named = Blobs(lab, "workspaceblobstore").texts(f"azureml/{job}/model/")
        assert sorted(named) == sorted(kept)
    environments = running.state / "environments"
    ready = [path for path in (environments / "ready").iterdir() if len(path.name) == 64]
    assert len(ready) == len(builds) == len(PACKAGES), "each environment is built once"
    wait_for("none is incomplete", 10, lambda: not any((environments / "building").iterdir()))
    running.muster("compute", "delete", "-n", "cpu", "--yes", *IN_WORKSPACE)


def import_of(package):
    return {"attrs": "attr"}.get(package, package)
