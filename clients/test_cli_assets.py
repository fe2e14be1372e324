"""azure-ai-ml reads what the command line creates, and vice versa; nothing is sent twice."""

import json
import uuid

import pytest
from conftest import WORKSPACE_FLAGS

IMAGE = "ubuntu:22.04"
CONDA = """name: x
channels:
- conda-forge
dependencies:
- python=3.10
- pip:
  - six>=1.0
  - --pre
  - "numpy ; python_version < '3.12'"
variables:
  A: "1"
"""


def fresh(word):
    """A name that no other test has."""
    return f"{word}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def printed(muster):
    def run(*arguments):
        done = muster(*map(str, arguments), *WORKSPACE_FLAGS, "--output", "json")
        return json.loads(done.stdout) if done.stdout else None

    return run


@pytest.fixture
def refused(muster):
    def run(code, *arguments):
        done = muster(*map(str, arguments), *WORKSPACE_FLAGS, check=False)
        assert done.returncode == code, done.stderr
        return done.stderr

    return run


def check(ours, entity):
    """We print exactly the keys that az would print."""
    theirs = json.loads(json.dumps(entity._to_dict(), default=str))

    def tidy(value):
        if isinstance(value, dict):
            kept = {key: tidy(inner) for key, inner in value.items() if inner is not None}
            return {key: inner for key, inner in kept.items() if key != "_source"}
        # How one version of the client spells a word of the server.
        return {"CreatedByType.USER": "User"}.get(value, value) if isinstance(value, str) else value

    ours = dict(ours)
    group = ours.pop("resourceGroup", None)
    assert ours == tidy(theirs)
    assert group in (None, ours.get("id", "/////").split("/")[4])


def test_environments_are_the_same_from_both(ml_client, printed, tmp_path):
    from azure.ai.ml.entities import Environment

    (tmp_path / "conda.yml").write_text(CONDA)
    name = fresh("env")
    file = tmp_path / "env.yml"
    file.write_text(f"$schema: https://x/y\nname: {name}\nimage: {IMAGE}\nconda_file: conda.yml\n")
    made = printed("environment", "create", "-f", file, "--set", "tags.a=b")
    assert (made["name"], made["version"], made["tags"]) == (name, "1", {"a": "b"})
    check(made, ml_client.environments.get(name, version="1"))
    conda = str(tmp_path / "conda.yml")
    theirs = Environment(name=name, image=IMAGE, conda_file=conda, tags={"a": "b"})
    assert ml_client.environments.create_or_update(theirs).version == "1", "both read the same"
    theirs = Environment(name=name, image="debian:13", description="d")
    assert ml_client.environments.create_or_update(theirs).version == "2"
    image = ["--image", "debian:13", "--description", "d"]
    same = printed("environment", "create", "-n", name, *image)
    assert same["version"] == "2", "the SDK reads the same"
    shown = printed("environment", "show", "-n", name, "--label", "latest")
    check(shown, ml_client.environments.get(name, label="latest"))
    assert shown == printed("environment", "show", "-n", f"azureml:{name}")
    assert [one["version"] for one in printed("environment", "list", "-n", name)] == ["2", "1"]
    [listed] = [one for one in printed("environment", "list") if one["name"] == name]
    [theirs] = [one for one in ml_client.environments.list() if one.name == name]
    check(listed, theirs)


def test_a_build_context_is_sent_once(ml_client, printed, tmp_path):
    from azure.ai.ml.entities import BuildContext, Environment

    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {IMAGE}\n# {uuid.uuid4()}\n")
    name = fresh("docker")
    made = printed("environment", "create", "-n", name, "--build-context", context)
    check(made, ml_client.environments.get(name, version="1"))
    theirs = Environment(name=name, build=BuildContext(path=str(context)))
    assert ml_client.environments.create_or_update(theirs).version == "1"


def test_data_of_both_are_in_one_place(ml_client, printed, tmp_path):
    from azure.ai.ml.entities import Data

    folder, name = tmp_path / "data", fresh("data")
    (folder / "sub").mkdir(parents=True)
    (folder / "x.csv").write_text(uuid.uuid4().hex)
    (folder / "sub" / "empty").write_text("")
    made = printed("data", "create", "-n", name, "--path", folder, "-d", "all")
    assert (made["version"], made["type"], made["description"]) == ("1", "uri_folder", "all")
    check(made, ml_client.data.get(name, version="1"))
    theirs = ml_client.data.create_or_update(Data(name=name, path=str(folder), type="uri_folder"))
    assert (theirs.version, theirs.path) == ("2", made["path"]), "the same hash, the same place"
    theirs = Data(name=name, path=str(folder / "x.csv"), type="uri_file")
    theirs = ml_client.data.create_or_update(theirs)
    file = tmp_path / "data.yml"
    file.write_text(f"name: {name}\nversion: 7\ntype: uri_file\npath: data/x.csv\n")
    ours = printed("data", "create", "-f", file)
    assert (ours["version"], ours["path"]) == ("7", theirs.path)
    again = printed("data", "create", "-f", file)
    assert again == ours, "the same again changes nothing"
    for path in ("https://example.com/x.csv", "azureml://datastores/workspaceblobstore/paths/x"):
        kind = ("--type", "uri_file")
        made = printed("data", "create", "-n", name, "-p", path, *kind)
        check(made, ml_client.data.get(name, version=made["version"]))
    [listed] = [one for one in printed("data", "list") if one["name"] == name]
    [theirs] = [one for one in ml_client.data.list() if one.name == name]
    check(listed, theirs)


def test_a_table_says_what_it_names(ml_client, printed, refused, tmp_path):
    table, name = tmp_path / "table", fresh("table")
    table.mkdir()
    create = ("data", "create", "-n", name, "--type", "mltable", "--path", table)
    (table / "x.csv").write_text("a\n1\n")
    assert "MLTable" in refused(2, *create)
    (table / "MLTable").write_text("paths:\n- file: ./x.csv\ntransformations: []\n")
    made = printed(*create)
    check(made, ml_client.data.get(name, version="1"))
    assert ml_client.data.get(name, version="1")._referenced_uris == ["./x.csv"]


def test_models_go_up_and_come_down(ml_client, printed, muster, tmp_path):
    from azure.ai.ml.entities import Model

    source, name = tmp_path / "model", fresh("model")
    (source / "sub").mkdir(parents=True)
    (source / "weights.bin").write_bytes(uuid.uuid4().bytes * 1_000)
    (source / "sub" / "größe ü.txt").write_text("")
    tags = ("--tags", "a=b", "--stage", "Development")
    made = printed("model", "create", "-n", name, "-p", source, *tags)
    check(made, ml_client.models.get(name, version="1"))
    theirs = ml_client.models.create_or_update(Model(name=name, path=str(source)))
    assert (theirs.version, theirs.path) == ("2", made["path"])
    for version in ("1", "2"):
        down = tmp_path / f"down{version}"
        muster("model", "download", "-n", name, "-v", version, "-p", str(down), *WORKSPACE_FLAGS)
        found = {file.relative_to(down / name) for file in down.rglob("*") if file.is_file()}
        wanted = {file.relative_to(source) for file in source.rglob("*") if file.is_file()}
        assert found == wanted
        assert (down / name / "weights.bin").read_bytes() == (source / "weights.bin").read_bytes()
    ml_client.models.download(name=name, version="1", download_path=str(tmp_path / "sdk"))
    [one] = (tmp_path / "sdk").rglob("weights.bin")
    assert one.read_bytes() == (source / "weights.bin").read_bytes()
    update = ("model", "update", "-n", name, "-v", "1")
    printed(*update, "--set", "description=new", "tags.c=d", "--stage", "Production")
    seen = ml_client.models.get(name, version="1")
    assert (seen.description, seen.tags, seen.stage) == ("new", {"a": "b", "c": "d"}, "Production")
    staged = printed("model", "list", "-n", name, "--stage", "Production")
    assert [one["version"] for one in staged] == ["1"]
    [listed] = [one for one in printed("model", "list") if one["name"] == name]
    [theirs] = [one for one in ml_client.models.list() if one.name == name]
    check(listed, theirs)


COMPONENT = """$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
name: {name}
type: command
display_name: Train
inputs:
  lr: {{type: number, default: 0.5}}
  data: {{type: uri_folder, optional: true}}
outputs:
  model: {{type: uri_folder}}
code: ./src
environment:
  image: {image}
  conda_file: conda.yml
command: python train.py --lr ${{{{inputs.lr}}}} --out ${{{{outputs.model}}}}
"""


def test_a_component_brings_its_code_and_its_environment(ml_client, printed, tmp_path):
    from azure.ai.ml import load_component

    name = f"train_{uuid.uuid4().hex[:12]}"
    (tmp_path / "conda.yml").write_text(CONDA)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(f"print('{uuid.uuid4()}')\n")
    file = tmp_path / "component.yml"
    file.write_text(COMPONENT.format(name=name, image=IMAGE))
    made = printed("component", "create", "-f", file)
    assert (made["version"], made["display_name"]) == ("1", "Train")
    seen = ml_client.components.get(name, version="1")
    assert seen.inputs["lr"].type == "number" and seen.command == made["command"]
    bare = {key: made[key].removeprefix("azureml:") for key in ("code", "environment")}
    assert (seen.code, seen.environment) == (bare["code"], bare["environment"])
    theirs = ml_client.components.create_or_update(load_component(str(file)), version="2")
    assert theirs.code.removeprefix("azureml:") == bare["code"], "the same files are the same code"
    found = theirs.environment.removeprefix("azureml:")
    assert found == bare["environment"], "the same anonymous environment"
    check(printed("component", "show", "-n", name, "-v", "2"), theirs)
    update = ("component", "update", "-n", name, "--label", "latest")
    printed(*update, "--set", "display_name=Other", "tags.a=b")
    seen = ml_client.components.get(name, version="2")
    assert (seen.display_name, seen.tags) == ("Other", {"a": "b"})


def test_what_a_component_includes_is_the_same_code_from_both(
    ml_client, printed, refused, tmp_path
):
    from azure.ai.ml import load_component

    name = f"includes_{uuid.uuid4().hex[:12]}"
    for path, text in {
        "component/src/train.py": f"print('{uuid.uuid4()}')\n",
        "component/src/.amlignore": "*.tmp\n**/raw/**\n [^x].dat\n{a,b}\n",
        "component/src/raw/deep/x.py": "no",
        "component/src/^.dat": "no",
        "component/src/a": "yes",
        "component/src/b.dat": "yes",
        "component/src/__pycache__/train.pyc": "no",
        "lib/deep/one.py": "1\n",
        "lib/deep/one.tmp": "no",
        "lib/deep/.gitignore": "two.py\n",
        "lib/deep/two.py": "no",
        "packed/three.py": "3\n",
        "shared.txt": "shared\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    file = tmp_path / "component/component.yml"
    text = (
        f"name: {name}\ntype: command\ncode: src\nenvironment: {{image: {IMAGE}}}\n"
        "command: python train.py\nadditional_includes: [%s]\n"
    )
    file.write_text(text % "../lib, ../shared.txt, ../packed.zip")
    made = printed("component", "create", "-f", file)
    assert made["additional_includes"] == ["../lib", "../shared.txt", "../packed.zip"]
    theirs = ml_client.components.create_or_update(load_component(str(file)), version="2")
    assert theirs.code.removeprefix("azureml:") == made["code"].removeprefix("azureml:")
    # Without environment and inputs, and without its own code.
    file.write_text((text % "../lib").replace("code: src\n", ""))
    theirs = ml_client.components.create_or_update(load_component(str(file)), version="3")
    made = printed("component", "create", "-f", file)
    assert theirs.code.removeprefix("azureml:") == made["code"].removeprefix("azureml:")
    (tmp_path / "train.py").write_text("another")
    for include, wanted in {
        "../train.py": "the code already contains",
        "../nowhere": "there is no file or folder",
        "{type: artifact, feed: f, name: n, version: v}": "are not downloaded",
        "/dev/null": "not a plain file",
    }.items():
        file.write_text(text % include)
        assert wanted in refused(2, "component", "create", "-f", file), include


def test_a_pipeline_names_components_by_their_files(ml_client, printed, refused, tmp_path):
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "one.yml").write_text(
        f"name: one\ntype: command\ncommand: echo {uuid.uuid4()}\nenvironment:\n  image: {IMAGE}\n"
    )
    name, file = f"all_{uuid.uuid4().hex[:12]}", tmp_path / "pipeline.yml"
    file.write_text(
        f"name: {name}\ntype: pipeline\njobs:\n  first:\n    type: command\n"
        "    component: steps/one.yml\n"
        "  second:\n    type: command\n    component: file:./steps/one.yml\n"
    )
    made = printed("component", "create", "-f", file)
    first, second = (made["jobs"][one]["component"] for one in ("first", "second"))
    assert first == second and "/components/azureml_anonymous/versions/" in first
    assert ml_client.components.get(name, version="1").jobs["first"].component == first
    file.write_text(f"name: {name}\ntype: pipeline\njobs:\n  x:\n    component: pipeline.yml\n")
    assert "deep" in refused(2, "component", "create", "-f", file)


def test_versions_go_into_the_archive_and_come_back(ml_client, printed, refused):
    name = fresh("env")
    for version in ("1", "2"):
        printed("environment", "create", "-n", name, "-v", version, "--image", f"i:{version}")
    listed = ("environment", "list", "-n", name)

    def seen(*flags):
        return [one["version"] for one in printed(*listed, *flags)]

    printed("environment", "archive", "-n", name, "--label", "latest")
    assert (seen(), seen("--archived-only")) == (["1"], ["2"])
    assert seen("--include-archived") == ["2", "1"]
    assert ml_client.environments.get(name, label="latest").version == "1"
    printed("environment", "restore", "-n", name, "-v", "2")
    assert seen("-r", "1") == ["2"]
    printed("environment", "archive", "-n", name)
    assert name not in {one["name"] for one in printed("environment", "list")}
    assert name in {one["name"] for one in printed("environment", "list", "--archived-only")}
    ml_client.environments.restore(name=name)
    assert name in {one["name"] for one in printed("environment", "list")}
    missing = refused(3, "environment", "show", "-n", f"{name}x", "-v", "1")
    assert f"did you mean '{name}'" in missing
    update = ("environment", "update", "-n", name, "-v", "1")
    assert "never changes" in refused(2, *update, "--set", "image=other")
    assert "--version" in refused(2, "environment", "update", "-n", name, "--set", "tags.a=b")
    image = ("--image", "another")
    said = refused(2, "environment", "create", "-n", name, "-v", "1", *image)
    assert "choose another version" in said


def test_what_is_wrong_in_a_file_is_named_with_its_place(refused, tmp_path):
    file = tmp_path / "x.yml"
    for kind, text, wanted in [
        ("environment", "name: x\nimgae: i\n", ["x.yml', line 2, column 1", "'image'"]),
        ("data", "name: x\npath: [\n", ["x.yml', line ", "is not valid YAML"]),
        ("data", "name: x\npath: .\ntype: uri_fold\n", ["uri_folder"]),
        ("data", "name: x\ntype: uri_file\n", ["path is not given"]),
        ("data", "name: x\npath: nowhere\n", ["nowhere"]),
        ("model", "name: x\npath: p\nstages: s\n", ["line 3, column 1", "'stage'"]),
        ("component", "name: x\ntype: kommand\n", ["'command'"]),
        (
            "component",
            "name: x\ncommand: echo\ninputs:\n  a: {typ: string}\n",
            ["inputs.a.typ", "'type'"],
        ),
        ("component", "name: x\ncommand: echo\nenvironment: azureml:x\n", ["names no version"]),
        ("environment", "name: x\nconda_file: {dependencies: []}\n", ["neither image nor build"]),
        ("environment", "image: x\n", ["name is not given"]),
    ]:
        file.write_text(text)
        said = refused(2, kind, "create", "-f", file)
        assert all(word in said for word in wanted), (text, said)


def test_nothing_is_sent_by_a_dry_run(printed, refused, tmp_path):
    (tmp_path / "x.csv").write_text(uuid.uuid4().hex)
    name = fresh("data")
    create = ("data", "create", "-n", name, "-p", tmp_path / "x.csv", "-t", "uri_file")
    planned = printed(*create, "--dry-run")
    assert planned["dry_run"] and not planned["is_there"]
    refused(3, "data", "show", "-n", name)
    made = printed(*create)
    path = planned["body"]["properties"]["dataUri"].split("/paths/")[1]
    assert made["path"].endswith(f"/paths/{path}")


CURATED = "AzureML-sklearn-1.0-ubuntu20.04-py38-cpu"


def test_curated_environments_name_their_substitute(ml_client, printed, refused):
    from azure.core.exceptions import ResourceNotFoundError

    seen = ml_client.environments.get(CURATED, label="latest")
    assert seen.name == CURATED and "is used instead" in seen.description
    assert ml_client.environments.get(CURATED, version="33").version == "33"
    check(printed("environment", "show", "-n", CURATED), seen)
    rows = printed("environment", "list", "--curated")
    assert {"AzureML-sklearn-1.0-*", "*"} <= {row["name"] for row in rows}
    registry = "azureml://registries/azureml/environments/sklearn-1.5/labels/latest"
    shown = printed("environment", "show", "-n", registry)
    assert shown["recipe"] == "sklearn-1.5" and "is used instead" in shown["notes"][0]
    with pytest.raises(ResourceNotFoundError, match="the nearest are"):
        ml_client.environments.get("AzureML-sklern-1.0", label="latest")
    assert "the nearest are" in refused(3, "environment", "show", "-n", "AzureML-sklern-1.0")


def test_readers_can_see_a_build_log(printed, refused):
    name = fresh("env")
    printed("environment", "create", "-n", name, "--image", IMAGE)
    told = printed("environment", "show-build-log", "-n", name, "-v", "1")
    assert told["state"] == "not needed" and "not run here" in told["notes"][0]
    told = printed("environment", "show-build-log", "-n", CURATED)
    assert told["state"] in {"not built", "building", "ready"} and told["packages"]
    refused(3, "environment", "show-build-log", "-n", name, "-v", "9")
