"""Resource manager's routes, as plain HTTP: what clients send, and what they read."""

import pytest
from conftest import wait_for

SUBSCRIPTION = "/subscriptions/arm-sub"
WS = (
    f"{SUBSCRIPTION}/resourceGroups/Arm-Rg/providers/Microsoft.MachineLearningServices"
    "/workspaces/Arm-Ws"
)
POOL = f"{WS}/computes/arm-pool"
V = {"api-version": "2023-08-01-preview"}


@pytest.fixture(scope="module")
def call(session, server):
    """Sends one request: `call("GET", path)` returns a response."""

    def send(method, path, body=None, **query):
        return session.request(method, server.url + path, params={**V, **query}, json=body)

    return send


def settled(call, path):
    def look():
        found = call("GET", path).json()
        return found if found["properties"]["provisioningState"] == "Succeeded" else None

    return wait_for(f"{path} settles", 20, look)


@pytest.fixture(scope="module")
def pool(call):
    settings = {"minNodeCount": 0, "maxNodeCount": 2, "nodeIdleTimeBeforeScaleDown": "PT2M"}
    aml = {"vmSize": "STANDARD_DS3_V2", "scaleSettings": settings}
    body = {
        "location": "eastus",
        "tags": {"team": "blue"},
        "properties": {"computeType": "AmlCompute", "properties": aml},
    }
    assert call("PUT", POOL, body).status_code == 201
    return settled(call, POOL)


def follow(call, response):
    """Waits for the operation that a response names, as clients do."""
    assert response.headers["Retry-After"] == "1"
    path = "/subscriptions/" + response.headers["Azure-AsyncOperation"].split("/subscriptions/")[1]
    path = path.split("?")[0]
    wait_for(path, 20, lambda: call("GET", path).json()["status"] == "Succeeded")


@pytest.mark.parametrize(
    "wrap",
    [lambda inner: inner, lambda inner: {"properties": inner}],
    ids=["api-version 2020-08-01", "later ones"],
)
def test_patch_scale(call, pool, wrap):
    for most in (7, 2):
        inner = {"scaleSettings": {"maxNodeCount": most}}
        answer = call("PATCH", POOL, {"properties": wrap(inner)})
        assert answer.status_code == 200, answer.text
        assert answer.json()["properties"]["computeType"] == "AmlCompute"
        follow(call, answer)
        scale = settled(call, POOL)["properties"]["properties"]["scaleSettings"]
        assert (scale["minNodeCount"], scale["maxNodeCount"]) == (0, most)
        assert scale["nodeIdleTimeBeforeScaleDown"] == "PT2M"


def test_patch_tags_identity_description(call, pool):
    wanted = {
        "tags": {"team": "red"},
        "identity": {"type": "SystemAssigned"},
        "properties": {"description": "patched"},
    }
    follow(call, call("PATCH", POOL, wanted))
    seen = settled(call, POOL)
    assert seen["tags"] == {"team": "red"}
    assert seen["identity"]["type"] == "SystemAssigned"
    assert seen["properties"]["description"] == "patched"
    assert seen["properties"]["properties"]["scaleSettings"]["maxNodeCount"] == 2


@pytest.mark.parametrize(
    "name, body",
    [
        ("vmSize", {"properties": {"properties": {"vmSize": "Standard_DS12_v2"}}}),
        ("vmPriority", {"properties": {"vmPriority": "LowPriority"}}),
        ("location", {"location": "westeurope"}),
        ("location", {"properties": {"computeLocation": "westeurope"}}),
        ("enableNodePublicIp", {"properties": {"properties": {"enableNodePublicIp": False}}}),
        (
            "userAccountCredentials",
            {"properties": {"userAccountCredentials": {"adminUserName": "ada"}}},
        ),
        (
            "subnet",
            {
                "properties": {
                    "subnet": {
                        "id": f"{SUBSCRIPTION}/resourceGroups/g/providers/Microsoft.Network"
                        "/virtualNetworks/v/subnets/s"
                    }
                }
            },
        ),
    ],
)
def test_patch_of_what_is_fixed(call, pool, name, body):
    answer = call("PATCH", POOL, body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["target"] == name
    assert name in error["message"] and "cannot be changed" in error["message"]


def test_patch_of_nothing(call, pool):
    answer = call("PATCH", f"{WS}/computes/no-such", {"properties": {}})
    assert answer.status_code == 404
    assert "no-such" in answer.json()["error"]["message"]


def test_what_was_read_may_be_put_and_patched_back(call, pool):
    seen = settled(call, POOL)
    assert call("PUT", POOL, seen).status_code == 201
    settled(call, POOL)
    assert call("PATCH", POOL, seen).status_code == 200
    assert settled(call, POOL)["tags"] == seen["tags"]


LOCATION = f"{SUBSCRIPTION}/providers/Microsoft.MachineLearningServices/locations/eastus"


def test_vm_sizes(call):
    sizes = call("GET", f"{LOCATION}/vmSizes").json()
    assert "amlCompute" not in sizes
    by_name = {size["name"]: size for size in sizes["value"]}
    small = by_name["Standard_DS3_v2"]
    assert (small["vCPUs"], small["v_cp_us"], small["memoryGB"]) == (4, 4, 14.0)
    assert small["supportedComputeTypes"] == ["AmlCompute", "ComputeInstance"]
    prices = small["estimatedVMPrices"]["values"]
    prices = {price["vmTier"]: price["retailPrice"] for price in prices}
    assert prices == {"Standard": 0.29, "LowPriority": 0.06}
    older = {"api-version": "2020-08-01", "recommended": "true"}
    old = call("GET", f"{LOCATION}//VMSIZES", **older)
    assert old.json()["amlCompute"] == sizes["value"]
    none = call("GET", f"{LOCATION}/vmSizes", **{"compute-type": "Kubernetes"})
    assert none.json()["value"] == []


def test_usages_and_quotas(call, pool):
    usages = call("GET", f"{LOCATION}/usages").json()
    assert usages["nextLink"] is None
    region = next(u for u in usages["value"] if u["name"]["value"] == "TotalDedicatedCores")
    assert region["currentValue"] == region["current_value"] >= 4
    assert region["aml_workspace_location"] == region["amlWorkspaceLocation"] == "eastus"
    quotas = call("GET", f"{LOCATION}/quotas").json()["value"]
    assert {quota["name"]["value"] for quota in quotas} >= {"TotalDedicatedCores"}


@pytest.mark.parametrize(
    "version, kind",
    [("2019-05-01", list), ("2021-10-01", list), ("2022-09-01", dict), ("2026-01-01", dict)],
)
def test_metadata(call, version, kind):
    found = call("GET", "/metadata/endpoints", **{"api-version": version}).json()
    assert isinstance(found, kind)
    cloud = found[0] if kind is list else found
    assert cloud["resourceManager"].endswith("/")
    assert cloud["suffixes"]["storage"] and cloud["authentication"]["audiences"]


def names(answer):
    assert answer.status_code == 200, answer.text
    return [found["name"] for found in answer.json()["value"]]


def test_subscriptions(call, pool):
    listed = call("GET", "/subscriptions").json()["value"]
    ours = next(found for found in listed if found["subscriptionId"] == "arm-sub")
    assert ours["id"] == SUBSCRIPTION and ours["state"] == "Enabled"
    assert ours["managedByTenants"] == []
    assert call("GET", "/SUBSCRIPTIONS/ARM-SUB").json() == ours
    tenants = call("GET", "/tenants").json()["value"]
    assert [tenant["tenantId"] for tenant in tenants] == [ours["tenantId"]]
    assert "eastus" in names(call("GET", f"{SUBSCRIPTION}/locations"))


def test_providers(call):
    listed = call("GET", f"{SUBSCRIPTION}/providers").json()["value"]
    one = call("GET", f"{SUBSCRIPTION}/providers/microsoft.machinelearningservices").json()
    assert one in listed
    types = {kind["resourceType"]: kind["apiVersions"] for kind in one["resourceTypes"]}
    assert types["workspaces/computes"][0] == "2025-12-01"


def test_resource_groups(call, pool):
    groups = call("GET", f"{SUBSCRIPTION}/resourcegroups").json()["value"]
    assert [group["name"] for group in groups] == ["Arm-Rg"]
    group = call("GET", f"{SUBSCRIPTION}/resourcegroups/arm-rg").json()
    assert group == groups[0]
    assert group["properties"]["provisioningState"] == "Succeeded"
    assert call("HEAD", f"{SUBSCRIPTION}/resourcegroups/arm-rg").status_code == 204
    assert call("HEAD", f"{SUBSCRIPTION}/resourcegroups/no-such").status_code == 404
    missing = call("GET", f"{SUBSCRIPTION}/resourcegroups/no-such").json()
    assert missing["error"]["code"] == "ResourceGroupNotFound"


def test_resources(call, pool, session):
    def resources(filter=None, below="", **query):
        chosen = {"$filter": filter} if filter else {}
        return call("GET", f"{SUBSCRIPTION}{below}/resources", **chosen, **query)

    assert names(resources()) == ["Arm-Ws", "Arm-Ws/arm-pool"]
    assert names(resources(below="/resourceGroups/ARM-RG")) == ["Arm-Ws", "Arm-Ws/arm-pool"]
    expand = {"$expand": "createdTime,changedTime,provisioningState"}
    found = resources("resourceGroup eq 'arm-rg'", **expand).json()["value"]
    assert all(one["provisioningState"] == "Succeeded" and one["createdTime"] for one in found)
    computes = "Microsoft.MachineLearningServices/workspaces/computes"
    assert names(resources(f"resourceType eq '{computes}'")) == ["Arm-Ws/arm-pool"]
    assert names(resources("name eq 'arm-pool' and location eq 'eastus'")) == ["Arm-Ws/arm-pool"]
    assert names(resources("tagName eq 'team' and tagValue eq 'green'")) == []
    assert names(resources("substringof('POOL', name) or name eq 'x'")) == ["Arm-Ws/arm-pool"]
    first = resources("resourceGroup eq 'arm-rg'", **{"$top": "1"})
    assert names(first) == ["Arm-Ws"]
    second = session.get(first.json()["nextLink"])
    assert names(second) == ["Arm-Ws/arm-pool"]
    assert second.json()["nextLink"] is None


def test_machine_sizes_and_usages(call, pool):
    region = f"{SUBSCRIPTION}/providers/Microsoft.Compute/locations/eastus"
    sizes = {size["name"]: size for size in call("GET", f"{region}/vmSizes").json()["value"]}
    assert sizes["Standard_DS3_v2"]["numberOfCores"] == 4
    assert sizes["Standard_DS3_v2"]["memoryInMB"] == 14336
    usages = call("GET", f"{region}/usages").json()["value"]
    assert "cores" in {usage["name"]["value"] for usage in usages}


@pytest.mark.parametrize(
    ("inner", "word"),
    [
        ({"vmSize": "STANDARD_NC6S_V3"}, "vmSize"),
        ({"vmPriority": "LowPriority"}, "vmPriority"),
        ({"osType": "Windows"}, "osType"),
    ],
)
def test_a_patch_cannot_change_what_is_fixed_for_life(call, pool, inner, word):
    """Like a PUT, it cannot change the type of VM, CPU or GPU, and the tier."""
    before = call("GET", POOL).json()["properties"]["properties"]
    body = {"properties": {"computeType": "AmlCompute", "properties": inner}}
    for method in ("PATCH", "PUT"):
        refused = call(method, POOL, body)
        assert refused.status_code == 400, refused.text
        said = refused.json()["error"]["message"]
        assert f"{word} cannot be changed after creation" in said, said
        assert "create it again" in said
    # Clients of api-version 2020-08-01 omit the inner properties.
    assert call("PATCH", POOL, {"properties": inner}).status_code == 400
    after = call("GET", POOL).json()["properties"]["properties"]
    for key in ("vmSize", "vmPriority", "osType"):
        assert before[key] == after[key]
