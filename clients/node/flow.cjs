// What a program does with @azure/arm-machinelearning, from creating a cluster to its end. It prints what it saw as JSON.
const { AzureMachineLearningWorkspaces } = require("@azure/arm-machinelearning");
const { DefaultAzureCredential } = require("@azure/identity");

const [url, subscription, group, workspace, name] = process.argv.slice(2);
const place = [group, workspace];

async function all(pages) {
  const found = [];
  for await (const item of pages) found.push(item);
  return found;
}

async function refusal(call) {
  try {
    await call();
    return null;
  } catch (error) {
    return [error.statusCode, error.code];
  }
}

const mostNodes = (compute) => compute.properties.properties.scaleSettings.maxNodeCount;

async function main() {
  const client = new AzureMachineLearningWorkspaces(new DefaultAzureCredential(), subscription, {
    endpoint: url,
    credentialScopes: [`${url}/.default`],
  });
  const computes = client.computeOperations;
  const seen = { version: require("@azure/arm-machinelearning/package.json").version };
  const cluster = {
    location: "eastus",
    properties: {
      computeType: "AmlCompute",
      properties: {
        vmSize: "Standard_DS3_v2",
        scaleSettings: { maxNodeCount: 3, minNodeCount: 0, nodeIdleTimeBeforeScaleDown: "PT2M" },
      },
    },
  };
  seen.created = mostNodes(await computes.beginCreateOrUpdateAndWait(...place, name, cluster));
  seen.got = mostNodes(await computes.get(...place, name));
  seen.listed = (await all(computes.list(...place))).map((compute) => compute.name);
  const update = { properties: { scaleSettings: { maxNodeCount: 5 } } };
  seen.updated = mostNodes(await computes.beginUpdateAndWait(...place, name, update));
  seen.nodes = (await all(computes.listNodes(...place, name))).length;
  const sizes = (await client.virtualMachineSizes.list("eastus")).value;
  seen.vcpus = sizes.find((size) => size.name === "Standard_DS3_v2").vCPUs;
  const usages = await all(client.usages.list("eastus"));
  seen.reserved = usages.find((usage) => usage.name.value === "TotalDedicatedCores").currentValue;
  seen.workspace = (await client.workspaces.get(...place)).name;
  seen.workspaces = (await all(client.workspaces.listBySubscription())).map((one) => one.name);
  seen.stop = (await refusal(() => computes.beginStopAndWait(...place, name)))[0];
  const wrong = { ...cluster, properties: { ...cluster.properties, properties: { vmSize: "Nope" } } };
  seen.wrong = (await refusal(() => computes.beginCreateOrUpdateAndWait(...place, "wrong", wrong)))[0];
  await computes.beginDeleteAndWait(...place, name, "Delete");
  seen.after = await refusal(() => computes.get(...place, name));
  console.log(JSON.stringify(seen));
}

main();
