"""The code of the source documents runs as printed: nothing but environment variables is set.

clients/az/test_az_documents.py runs their commands, and clients/v1/test_sdk_v1_compute.py their
code for SDK v1.
"""

import ast
import json
import re
import subprocess
import sys

import pytest
from conftest import REPOSITORY
from source_documents import BLOCKS, text_of

SEEDS = sorted((REPOSITORY.parent / "shared" / "seeds").glob("*.txt"))


def run_as_printed(block, environment, directory):
    program = directory / "block.py"
    program.write_text(block)
    done = subprocess.run(
        [sys.executable, program],
        env=environment, cwd=directory, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


# Runs blocks one after the other, like the cells of a notebook, and prints how each one ended.
NOTEBOOK = """
import contextlib, io, json

names, outcomes = {}, []
for block in json.load(open("blocks.json")):
    printed, error = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            exec(block, names)
        except Exception as failed:
            error = [type(failed).__name__, str(failed)]
    outcomes.append([printed.getvalue(), error])
print(json.dumps(outcomes))
"""


def run_notebook(blocks, environment, directory):
    (directory / "blocks.json").write_text(json.dumps(blocks))
    return json.loads(run_as_printed(NOTEBOOK, environment, directory).splitlines()[-1])


def test_all_blocks_of_the_first_document(client_env, tmp_path):
    private = text_of("S0:153")
    # The client's own syntax for a network.
    network = re.sub(
        r'vnet_name="(.+)",\s+subnet_name="(.+)",',
        r'network_settings=NetworkSettings(vnet_name="\1", subnet="\2"),',
        private,
    )
    create = "\nml_client.compute.begin_create_or_update(cpu_cluster).result()"
    blocks = [
        text_of("S0:42"),
        "made = ml_client.compute.get('cpu-training-cluster')\n"
        "print(made.provisioning_state.value, made.size, made.min_instances, made.max_instances,"
        " int(made.idle_time_before_scale_down), made.tier)",
        text_of("S0:75"),
        text_of("S0:122"),
        private,
        "from azure.ai.ml.entities import NetworkSettings\n" + network,
        text_of("S0:178"),
        text_of("S0:189"),
        text_of("S0:235") + create,
        "print(ml_client.compute.get('cpu-training-cluster').tags['team'])",
        "for one in list(ml_client.compute.list()):\n"
        "    ml_client.compute.begin_delete(one.name).wait()",
        "print(list(ml_client.compute.list()))",
    ]
    outcomes = run_notebook(blocks, client_env, tmp_path)
    printed = [text for text, _ in outcomes]
    errors = {number: error for number, (_, error) in enumerate(outcomes) if error}
    # As printed, one call is refused by the client itself.
    assert set(errors) == {4} and errors[4][0] == "TypeError", errors
    assert "object.__init__() takes exactly one argument" in errors[4][1], errors
    assert printed[0] == "Cluster 'cpu-training-cluster' created successfully\n"
    assert printed[1] == "Succeeded Standard_DS3_v2 0 4 180 dedicated\n"
    assert printed[2] == "GPU cluster 'gpu-training-cluster' created successfully\n"
    assert "Provisioning state: " in printed[6] and "succeeded" in printed[6].lower()
    for name in ("cpu", "gpu", "spot", "private"):
        assert f"  {name}-training-cluster (" in printed[7]
    assert "Min/Max instances: 0/8" in printed[7]
    assert printed[9] == "data-science\n"
    assert printed[11] == "[]\n"


def test_all_blocks_of_the_second_document(client_env, tmp_path):
    names, handle = text_of("S1:45"), text_of("S1:53")
    blocks = [
        # The text asks to fill these in; this is what happens if you do not.
        names, handle, text_of("S1:131"),
        names.replace("<", "").replace(">", ""), handle, text_of("S1:131"), text_of("S1:250"),
        "print(sorted((one.name, one.location, one.tier) for one in ml_client.compute.list()))",
        text_of("S1:307"),
        "print([one.name for one in ml_client.compute.list()])",
        "ml_client.compute.begin_delete('low-pri-example').wait()",
    ]  # fmt: skip
    outcomes = run_notebook(blocks, client_env, tmp_path)
    errors = {number: error for number, (_, error) in enumerate(outcomes) if error}
    assert set(errors) == {2}, errors
    assert errors[2][0] == "HttpResponseError", errors
    not_a_name = (
        "(InvalidPropertyValue) subscription \"<SUBSCRIPTION_ID>\": the name contains '<'; only"
        " letters, digits and '-', '_', '.' are allowed"
    )
    assert errors[2][1].startswith(not_a_name), errors
    printed = [text for text, _ in outcomes]
    assert json.loads(printed[7].replace("(", "[").replace(")", "]").replace("'", '"')) == [
        ["basic-example", "westus", "dedicated"],
        ["low-pri-example", "eastus", "low_priority"],
    ]
    assert printed[9] == "['low-pri-example']\n"


def code_of(text):
    return ast.dump(ast.parse(text))


def lines_of(text):
    """The lines without comments and blank lines."""
    lines = [line.split(" # ")[0].rstrip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.skipif(not SEEDS, reason="the source documents are not beside this repository")
def test_the_blocks_are_those_of_the_documents():
    """No block is missing, and each differs from its document by comments at most."""
    for document, seed in enumerate(SEEDS):
        text = seed.read_text()
        fences = re.finditer(r"^```(python|bash)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        for fence in fences:
            block = BLOCKS[f"S{document}:{text[: fence.start(2)].count(chr(10)) + 1}"]
            assert block.language == fence[1]
            same = code_of if block.language == "python" else lines_of
            assert same(block.text) == same(fence[2])
        all_lines = lines_of(text)
        own = [block.text for place, block in BLOCKS.items() if place.startswith(f"S{document}:")]
        for block in own if "```" not in text else []:
            lines = lines_of(block)
            assert any(lines == all_lines[at : at + len(lines)] for at in range(len(all_lines)))
        # Two lines of the last document run a command and a label together.
        begins = re.compile(r"(az|ssh|scp) (?!resourcediscover)")
        for command in filter(begins.match, all_lines):
            assert any(line in command for block in own for line in lines_of(block)), command


def test_every_block_is_walked_through():
    tests = "".join(path.read_text() for path in (REPOSITORY / "clients").glob("**/test_*.py"))
    assert [place for place in BLOCKS if f'"{place}"' not in tests] == []
