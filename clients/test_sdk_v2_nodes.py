"""What a job finds and leaves on its node, on real nodes: files that are visible while it runs,
its own token, MPI."""

import contextlib
import json
import re
import shutil
import uuid

import pytest
import requests
from conftest import wait_for
from own_server import WS, V
from test_sdk_v2_jobs import log_of, tree
from test_storage import Place

CLUSTER = "nodes-cpu"


@pytest.fixture(scope="module")
def cluster(ml_client):
    from azure.ai.ml.entities import AmlCompute

    wanted = AmlCompute(name=CLUSTER, min_instances=0, max_instances=2)
    wanted.idle_time_before_scale_down = 60
    yield ml_client.compute.begin_create_or_update(wanted).result().name
    ml_client.compute.begin_delete(CLUSTER).result()


@pytest.fixture(scope="module")
def artifacts(server, session, server_env):
    ca = server_env["REQUESTS_CA_BUNDLE"]
    return Place(session, server.url, ca, store="workspaceartifactstore")


def submit(ml_client, script, **options):
    from azure.ai.ml import command
    from azure.ai.ml.entities import Environment

    options = {"environment": Environment(image="ubuntu:22.04"), **options}
    name = f"node-{uuid.uuid4().hex[:12]}"
    job = command(name=name, command=script, compute=CLUSTER, **options)
    return ml_client.jobs.create_or_update(job).name


def seen(artifacts, job):
    """What is in a job's folders now: names and texts."""
    top = f"ExperimentRun/dcid.{job}/"
    client = artifacts.client()
    found = {}
    for blob in client.list_blobs(name_starts_with=top):
        name = blob.name.removeprefix(top)
        if name.startswith(("outputs/", "logs/")):
            # It may be deleted between being listed and being read.
            with contextlib.suppress(Exception):
                found[name] = client.download_blob(blob.name).readall().decode()
    return found


# Writes a line every 20 ms, so that the log never rests; other files stay, change, shrink and
# are deleted.
RESTLESS = """
mkdir outputs/deep
echo one > outputs/deep/model; echo 0123456789 > logs/shrinks; echo x > outputs/goes
( while :; do echo line; sleep 0.02; done > logs/steps.log ) &
sleep 12
echo two > outputs/deep/model; : > logs/shrinks; rm outputs/goes
sleep 12
touch outputs/deep/model2
sleep 6
kill $!; echo end > logs/end
"""


# Takes 30 s: the job pauses between its changes, so that each state can be seen.
def test_outputs_and_logs_are_seen_while_the_job_runs(ml_client, cluster, artifacts, tmp_path):
    job = submit(ml_client, f"bash -c '{RESTLESS}'")
    look = lambda: seen(artifacts, job)  # noqa: E731
    first = wait_for("files of a running job", 40, lambda: look().get("outputs/deep/model"))
    assert first == "one\n"
    assert ml_client.jobs.get(job).status == "Running"
    grown = wait_for("a log that never rests", 15, lambda: look().get("logs/steps.log"))
    assert set(grown.split()) == {"line"}
    wait_for("the changed file", 15, lambda: look().get("outputs/deep/model") == "two\n")
    # Files that were deleted or shrank are current at the same moment.
    after = wait_for("the deleted file", 15, lambda: "outputs/goes" not in (now := look()) and now)
    assert after["logs/shrinks"] in ("", "0123456789\n")
    longer = wait_for("more of the log", 15, lambda: len(look()["logs/steps.log"]) > len(grown))
    assert longer and ml_client.jobs.get(job).status == "Running"
    log_of(ml_client, job, tmp_path)
    assert ml_client.jobs.get(job).status == "Completed"
    last = look()
    assert set(last) == {
        *("outputs/deep/model", "outputs/deep/model2"),
        *("logs/end", "logs/shrinks", "logs/steps.log"),
    }
    assert last["logs/shrinks"] == "" and last["logs/end"] == "end\n"
    ml_client.jobs.download(job, download_path=tmp_path / "down")
    down = tree(tmp_path / "down" / "artifacts")
    assert down["logs/steps.log"].decode() == last["logs/steps.log"]


ASK = """
import json, os, time, urllib.request, urllib.error
home = "{ws}"
def ask(path, method="GET", body=None):
    url = os.environ["AZUREML_SERVICE_ENDPOINT"] + path + "?api-version=2024-04-01"
    token = "Bearer " + os.environ["AZUREML_RUN_TOKEN"]
    headers = {{"Authorization": token, "Content-Type": "application/json"}}
    request = urllib.request.Request(url, method=method, data=body, headers=headers)
    try:
        return urllib.request.urlopen(request).status
    except urllib.error.HTTPError as error:
        return error.code
me = os.environ["AZUREML_RUN_ID"]
history = home.join(["/history/v1.0", "/runs/"])
data = f"/history/v1.0{{home}}/rundata"
of = lambda run: json.dumps({{"runId": run}}).encode()
found = {{
    "own job": ask(f"{{home}}/jobs/{{me}}"),
    "own run": ask(f"{{history}}{{me}}/details"),
    "own data": ask(data, "POST", of(me)),
    "workspace": ask(home),
    "another job": ask(f"{{home}}/jobs/{other}"),
    "another run": ask(f"{{history}}{other}/details"),
    "another's data": ask(data, "POST", of("{other}")),
    "all jobs": ask(f"{{home}}/jobs"),
    "a new job": ask(f"{{home}}/jobs/made-by-a-job", "PUT", b"{{}}"),
    "computes": ask(f"{{home}}/computes"),
    "itself cancelled": ask(f"{{home}}/jobs/{{me}}/cancel", "POST", b""),
}}
print("found:" + json.dumps(found))
print("token:" + os.environ["AZUREML_RUN_TOKEN"] + " " + os.environ["AZUREML_RUN_TOKEN_EXPIRY"])
print("workspace:" + os.environ["AZUREML_WORKSPACE_ID"])
print("mlflow:" + str([name for name in os.environ if name.startswith("MLFLOW")]), flush=True)
while not os.path.exists("/tmp/never"):
    time.sleep(0.2)
"""


def test_a_run_may_ask_about_itself_and_for_what_is_its_own(
    ml_client, cluster, artifacts, session, server, server_env, tmp_path
):
    other = submit(ml_client, "true")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "ask.py").write_text(ASK.format(ws=WS, other=other))
    job = submit(ml_client, "python3 ask.py", code=str(tmp_path / "src"))
    at = f"{server.url}/history/v1.0{WS}/runs/{job}/details"

    def log():
        files = session.get(at, params=V).json().get("logFiles") or {}
        texts = [
            requests.get(url, verify=server_env["REQUESTS_CA_BUNDLE"]) for url in files.values()
        ]
        return "".join(text.text for text in texts)

    said = wait_for("the request", 60, lambda: "mlflow:" in (text := log()) and text)
    found = json.loads(re.search("found:(.*)", said)[1])
    mine = ("own job", "own run", "own data", "workspace")
    assert {what: found[what] for what in mine} == dict.fromkeys(mine, 200)
    assert {found[what] for what in set(found) - set(mine)} == {403}, found
    token, ends = re.search(r"token:(\S+) (\d+)", said).groups()
    assert int(ends) > 0 and "MLFLOW_TRACKING_TOKEN" not in said
    workspace = session.get(f"{server.url}{WS}", params=V).json()
    assert workspace["properties"]["workspaceId"] in said

    # It can access its own folder of the artifact store, and nothing else.
    bearer = {"Authorization": f"Bearer {token}", "x-ms-version": "2023-11-03"}
    put = {**bearer, "x-ms-blob-type": "BlockBlob"}

    def blob(method, name, query="", headers=bearer, **more):
        return artifacts.raw(method, name, query, sas="", headers=headers, **more).status_code

    folder = f"ExperimentRun/dcid.{job}"
    assert blob("PUT", f"{folder}/mine/a.txt", headers=put, data=b"hello") == 201
    assert blob("GET", f"{folder}/mine/a.txt") == 200
    listing = f"restype=container&comp=list&prefix={folder}/"
    assert blob("GET", "", listing) == 200
    for name in (f"ExperimentRun/dcid.{other}/mine/a.txt", f"{folder}2/a.txt", "a.txt"):
        assert blob("PUT", name, headers=put, data=b"hello") == 403, name
        assert blob("GET", name) == 403, name
    assert blob("GET", "", "restype=container&comp=list") == 403

    ask = {"Authorization": f"Bearer {token}"}
    own = f"{server.url}{WS}/jobs/{job}"
    plain = requests.Session()
    plain.trust_env, plain.verify = False, server_env["REQUESTS_CA_BUNDLE"]
    assert plain.get(own, params=V, headers=ask).status_code == 200
    ml_client.jobs.begin_cancel(job).result()
    wait_for("the job has ended", 40, lambda: ml_client.jobs.get(job).status == "Canceled")
    refused = plain.get(own, params=V, headers=ask)
    assert refused.status_code == 401 and "has ended" in refused.text, refused.text
    assert blob("GET", f"{folder}/mine/a.txt") == 401
    forged = {"Authorization": f"Bearer {token[:-4]}AAAA"}
    assert plain.get(own, params=V, headers=forged).status_code == 401


HELLO = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int rank, size, length, sum;
    char host[MPI_MAX_PROCESSOR_NAME];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(host, &length);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d on %s sum %d local %s node %s RANK %s\n", rank, size, host, sum,
           getenv("OMPI_COMM_WORLD_LOCAL_RANK"), getenv("NODE_RANK"), getenv("RANK"));
    fflush(stdout);
    if (argc > 1 && rank == 3) exit(7);
    if (argc > 1) sleep(600);
    MPI_Finalize();
    return 0;
}
"""


@pytest.fixture
def mpi(tmp_path):
    if not shutil.which("mpicc"):
        pytest.fail("no Open MPI: make setup-mpi")
    source = tmp_path / "src"
    source.mkdir()
    (source / "hello.c").write_text(HELLO)
    return str(source)


def mpi_job(ml_client, code, command):
    distribution = {"type": "mpi", "process_count_per_instance": 2}
    return submit(
        ml_client, command, code=code, instance_count=2, distribution=distribution, timeout=200
    )


# Two processes of a node may compile at the same time, each its own binary.
BINARY = "$TMPDIR/hello.$OMPI_COMM_WORLD_RANK"
COMPILE = f"mpicc -o {BINARY} hello.c && exec {BINARY}"


def test_mpi_starts_its_processes_on_every_node(ml_client, cluster, mpi, tmp_path):
    job = mpi_job(ml_client, mpi, COMPILE)
    done = lambda: ml_client.jobs.get(job).status in ("Completed", "Failed")  # noqa: E731
    wait_for("the job has ended", 120, done)
    ml_client.jobs.download(job, download_path=tmp_path / "down")
    said = b"".join(tree(tmp_path / "down" / "artifacts" / "user_logs").values()).decode()
    assert ml_client.jobs.get(job).status == "Completed", said
    ranks = sorted(
        re.findall(r"rank (\d) of 4 on (\S+) sum 6 local (\d) node (\d) RANK (\S+)", said)
    )
    assert [(rank, local, node) for rank, _, local, node, _ in ranks] == [
        ("0", "0", "0"),
        ("1", "1", "0"),
        ("2", "0", "1"),
        ("3", "1", "1"),
    ], said
    assert len({host for _, host, *_ in ranks}) == 2
    assert {last for *_, last in ranks} == {"(null)"}, "the ranks come from MPI"


# Takes 13 s: the other ranks have ten seconds to end.
def test_a_rank_that_fails_ends_all_with_its_code(ml_client, cluster, mpi):
    job = mpi_job(ml_client, mpi, f"{COMPILE} fail")
    wait_for("the job has failed", 120, lambda: ml_client.jobs.get(job).status == "Failed")
    shown = ml_client.jobs.get(job)
    assert "7" in json.dumps(shown._to_dict(), default=str), shown


@pytest.mark.parametrize("ends_well", [True, False])
def test_named_outputs_of_two_nodes_are_there_together_or_not_at_all(
    ml_client, cluster, artifacts, server, session, server_env, ends_well
):
    """The first member succeeds at once, the second later."""
    from azure.ai.ml import Output

    store = Place(session, server.url, server_env["REQUESTS_CA_BUNDLE"], store="workspaceblobstore")
    script = f"""
echo $NODE_RANK > ${{{{outputs.both}}}}/part$NODE_RANK
echo $NODE_RANK > ${{{{outputs.both}}}}/shared
echo $NODE_RANK > outputs/done$NODE_RANK
[ $NODE_RANK = 0 ] && exit 0
sleep 4; exit {0 if ends_well else 3}
"""
    name = submit(ml_client, script, instance_count=2, outputs={"both": Output(type="uri_folder")})
    top = f"azureml/{name}/both/"

    def named():
        client = store.client()
        return {
            blob.name.removeprefix(top): client.download_blob(blob.name).readall().decode().strip()
            for blob in client.list_blobs(name_starts_with=top)
        }

    wait_for("the first member's files", 40, lambda: "outputs/done0" in seen(artifacts, name))
    assert named() == {}, "the second member has not ended"
    wanted = "Completed" if ends_well else "Failed"
    wait_for("the second member's end", 40, lambda: ml_client.jobs.get(name).status == wanted)
    assert named() == ({"part0": "0", "part1": "1", "shared": "0"} if ends_well else {})


def test_pip_installs_for_its_own_job_only(ml_client, cluster, tmp_path):
    """Many training programs start like this. Files that jobs share are not changed."""
    from azure.ai.ml.entities import Environment

    conda = {"dependencies": ["python=3.11", "pip", {"pip": ["six==1.17.0"]}]}
    shared = Environment(image="ubuntu:22.04", conda_file=conda)
    look = "python -c 'import six; print(six.__version__, six.__file__)'"
    script = f"""
{look}; pip install --quiet six==1.16.0 pyfiglet==1.0.2 && {look}
which pyfiglet; pyfiglet hi && python -m pip list
"""
    said = log_of(ml_client, submit(ml_client, script, environment=shared), tmp_path)
    assert "1.17.0 /environments/" in said and "1.16.0 /job/wd/.python/lib/" in said, said
    assert "/job/wd/.python/bin/pyfiglet" in said, said
    look += "; pip --version; python -c 'import pyfiglet'"
    said = log_of(ml_client, submit(ml_client, look, environment=shared), tmp_path)
    assert "1.17.0 /environments/" in said and "No module named 'pyfiglet'" in said, said
