"""Jobs as public examples for Azure ML write them: environments, conda files, MLflow, data."""

import textwrap
import uuid

import pytest
from conftest import wait_for
from own_server import WS, V, own  # noqa: F401  (a fixture)
from test_joined_environments import Lab

TRAIN = """
import mlflow
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

mlflow.autolog(log_models=False)
mlflow.log_metric("before", 1.5)
mlflow.end_run()
with mlflow.start_run():
    mlflow.log_param("c", 0.5)
    mlflow.sklearn.autolog(log_models=False)
    model = LogisticRegression(C=0.5, max_iter=200).fit(*load_iris(return_X_y=True))
    mlflow.sklearn.save_model(model, "outputs/model")
print("trained with MLflow", mlflow.__version__)
"""
CURATED = "azureml://registries/azureml/environments/sklearn-1.5/labels/latest"
# Public conda files want another Python, Azure's older SDK, and MLflow without a version.
CONDA = """
channels: [conda-forge]
dependencies:
  - python=3.10
  - pip=21.2.4
  - python-dateutil
  - pip:
      - mlflow-skinny
      - azureml-mlflow
      - azureml-dataset-runtime
"""
LOG = "import mlflow, sys; mlflow.log_metric('loss', 0.25); print('python', sys.version_info[:2])"


@pytest.fixture
def lab(own):  # noqa: F811
    lab = Lab(own("--isolation", "sandbox"))
    lab.cluster()
    return lab


def written(script):
    """A command that runs a script without a code asset."""
    return f"cat > job.py <<'EOF'\n{textwrap.dedent(script)}\nEOF\npython job.py"


def kept(lab, job):
    """The names of all files in a job's outputs."""
    folder = lab.server.folder / f"down-{uuid.uuid4().hex[:8]}"
    flags = ("-n", job, "-p", str(folder))
    lab.server.muster("job", "download", *flags, *lab.names())
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# Takes 40 s: MLflow, scikit-learn and their dependencies are installed from PyPI.
def test_mlflow_in_a_curated_environment_writes_to_the_outputs(lab):
    job = lab.submit(written(TRAIN), CURATED)
    status, said = lab.ended(job, 300), lab.log(job)
    assert status == "Completed", said
    assert "trained with MLflow 2.22" in said, said
    assert "what MLflow logged is saved in outputs/mlruns/" in said, said
    names = kept(lab, job)
    for wanted in ("metrics/before", "params/c", "metrics/training_score", "MLmodel"):
        assert any(name.endswith(wanted) for name in names), (wanted, sorted(names))


# Takes 30 s, for the same reason.
def test_a_conda_file_with_mlflow_and_the_older_sdk_works(lab):
    environment = lab.environment("older", CONDA)
    job = lab.submit(f'python -c "{LOG}"', environment)
    status, said = lab.ended(job, 300), lab.log(job)
    assert status == "Completed", said
    # It gets the Python that it asks for, or a message lists the available ones.
    assert "python (3, 10)" in said or "python 3.10 is not on this host, which has 3." in said
    assert "fusepy, which azureml_dataset_runtime requires" in said, said
    assert "what MLflow logged is saved in outputs/mlruns/" in said, said


def test_data_elsewhere_is_fetched_or_refused_when_it_is_submitted(lab):
    def refused(kind, uri):
        job = {"jobType": "Command", "command": "ls ${{inputs.data}}"}
        job |= {"computeId": f"{WS}/computes/cpu", "environmentId": lab.environment("none", "{}")}
        job["inputs"] = {"data": {"jobInputType": kind, "uri": uri}}
        url = f"{lab.server.url}{WS}/jobs/refused-{uuid.uuid4().hex[:6]}"
        answer = lab.session.put(url, params=V, json={"properties": job})
        assert answer.status_code == 400, answer.text
        return answer.json()["error"]["message"]

    assert "Gen1" in refused("uri_folder", "adl://lake.azuredatalakestore.net/data")
    assert "type uri_file" in refused("uri_folder", "https://example.com/data/")
    assert "neither this server's storage" in refused("uri_file", "wasbs://c@example.com/x.csv")
    assert "CONTAINER@ACCOUNT" in refused("uri_file", "abfss://example.com/x.csv")


def test_our_own_storage_is_read_by_its_other_names_and_written_at_its_root(lab):
    environment = lab.environment("none", "{}")
    ls = "ls ${{inputs.data}} && cat ${{inputs.data}}/* > ${{outputs.copy}}/all-of-it.txt"
    datastore = lab.session.get(
        f"{lab.server.url}{WS}/datastores/workspaceblobstore", params=V
    ).json()["properties"]
    account = f"{datastore['accountName']}.blob.{datastore['endpoint']}"
    root = "azureml://datastores/workspaceblobstore/paths/"
    first = lab.submit(
        "echo one > ${{outputs.made}}/one.txt",
        environment,
        outputs={"made": {"jobOutputType": "uri_folder", "uri": root + "made"}},
    )
    assert lab.ended(first) == "Completed", lab.log(first)
    for scheme in ("wasbs", "abfss"):
        uri = f"{scheme}://{datastore['containerName']}@{account}/made"
        job = lab.submit(
            ls,
            environment,
            inputs={"data": {"jobInputType": "uri_folder", "uri": uri}},
            outputs={"copy": {"jobOutputType": "uri_folder", "uri": root}},
        )
        assert lab.ended(job) == "Completed", lab.log(job)
        assert "one.txt" in lab.log(job)
    # Existing files next to it are kept.
    again = lab.submit(
        "cat ${{inputs.data}}/all-of-it.txt ${{inputs.data}}/made/one.txt",
        environment,
        inputs={"data": {"jobInputType": "uri_folder", "uri": root}},
    )
    wait_for("the job has ended", 60, lambda: lab.job(again)["status"] in ("Completed", "Failed"))
    assert lab.log(again).count("one\n") == 2, lab.log(again)
