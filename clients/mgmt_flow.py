"""A program with azure-mgmt-machinelearningservices that creates, uses and deletes a cluster.

`test_mgmt.py` runs it once for each version of the package; two versions cannot be in one process.
It prints what it saw as JSON.
"""

import json
import sys

from azure.core.exceptions import HttpResponseError
from azure.identity import DefaultAzureCredential
from azure.mgmt.machinelearningservices import (
    MachineLearningServicesMgmtClient,
    __version__,
    models,
)

url, subscription, group, workspace, name = sys.argv[1:]
# Between 1.0 and 2.0 the operations were renamed and one level of the update's body was added.
OLD = __version__.startswith("1.")
client = MachineLearningServicesMgmtClient(
    DefaultAzureCredential(),
    subscription,
    base_url=url,
    credential_scopes=[f"{url}/.default"],
    polling_interval=1,
)
computes = client.machine_learning_compute if OLD else client.compute
place = (group, workspace)


def cluster(most):
    scale = models.ScaleSettings(max_node_count=most, min_node_count=0)
    aml = models.AmlComputeProperties(
        vm_size="Standard_DS3_v2", vm_priority="Dedicated", scale_settings=scale
    )
    return models.ComputeResource(location="eastus", properties=models.AmlCompute(properties=aml))


def most_nodes(resource):
    assert resource.properties.compute_type == "AmlCompute", resource
    return resource.properties.properties.scale_settings.max_node_count


def update(most):
    scale = models.ScaleSettings(max_node_count=most)
    if OLD:
        return models.ClusterUpdateParameters(scale_settings=scale)
    inner = models.ScaleSettingsInformation(scale_settings=scale)
    return models.ClusterUpdateParameters(properties=inner)


def refusal(call, *arguments):
    try:
        call(*arguments)
    except HttpResponseError as error:
        return error.status_code
    return None


created = computes.begin_create_or_update(*place, name, cluster(3)).result()
seen = {"version": __version__, "created": most_nodes(created)}
seen["got"] = most_nodes(computes.get(*place, name))
listed = computes.list_by_workspace(*place) if OLD else computes.list(*place)
seen["listed"] = [compute.name for compute in listed]
seen["updated"] = most_nodes(computes.begin_update(*place, name, update(5)).result())
seen["nodes"] = len(list(computes.list_nodes(*place, name)))
sizes = client.virtual_machine_sizes.list("eastus")
sizes = sizes.aml_compute if OLD else sizes.value
seen["vcpus"] = next(size.v_cp_us for size in sizes if size.name == "Standard_DS3_v2")
usages = {usage.name.value: usage for usage in client.usages.list("eastus")}
seen["reserved"] = usages["TotalDedicatedCores"].current_value
seen["quotas"] = [quota.name.value for quota in client.quotas.list("eastus")]
seen["workspace"] = client.workspaces.get(*place).name
seen["stop"] = refusal(computes.stop if OLD else computes.begin_stop, *place, name)
seen["keys"] = refusal(computes.list_keys, *place, name)
seen["detach"] = refusal(computes.begin_delete, *place, name, "Detach")
computes.begin_delete(*place, name, "Delete").result()
seen["after"] = refusal(computes.get, *place, name)
print(json.dumps(seen))
