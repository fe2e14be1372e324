"""Datastores through azure-ai-ml, and what it uploads and downloads with them."""

import subprocess
import uuid

import pytest
from own_server import WS, V


def folder_with_code(path):
    (path / "src" / "sub").mkdir(parents=True)
    (path / "src" / "train.py").write_text("print('hello')\n")
    (path / "src" / "sub" / "empty.txt").write_text("")
    (path / "src" / "sub" / "data.bin").write_bytes(bytes(range(256)) * 100)
    return path / "src"


def test_the_workspace_has_its_own_two(ml_client):
    listed = [store.name for store in ml_client.datastores.list()]
    assert listed[:2] == ["workspaceblobstore", "workspaceartifactstore"]
    default = ml_client.datastores.get_default()
    assert (default.name, default.container_name.split("-")[1]) == (
        "workspaceblobstore",
        "blobstore",
    )
    assert default.credentials.type == "sas"


def test_what_it_uploads_to_a_datastore_comes_down_again(ml_client, tmp_path):
    from azure.ai.ml._artifacts._artifact_utilities import download_artifact, upload_artifact

    src = folder_with_code(tmp_path)
    stores, scope = ml_client.datastores, ml_client._operation_scope
    asset = {"asset_hash": uuid.uuid4().hex, "asset_name": "code", "asset_version": "1"}
    sent = upload_artifact(str(src), stores, scope, "workspaceblobstore", **asset)
    again = upload_artifact(str(src), stores, scope, "workspaceblobstore", **asset)
    assert again.relative_path == sent.relative_path, "files that exist are not sent again"
    target = tmp_path / "down"
    download_artifact(sent.relative_path, str(target), stores, "workspaceblobstore")
    same = subprocess.run(["diff", "-r", src, target], capture_output=True, text=True)
    assert same.returncode == 0, same.stdout


def test_datastores_are_made_and_their_secrets_shown_to_few(ml_client, session, server):
    from azure.ai.ml.entities import AccountKeyConfiguration, AzureBlobDatastore
    from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

    name = f"foreign_{uuid.uuid4().hex}"
    key = "c2VjcmV0LWtleQ=="
    made = ml_client.datastores.create_or_update(
        AzureBlobDatastore(
            name=name,
            account_name="acc",
            container_name="data",
            credentials=AccountKeyConfiguration(account_key=key),
        )
    )
    assert (made.account_name, made.container_name) == ("acc", "data")
    seen = ml_client.datastores.get(name, include_secrets=True)
    assert seen.credentials.account_key == key
    at = f"{server.url}{WS}/datastores/{name}"
    assert key not in session.get(at, params=V).text
    for file in server.state_dir.glob("*.db*"):
        assert key.encode() not in file.read_bytes(), "the key is encrypted wherever it is stored"
    ml_client.datastores.delete(name)
    with pytest.raises(ResourceNotFoundError):
        ml_client.datastores.get(name)
    with pytest.raises(HttpResponseError):
        ml_client.datastores.delete("workspaceblobstore")


def test_the_command_line_makes_and_forgets_datastores(muster, server):
    import json

    from conftest import WORKSPACE_FLAGS

    name, container = f"own_{uuid.uuid4().hex}", f"own-{uuid.uuid4().hex}"
    create = ("datastore", "create", "--name", name, "--container-name")
    made = muster(*create, container, "-o", "json", *WORKSPACE_FLAGS)
    made = json.loads(made.stdout)
    assert (made["container_name"], made["credentials_type"]) == (container, "Sas")
    listed = muster("datastore", "list", "-o", "table", *WORKSPACE_FLAGS).stdout
    assert name in listed and "workspaceblobstore" in listed
    elsewhere = (*WORKSPACE_FLAGS[:2], "--workspace-name=another")
    taken = muster(*create, container, *elsewhere, check=False)
    assert taken.returncode != 0 and "is taken" in taken.stderr
    bad = muster(*create, "../etc", *WORKSPACE_FLAGS, check=False)
    assert bad.returncode == 2 and "lower-case letters" in bad.stderr
    muster("datastore", "delete", "--name", name, "--yes", *WORKSPACE_FLAGS)
    gone = muster("datastore", "show", "--name", name, *WORKSPACE_FLAGS, check=False)
    assert gone.returncode == 3


def test_code_is_uploaded_once_and_found_by_its_hash(ml_client, session, server, tmp_path):
    from azure.ai.ml.entities._assets import Code

    src = folder_with_code(tmp_path)
    (src / "only.txt").write_text(uuid.uuid4().hex)
    first = ml_client._code.create_or_update(Code(path=str(src)))
    seen = session.get(f"{server.url}{first.id}", params=V).json()["properties"]
    assert seen["codeUri"].endswith("/src") and seen["properties"]["hash_version"]
    by_hash = {**V, "hash": seen["properties"]["hash_sha256"]}
    found = session.get(f"{server.url}{WS}/codes/whatever/versions", params=by_hash).json()
    assert [one["id"] for one in found["value"]] == [first.id]
    again = ml_client._code.create_or_update(Code(path=str(src)))
    assert again.id == first.id, "the same content is one asset"
    other = {"properties": {**seen, "properties": {"hash_sha256": "other"}}}
    at = f"{server.url}{first.id}"
    assert session.put(at, params=V, json=other).status_code == 409
    for uri in ("https://example.com/c/src", seen["codeUri"].replace("code-", "c0de-")):
        body = {"properties": {"codeUri": uri}}
        new = f"{server.url}{WS}/codes/{uuid.uuid4()}/versions/1"
        assert session.put(new, params=V, json=body).status_code == 400, uri
