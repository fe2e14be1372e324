"""azure-ai-ml as a client of the benchmark.

`sdk.py MUSTER STATE_DIR submit PREFIX COUNT`, or `first RUNS`, or `warm RUNS`, prints `ready`,
waits for a line, works, and prints its measurements, one `WHAT MILLISECONDS` per line.
"""

import json
import logging
import os
import subprocess
import sys
import time

muster, state_dir, what, *rest = sys.argv[1:]
said = subprocess.run(
    [muster, "env", "--shell", "json", "--state-dir", state_dir], check=True, capture_output=True
)
os.environ.update(json.loads(said.stdout))

from azure.ai.ml import MLClient, command  # noqa: E402
from azure.ai.ml.entities import Environment  # noqa: E402
from azure.identity import ManagedIdentityCredential  # noqa: E402

logging.disable(logging.WARNING)
client = MLClient(ManagedIdentityCredential(), "bench", "bench", "bench")
IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04"
PLAIN = Environment(name="bench-plain", version="1", image=IMAGE)
# A small package that every index has.
CONDA = {"dependencies": ["python=3.11", "pip", {"pip": ["six==1.17.0"]}]}
PATIENCE_S = 120


def log_of(name):
    """The log of the job so far."""
    details = client.jobs._runs_operations.get_run_details(name)
    log = next(iter(details.log_files.values()))
    import requests

    return requests.get(log, timeout=30, verify=os.environ["REQUESTS_CA_BUNDLE"]).text


def to_first_line(name, cluster, environment):
    """The time from the job's creation to its first line, in milliseconds."""
    job = command(command="date +%s%N", environment=environment, compute=cluster)
    job.name = name
    made = client.jobs.create_or_update(job)
    deadline = time.monotonic() + PATIENCE_S
    while (seen := client.jobs.get(name)).status not in ("Completed", "Failed", "Canceled"):
        if time.monotonic() > deadline:
            sys.exit(f"{name} is still {seen.status}")
        time.sleep(0.02)
    log = log_of(name)
    stamps = [line for line in log.splitlines() if line.isdigit() and len(line) > 15]
    if not stamps:
        sys.exit(f"{name} is {seen.status} and printed no time: {log[-300:]}")
    return int(stamps[0]) / 1e6 - made.creation_context.created_at.timestamp() * 1e3


def start():
    print("ready", flush=True)
    sys.stdin.readline()


if what == "submit":
    prefix, count = rest[0], int(rest[1])
    environment = client.environments.create_or_update(PLAIN)
    job = command(command="true", environment=environment, compute="queue")
    start()
    for number in range(count):
        job.name = f"{prefix}-{number}"
        client.jobs.create_or_update(job)
elif what == "first":
    environment = client.environments.create_or_update(PLAIN)
    start()
    for run in range(int(rest[0]) + 1):
        took = to_first_line(f"first-{run}", "zero", environment)
        # The first run is not counted, because caches are cold.
        if run:
            print("first", took, flush=True)
        time.sleep(1)
elif what == "warm":
    plain = client.environments.create_or_update(PLAIN)
    with_packages = Environment(name="bench-six", version="1", image=IMAGE, conda_file=CONDA)
    built = client.environments.create_or_update(with_packages)
    start()
    for run in range(int(rest[0]) + 1):
        for word, environment in (("plain", plain), ("warm", built)):
            took = to_first_line(f"{word}-{run}", "warm", environment)
            if run:
                print(word, took, flush=True)
