"""Unsupported features: azure-ai-ml's own exception names the feature and an alternative."""

import re

import pytest
import requests
from azure.core.exceptions import HttpResponseError
from conftest import sdk_version

NOT = "not supported in this version; instead, "


def entities():
    from azure.ai.ml import entities

    return entities


def schedule(client):
    of = entities()
    trigger = of.CronTrigger(expression="0 0 * * *")
    nightly = of.JobSchedule(name="nightly", trigger=trigger, create_job="azureml:a-job")
    return client.schedules.begin_create_or_update(nightly)


def online_deployment(client):
    size = {"instance_type": "Standard_DS3_v2", "instance_count": 1}
    deployment = entities().ManagedOnlineDeployment(
        name="blue", endpoint_name="scores", model="azureml:m:1", **size
    )
    return client.online_deployments.begin_create_or_update(deployment)


def registry(client):
    of = entities()
    places = [of.RegistryRegionDetails(location="eastus")]
    shared = of.Registry(name="shared", location="eastus", replication_locations=places)
    return client.registries.begin_create(shared)


def connection(client):
    of = entities()
    key = of.PatTokenConfiguration(pat="none")
    target = "https://example.com"
    git = of.WorkspaceConnection(name="git", type="git", target=target, credentials=key)
    return client.connections.create_or_update(git)


def online_endpoint(client):
    endpoint = entities().ManagedOnlineEndpoint(name="scores")
    return client.online_endpoints.begin_create_or_update(endpoint)


def batch_endpoint(client):
    return client.batch_endpoints.begin_create_or_update(entities().BatchEndpoint(name="scores"))


def feature_store(client):
    store = entities().FeatureStore(name="features", location="eastus")
    return client.feature_stores.begin_create(store).result()


def outbound_rules(client):
    return list(client.workspace_outbound_rules.list("any-ws"))


ENVIRONMENT = "azureml:AzureML-sklearn-1.5@latest"
ASKED = [
    ("schedules", schedule),
    ("schedules", lambda client: list(client.schedules.list())),
    ("schedules", lambda client: client.schedules.get("nightly")),
    ("online endpoints and deployments", online_endpoint),
    ("online endpoints and deployments", lambda client: list(client.online_endpoints.list())),
    ("online endpoints and deployments", online_deployment),
    ("batch endpoints and deployments", batch_endpoint),
    ("batch endpoints and deployments", lambda client: list(client.batch_endpoints.list())),
    ("batch endpoints and deployments", lambda client: client.batch_endpoints.get("scores")),
    ("registries", registry),
    ("registries", lambda client: list(client.registries.list())),
    ("connections", connection),
    ("connections", lambda client: list(client.connections.list())),
    ("feature stores", feature_store),
    ("feature stores", lambda client: list(client.feature_sets.list())),
    ("feature stores", lambda client: list(client.feature_store_entities.list())),
    ("serverless endpoints", lambda client: list(client.serverless_endpoints.list())),
    ("marketplace subscriptions", lambda client: list(client.marketplace_subscriptions.list())),
    ("outbound rules and managed networks", outbound_rules),
]


@pytest.mark.parametrize(("name", "ask"), ASKED)
def test_the_exception_names_what_is_not_there(ml_client, name, ask):
    with pytest.raises(HttpResponseError) as refused:
        ask(ml_client)
    assert f"{name} are {NOT}" in str(refused.value)
    assert refused.value.status_code == 400


def sweep():
    from azure.ai.ml import command
    from azure.ai.ml.sweep import Choice

    says = "echo ${{inputs.x}}"
    trial = command(command=says, inputs={"x": 1}, environment=ENVIRONMENT, compute="cpu")
    trial = trial(x=Choice([1, 2]))
    job = trial.sweep(sampling_algorithm="random", primary_metric="m", goal="Maximize")
    job.compute = "cpu"
    return job


def automl():
    from azure.ai.ml import Input
    from azure.ai.ml import automl as kinds

    data = Input(type="mltable", path="azureml://datastores/workspaceblobstore/paths/x")
    wanted = {"target_column_name": "y", "primary_metric": "accuracy"}
    return kinds.classification(compute="cpu", experiment_name="x", training_data=data, **wanted)


@pytest.mark.parametrize(("name", "job"), [("sweep jobs", sweep), ("AutoML jobs", automl)])
def test_a_job_of_another_type_is_named(ml_client, name, job):
    with pytest.raises(HttpResponseError) as refused:
        ml_client.jobs.create_or_update(job())
    assert f"{name} are {NOT}" in str(refused.value)


def test_the_studio_of_a_job_is_a_page_that_helps(ml_client, client_env):
    from azure.ai.ml import command

    job = command(command="true", environment=ENVIRONMENT, compute="serverless")
    made = ml_client.jobs.create_or_update(job)
    for shown in (made, ml_client.jobs.get(made.name)):
        address = shown.studio_url
        assert re.match(r"https://localhost:\d+/studio/runs/", address), address
        page = requests.get(address, timeout=30, verify=client_env["REQUESTS_CA_BUNDLE"])
        assert page.status_code == 200 and page.headers["content-type"].startswith("text/plain")
        assert f"muster job show --name {made.name} -g " in page.text
    if sdk_version() != "1.20.0":
        assert made.studio_url.split("&")[0] in made._repr_html_()
    ml_client.jobs.begin_cancel(made.name).wait()


def test_a_component_without_a_version_gets_one(ml_client, tmp_path):
    from azure.ai.ml import load_component

    file = tmp_path / "component.yml"
    text = f"type: command\nname: versionless\ncommand: echo hi\nenvironment: {ENVIRONMENT}\n"
    file.write_text(text)
    made = ml_client.components.create_or_update(load_component(file))
    assert (made.name, made.version) == ("versionless", "1")
    assert ml_client.components.get("versionless", label="latest").version == "1"
    assert ml_client.components.get("versionless", version="1").version == "1"
    again = ml_client.components.create_or_update(load_component(file))
    assert again.version == "2"
