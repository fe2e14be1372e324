"""Environments with a Dockerfile: its packages are installed, and unsupported steps are named."""

import json
import uuid

import pytest
from conftest import REPOSITORY, WORKSPACE_FLAGS, wait_for

CONTEXT = REPOSITORY / "examples/jobs/docker-context"
CLUSTER = "build-contexts"
COMMAND = """python -c "import os, six; print(os.environ['GREETING'], six.__version__)" """
ENDS = ("Completed", "Failed", "Canceled")


@pytest.fixture(scope="module")
def cluster(muster):
    muster("compute", "create", "--name", CLUSTER, "--max-instances", "1", *WORKSPACE_FLAGS)
    yield CLUSTER
    muster("compute", "delete", "--name", CLUSTER, "--yes", *WORKSPACE_FLAGS)


def test_a_job_of_azure_ai_ml_imports_what_the_dockerfile_installs(ml_client, muster, cluster):
    from azure.ai.ml import command
    from azure.ai.ml.entities import BuildContext, Environment

    environment = Environment(build=BuildContext(path=str(CONTEXT)))
    job = command(command=COMMAND, environment=environment, compute=cluster)
    job = ml_client.jobs.create_or_update(job)
    wait_for("the end", 240, lambda: ml_client.jobs.get(job.name).status in ENDS)
    said = muster("job", "stream", "--name", job.name, *WORKSPACE_FLAGS, check=False).stdout
    assert ml_client.jobs.get(job.name).status == "Completed", said
    assert "hello from the Dockerfile 1.17.0" in said
    assert "muster: the image 'python:3.11-slim' of the Dockerfile is not run here" in said
    assert "skipped: apt-get update: the host's packages are used" in said


def test_one_with_a_name_is_the_same_from_both(ml_client, muster, cluster, tmp_path):
    from azure.ai.ml.entities import BuildContext, Environment

    name = f"docker-{uuid.uuid4().hex[:8]}"
    file = tmp_path / "environment.yml"
    file.write_text(f"name: {name}\nversion: 1\nbuild:\n  path: {CONTEXT}\n")
    muster("environment", "create", "-f", str(file), *WORKSPACE_FLAGS)
    same = Environment(name=name, build=BuildContext(path=str(CONTEXT)))
    assert ml_client.environments.create_or_update(same).version == "1"
    job = tmp_path / "job.yml"
    job.write_text(
        f"command: |-\n  {COMMAND}\nenvironment: azureml:{name}:1\ncompute: azureml:{cluster}\n"
    )
    done = muster("job", "create", "-f", str(job), "--stream", *WORKSPACE_FLAGS, check=False)
    assert done.returncode == 0, done.stderr
    assert "hello from the Dockerfile 1.17.0" in done.stdout
    flags = ("--name", name, "--version", "1", *WORKSPACE_FLAGS)
    log = json.loads(muster("environment", "show-build-log", *flags, "-o", "json").stdout)
    assert (log["state"], log["packages"]) == ("ready", ["six==1.17.0"])
    assert any(note.startswith("skipped: apt-get install") for note in log["notes"])


@pytest.mark.parametrize(
    ("dockerfile", "wanted"),
    [
        ("FROM x\nRUN make install\n", "line 2 of the Dockerfile, 'RUN make install'"),
        ("FROM x\nRUN pip install -r r.txt\n", "no COPY or ADD before it brings 'r.txt'"),
        ("FROM x\nCOPY r.txt .\n", "'r.txt' is not in the context"),
        ("FROM x\nCOPY ../r.txt .\n", "'../r.txt' leads out of the context"),
        ("FROM x\nCOPY . .\nRUN pip install -r ../../etc/passwd\n", "brings '../../etc/passwd'"),
        ("FROM x\nCOPY big.txt .\nRUN pip install -r big.txt\n", "at most 262144 are read"),
        ("FROM x\nRUN <<EOF\nmake\nEOF\n", "heredocs"),
        ("FROM x\n" + "# x" * (10 << 20) + "\n", "at most 262144 are read"),
    ],
    ids=["run", "not-copied", "not-there", "outside", "traversal", "big", "heredoc", "10-MB"],
)
def test_what_cannot_be_done_is_named(dockerfile, wanted, ml_client, muster, cluster, tmp_path):
    from azure.ai.ml import command
    from azure.ai.ml.entities import BuildContext, Environment
    from azure.core.exceptions import HttpResponseError

    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(dockerfile)
    (context / "big.txt").write_text("# x\n" * 100_000)
    job = tmp_path / "job.yml"
    job.write_text(
        f"command: 'true'\nenvironment: {{build: {{path: context}}}}\ncompute: azureml:{cluster}\n"
    )
    done = muster("job", "create", "-f", str(job), *WORKSPACE_FLAGS, check=False)
    assert done.returncode == 2 and wanted in done.stderr, done.stderr
    environment = Environment(build=BuildContext(path=str(context)))
    with pytest.raises(HttpResponseError) as refused:
        ml_client.jobs.create_or_update(
            command(command="true", environment=environment, compute=cluster)
        )
    assert refused.value.status_code == 400 and wanted in str(refused.value)
