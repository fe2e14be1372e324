"""The azure-identity of the year before: the same tests of credentials and of the environment.

Two versions cannot be in one process, so this one has its own, with the older one found first.
"""

import os
import pathlib
import subprocess
import sys

from conftest import REPOSITORY

VERSION = "1.23.0"
MODULES = ("clients/test_tokens.py", "clients/test_env.py")
LIMIT_S = 300


# Takes a minute: the tests of tokens and of `muster env` again. What needs the machine to itself is
# not included: it tests the server, whatever the client.
def test_an_older_azure_identity(muster_bin):
    older = pathlib.Path(sys.prefix) / f"identity-{VERSION}"
    environment = {**os.environ, "MUSTER_BIN": str(muster_bin), "PYTHONPATH": str(older)}

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    found = run("-c", "import azure.identity as it; print(it.__version__, it.__file__)").split()
    assert found[0] == VERSION and found[1].startswith(str(older)), found
    command = ["-m", "pytest", "--quiet", "--disable-warnings", "-p", "no:cacheprovider"]
    assert " passed" in run(*command, "-m", "not alone", *MODULES)
