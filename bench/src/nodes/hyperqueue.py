"""HyperQueue's LocalCluster: one command per line on standard input, answers on standard output."""

import sys
import time
from pathlib import Path

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

STAMP = ["/bin/sh", "-c", "date +%s%N"]


def wait_for_line(path, pause):
    while not (path.exists() and path.read_text().endswith("\n")):
        time.sleep(pause)
    return int(path.read_text())


def first_line(client, path):
    job = Job()
    job.program(STAMP, stdout=str(path), stderr=None)
    before = time.time_ns()
    client.submit(job)
    return wait_for_line(path, 0.001) - before


def no_op_tasks(tasks):
    job = Job(max_fails=None)
    for _ in range(tasks):
        job.program(["/bin/sh", "-c", "true"], stdout=None, stderr=None)
    return job


def bulk(client, tasks, path):
    job = no_op_tasks(tasks)
    # Its own wait polls once a second; a last task of lower priority shows the end more precisely.
    job.program(STAMP, stdout=str(path), stderr=None, priority=-1)
    before = time.time_ns()
    client.submit(job)
    # It shares a process with the server, so more polling would be counted as the server's work.
    return wait_for_line(path, 0.05) - before


def append(client, tasks, path):
    job = Job(max_fails=None)
    for task in range(tasks):
        job.program(["/bin/sh", "-c", f"echo {task} >> {path}"], stdout=None, stderr=None)
    client.submit(job)
    return 0


def main(folder, cores):
    # Without a worker, tasks wait.
    worker = WorkerConfig(cores=cores) if cores > 0 else None
    cluster = LocalCluster(str(folder / "server"), worker)
    client = cluster.client()
    print("ready", flush=True)
    for number, line in enumerate(sys.stdin):
        word, *rest = line.split()
        if word == "first-line":
            took = first_line(client, folder / f"out-{time.time_ns()}-{number}")
        elif word == "bulk":
            took = bulk(client, int(rest[0]), folder / f"bulk-{time.time_ns()}-{number}")
        elif word == "queue":
            client.submit(no_op_tasks(int(rest[0])))
            took = 0
        else:
            took = append(client, int(rest[0]), rest[1])
        print("took", took, flush=True)
    cluster.stop()


main(Path(sys.argv[1]), int(sys.argv[2]))
