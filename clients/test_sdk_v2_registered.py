"""Outputs of command jobs that are registered as assets automatically."""

import uuid

import pytest
from test_sdk_v2_jobs import CLUSTER, cluster, environment, log_of  # noqa: F401


def job_of(name, version=None, text="x"):
    from azure.ai.ml import Output, command

    return command(
        command=f"echo {text} > ${{{{outputs.model}}}}/m; echo {text} > ${{{{outputs.table}}}}",
        environment="azureml:plain@latest",
        compute=CLUSTER,
        outputs={
            "model": Output(type="custom_model", name=f"model-{name}", version=version),
            "table": Output(type="uri_file", name=f"table-{name}"),
        },
    )


def test_outputs_become_assets_once_each(ml_client, cluster, environment, tmp_path):  # noqa: F811
    from azure.ai.ml import Input, command
    from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

    name = uuid.uuid4().hex[:8]
    with pytest.raises(ResourceNotFoundError):
        ml_client.models.get(f"model-{name}", version="7")
    first = ml_client.jobs.create_or_update(job_of(name, version="7", text="one"))
    log_of(ml_client, first.name, tmp_path)
    model = ml_client.models.get(f"model-{name}", version="7")
    assert (model.type, model.job_name) == ("custom_model", first.name)
    assert model.path.endswith(f"/datastores/workspaceblobstore/paths/azureml/{first.name}/model/")
    assert model.creation_context.created_by
    assert ml_client.data.get(f"table-{name}", version="1").type == "uri_file"

    second = ml_client.jobs.create_or_update(job_of(name, text="two"))
    log_of(ml_client, second.name, tmp_path)
    assert ml_client.models.get(f"model-{name}", label="latest").version == "8"
    listed = sorted(one.version for one in ml_client.data.list(name=f"table-{name}"))
    assert listed == ["1", "2"], "each job's output is registered once"

    with pytest.raises(HttpResponseError, match="versions cannot be changed"):
        ml_client.jobs.create_or_update(job_of(name, version="7"))

    reads = command(
        command="cat ${{inputs.model}}/m ${{inputs.table}}",
        environment="azureml:plain@latest",
        compute=CLUSTER,
        inputs={
            "model": Input(type="custom_model", path=f"azureml:model-{name}:7"),
            "table": Input(type="uri_file", path=f"azureml:table-{name}@latest"),
        },
    )
    said = log_of(ml_client, ml_client.jobs.create_or_update(reads).name, tmp_path)
    assert "one\ntwo\n" in said, said


def test_a_job_that_fails_registers_nothing(ml_client, cluster, environment, tmp_path):  # noqa: F811
    from azure.ai.ml import Output, command
    from azure.core.exceptions import ResourceNotFoundError

    name = f"never-{uuid.uuid4().hex[:8]}"
    job = command(
        command="echo x > ${{outputs.data}}/x; exit 1",
        environment="azureml:plain@latest",
        compute=CLUSTER,
        outputs={"data": Output(type="uri_folder", name=name)},
    )
    log_of(ml_client, ml_client.jobs.create_or_update(job).name, tmp_path)
    with pytest.raises(ResourceNotFoundError):
        ml_client.data.get(name, version="1")
