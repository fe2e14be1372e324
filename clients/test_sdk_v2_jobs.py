"""Command jobs through azure-ai-ml, on real nodes: code, inputs, outputs and downloads."""

import contextlib
import io
import re
import uuid

import pytest
from conftest import WORKSPACE_FLAGS

CLUSTER = "jobs-cpu"

TRAIN = """
import argparse, json, os, pathlib, sys
import helper

parser = argparse.ArgumentParser()
for name in ("lr", "data", "table", "model", "report"):
    parser.add_argument("--" + name)
args = parser.parse_args()
data = pathlib.Path(args.data)
files = [path for path in sorted(data.rglob("*")) if path.is_file()]
found = {str(path.relative_to(data)): path.read_text() for path in files}
print("read", json.dumps(found), "lr", args.lr, helper.NAME, flush=True)
print("table", pathlib.Path(args.table).name, pathlib.Path(args.table).read_text().strip())
pathlib.Path(args.model, "sub").mkdir(parents=True)
pathlib.Path(args.model, "model.bin").write_bytes(bytes(range(256)) * 40)
pathlib.Path(args.model, "sub", "größe.txt").write_text("ü")
pathlib.Path(args.model, "empty").touch()
pathlib.Path(args.report).write_text("fine\\n")
pathlib.Path("outputs", "metrics.json").write_text("{}")
pathlib.Path("logs", "steps.log").write_text("1\\n2\\n")
for name in ("AZUREML_RUN_ID", "AZUREML_ARM_WORKSPACE_NAME", "AZURE_ML_INPUT_lr", "X"):
    print(name, os.environ[name])
try:
    data.joinpath("new").touch()
except OSError:
    print("inputs cannot be changed")
"""


@pytest.fixture(scope="module")
def cluster(ml_client):
    from azure.ai.ml.entities import AmlCompute

    wanted = AmlCompute(name=CLUSTER, min_instances=0, max_instances=2)
    wanted.idle_time_before_scale_down = 60
    yield ml_client.compute.begin_create_or_update(wanted).result().name
    # Other tests count the reserved vCPUs.
    ml_client.compute.begin_delete(CLUSTER).result()


@pytest.fixture
def folder(tmp_path):
    """A program, and data for it."""
    source, data = tmp_path / "src", tmp_path / "data"
    (data / "deep" / "er").mkdir(parents=True)
    source.mkdir()
    (source / "train.py").write_text(TRAIN)
    (source / "helper.py").write_text("NAME = 'helper'\n")
    (source / "secret.txt").write_text("not for others")
    (source / ".amlignore").write_text("secret.txt\n")
    (data / "a.txt").write_text("one")
    (data / "deep" / "er" / "b.txt").write_text("two")
    (tmp_path / "table.csv").write_text("x,y\n")
    return tmp_path


def job_of(folder, **options):
    from azure.ai.ml import Input, Output, command

    return command(
        code=str(folder / "src"),
        # Time for a client to start streaming.
        command="sleep 1 && ls && python3 train.py --lr ${{inputs.lr}} --data ${{inputs.data}} "
        "--table ${{inputs.table}} --model ${{outputs.model}} --report ${{outputs.report}}",
        environment="azureml:plain@latest",
        compute=CLUSTER,
        inputs={
            "lr": 0.1,
            "data": Input(type="uri_folder", path=str(folder / "data")),
            "table": Input(type="uri_file", path=str(folder / "table.csv"), mode="download"),
        },
        outputs={"model": Output(type="uri_folder"), "report": Output(type="uri_file")},
        environment_variables={"X": "lr is ${{inputs.lr}}"},
        **options,
    )


@pytest.fixture(scope="module")
def environment(ml_client):
    from azure.ai.ml.entities import Environment

    image = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04"
    return ml_client.environments.create_or_update(Environment(name="plain", image=image))


def streamed(ml_client, name):
    """What a client prints until the end of the job."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        ml_client.jobs.stream(name)
    return out.getvalue()


def log_of(ml_client, name, folder):
    """The job's whole log after its end. A client streams nothing of a job that has ended."""
    from azure.ai.ml.exceptions import JobException

    with contextlib.suppress(JobException):
        streamed(ml_client, name)
    into = folder / f"log-{name}"
    ml_client.jobs.download(name, download_path=into)
    return (into / "artifacts" / "user_logs" / "std_log.txt").read_text()


def tree(path):
    files = [file for file in path.rglob("*") if file.is_file()]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def test_a_program_with_data_runs_and_its_results_come_down(
    ml_client, cluster, environment, folder
):
    submitted = ml_client.jobs.create_or_update(job_of(folder))
    said = streamed(ml_client, submitted.name)
    assert 'read {"a.txt": "one", "deep/er/b.txt": "two"} lr 0.1 helper' in said, said
    assert "table table.csv x,y" in said and "X lr is 0.1" in said
    assert f"AZUREML_RUN_ID {submitted.name}" in said and "AZURE_ML_INPUT_lr 0.1" in said
    assert "inputs cannot be changed" in said
    assert "helper.py" in said and "secret.txt" not in said, "the client ignores what it should"
    done = ml_client.jobs.get(submitted.name)
    assert done.status == "Completed"
    assert set(done.outputs) >= {"model", "report"} and set(done.inputs) == {"lr", "data", "table"}

    ml_client.jobs.download(submitted.name, download_path=folder / "all", all=True)
    artifacts = tree(folder / "all" / "artifacts")
    assert artifacts["outputs/metrics.json"] == b"{}"
    assert artifacts["logs/steps.log"] == b"1\n2\n"
    assert b"table table.csv" in artifacts["user_logs/std_log.txt"]
    named = tree(folder / "all" / "named-outputs")
    assert named["model/model.bin"] == bytes(range(256)) * 40
    assert named["model/sub/größe.txt"] == "ü".encode()
    assert named["model/empty"] == b""
    assert [content for name, content in named.items() if name.startswith("report")] == [b"fine\n"]

    ml_client.jobs.download(submitted.name, download_path=folder / "one", output_name="model")
    assert (folder / "one" / "named-outputs" / "model" / "model.bin").stat().st_size == 256 * 40


def test_one_job_reads_what_another_left(ml_client, cluster, environment, folder):
    from azure.ai.ml import Input, command

    first = ml_client.jobs.create_or_update(job_of(folder))
    streamed(ml_client, first.name)
    second = command(
        command="wc -c ${{inputs.model}}/model.bin; cat ${{inputs.metrics}}",
        environment="azureml:plain@latest",
        compute=CLUSTER,
        inputs={
            "model": Input(type="uri_folder", path=f"azureml://jobs/{first.name}/outputs/model"),
            "metrics": Input(
                type="uri_file",
                path=f"azureml://jobs/{first.name}/outputs/artifacts/paths/outputs/metrics.json",
            ),
        },
    )
    said = log_of(ml_client, ml_client.jobs.create_or_update(second).name, folder)
    assert re.search(r"10240 /inputs/model/model.bin", said) and "{}" in said, said


def test_a_failed_job_shows_why_and_what_it_left(ml_client, cluster, environment, folder):
    from azure.ai.ml import Output, command
    from azure.ai.ml.exceptions import JobException

    job = command(
        command="echo x > outputs/kept; echo y > ${{outputs.never}}/half; exit 3",
        environment="azureml:plain@latest",
        compute=CLUSTER,
        outputs={"never": Output(type="uri_folder")},
    )
    submitted = ml_client.jobs.create_or_update(job)
    with pytest.raises(JobException) as failed:
        streamed(ml_client, submitted.name)
    assert "exit code 3" in str(failed.value)
    assert ml_client.jobs.get(submitted.name).status == "Failed"
    ml_client.jobs.download(submitted.name, download_path=folder / "down", all=True)
    down = tree(folder / "down")
    assert [name for name in down if name.endswith("outputs/kept")]
    assert not [name for name in down if name.endswith("half")], (
        "a failed job leaves no named output"
    )


def test_the_same_code_is_not_sent_again(ml_client, cluster, environment, folder):
    first = ml_client.jobs.create_or_update(job_of(folder))
    second = ml_client.jobs.create_or_update(job_of(folder))
    assert first.code == second.code
    for job in (first, second):
        assert "helper" in log_of(ml_client, job.name, folder)


def test_what_cannot_be_is_refused_at_once(ml_client, cluster, environment, folder):
    from azure.ai.ml import Input, command
    from azure.core.exceptions import HttpResponseError

    def refused(**options):
        wanted = {"command": "true", "environment": "azureml:plain@latest", "compute": CLUSTER}
        with pytest.raises(HttpResponseError) as failed:
            ml_client.jobs.create_or_update(command(**{**wanted, **options}))
        assert failed.value.status_code == 400, failed.value
        return str(failed.value)

    assert "jobs-cpv" in refused(compute="jobs-cpv")
    at = Input(type="uri_folder", path="azureml://datastores/nowhere/paths/x")
    assert "no such datastore" in refused(inputs={"x": at})
    at = Input(type="uri_folder", path="azureml://jobs/no-such/outputs/x")
    assert "no such job" in refused(inputs={"x": at})
    at = Input(type="uri_folder", path="azureml://datastores/workspaceblobstore/paths/../x")
    assert "'..'" in refused(inputs={"x": at})


def test_missing_data_fails_the_job_with_its_name(ml_client, cluster, environment):
    from azure.ai.ml import Input, command
    from azure.ai.ml.exceptions import JobException

    at = f"azureml://datastores/workspaceblobstore/paths/nowhere/{uuid.uuid4().hex}"
    job = command(
        command="cat ${{inputs.x}}",
        environment="azureml:plain@latest",
        compute=CLUSTER,
        inputs={"x": Input(type="uri_folder", path=at)},
    )
    submitted = ml_client.jobs.create_or_update(job)
    with pytest.raises(JobException) as failed:
        streamed(ml_client, submitted.name)
    assert "there is nothing at nowhere/" in str(failed.value)
    properties = ml_client.jobs.get(submitted.name).properties
    assert properties["muster.failureClass"] == "data"


def test_many_small_and_large_files_arrive_as_they_were(ml_client, cluster, environment, tmp_path):
    from azure.ai.ml import Input, command

    data = tmp_path / "many"
    for number in range(300):
        path = data / f"d{number % 7}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    # More than the client puts into one request, so that it comes in blocks.
    (data / "large.bin").write_bytes(bytes(70 << 20))
    check = (
        "find ${{inputs.data}} -type f | wc -l; stat -c %s ${{inputs.data}}/large.bin; "
        "cat ${{inputs.data}}/d*/*.txt | wc -c"
    )
    job = command(
        command=check,
        environment="azureml:plain@latest",
        compute=CLUSTER,
        inputs={"data": Input(type="uri_folder", path=str(data))},
    )
    said = log_of(ml_client, ml_client.jobs.create_or_update(job).name, tmp_path)
    digits = sum(len(str(number)) for number in range(300))
    assert re.search(rf"^301\s+{70 << 20}\s+{digits}$", said, re.MULTILINE), said


CONDA = """
name: train
channels: [conda-forge]
dependencies:
  - python=3.11
  - scikit-learn
  - pip
  - pip:
      - joblib>=1.0
variables:
  MODEL_FILE: model.pkl
"""

FIT = """
import os, pathlib, sys
import joblib, sklearn
from sklearn.linear_model import LogisticRegression

model = LogisticRegression().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
joblib.dump(model, pathlib.Path(sys.argv[1]) / os.environ["MODEL_FILE"])
print("accuracy", model.score([[0.5], [2.5]], [0, 1]), sys.prefix)
"""


# Takes 13 s: scikit-learn is installed from PyPI.
def test_a_training_with_a_conda_file_has_its_packages_and_variables(ml_client, cluster, tmp_path):
    from azure.ai.ml import Output, command
    from azure.ai.ml.entities import Environment

    (tmp_path / "conda.yml").write_text(CONDA)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "fit.py").write_text(FIT)
    image = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04"
    job = command(
        code=str(tmp_path / "src"),
        command="python fit.py ${{outputs.model}}",
        environment=Environment(image=image, conda_file=str(tmp_path / "conda.yml")),
        compute=CLUSTER,
        outputs={"model": Output(type="custom_model")},
    )
    first = ml_client.jobs.create_or_update(job)
    said = log_of(ml_client, first.name, tmp_path)
    assert "accuracy 1.0 /job/wd/.python" in said, said
    assert "muster: " in said and image in said, "the log names the substitute for the image"
    ml_client.jobs.download(first.name, download_path=tmp_path / "down", output_name="model")
    assert (tmp_path / "down" / "named-outputs" / "model" / "model.pkl").stat().st_size > 100


def test_environments_that_cannot_be_had_are_refused_with_what_to_do(ml_client, cluster):
    from azure.ai.ml import command
    from azure.ai.ml.entities import Environment
    from azure.core.exceptions import HttpResponseError

    def refused(environment):
        with pytest.raises(HttpResponseError) as failed:
            job = command(command="true", environment=environment, compute=CLUSTER)
            ml_client.jobs.create_or_update(job)
        assert failed.value.status_code == 400, failed.value
        return str(failed.value)

    registry = "azureml://registries/azureml/environments"
    assert "sklearn-1.5" in refused(f"{registry}/sklaern-1.5/labels/latest"), "it is suggested"
    conda = {"dependencies": ["python=3.11", "nodejs=18"]}
    assert "nodejs" in refused(Environment(conda_file=conda, image="ubuntu:22.04"))


def test_a_python_that_is_not_there_is_noted_at_submit(ml_client, muster):
    from azure.ai.ml import command
    from azure.ai.ml.entities import AmlCompute, Environment

    # Without nodes, so that nothing is built for it.
    cluster = AmlCompute(name="no-nodes", min_instances=0, max_instances=0)
    ml_client.compute.begin_create_or_update(cluster).result()
    try:
        conda = {"dependencies": ["python=3.39"]}
        environment = Environment(conda_file=conda, image="ubuntu:22.04")
        job = command(command="true", environment=environment, compute="no-nodes")
        made = ml_client.jobs.create_or_update(job)
        note = "python 3.39 is not on this host, which has 3."
        assert note in made.properties["muster.note"]
        assert note in ml_client.jobs.get(made.name).properties["muster.note"]
    finally:
        muster("compute", "delete", "-n", "no-nodes", "--yes", *WORKSPACE_FLAGS)


def test_data_and_models_are_named_by_version_and_label(ml_client, cluster, environment, folder):
    from azure.ai.ml import Input, command
    from azure.ai.ml.entities import Data, Model

    name = f"set-{uuid.uuid4().hex[:8]}"
    for version, text in (("1", "first"), ("2", "second")):
        (folder / "data" / "a.txt").write_text(text)
        wanted = Data(name=name, version=version, type="uri_folder", path=str(folder / "data"))
        ml_client.data.create_or_update(wanted)
    model = Model(name=name, version="1", type="custom_model", path=str(folder / "table.csv"))
    ml_client.models.create_or_update(model)
    job = command(
        command="cat ${{inputs.one}}/a.txt; echo; cat ${{inputs.last}}/a.txt; echo; "
        "find ${{inputs.model}} -type f | head",
        environment="azureml:plain@latest",
        compute=CLUSTER,
        inputs={
            "one": Input(type="uri_folder", path=f"azureml:{name}:1"),
            "last": Input(type="uri_folder", path=f"azureml:{name}@latest"),
            "model": Input(type="custom_model", path=f"azureml:{name}:1"),
        },
    )
    said = log_of(ml_client, ml_client.jobs.create_or_update(job).name, folder)
    assert "first\nsecond\n" in said and "table.csv" in said, said


def test_two_nodes_with_two_processes_each_know_who_they_are(
    ml_client, cluster, environment, tmp_path
):
    from azure.ai.ml import command
    from azure.ai.ml.exceptions import JobException

    job = command(
        command='echo "rank $RANK of $WORLD_SIZE local $LOCAL_RANK at $MASTER_ADDR"; sleep 1',
        environment="azureml:plain@latest",
        compute=CLUSTER,
        instance_count=2,
        distribution={"type": "pytorch", "process_count_per_instance": 2},
    )
    submitted = ml_client.jobs.create_or_update(job)
    with contextlib.suppress(JobException):
        streamed(ml_client, submitted.name)
    ended = ml_client.jobs.get(submitted.name)
    assert ended.status == "Completed", ended.properties
    ml_client.jobs.download(submitted.name, download_path=tmp_path)
    logs = tree(tmp_path / "artifacts" / "user_logs")
    said = b"".join(logs.values()).decode()
    ranks = sorted(re.findall(r"rank (\d) of 4 local (\d) at ([\d.]+)", said))
    assert [(rank, local) for rank, local, _ in ranks] == [
        ("0", "0"),
        ("1", "1"),
        ("2", "0"),
        ("3", "1"),
    ]
    assert len({master for _, _, master in ranks}) == 1
