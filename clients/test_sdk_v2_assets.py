"""Environments, data, models and components through azure-ai-ml."""

import datetime
import uuid

import pytest
from conftest import SUBSCRIPTION
from own_server import WS, V

IMAGE = "ubuntu:22.04"
CONDA = {"name": "x", "channels": ["conda-forge"], "dependencies": ["python=3.10", "pip"]}


def fresh(word):
    """A name that no other test has."""
    return f"{word}-{uuid.uuid4().hex[:12]}"


def environment(name, version=None, **about):
    from azure.ai.ml.entities import Environment

    return Environment(name=name, version=version, **{"image": IMAGE, **about})


def versions(listed):
    return [one.version for one in listed]


def test_an_environment_is_made_read_labelled_and_listed(ml_client, tmp_path):
    from azure.core.exceptions import ResourceNotFoundError

    conda = tmp_path / "conda.yml"
    conda.write_text("name: x\ndependencies:\n- python=3.10\n- pip\n")
    name = fresh("env")
    made = ml_client.environments.create_or_update(
        environment(name, conda_file=str(conda), description="d", tags={"a": "b"})
    )
    assert (made.name, made.version, made.image) == (name, "1", IMAGE), "the first version is 1"
    assert made.conda_file["dependencies"] == ["python=3.10", "pip"]
    assert (made.description, made.tags) == ("d", {"a": "b"})
    again = ml_client.environments.create_or_update(environment(name, conda_file=CONDA))
    assert again.version == "2", "without a version it is the next"
    assert again.conda_file == CONDA
    ml_client.environments.create_or_update(environment(name, "18.04:2022"))
    assert ml_client.environments.get(name, version="18.04:2022").version == "18.04:2022"
    assert ml_client.environments.get(name, label="latest").version == "18.04:2022"
    assert versions(ml_client.environments.list(name=name)) == ["18.04:2022", "2", "1"]
    named = {one.name: one for one in ml_client.environments.list()}
    assert named[name].latest_version == "18.04:2022"
    seen = ml_client.environments.get(name, version="1")
    assert seen.id.endswith(f"/environments/{name}/versions/1")
    assert seen.creation_context.created_by
    with pytest.raises(ResourceNotFoundError, match=f"did you mean '{name}'"):
        ml_client.environments.get(f"{name}x", version="1")
    with pytest.raises(ResourceNotFoundError, match=r"the latest is '18\.04:2022'"):
        ml_client.environments.get(name, version="9")


def test_a_version_is_never_changed_in_what_it_is_made_of(ml_client):
    from azure.core.exceptions import ResourceExistsError

    name = fresh("env")
    ml_client.environments.create_or_update(environment(name, "1"))
    same = ml_client.environments.create_or_update(environment(name, "1", description="new"))
    assert same.description == "new"
    with pytest.raises(ResourceExistsError, match="choose another version"):
        ml_client.environments.create_or_update(environment(name, "1", image="debian:13"))
    assert ml_client.environments.get(name, version="1").image == IMAGE


def test_environments_go_into_the_archive_and_come_back(ml_client):
    from azure.ai.ml.constants import ListViewType

    name, operations = fresh("env"), ml_client.environments
    for version in ("1", "2"):
        operations.create_or_update(environment(name, version, tags={"v": version}))
    operations.archive(name=name, version="2")
    assert versions(operations.list(name=name)) == ["1"]
    only = operations.list(name=name, list_view_type=ListViewType.ARCHIVED_ONLY)
    assert versions(only) == ["2"]
    whole = operations.list(name=name, list_view_type=ListViewType.ALL)
    assert versions(whole) == ["2", "1"]
    assert operations.get(name, label="latest").version == "1"
    kept = operations.get(name, version="2")
    assert (kept.image, kept.tags) == (IMAGE, {"v": "2"}), "it still exists"
    operations.restore(name=name, version="2")
    assert versions(operations.list(name=name)) == ["2", "1"]
    operations.archive(name=name)
    assert name not in {one.name for one in operations.list()}
    archived = operations.list(list_view_type=ListViewType.ARCHIVED_ONLY)
    assert name in {one.name for one in archived}
    operations.restore(name=name)
    assert name in {one.name for one in operations.list()}


def test_an_environment_is_built_from_a_context(ml_client, tmp_path):
    from azure.ai.ml.entities import BuildContext, Environment

    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {IMAGE}\n# {uuid.uuid4()}\n")
    name = fresh("docker")
    made = ml_client.environments.create_or_update(
        Environment(name=name, build=BuildContext(path=str(context)))
    )
    assert made.build.dockerfile_path == "Dockerfile"
    assert "LocalUpload" in made.build.path
    assert ml_client.environments.get(name, version="1").build.path == made.build.path


def test_a_file_becomes_data_and_folders_and_addresses_too(ml_client, tmp_path):
    from azure.ai.ml.constants import AssetTypes
    from azure.ai.ml.entities import Data
    from azure.core.exceptions import HttpResponseError, ResourceExistsError

    text, name = uuid.uuid4().hex, fresh("data")
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / "x.csv"
    file.write_text(text)
    made = ml_client.data.create_or_update(
        Data(name=name, path=str(file), type=AssetTypes.URI_FILE, tags={"a": "b"})
    )
    assert (made.version, made.type, made.tags) == ("1", "uri_file", {"a": "b"})
    assert made.path.endswith("/x.csv") and "/datastores/workspaceblobstore/paths/" in made.path
    folder = Data(name=name, path=str(file.parent), type=AssetTypes.URI_FOLDER)
    assert ml_client.data.create_or_update(folder).version == "2"
    assert ml_client.data.get(name, label="latest").version == "2"
    assert ml_client.data.get(name, version="1").path == made.path
    url = Data(name=name, version="url", path="https://example.com/x.csv", type="uri_file")
    assert ml_client.data.create_or_update(url).path == "https://example.com/x.csv"
    assert versions(ml_client.data.list(name=name)) == ["url", "2", "1"]
    assert name in {one.name for one in ml_client.data.list()}
    with pytest.raises(ResourceExistsError):
        ml_client.data.create_or_update(
            Data(name=name, version="url", path="https://example.com/y.csv", type="uri_file")
        )
    dots = "azureml://datastores/workspaceblobstore/paths/../x"
    with pytest.raises(HttpResponseError, match=r"'\.\.'"):
        ml_client.data.create_or_update(Data(name=name, path=dots, type="uri_file"))
    ml_client.data.archive(name=name, version="url")
    assert ml_client.data.get(name, label="latest").version == "2"
    ml_client.data.restore(name=name, version="url")
    ml_client.data.archive(name=name)
    assert name not in {one.name for one in ml_client.data.list()}


def test_a_model_comes_down_as_it_went_up(ml_client, tmp_path):
    from azure.ai.ml.entities import Model

    name, operations = fresh("model"), ml_client.models
    source = tmp_path / "model"
    (source / "sub").mkdir(parents=True)
    (source / "weights.bin").write_bytes(uuid.uuid4().bytes * 1_000)
    (source / "sub" / "empty").write_text("")
    made = operations.create_or_update(Model(name=name, path=str(source), description="d"))
    assert (made.version, made.type, made.description) == ("1", "custom_model", "d")
    assert operations.create_or_update(Model(name=name, path=str(source))).version == "2"
    seen = operations.get(name, version="1")
    assert (seen.path, seen.flavors or {}) == (made.path, {})
    assert operations.get(name, label="latest").version == "2"
    assert versions(operations.list(name=name)) == ["2", "1"]
    assert name in {one.name for one in operations.list()}
    operations.download(name=name, version="1", download_path=str(tmp_path / "down"))
    [down] = (tmp_path / "down").rglob("weights.bin")
    assert down.read_bytes() == (source / "weights.bin").read_bytes()
    assert (down.parent / "sub" / "empty").read_text() == ""
    operations.archive(name=name, version="2")
    assert operations.get(name, label="latest").version == "1"
    operations.restore(name=name, version="2")
    assert versions(operations.list(name=name)) == ["2", "1"]


COMPONENT = """
name: {name}
version: "3"
type: command
display_name: Train
inputs:
  lr: {{type: number, default: 0.5}}
outputs:
  model: {{type: uri_folder}}
code: ./src
environment: azureml:{environment}:1
command: python train.py --lr ${{{{inputs.lr}}}} --out ${{{{outputs.model}}}}
"""


def test_a_component_is_made_from_its_file(ml_client, tmp_path):
    from azure.ai.ml import load_component

    env, name = fresh("env"), f"train_{uuid.uuid4().hex[:12]}"
    ml_client.environments.create_or_update(environment(env, "1"))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(f"print('{uuid.uuid4()}')\n")
    file = tmp_path / "component.yml"
    file.write_text(COMPONENT.format(name=name, environment=env))
    made = ml_client.components.create_or_update(load_component(str(file)))
    assert (made.name, made.version, made.display_name) == (name, "3", "Train")
    seen = ml_client.components.get(name, version="3")
    assert seen.command == made.command and seen.inputs["lr"].type == "number"
    assert seen.environment.endswith(f"/environments/{env}/versions/1")
    assert "/codes/" in seen.code
    assert ml_client.components.get(name).version == "3"
    assert name in {one.name for one in ml_client.components.list()}
    assert versions(ml_client.components.list(name=name)) == ["3"]
    seen.display_name = "Other"
    ml_client.components.create_or_update(seen)
    assert ml_client.components.get(name, version="3").display_name == "Other"
    ml_client.components.archive(name=name, version="3")
    assert versions(ml_client.components.list(name=name)) == []
    ml_client.components.restore(name=name, version="3")
    assert versions(ml_client.components.list(name=name)) == ["3"]


def test_anonymous_assets_are_put_with_every_submission(ml_client, session, server):
    body = {
        "properties": {
            "componentSpec": {"type": "command", "command": uuid.uuid4().hex, "_source": "DSL"},
            "isAnonymous": True,
            "isArchived": False,
            "properties": {},
            "tags": {},
        }
    }
    at = f"{server.url}{WS}/components/azureml_anonymous/versions/{uuid.uuid4()}"
    said = [session.put(at, params=V, json=body) for _ in range(3)]
    assert [answer.status_code for answer in said] == [201, 200, 200]
    assert said[0].json() == said[2].json()
    body["properties"]["componentSpec"]["command"] = "another"
    assert session.put(at, params=V, json=body).status_code == 409
    assert "azureml_anonymous" not in {one.name for one in ml_client.components.list()}


def test_names_come_with_azureml_in_front(session, server):
    name = fresh("env")
    at = f"{server.url}{WS}/environments"
    body = {"properties": {"image": IMAGE}}
    assert session.put(f"{at}/azureml%3A{name}/versions/1", params=V, json=body).status_code == 201
    seen = session.get(f"{at}/{name}/versions", params=V).json()["value"]
    assert [one["id"].rsplit("/", 3)[1] for one in seen] == [name]
    query = {**V, "$orderBy": "createdtime desc", "$top": "1"}
    seen = session.get(f"{at}/azureml%3A{name}/versions", params=query).json()
    assert len(seen["value"]) == 1 and seen["nextLink"] is None


def test_lists_come_in_pages(session, server):
    name = fresh("model")
    at = f"{server.url}{WS}/models/{name}"
    for version in range(1, 6):
        body = {"properties": {"modelUri": f"https://example.com/{version}"}}
        assert session.put(f"{at}/versions/{version}", params=V, json=body).status_code == 201
    for order, wanted in (("desc", "54321"), ("asc", "12345")):
        query = {**V, "$top": "2", "$orderBy": f"createdtime {order}", "listViewType": "All"}
        page = session.get(f"{at}/versions", params=query).json()
        seen = ""
        while True:
            seen += "".join(one["name"] for one in page["value"])
            if page["nextLink"] is None:
                break
            page = session.get(page["nextLink"]).json()
        assert seen == wanted
    assert session.get(f"{at}/versions", params={**V, "$skip": "x"}).status_code == 400
    container = session.get(at, params=V).json()["properties"]
    assert (container["latestVersion"], container["nextVersion"]) == ("5", "6")
    assert session.delete(f"{at}/versions/5", params=V).status_code == 200
    assert session.delete(f"{at}/versions/5", params=V).status_code == 204
    container = session.get(at, params=V).json()["properties"]
    assert (container["latestVersion"], container["nextVersion"]) == ("4", "6")
    assert session.delete(at, params=V).status_code == 200
    assert session.get(at, params=V).status_code == 404


def test_only_what_changes_something_is_in_the_activity_log(session, server):
    name = fresh("env")
    at = f"{server.url}{WS}/environments/{name}"
    body = {"properties": {"image": IMAGE}}
    for _ in range(2):
        assert session.put(f"{at}/versions/1", params=V, json=body).status_code in (200, 201)
    assert session.put(at, params=V, json={"properties": {"isArchived": True}}).status_code == 200
    other = {"properties": {"image": "debian:13"}}
    assert session.put(f"{at}/versions/1", params=V, json=other).status_code == 409
    assert session.delete(at, params=V).status_code == 200
    since = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    log = f"{server.url}/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Insights"
    after = f"eventTimestamp ge '{since:%Y-%m-%dT%H:%M:%SZ}'"
    query = {"api-version": "2015-04-01", "$filter": after}
    lines = session.get(f"{log}/eventtypes/management/values", params=query).json()["value"]
    seen = [
        (line["operationName"]["value"].split("/", 2)[2], line["status"]["value"])
        for line in lines
        if f"/environments/{name}" in line["resourceId"]
    ]
    assert seen == [
        ("environments/delete", "Succeeded"),
        ("environments/versions/write", "Failed"),
        ("environments/write", "Succeeded"),
        ("environments/versions/write", "Succeeded"),
    ]


def test_files_can_be_sent_ahead_for_data_and_models(session, server):
    import requests

    for kind, uri, more in (
        ("data", "dataUri", {"dataType": "uri_file"}),
        ("models", "modelUri", {}),
    ):
        at = f"{server.url}{WS}/{kind}/{fresh('x')}/versions/1"
        asked = session.post(f"{at}/startPendingUpload", params=V, json={}).json()
        place = asked["blobReferenceForConsumption"]
        address, query = place["credential"]["sasUri"].split("?")
        sent = requests.put(
            f"{address}/x.txt?{query}",
            data=b"x",
            headers={"x-ms-blob-type": "BlockBlob"},
            verify=session.verify,
        )
        assert sent.status_code == 201, sent.text
        body = {"properties": {uri: f"{place['blobUri']}/x.txt", **more}}
        assert session.put(at, params=V, json=body).status_code == 201
        elsewhere = place["blobUri"].replace("-", "-0", 1)
        body = {"properties": {uri: f"{elsewhere}/x.txt", **more}}
        refused = session.put(at.replace("/1", "/2"), params=V, json=body)
        assert refused.status_code == 400 and "startPendingUpload" in refused.text
    at = f"{server.url}{WS}/environments/x/versions/1/startPendingUpload"
    assert session.post(at, params=V, json={}).status_code == 404


def test_files_go_with_the_last_version_that_names_them(session, server):
    import requests

    at = f"{server.url}{WS}/data/{fresh('x')}"

    def sent_ahead(version):
        asked = session.post(f"{at}/versions/{version}/startPendingUpload", params=V, json={})
        place = asked.json()["blobReferenceForConsumption"]
        address, query = place["credential"]["sasUri"].split("?")
        blob = f"{address}/x.txt?{query}"
        headers = {"x-ms-blob-type": "BlockBlob"}
        sent = requests.put(blob, data=b"x", headers=headers, verify=session.verify)
        assert sent.status_code == 201, sent.text
        return blob, f"{place['blobUri']}/x.txt"

    def seen(blob):
        return requests.get(blob, verify=session.verify).status_code

    def name(version, uri):
        body = {"properties": {"dataUri": uri, "dataType": "uri_file"}}
        assert session.put(f"{at}/versions/{version}", params=V, json=body).status_code == 201

    blob, uri = sent_ahead("1")
    name("1", uri)
    name("2", uri)
    assert session.delete(f"{at}/versions/1", params=V).status_code == 200
    assert seen(blob) == 200, "another version references it"
    assert session.delete(f"{at}/versions/2", params=V).status_code == 200
    assert seen(blob) == 404, "nothing references it any more"
    # By its name, with all versions. Files in a datastore belong to the user and are kept.
    blob, uri = sent_ahead("3")
    name("3", uri)
    store = "azureml://datastores/workspaceblobstore/paths/mine"
    name("4", store)
    kept = session.post(f"{server.url}{WS}/datastores/workspaceblobstore/listSecrets", params=V)
    assert kept.status_code == 200
    assert session.delete(at, params=V).status_code == 200
    assert seen(blob) == 404
    assert session.get(f"{server.url}{WS}/datastores/workspaceblobstore", params=V).ok
    blob, uri = sent_ahead("3")
    name("3", uri)
    assert seen(blob) == 200, "the same name again has files of its own"


def test_names_of_what_comes_with_the_service_are_kept(session, server):
    at = f"{server.url}{WS}/environments/AzureML-mine/versions/1"
    refused = session.put(at, params=V, json={"properties": {"image": IMAGE}})
    assert refused.status_code == 400 and "choose another name" in refused.text
