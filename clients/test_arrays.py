"""Array jobs through azure-ai-ml and `muster`: tasks, limits, failures, cancel and outputs."""

import json
import uuid

from conftest import JOB_CLUSTER, WORKSPACE_FLAGS, wait_for
from job_flow import ended, submit


def array(ml_client, environment, text, indices, **options):
    """Submits an array and returns its name."""
    name = f"array_{uuid.uuid4().hex[:8]}"
    properties = {"muster.array": indices}
    return submit(ml_client, environment, text, name=name, properties=properties, **options).name


def children(ml_client, name, **options):
    return {job.name: job.status for job in ml_client.jobs.list(parent_job_name=name, **options)}


def test_an_array_runs_its_tasks_with_their_indices(
    ml_client, job_cluster, job_environment, tmp_path
):
    from azure.ai.ml import Output

    text = (
        "echo task $MUSTER_ARRAY_INDEX of $MUSTER_ARRAY_COUNT; "
        "echo $MUSTER_ARRAY_INDEX > ${{outputs.out}}/x"
    )
    name = array(
        ml_client, job_environment, text, "0-6:2%2", outputs={"out": Output(type="uri_folder")}
    )
    parent = ml_client.jobs.get(name)
    assert parent.type == "command" and parent.properties["muster.array"] == "0-6:2%2"
    parent = ended(ml_client, name)
    assert parent.status == "Completed"
    assert parent.properties["muster.children"] == "4 completed of 4 tasks"
    tasks = {f"{name}_{index}": "Completed" for index in (0, 2, 4, 6)}
    assert children(ml_client, name) == tasks
    assert name in {job.name for job in ml_client.jobs.list()}
    assert not tasks.keys() & {job.name for job in ml_client.jobs.list()}, "tasks are not listed"

    task = ml_client.jobs.get(f"{name}_4")
    assert task.properties["muster.parent"] == name
    assert task.properties["muster.arrayIndex"] == "4"
    ml_client.jobs.download(f"{name}_4", download_path=tmp_path / "task", all=True)
    assert (tmp_path / "task" / "named-outputs" / "out" / "x").read_text() == "4\n"
    log = tmp_path / "task" / "artifacts" / "user_logs" / "std_log.txt"
    assert log.read_text().splitlines()[-1] == "task 4 of 4"
    ml_client.jobs.download(name, download_path=tmp_path / "all", output_name="out")
    found = {path.parent.name: path.read_text().strip() for path in (tmp_path / "all").rglob("x")}
    assert found == {index: index for index in "0246"}, "the outputs of all tasks, by index"


def test_a_failed_task_fails_the_array_and_the_others_run(ml_client, job_cluster, job_environment):
    name = array(ml_client, job_environment, "test $MUSTER_ARRAY_INDEX != 1", "0-3")
    parent = ended(ml_client, name)
    assert parent.status == "Failed"
    assert f"'{name}_1'" in parent.properties["muster.failure"]
    states = children(ml_client, name)
    assert states.pop(f"{name}_1") == "Failed"
    assert set(states.values()) == {"Completed"} and len(states) == 3


def test_cancel_reaches_tasks_that_run_and_tasks_that_wait(ml_client, job_cluster, job_environment):
    name = array(ml_client, job_environment, "sleep 600", "0-9999%1")
    wait_for("the first task", 60, lambda: ml_client.jobs.get(f"{name}_0").status == "Running")
    assert ml_client.jobs.get(f"{name}_9999").status == "Queued"
    ml_client.jobs.begin_cancel(name).result()
    assert ended(ml_client, name).status == "Canceled"
    assert ml_client.jobs.get(f"{name}_0").status == "Canceled"
    assert ml_client.jobs.get(f"{name}_9999").status == "Canceled"
    states = children(ml_client, name)
    assert len(states) == 10_000 and set(states.values()) == {"Canceled"}


def test_the_stream_of_an_array_ends_with_it(ml_client, job_cluster, job_environment, capsys):
    name = array(ml_client, job_environment, "true", "0-2")
    ml_client.jobs.stream(name)
    assert "RunId: " + name in capsys.readouterr().out
    assert ml_client.jobs.get(name).status == "Completed"


def test_an_array_on_the_command_line(muster, job_cluster):
    def job(*arguments, **options):
        return muster("job", *arguments, *WORKSPACE_FLAGS, **options)

    name = f"cli_{uuid.uuid4().hex[:8]}"
    create = [
        "create",
        "--name",
        name,
        "--compute",
        JOB_CLUSTER,
        "--array",
        "1-3%2",
        "--command",
        "echo $MUSTER_ARRAY_INDEX; exit $((MUSTER_ARRAY_INDEX == 2))",
    ]
    done = job(*create, "--stream", check=False)
    assert done.returncode == 1 and "1 of its 3 tasks failed" in done.stderr
    tasks = json.loads(job("list", "--parent-job-name", name, "-o", "json").stdout)
    assert [task["name"] for task in tasks] == [f"{name}_{index}" for index in (1, 2, 3)]
    assert [task["status"] for task in tasks] == ["Completed", "Failed", "Completed"]
    assert job("logs", "--name", f"{name}_3").stdout == "3\n"
    refused = job("logs", "--name", name, check=False)
    assert f"muster job list --parent-job-name {name}" in refused.stderr
    refused = job(
        "create", "--name", f"{name}_2", "--compute", JOB_CLUSTER, "--command", "true", check=False
    )
    assert f"is a task of the job '{name}'; choose another name" in refused.stderr
    shown = json.loads(job("show", "--name", name, "-o", "json").stdout)
    assert shown["array"] == "1-3%2" and shown["children"]["failed"] == 1
    cost = []
    for one in [name, *(task["name"] for task in tasks)]:
        attempts = json.loads(job("list-attempts", "--name", one, "-o", "json").stdout)
        cost.append(sum(float(attempt["cost_usd"]) for attempt in attempts))
    assert cost[0] > 0, "its tasks ran"
    assert abs(cost[0] - sum(cost[1:])) < 4e-6, "tasks are rounded one by one"
    job("delete", "--name", name, "--yes")
    gone = job("show", "--name", f"{name}_1", check=False)
    assert gone.returncode != 0 and "does not exist" in gone.stderr


def test_an_array_from_a_file(muster, job_cluster, tmp_path):
    def job(*arguments, **options):
        return muster("job", *arguments, *WORKSPACE_FLAGS, **options)

    name = f"file_{uuid.uuid4().hex[:8]}"
    file = tmp_path / "job.yml"
    file.write_text(
        f"command: echo $MUSTER_ARRAY_NAME\ncompute: azureml:{JOB_CLUSTER}\n"
        "array:\n  indices: 5,7\n  max_concurrent_tasks: 1\n  timeout: 300\n"
    )
    job("create", "--file", str(file), "--name", name, "--stream")
    assert job("logs", "--name", f"{name}_7").stdout == f"{name}\n"
    file.write_text(f"command: 'true'\ncompute: {JOB_CLUSTER}\narray: 9-1\n")
    refused = job("create", "--file", str(file), check=False)
    assert refused.returncode != 0 and "line 3" in refused.stderr
    assert "ends before it begins" in refused.stderr
