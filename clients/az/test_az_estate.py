"""azure-cli: resource groups, locks and the activity log."""

import json

from test_az import POOL, az  # noqa: F401  (a fixture)

KIND = ("--namespace", "Microsoft.MachineLearningServices", "--resource-type", "computes")


def test_groups_are_made_changed_and_deleted(az):  # noqa: F811
    made = json.loads(az("group", "create", "-n", "made-by-az", "-l", "eastus", "--tags", "a=b"))
    assert (made["location"], made["tags"]) == ("eastus", {"a": "b"})
    assert made["properties"]["provisioningState"] == "Succeeded"
    changed = json.loads(az("group", "update", "-n", "made-by-az", "--set", "tags.c=d"))
    assert changed["tags"] == {"a": "b", "c": "d"}
    assert json.loads(az("group", "show", "-n", "MADE-BY-AZ"))["name"] == "made-by-az"
    az("group", "delete", "-n", "made-by-az", "--yes")
    assert az("group", "exists", "-n", "made-by-az").strip() == "false"


# Takes 14 s: az starts fourteen times.
def test_locks(az):  # noqa: F811
    az("group", "create", "-n", "locked-by-az", "-l", "eastus")
    kind = ("--lock-type", "CanNotDelete", "--notes", "ours")
    made = json.loads(az("lock", "create", "-n", "keep", "-g", "locked-by-az", *kind))
    assert (made["level"], made["notes"]) == ("CanNotDelete", "ours")
    listed = json.loads(az("lock", "list", "-g", "locked-by-az"))
    assert [lock["name"] for lock in listed] == ["keep"]
    assert json.loads(az("lock", "show", "-n", "keep", "-g", "locked-by-az"))["id"] == made["id"]
    az("group", "delete", "-n", "locked-by-az", "--yes", code=1)
    az("lock", "delete", "--ids", made["id"])
    az("group", "delete", "-n", "locked-by-az", "--yes")

    lock = ("lock", "create", "-n", "pool-lock", "--lock-type", "ReadOnly", "-g", "az-rg")
    az(*lock, "--resource", "az-pool", "--parent", "workspaces/az-ws", *KIND)
    az("resource", "update", "--ids", POOL, "--set", "tags.team=red", code=1)
    found = json.loads(az("lock", "list", "--query", "[?name=='pool-lock'].id"))
    assert found == [f"{POOL}/providers/Microsoft.Authorization/locks/pool-lock"]
    az("lock", "delete", "--ids", *found)


def test_the_activity_log(az):  # noqa: F811
    az("group", "create", "-n", "logged-by-az", "-l", "eastus")
    az("group", "delete", "-n", "logged-by-az", "--yes")
    query = "[].[operationName.value, status.value]"
    listed = az("monitor", "activity-log", "list", "-g", "logged-by-az", "--query", query)
    kind = "Microsoft.Resources/subscriptions/resourceGroups"
    assert json.loads(listed) == [[f"{kind}/delete", "Succeeded"], [f"{kind}/write", "Succeeded"]]
