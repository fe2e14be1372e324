"""Compute instances through the unmodified azure-ai-ml client: started and stopped by hand."""

import pytest
from azure.core.exceptions import HttpResponseError
from conftest import WORKSPACE_FLAGS, new_ml_client, wait_for

SIZE = "STANDARD_DS3_V2"


def last_operation(instance):
    """Its name and how it ended. Older clients show the keys in snake case."""
    found = instance.last_operation
    name = found.get("operationName") or found["operation_name"]
    return name, found.get("operationStatus") or found["operation_status"]


def instance(name, **changes):
    from azure.ai.ml.entities import ComputeInstance

    return ComputeInstance(name=name, **{"size": SIZE, **changes})


@pytest.fixture
def create(ml_client):
    """Creates instances and deletes those that the test has left."""
    names = []

    def create(name, **changes):
        names.append(name)
        return ml_client.compute.begin_create_or_update(instance(name, **changes)).result()

    yield create
    for name in names:
        if name in {compute.name for compute in ml_client.compute.list()}:
            ml_client.compute.begin_delete(name).wait()


def node_names(ml_client, name):
    return [node.node_id for node in ml_client.compute.list_nodes(name)]


def test_create_get_list_and_delete(ml_client, create):
    from azure.ai.ml.entities import AmlCompute

    made = create("ci-life", description="mine", tags={"team": "blue"})
    for seen in (made, ml_client.compute.get("ci-life")):
        assert (seen.type, seen.state) == ("computeinstance", "Running")
        assert seen.size.upper() == SIZE
        assert not hasattr(seen, "min_instances")
        assert (seen.description, seen.tags) == ("mine", {"team": "blue"})
        assert last_operation(seen) == ("Create", "Succeeded")
        assert seen.ssh_public_access_enabled is False
        assert seen.services is None, "there are no applications to name"
        assert seen.network_settings is None, "there is no address to give"

    ml_client.compute.begin_create_or_update(AmlCompute(name="ci-beside", max_instances=1)).wait()
    kinds = {compute.name: compute.type for compute in ml_client.compute.list()}
    assert (kinds["ci-life"], kinds["ci-beside"]) == ("computeinstance", "amlcompute")
    instances = {compute.name for compute in ml_client.compute.list(compute_type="ComputeInstance")}
    assert "ci-life" in instances and "ci-beside" not in instances
    ml_client.compute.begin_delete("ci-beside").wait()

    ml_client.compute.begin_delete("ci-life").result()
    assert "ci-life" not in {compute.name for compute in ml_client.compute.list()}


def test_stop_start_and_restart(ml_client, create):
    create("ci-power")
    (first,) = node_names(ml_client, "ci-power")

    assert ml_client.compute.begin_stop("ci-power").result() is None
    stopped = ml_client.compute.get("ci-power")
    assert stopped.state == "Stopped"
    assert last_operation(stopped) == ("Stop", "Succeeded")
    assert node_names(ml_client, "ci-power") == []
    ml_client.compute.begin_stop("ci-power").result()  # It is in that state already.
    with pytest.raises(HttpResponseError, match="start it") as refused:
        ml_client.compute.begin_restart("ci-power")
    assert refused.value.status_code == 409

    ml_client.compute.begin_start("ci-power").result()
    assert ml_client.compute.get("ci-power").state == "Running"
    ml_client.compute.begin_start("ci-power").result()
    (second,) = node_names(ml_client, "ci-power")
    ml_client.compute.begin_restart("ci-power").result()
    (third,) = node_names(ml_client, "ci-power")
    assert len({first, second, third}) == 3
    assert last_operation(ml_client.compute.get("ci-power")) == ("Restart", "Succeeded")


def test_a_job_runs_on_an_instance_and_ends_with_it(ml_client, create, muster):
    create("ci-job")
    place = WORKSPACE_FLAGS
    create_job = ("job", "create", "--compute", "ci-job", *place)
    muster(*create_job, "--name", "ci-first", "--command", "echo hello", "--stream")
    muster(*create_job, "--name", "ci-second", "--command", "sleep 600")

    def status(name):
        return ml_client.jobs.get(name).status

    wait_for("the job runs", 20, lambda: status("ci-second") == "Running")
    assert ml_client.compute.get("ci-job").state == "JobRunning"
    ml_client.compute.begin_stop("ci-job").result()
    # As on Azure, jobs end with the machine that they run on.
    wait_for("the job has ended", 20, lambda: status("ci-second") == "Canceled")
    assert status("ci-first") == "Completed"
    muster(*create_job, "--name", "ci-third", "--command", "echo again")
    assert "muster compute start --name ci-job" in muster("why", "ci-third", *place).stdout
    ml_client.compute.begin_start("ci-job").result()
    wait_for("the job that waited", 20, lambda: status("ci-third") == "Completed")


def test_what_is_changed_and_what_is_not(ml_client, create):
    create("ci-change", tags={"a": "1"}, ssh_public_access_enabled=True)
    seen = ml_client.compute.get("ci-change")
    assert seen.ssh_public_access_enabled is True
    seen.tags = {"a": "2"}
    changed = ml_client.compute.begin_create_or_update(seen).result()
    assert "SSH" in changed.tags.pop("muster.note"), "a note says that nothing accepts SSH"
    assert (changed.tags, changed.state) == ({"a": "2"}, "Running")
    with pytest.raises(HttpResponseError, match="vmSize cannot be changed"):
        ml_client.compute.begin_create_or_update(
            instance("ci-change", size="STANDARD_DS11_V2")
        ).result()
    assert ml_client.compute.get("ci-change").size.upper() == SIZE


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"idle_time_before_shutdown_minutes": 30}, "idleTimeBeforeShutdown"),
        ({"enable_os_patching": True}, "enableOSPatching"),
        ({"size": "STANDARD_DS3_V9"}, "did you mean"),
    ],
)
def test_what_would_not_happen_is_refused(ml_client, changes, words):
    with pytest.raises(HttpResponseError, match=words) as refused:
        ml_client.compute.begin_create_or_update(instance("ci-never", **changes)).result()
    assert refused.value.status_code == 400
    assert "ci-never" not in {compute.name for compute in ml_client.compute.list()}


def test_names_are_shared_with_clusters(ml_client, create):
    from azure.ai.ml.entities import AmlCompute

    create("ci-name")
    with pytest.raises(HttpResponseError, match="computeType cannot be changed"):
        ml_client.compute.begin_create_or_update(AmlCompute(name="ci-name")).result()
    # With `muster up` a name is unique within its workspace.
    elsewhere = new_ml_client(workspace="another-one").compute
    assert elsewhere.begin_create_or_update(instance("CI-NAME")).result().name == "CI-NAME"
    elsewhere.begin_delete("CI-NAME").wait()
