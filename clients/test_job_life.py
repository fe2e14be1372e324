"""The life of jobs with every client: lists, run history, and the effects of a delete."""

import hashlib
import os
import uuid

import pytest
from conftest import RESOURCE_GROUP, SUBSCRIPTION, WORKSPACE
from job_flow import AT, ended, listed, submit


def test_an_update_merges(ml_client, job_cluster, job_environment):
    job = submit(ml_client, job_environment, tags={"a": "1"})
    changed = ml_client.jobs.update(job.name, display_name="new", tags={"z": "1"})
    assert changed.display_name == "new"
    assert {"a": "1", "z": "1"}.items() <= changed.tags.items()


def test_only_what_has_ended_is_deleted(ml_client, job_cluster, job_environment):
    from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

    job = submit(ml_client, job_environment, "echo kept > outputs/kept.txt; sleep 60").name
    with pytest.raises(HttpResponseError) as failed:
        ml_client.jobs.begin_delete(job).result()
    assert failed.value.status_code == 409
    assert f"muster job cancel --name {job}" in str(failed.value)
    ml_client.jobs.begin_cancel(job).result()
    assert ended(ml_client, job).status == "Canceled"
    ml_client.jobs.begin_delete(job).result()
    with pytest.raises(ResourceNotFoundError):
        ml_client.jobs.get(job)
    assert job not in listed(ml_client, view="ALL")


def test_the_files_of_a_deleted_job_are_deleted(
    ml_client, session, server, job_cluster, job_environment
):
    job = submit(ml_client, job_environment, "echo kept > outputs/kept.txt; echo said").name
    assert ended(ml_client, job).status == "Completed"
    store = session.post(f"{server.url}{AT}/datastores/workspaceartifactstore/listSecrets", json={})
    at = session.get(f"{server.url}{AT}/datastores/workspaceartifactstore").json()["properties"]
    host = f"https://{at['accountName']}.blob.{at['endpoint']}/{at['containerName']}"
    query = f"restype=container&comp=list&prefix=ExperimentRun/dcid.{job}/"

    def blobs():
        address = f"{host}?{query}&{store.json()['sasToken']}"
        found = session.get(address, headers={"Authorization": None})
        assert found.status_code == 200, found.text
        return found.text.count("<Blob>")

    assert blobs() == 2, "its log and its file"
    log = session.get(f"{server.url}/history/v1.0{AT}/runs/{job}/details").json()["logFiles"]
    assert session.delete(f"{server.url}{AT}/jobs/{job}").status_code == 200
    assert blobs() == 0
    for address in log.values():
        assert "said" not in session.get(address, headers={"Authorization": None}).text
    for path in ("details", "children"):
        assert session.get(f"{server.url}/history/v1.0{AT}/runs/{job}/{path}").status_code == 404
    assert session.delete(f"{server.url}{AT}/jobs/{job}").status_code == 204


def test_lists_are_narrowed_by_tag_kind_and_page(
    ml_client, session, server, job_cluster, job_environment
):
    key = f"k{uuid.uuid4().hex[:8]}"
    mine = [submit(ml_client, job_environment, tags={key: str(number)}).name for number in range(3)]
    ml_client.jobs.archive(mine[0])
    jobs = f"{server.url}{AT}/jobs"

    def found(**query):
        answer = session.get(jobs, params=query)
        assert answer.status_code == 200, answer.text
        seen, answer = [], answer.json()
        while True:
            seen += [job["name"] for job in answer["value"]]
            if not answer.get("nextLink"):
                return seen
            answer = session.get(answer["nextLink"]).json()

    newest_first = mine[::-1]
    assert found(tag=key) == newest_first[:2]
    assert found(tag=key, listViewType="All") == newest_first
    assert found(tag=key, listViewType="ArchivedOnly") == mine[:1]
    assert found(tag=key, listViewType="All", **{"$top": "1"}) == newest_first
    assert found(tag=key, jobType="Command") == newest_first[:2]
    assert found(tag=key, jobType="Pipeline") == []
    assert found(tag="no-such") == []
    for bad in ({"jobType": "Nonsense"}, {"listViewType": "Some"}):
        assert session.get(jobs, params=bad).status_code == 400


def test_run_history_is_read_and_written(ml_client, session, server, job_cluster, job_environment):
    job = submit(ml_client, job_environment, experiment_name="exp").name
    ended(ml_client, job)
    base = f"{server.url}/history/v1.0{AT}"
    for path in (f"runs/{job}", f"experiments/exp/runs/{job}"):
        run = session.get(f"{base}/{path}").json()
        assert (run["runId"], run["status"], run["hidden"]) == (job, "Completed", False)
    patched = session.patch(f"{base}/experiments/exp/runs/{job}", json={"hidden": True})
    assert patched.status_code == 200 and patched.json()["hidden"] is True
    assert ml_client.jobs.get(job).status == "Completed"
    shown = session.get(f"{server.url}{AT}/jobs/{job}").json()["properties"]
    assert shown["isArchived"] is True
    log = session.get(
        f"{server.url}/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Insights/eventtypes"
        "/management/values",
        params={"$filter": "eventTimestamp ge '2020-01-01T00:00:00Z'"},
    )
    assert f"runs/{job}" in log.text, "the activity log has it"
    for body in ({"hidden": "x"}, {"tags": {"a" * 600: "1"}}, {"displayName": "x" * 300}):
        assert session.patch(f"{base}/runs/{job}", json=body).status_code == 400
    assert session.patch(f"{base}/runs/no-such", json={"hidden": True}).status_code == 404
    assert session.delete(f"{base}/runs/{job}").status_code == 405


def test_why_and_cost_know_serverless_jobs(ml_client, muster, session, server, job_environment):
    job = submit(ml_client, job_environment, compute=None).name
    assert ended(ml_client, job).status == "Completed"
    where = ("-g", RESOURCE_GROUP, "-w", WORKSPACE, "--subscription", SUBSCRIPTION)
    cost = muster("cost", "--by", "cluster", "-o", "json", *where)
    assert "serverless-ds3-v2" in cost.stdout
    assert "completed" in muster("why", job, *where).stdout
    name = "serverless-ds3-v2"
    refused = session.delete(f"{server.url}{AT}/computes/{name}")
    assert refused.status_code == 409, refused.text
    wanted = {"location": "eastus", "properties": {"computeType": "AmlCompute", "properties": {}}}
    for name in ("serverless", "serverless-x"):
        refused = session.put(f"{server.url}{AT}/computes/{name}", json=wanted)
        assert refused.status_code == 400, refused.text


# Takes 30 s: the client sends 5,000 files one by one.
def test_large_empty_many_and_oddly_named_files_arrive(
    ml_client, job_cluster, job_environment, tmp_path
):
    from azure.ai.ml import Input, Output

    data = tmp_path / "data"
    deep = data.joinpath("odd", *(f"level-{number}" for number in range(20)))
    deep.mkdir(parents=True)
    (deep / "größe 雪 & +%41.txt").write_text("deep")
    (data / "odd" / "empty.bin").touch()
    block = os.urandom(1 << 20)
    with (data / "odd" / "large.bin").open("wb") as large:
        for _ in range(200):
            large.write(block)
    small = data / "small"
    small.mkdir()
    for number in range(5_000):
        (small / f"{number:05}.txt").write_text(str(number))
    digest = hashlib.sha256("".join(map(str, range(5_000))).encode()).hexdigest()
    job = submit(
        ml_client,
        job_environment,
        # The client takes minutes to download that many one by one.
        "cp -r ${{inputs.data}}/odd/. ${{outputs.copy}}/ && "
        "cat ${{inputs.data}}/small/*.txt | sha256sum > outputs/digest.txt",
        inputs={"data": Input(type="uri_folder", path=str(data))},
        outputs={"copy": Output(type="uri_folder")},
    )
    assert ended(ml_client, job.name).status == "Completed"
    ml_client.jobs.download(job.name, download_path=tmp_path / "down", all=True)
    found = (tmp_path / "down" / "artifacts" / "outputs" / "digest.txt").read_text()
    assert found.split()[0] == digest

    def digests(folder):
        found = {}
        for path in (path for path in folder.rglob("*") if path.is_file()):
            with path.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256")
            found[str(path.relative_to(folder))] = digest.hexdigest()
        return found

    sent = digests(data / "odd")
    assert len(sent) == 3
    assert digests(tmp_path / "down" / "named-outputs" / "copy") == sent
