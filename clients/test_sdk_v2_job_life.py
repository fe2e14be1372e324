"""Jobs after their submission, through azure-ai-ml: update, archive, delete, no compute at all."""

import uuid

import pytest
from conftest import JOB_CLUSTER, wait_for
from job_flow import AT, ended, listed, submit


def test_what_is_written_on_a_job_is_changed(ml_client, job_cluster, job_environment):
    job = submit(ml_client, job_environment, tags={"a": "1"}, properties={"mine": "x"})
    found = ml_client.jobs.get(job.name)
    found.display_name, found.description = "another name", "more"
    found.tags["b"] = "2"
    changed = ml_client.jobs.create_or_update(found)
    for seen in (changed, ml_client.jobs.get(job.name)):
        assert (seen.display_name, seen.description) == ("another name", "more")
        assert {"a": "1", "b": "2"}.items() <= seen.tags.items()
        assert seen.properties["mine"] == "x"
    assert ended(ml_client, job.name).status == "Completed"
    assert ml_client.jobs.get(job.name).display_name == "another name"


def test_a_job_goes_into_the_archive_and_comes_back(ml_client, job_cluster, job_environment):
    job = submit(ml_client, job_environment).name
    ended(ml_client, job)
    assert job in listed(ml_client)
    ml_client.jobs.archive(job)
    assert job not in listed(ml_client)
    assert job in listed(ml_client, view="ARCHIVED_ONLY")
    assert job in listed(ml_client, view="ALL")
    assert ml_client.jobs.get(job).status == "Completed"
    ml_client.jobs.restore(job)
    assert job in listed(ml_client)
    assert job not in listed(ml_client, view="ARCHIVED_ONLY")


def test_another_job_of_the_same_name_is_refused(ml_client, job_cluster, job_environment):
    from azure.core.exceptions import HttpResponseError

    name = f"life-{uuid.uuid4().hex[:8]}"
    first = submit(ml_client, job_environment, name=name)
    again = submit(ml_client, job_environment, name=name)
    assert first.name == again.name == name, "the same again is the same job"
    with pytest.raises(HttpResponseError) as failed:
        submit(ml_client, job_environment, "false", name=name)
    assert failed.value.status_code == 409
    assert "choose another name" in str(failed.value)


def test_a_job_without_compute_runs(ml_client, job_environment, tmp_path):
    from azure.ai.ml.entities import JobResourceConfiguration

    job = submit(
        ml_client, job_environment, "echo on $MUSTER_NODE; echo x > outputs/x", compute=None
    )
    assert job.compute is None
    assert ended(ml_client, job.name).status == "Completed"
    ml_client.jobs.download(job.name, download_path=tmp_path)
    assert (tmp_path / "artifacts" / "outputs" / "x").read_text() == "x\n"
    computes = [compute.name for compute in ml_client.compute.list()]
    assert not [name for name in computes if name.startswith("serverless")], computes

    sized = submit(
        ml_client,
        job_environment,
        compute=None,
        resources=JobResourceConfiguration(instance_type="Standard_D2s_v3", instance_count=1),
    )
    assert ml_client.jobs.get(sized.name).resources.instance_type == "Standard_D2s_v3"
    assert ended(ml_client, sized.name).status == "Completed"


def test_a_spot_job_without_compute_runs(ml_client, job_environment):
    from azure.ai.ml.entities import QueueSettings

    spot = submit(
        ml_client,
        job_environment,
        compute=None,
        queue_settings=QueueSettings(job_tier="spot", priority="low"),
    )
    seen = ml_client.jobs.get(spot.name)
    assert seen.queue_settings.job_tier.lower() == "spot"
    assert ended(ml_client, spot.name).status == "Completed"


def test_what_cannot_be_is_refused_with_what_to_do(ml_client, job_cluster, job_environment):
    from azure.ai.ml.entities import JobResourceConfiguration
    from azure.core.exceptions import HttpResponseError

    def refused(**options):
        with pytest.raises(HttpResponseError) as failed:
            submit(ml_client, options.pop("environment", job_environment), **options)
        assert failed.value.status_code == 400, failed.value
        return str(failed.value)

    def sized(name, count=1):
        return JobResourceConfiguration(instance_type=name, instance_count=count)

    assert "Standard_D2s_v3" in refused(compute=None, resources=sized("Standard_D2s_v33"))
    assert "at most 32" in refused(compute=None, resources=sized("Standard_D2s_v3", 33))
    assert "--max-instances 3" in refused(instance_count=3)
    gpus = JobResourceConfiguration(properties={"gpus": 1})
    assert "has 0" in refused(resources=gpus)
    missing = refused(environment="azureml:life:99")
    assert "99" in missing


def test_identities_and_git_properties_are_shown_back(
    ml_client, session, server, job_cluster, job_environment
):
    from azure.ai.ml import (
        AmlTokenConfiguration,
        ManagedIdentityConfiguration,
        UserIdentityConfiguration,
    )
    from azure.core.exceptions import HttpResponseError

    git = {"azureml.git.branch": "main", "mlflow.source.git.commit": "0123abc"}
    kinds = {
        "AMLToken": AmlTokenConfiguration(),
        "UserIdentity": UserIdentityConfiguration(),
        "Managed": ManagedIdentityConfiguration(),
    }
    for word, identity in kinds.items():
        job = submit(ml_client, job_environment, identity=identity, properties=git)
        shown = session.get(f"{server.url}{AT}/jobs/{job.name}").json()["properties"]
        assert shown["identity"]["identityType"] == word
        assert git.items() <= shown["properties"].items()
        seen = ml_client.jobs.get(job.name)
        assert type(seen.identity) is type(identity)
        assert ended(ml_client, job.name).status == "Completed"
    assert "asks for a managed identity, but" in shown["properties"]["muster.note"]
    # A user who names an identity would be surprised by another one, or by none.
    named = ManagedIdentityConfiguration(client_id="c0ffee")
    with pytest.raises(HttpResponseError, match="clientId is 'c0ffee', which is no identity"):
        submit(ml_client, job_environment, identity=named)


COMPONENT = """
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
name: adds
version: "1"
type: command
inputs:
  number: {type: integer, default: 4}
command: echo $((${{inputs.number}} + 1)) > outputs/sum.txt
environment: azureml:life@latest
"""


def test_a_component_is_submitted_alone(ml_client, job_cluster, job_environment, tmp_path):
    from azure.ai.ml import load_component

    (tmp_path / "adds.yml").write_text(COMPONENT)
    node = load_component(tmp_path / "adds.yml")(number=6)
    # The client does not read these from the component.
    node.compute, node.environment = JOB_CLUSTER, job_environment
    job = ml_client.jobs.create_or_update(node)
    assert ended(ml_client, job.name).status == "Completed"
    ml_client.jobs.download(job.name, download_path=tmp_path)
    assert (tmp_path / "artifacts" / "outputs" / "sum.txt").read_text() == "7\n"


def test_a_canceled_job_says_so(ml_client, job_cluster, job_environment):
    job = submit(ml_client, job_environment, "echo begun; sleep 60").name
    running = wait_for("its start", 60, lambda: ml_client.jobs.get(job).status == "Running")
    assert running
    ml_client.jobs.begin_cancel(job).result()
    assert ended(ml_client, job).status == "Canceled"
    # It is unchanged when it is read again.
    ml_client.jobs.begin_cancel(job).result()
