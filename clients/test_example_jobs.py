"""Jobs as public examples for Azure ML write them: environments, conda files, MLflow, data."""

import textwrap
import uuid

import pytest
from own_server import own  # noqa: F401  (a fixture)
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
# What public conda files ask for: another Python, Azure's older SDK, and MLflow without a version.
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
    lab = Lab(own("--isolation", "walls"))
    lab.cluster()
    return lab


def written(script):
    """A command that runs a script without a code asset."""
    return f"cat > job.py <<'EOF'\n{textwrap.dedent(script)}\nEOF\npython job.py"


def kept(lab, job):
    """The names of all that a job left in its outputs."""
    folder = lab.server.folder / f"down-{uuid.uuid4().hex[:8]}"
    flags = ("-n", job, "-p", str(folder))
    lab.server.muster("job", "download", *flags, *lab.names())
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# Takes 40 s: MLflow, scikit-learn and their friends are installed from PyPI.
def test_mlflow_in_a_curated_environment_writes_to_the_outputs(lab):
    job = lab.submit(written(TRAIN), CURATED)
    status, said = lab.ended(job, 300), lab.log(job)
    assert status == "Completed", said
    assert "trained with MLflow 2.22" in said, said
    assert "what MLflow logged is kept in outputs/mlruns/" in said, said
    names = kept(lab, job)
    for wanted in ("metrics/before", "params/c", "metrics/training_score", "MLmodel"):
        assert any(name.endswith(wanted) for name in names), (wanted, sorted(names))


# Takes 30 s, for the same reason.
def test_a_conda_file_with_mlflow_and_the_older_sdk_works(lab):
    environment = lab.environment("older", CONDA)
    job = lab.submit(f'python -c "{LOG}"', environment)
    status, said = lab.ended(job, 300), lab.log(job)
    assert status == "Completed", said
    # It has the Python that it asks for, or says which there are.
    assert "python (3, 10)" in said or "python 3.10 is not on this machine, which has 3." in said
    assert "fusepy, which azureml_dataset_runtime asks for" in said, said
    assert "what MLflow logged is kept in outputs/mlruns/" in said, said
