"""What Azure's client does with a workspace besides creating and updating it."""

from own_server import own  # noqa: F401  (a fixture)
from test_access import run_program

PROGRAM = """
import json
from azure.ai.ml import MLClient
from azure.identity import DefaultAzureCredential

client = MLClient(DefaultAzureCredential(), "diag-sub", "diag-rg")
found = client.workspaces.begin_diagnose("w").result()
locks = [[line.level, line.message] for line in found.resource_lock_results]
others = [found.storage_account_results, found.key_vault_results, found.other_results]
synced = client.workspaces.begin_sync_keys("w").result()
print(json.dumps({"locks": locks, "others": others, "synced": synced}))
"""


def test_a_diagnosis_finds_the_locks_that_hold_and_nothing_else(own):  # noqa: F811
    server = own()
    session, version = server.session(), {"api-version": "2020-05-01"}
    lock = {"properties": {"level": "CanNotDelete"}}
    for group in ("diag-rg", "another"):
        place = f"/subscriptions/diag-sub/resourceGroups/{group}"
        assert session.put(f"{server.url}{place}", params=version, json={"location": "eastus"}).ok
        url = f"{server.url}{place}/providers/Microsoft.Authorization/locks/of-{group}"
        assert session.put(url, params=version, json=lock).status_code == 201
    found = run_program(PROGRAM, server.env())
    [[level, message]] = found["locks"]
    assert level == "Information" and "CanNotDelete lock 'of-diag-rg'" in message
    assert found["others"] == [[], [], []] and found["synced"] is None
