"""Files of examples/jobs through azure-ai-ml and through `muster`: both send the same."""

import datetime
import json
import pathlib
import subprocess

import pytest
from conftest import REPOSITORY, WORKSPACE_FLAGS, wait_for

FOLDER = REPOSITORY / "examples/jobs"
JOBS = sorted(path.name for path in FOLDER.glob("*.yml"))
COMPONENTS = sorted(path.name for path in (FOLDER / "components").glob("*.yml"))
CLUSTER = "cpu-cluster"
# These end within seconds with what every machine has.
RUN = {
    "hello-world.yml": "hello world",
    "hello-world-env-var.yml": "hello world 42 yes",
    "hello-world-input.yml": "hello world 42",
    "hello-literals.yml": "rate=0.1 small=1e-3 tiny=1e-05 flag=True switch=False octal=8 many=1000",
    "hello-code.yml": "hello from hello.py with code",
    "code-subfolder.yml": "lines: 48",
    "data-local-file.yml": "3 ",
    "data-mltable.yml": "type: mltable",
    "anchors.yml": "shared shared",
    "environment-docker-context.yml": "hello from the Dockerfile with six 1.17.0",
    "serverless.yml": "hello serverless",
}
ENDS = ("Completed", "Failed", "Canceled")


@pytest.fixture(scope="module")
def cluster(muster):
    flags = ("--name", CLUSTER, "--max-instances", "2", *WORKSPACE_FLAGS)
    muster("compute", "create", *flags)
    yield CLUSTER
    muster("compute", "delete", "--name", CLUSTER, "--yes", *WORKSPACE_FLAGS)


@pytest.fixture
def sent(client_env, monkeypatch):
    """Bodies of the jobs that azure-ai-ml puts; none of them is submitted."""
    from azure.core.pipeline.transport import RequestsTransport

    bodies, send = [], RequestsTransport.send

    class NotSubmitted(Exception):
        pass

    def record(self, request, **options):
        if request.method == "PUT" and "/jobs/" in request.url:
            content = getattr(request, "content", None) or getattr(request, "body", None)
            bodies.append(json.loads(content))
            raise NotSubmitted
        return send(self, request, **options)

    monkeypatch.setattr(RequestsTransport, "send", record)

    def of(ml_client, job):
        with pytest.raises(NotSubmitted):
            ml_client.jobs.create_or_update(job)
        return bodies.pop()

    return of


def planned(muster, path):
    """The body that `muster job create` would send."""
    done = muster("job", "create", "--file", str(path), "--dry-run", "-o", "json", *WORKSPACE_FLAGS)
    return json.loads(done.stdout)["body"]


def normal(body, session, server):
    """Without what differs from one submission to the next: names of code, and the state of git."""
    properties = dict(body["properties"])
    code = properties.pop("codeId", None)
    if code and "/codes/" in code:
        name = code.split("/codes/")[1].split("/")[0]
        if len(name) != 64:
            found = session.get(f"{server.url}{code}", params={"api-version": "2023-04-01"}).json()
            name = found["properties"]["properties"]["hash_sha256"]
        code = name
    properties["codeId"] = code
    properties["properties"] = {
        key: value
        for key, value in (properties.get("properties") or {}).items()
        if not key.startswith(("mlflow.source.git.", "azureml.git."))
    }
    properties["environmentVariables"] = {
        key: str(value) for key, value in (properties.get("environmentVariables") or {}).items()
    }
    return {key: value for key, value in properties.items() if value not in (None, {}, [])}


@pytest.mark.parametrize("name", JOBS)
def test_both_send_the_same(name, muster, ml_client, sent, session, server, cluster, monkeypatch):
    from azure.ai.ml import load_job

    # The experiment is named after the folder.
    monkeypatch.chdir(FOLDER)
    if name == "code-git.yml":
        # Both register an asset for it first, but the server cannot fetch it.
        assert "/codes/" in planned(muster, FOLDER / name)["properties"]["codeId"]
        flags = ("--file", str(FOLDER / name), *WORKSPACE_FLAGS)
        refused = muster("job", "create", *flags, check=False)
        assert refused.returncode == 2 and "git+https://" in refused.stderr
        return
    theirs = sent(ml_client, load_job(FOLDER / name))
    ours = planned(muster, FOLDER / name)
    if "display_name" not in (FOLDER / name).read_text():
        # It is the job's own name, which each client generates.
        assert ours["properties"].pop("displayName") and theirs["properties"].pop("displayName")
    assert normal(ours, session, server) == normal(theirs, session, server)


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_of_a_file_is_run_as_a_job(name, muster, client_env, cluster, tmp_path):
    from azure.ai.ml import load_component

    component = load_component(FOLDER / "components" / name)
    inputs = {
        key: str(FOLDER / "data")
        if str(value.type) == "uri_folder"
        else str(FOLDER / "data/iris.csv")
        for key, value in component.inputs.items()
        if str(value.type).startswith("uri_")
    }
    lines = [f"component: file:{FOLDER / 'components' / name}", f"compute: azureml:{CLUSTER}"]
    if inputs:
        kinds = {key: str(component.inputs[key].type) for key in inputs}
        lines.append("inputs:")
        lines += [f"  {key}: {{type: {kinds[key]}, path: {path}}}" for key, path in inputs.items()]
    job = tmp_path / "job.yml"
    job.write_text("\n".join(lines) + "\n")
    properties = planned(muster, job)["properties"]
    assert properties["command"] == component.command
    defaults = {
        key: value.default for key, value in component.inputs.items() if value.default is not None
    }
    assert {key: properties["inputs"][key]["value"] for key in defaults} == {
        key: str(value) for key, value in defaults.items()
    }


@pytest.mark.parametrize("name", sorted(RUN))
def test_they_run(name, muster_bin, server, muster, cluster):
    done = muster(
        "job", "create", "--file", str(FOLDER / name), "--stream", *WORKSPACE_FLAGS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert RUN[name] in done.stdout


def test_what_one_client_sent_is_not_sent_again(
    muster, ml_client, session, server, cluster, tmp_path
):
    from azure.ai.ml import Input, command
    from azure.ai.ml.entities import Environment

    folder = tmp_path / "code"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/ü.py").write_text("print('hi')\n")
    (folder / ".gitignore").write_text("*.tmp\nout/\n")
    (folder / "x.tmp").write_text("never")
    data = tmp_path / "data"
    data.mkdir()
    (data / "b.bin").write_bytes(bytes(9 << 20))
    (data / "a.txt").write_text("")
    theirs = ml_client.jobs.create_or_update(
        command(
            command="ls ${{inputs.data}}",
            code=folder,
            environment=Environment(image="library/python:3.11"),
            compute=CLUSTER,
            inputs={"data": Input(type="uri_folder", path=str(data))},
        )
    )
    file = tmp_path / "job.yml"
    file.write_text(
        "command: ls ${{inputs.data}}\ncode: code\n"
        "environment: {image: library/python:3.11}\n"
        f"compute: azureml:{CLUSTER}\n"
        "inputs: {data: {type: uri_folder, path: data}}\n"
    )
    ours = json.loads(
        muster("job", "create", "--file", str(file), "-o", "json", *WORKSPACE_FLAGS).stdout
    )
    shown = session.get(f"{server.url}{ours['id']}", params={"api-version": "2024-01-01"}).json()
    assert shown["properties"]["codeId"] == theirs.code.removeprefix("azureml:")
    assert shown["properties"]["inputs"]["data"]["uri"].endswith(theirs.inputs["data"].path)
    # The other way round, with a new file.
    (data / "c.txt").write_text("new")
    muster("job", "create", "--file", str(file), *WORKSPACE_FLAGS)
    with_new = ml_client.jobs.create_or_update(
        command(
            command="ls ${{inputs.data}}",
            code=folder,
            environment=Environment(image="library/python:3.11"),
            compute=CLUSTER,
            inputs={"data": Input(type="uri_folder", path=str(data))},
        )
    )
    wait_for("the end", 120, lambda: ml_client.jobs.get(with_new.name).status in ENDS)
    assert ml_client.jobs.get(with_new.name).status == "Completed"


def test_outputs_come_back(muster, cluster, tmp_path):
    done = muster(
        "job",
        "create",
        "--file",
        str(FOLDER / "named-outputs.yml"),
        "--name",
        "named-outputs-1",
        "--stream",
        *WORKSPACE_FLAGS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    flags = ("--name", "named-outputs-1", *WORKSPACE_FLAGS)
    muster("job", "download", *flags, "--all", "--download-path", str(tmp_path / "all"))
    assert (tmp_path / "all/named-outputs/model/weights.txt").read_text() == "weights\n"
    assert (tmp_path / "all/named-outputs/report/report.txt").read_text() == "done\n"
    assert list((tmp_path / "all/artifacts/user_logs").iterdir())
    assert not (tmp_path / "all/artifacts/.outputs").exists(), "the files are fetched once"
    muster("job", "download", *flags, "--output-name", "model", "-p", str(tmp_path / "one"))
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["named-outputs"]
    missing = muster("job", "download", *flags, "--output-name", "models", check=False)
    assert missing.returncode == 3 and "model" in missing.stderr


def test_what_follows_a_submit(muster, cluster):
    name = "hello-life"
    flags = ("--name", name, *WORKSPACE_FLAGS)
    file = str(FOLDER / "hello-world.yml")
    muster("job", "create", "--file", file, "--name", name, "--stream", *WORKSPACE_FLAGS)
    shown = json.loads(
        muster("job", "update", *flags, "--set", "display_name=Anew", "tags.team=blue").stdout
    )
    assert shown["display_name"] == "Anew" and shown["tags"] == {"team": "blue"}
    refused = muster("job", "update", *flags, "--set", "command=true", check=False)
    assert refused.returncode == 2 and "after submission" in refused.stderr

    def names(*more):
        listed = muster("job", "list", "--all-results", *more, *WORKSPACE_FLAGS).stdout
        return [job["name"] for job in json.loads(listed)]

    assert name in names() and name not in names("--archived-only")
    muster("job", "archive", *flags)
    assert name not in names() and name in names("--archived-only")
    assert name in names("--include-archived")
    muster("job", "restore", *flags)
    assert name in names()
    assert (
        json.loads(muster("job", "list", "--parent-job-name", name, *WORKSPACE_FLAGS).stdout) == []
    )
    muster("job", "delete", *flags, "--yes")
    assert name not in names("--include-archived")


def test_phases_add_up_to_the_wall_time(muster, cluster, session, server):
    name = "timed"
    file = str(FOLDER / "code-subfolder.yml")
    muster("job", "create", "--file", file, "--name", name, "--stream", *WORKSPACE_FLAGS)
    shown = json.loads(muster("job", "timeline", name, "-o", "json", *WORKSPACE_FLAGS).stdout)

    def microseconds(seconds):
        return int(seconds.replace(".", ""))

    phases = [phase for attempt in shown["attempts"] for phase in attempt["phases"]]
    assert [phase["phase"] for phase in phases] == [
        "queue",
        "provision",
        "prepare",
        "fetch",
        "run",
        "finalise",
    ]
    total = sum(microseconds(phase["seconds"]) for phase in phases)
    assert total == microseconds(shown["wall_seconds"])
    from_to = [datetime.datetime.fromisoformat(shown[key]) for key in ("submitted_at", "until")]
    assert total == (from_to[1] - from_to[0]) // datetime.timedelta(microseconds=1)
    taken = {phase["phase"]: microseconds(phase["seconds"]) for phase in phases}
    assert taken["run"] > 0 and taken["fetch"] > 0 and taken["finalise"] > 0
    table = muster("job", "timeline", name, *WORKSPACE_FLAGS).stdout
    assert "provision" in table and "█" in table


BAD = {
    "command: [": (", line 1, column ", "is not valid YAML"),
    "command: x\n  y: z\n": (", line 2, column ", "is not valid YAML"),
    "commands: x\n": ("line 1, column 1: unknown field 'commands'", "did you mean 'command'?"),
    "command: x\nresources:\n  instance_counts: 2\n": (
        "line 3, column 3: unknown field 'resources.instance_counts'",
        "did you mean 'instance_count'?",
    ),
    "command: echo ${{inputs.dta}}\ninputs:\n  data: 3\n": (
        "line 1, column 10: the command uses '${{inputs.dta}}'",
        "did you mean 'data'?",
    ),
    "command: x\ncode: ./nowhere\n": ("line 2, column 7: code: there is no file or folder",),
    "command: x\ninputs:\n  a: {type: uri_file, path: nothing.csv}\ncommand2: y\n": (
        "line 4, column 1: unknown field 'command2'",
    ),
    "command: x\ninputs:\n  a: {type: uri_file, path: nothing.csv}\n": (
        "inputs.a.path: there is no file or folder",
    ),
    "command: x\ninputs:\n  a: {type: uri_files, path: a.csv}\n": ("inputs.a.type is 'uri_files'",),
    "command: x\nenvironment: {conda_file: c.yml}\n": ("has neither image nor build",),
    "type: sweep\ntrial: {}\n": ("sweep jobs are not supported in this version",),
    "jobs: {}\n": ("pipeline jobs are not supported in this version",),
    "command: x\ncode: evil\n": ("'link' is a link to something outside the folder",),
    "command: x\ncode: device\n": ("'pipe' is a pipe",),
    "command: x\nlimits: {timeout: soon}\n": ("limits.timeout is 'soon'; give a whole number",),
    "": ("contains no fields",),
}


@pytest.mark.parametrize("text", sorted(BAD))
def test_mistakes_are_reported_with_their_place(text, muster, server, tmp_path):
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil/link").symlink_to("/etc/hostname")
    (tmp_path / "device").mkdir()
    subprocess.run(["mkfifo", str(tmp_path / "device/pipe")], check=True)
    file = tmp_path / "job.yml"
    file.write_text(text)
    for verb in (["create"], ["create", "--dry-run"], ["validate"]):
        done = muster("job", *verb, "--file", str(file), *WORKSPACE_FLAGS, check=False)
        assert done.returncode == 2, (verb, done.stderr)
        for words in BAD[text]:
            assert words in done.stderr, (verb, done.stderr)


def test_a_good_file_is_valid(muster, cluster):
    file = pathlib.Path(FOLDER / "hello-world.yml")
    done = muster("job", "validate", "--file", str(file), "-o", "json", *WORKSPACE_FLAGS)
    assert json.loads(done.stdout) == {"result": "Succeeded"}
    done = muster(
        "job",
        "validate",
        "-f",
        str(file),
        "--set",
        "compute=azureml:cpu-clusters",
        *WORKSPACE_FLAGS,
        check=False,
    )
    assert done.returncode == 2 and CLUSTER in done.stderr


# Mistakes that only the server can detect, and the field that its message names.
REFUSED = {
    "command: x\ncompute: azureml:waits-clusters\n": "did you mean 'waits-cluster'?",
    "command: x\nresources: {instance_type: Standard_DS3_v3}\n": "Standard_DS3_v2",
    "command: x\ncompute: azureml:waits-clusters\nenvironment: azureml:none-such:1\n": "none-such",
    "command: x\nenvironment: azureml:none-such@latest\n": "none-such",
    "command: x\ninputs: {d: {type: uri_file, path: 'azureml:none-such:1'}}\n": "none-such",
    "command: x\nresources: {instance_count: 4000}\n": "resources.instance_count is 4000",
    "command: x\nname: a b\n": "name",
    "command: x\ncode: evil\n": "outside the folder",
}


@pytest.fixture(scope="module")
def waits(muster):
    """A cluster without nodes: jobs are accepted, but never run."""
    name = "waits-cluster"
    muster("compute", "create", "--name", name, "--max-instances", "0", *WORKSPACE_FLAGS)
    yield name
    muster("compute", "delete", "--name", name, "--yes", *WORKSPACE_FLAGS)


def both(muster, *flags):
    """How `validate` and `create` end, and the problems that each reports."""

    def ended(verb):
        done = muster("job", verb, *flags, *WORKSPACE_FLAGS, "-o", "none", check=False)
        talk = [line for line in done.stderr.splitlines() if line.startswith(("error:", "hint:"))]
        return done.returncode, talk

    return ended("validate"), ended("create")


@pytest.mark.parametrize("text", sorted(REFUSED))
def test_validate_and_create_refuse_the_same(text, muster, waits, tmp_path):
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil/link").symlink_to("/etc/hostname")
    file = tmp_path / "job.yml"
    file.write_text(text)
    validated, created = both(muster, "--file", str(file))
    assert validated == created
    assert created[0] != 0 and REFUSED[text] in " ".join(created[1]), created
    # A hint about the compute would be misleading if something else is wrong.
    is_about_compute = "azureml:waits-clusters" in text and "environment" not in text
    assert is_about_compute == ("waits-cluster'" in " ".join(created[1])), created


@pytest.mark.parametrize("name", JOBS)
def test_validate_and_create_agree_on_every_example(name, muster, waits):
    flags = ("--file", str(FOLDER / name), "--set", f"compute=azureml:{waits}")
    validated, created = both(muster, *flags)
    if name == "code-git.yml":
        # Whether code at a URL can be fetched is known only when an asset is created from it.
        assert (validated[0], created[0]) == (0, 2)
        return
    assert validated == created


def test_an_address_of_any_scheme_is_for_the_server_to_judge(muster, cluster, tmp_path):
    file = tmp_path / "job.yml"
    for uri, reason in [
        ("adl://lake.azuredatalakestore.net/data", "Azure has retired Data Lake Storage Gen1"),
        ("abfs://example.com/data", "CONTAINER@ACCOUNT"),
        ("s3://bucket/data", "is not the location of files"),
    ]:
        data = f"inputs: {{data: {{type: uri_folder, path: '{uri}'}}}}"
        file.write_text(f"command: ls ${{{{inputs.data}}}}\ncompute: azureml:{CLUSTER}\n{data}\n")
        refused = muster("job", "create", "--file", str(file), *WORKSPACE_FLAGS, check=False)
        assert refused.returncode == 2 and reason in refused.stderr, refused.stderr


def test_a_misspelt_word_of_a_fixed_set_brings_the_nearest(muster, tmp_path):
    file = tmp_path / "job.yml"
    file.write_text("command: 'true'\ninputs: {data: {type: uri_fil, path: 'azureml:d:1'}}\n")
    refused = muster("job", "create", "--file", str(file), *WORKSPACE_FLAGS, check=False)
    assert "inputs.data.type is 'uri_fil'; give uri_file, uri_folder" in refused.stderr
    assert refused.stderr.endswith("hint: did you mean 'uri_file'?\n"), refused.stderr


def test_a_workspace_is_no_job(muster, tmp_path):
    file = tmp_path / "workspace.yml"
    file.write_text("name: w\nmanaged_network: {isolation_mode: disabled}\n")
    refused = muster("job", "create", "--file", str(file), *WORKSPACE_FLAGS, check=False)
    assert "is not a job: it describes a workspace" in refused.stderr, refused.stderr
