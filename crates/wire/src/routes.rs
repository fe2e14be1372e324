//! The table of routes: everything that is served at Azure's paths, and Muster's own routes beside them.
//!
//! A row has the description of the route, its variant with the fields of its path, the path (and others that are also
//! understood), the methods, what a caller needs to read and to change, and the name of a change in the activity log, or
//! why it is not there. The paths are parsed and printed, callers are authorized, and docs/reference/arm.md is
//! written from these rows; `path/table.rs` describes the columns, and `path/fields.rs` the kinds of fields.
//!
//! A field named `kind` or `action` can only have certain words. `{kind}` in a description is replaced by the text of
//! each, and `{kind}` in the name of a change by the word.

pub mod root {
    use super::{
        AccessRoute, AssetRoute, DeploymentRoute, GovernanceRoute, HistoryRoute, HostRoute, Login,
        Manager, StorageRoute, V1Route,
    };
    use crate::path::declare::routes;

    routes! {
        /// Everything that is served. Names are as the user wrote them.
        enum Route;
        groups {
            /// Datastores, and maintenance of the blob storage.
            Storage(StorageRoute),
            /// Versioned assets: code, environments, data, models, components.
            Assets(AssetRoute),
            /// Run history's view of jobs.
            History(HistoryRoute),
            /// Routes that only SDK v1 uses.
            V1(V1Route),
            /// Subscriptions, groups, providers, and lists of resources of any type.
            Manager(Manager),
            /// Deployments of templates.
            Deployments(DeploymentRoute),
            /// Users, keys and roles.
            Access(AccessRoute),
            /// Locks, and the activity log.
            Governance(GovernanceRoute),
            /// The hosts that nodes run on.
            Hosts(HostRoute),
            /// What is answered before the caller is known. The paths of authorities are the least specific, so they come last.
            Login(Login),
        }
        else Unknown;
        rows {
            /// Lists the workspaces of a subscription.
            WorkspacesOfSubscription { subscription: Subscription } => {
                "/subscriptions/{subscription}/providers/Microsoft.MachineLearningServices/workspaces",
                [Get], needs Something
            }
            /// Lists the workspaces of a group.
            WorkspacesOfGroup { subscription: Subscription, resource_group: Group } => {
                "/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/Microsoft.MachineLearningServices/workspaces",
                [Get], needs Something
            }
            /// A workspace. PUT creates it, with the region in `location`. PATCH changes tags, description and friendly name.
            /// DELETE also deletes its computes.
            Workspace(workspace: Workspace) => {
                "/{workspace}", [Get, Put, Patch, Delete], needs Read or ManageWorkspaces,
                log "Microsoft.MachineLearningServices/workspaces"
            }
            /// Returns the locks that affect the workspace, immediately with 200. The other lists of Azure's response are empty,
            /// because their subjects do not exist here.
            WorkspaceDiagnosis(workspace: Workspace) => {
                "/{workspace}/diagnose", [Post], needs Read, no log "it only reads"
            }
            /// Returns 200 and does nothing, because a workspace has no accounts whose keys it would store.
            WorkspaceKeys(workspace: Workspace) => {
                "/{workspace}/resyncKeys", [Post], needs ManageWorkspaces, no log "it does nothing"
            }
            /// Lists the computes.
            Computes(workspace: Workspace) => { "/{workspace}/computes", [Get], needs Read }
            /// A compute. PATCH changes scale settings, tags, identity and description.
            Compute { workspace: Workspace, name: Name } => {
                "/{workspace}/computes/{name}", [Get, Put, Patch, Delete], needs Read or ManageComputes,
                log "Microsoft.MachineLearningServices/workspaces/computes"
            }
            /// Lists the nodes of a cluster, under `nodes`. GET is for further pages.
            ComputeNodes { workspace: Workspace, name: Name } => {
                "/{workspace}/computes/{name}/listNodes", [Get, Post], needs Read, no log "it only reads"
            }
            /// {action} a compute instance. Returns 202 and an operation. Refused with the reason for clusters.
            ComputeAction { workspace: Workspace, name: Name, action: ComputeVerb } => {
                "/{workspace}/computes/{name}/{action}", [Post], needs ManageComputes,
                log "Microsoft.MachineLearningServices/workspaces/computes/{action}/action"
            }
            /// Refused with the reason: a compute has no keys.
            ComputeKeys { workspace: Workspace, name: Name } => {
                "/{workspace}/computes/{name}/listKeys", [Post], needs ManageComputes,
                no log "it is always refused"
            }
            /// Lists the jobs, newest first. `listViewType`, `tag` (a key) and `jobType` filter the list.
            Jobs(workspace: Workspace) => { "/{workspace}/jobs", [Get], needs Read }
            /// A job. A second PUT changes its descriptive properties ([jobs.md](jobs.md)). DELETE deletes a job that has ended.
            Job { workspace: Workspace, name: Name } => {
                "/{workspace}/jobs/{name}", [Get, Put, Delete], needs Read or RunJobs,
                log "Microsoft.MachineLearningServices/workspaces/jobs"
            }
            /// Cancels a job.
            JobCancel { workspace: Workspace, name: Name } => {
                "/{workspace}/jobs/{name}/cancel", [Post], needs RunJobs,
                log "Microsoft.MachineLearningServices/workspaces/jobs/cancel/action"
            }
            /// Returns the status of a long-running operation. For callers who may not see it, it does not exist.
            Operation { subscription: Subscription, location: Region, id: Text } => {
                "/subscriptions/{subscription}/providers/Microsoft.MachineLearningServices/locations/{location}/computeOperationsStatus/{id}",
                [Get], needs Token
            }
            /// Lists how much of each limit is reserved.
            Usages { subscription: Subscription, location: Region } => {
                "/subscriptions/{subscription}/providers/Microsoft.MachineLearningServices/locations/{location}/usages",
                [Get], needs Something
            }
            /// Lists the limits.
            Quotas { subscription: Subscription, location: Region } => {
                "/subscriptions/{subscription}/providers/Microsoft.MachineLearningServices/locations/{location}/quotas",
                [Get], needs Something
            }
            /// Sets limits.
            UpdateQuotas { subscription: Subscription, location: Region } => {
                "/subscriptions/{subscription}/providers/Microsoft.MachineLearningServices/locations/{location}/updateQuotas",
                [Post], needs ManageQuota, log "Microsoft.MachineLearningServices/locations/updateQuotas/action"
            }
            /// Lists the sizes that a new cluster may have. For api-versions before 2021, also under `amlCompute`.
            VmSizes { subscription: Subscription, location: Region } => {
                "/subscriptions/{subscription}/providers/Microsoft.MachineLearningServices/locations/{location}/vmSizes",
                [Get], needs Something
            }
            /// Muster: returns the time and the cost of nodes (`by`, `since`).
            Ledger(workspace: Workspace) => {
                "/{workspace}/providers/Muster.Cost/ledger", [Get], needs Read
            }
            /// Muster: streams what happens in the workspace as server-sent events (`since`), see [events.md](events.md).
            Events(workspace: Workspace) => {
                "/{workspace}/providers/Muster.Events/events", [Get], needs Read
            }
            /// Muster: returns how much of its limits the workspace has used: stored bytes by kind, and queued jobs.
            WorkspaceUsages(workspace: Workspace) => {
                "/{workspace}/providers/Muster.Quota/usages", [Get], needs Read
            }
            /// Muster: explains why a job is waiting.
            WhyJob { workspace: Workspace, name: Name } => {
                "/{workspace}/providers/Muster.Why/jobs/{name}", [Get], needs Read
            }
            /// Muster: explains why a cluster has its current size.
            WhyCompute { workspace: Workspace, name: Name } => {
                "/{workspace}/providers/Muster.Why/computes/{name}", [Get], needs Read
            }
            /// Muster: how a compute was used over time ([history](history.md)).
            ComputeHistory { workspace: Workspace, name: Name } => {
                "/{workspace}/providers/Muster.History/computes/{name}", [Get], needs Read
            }
            /// Muster: checks whether a job with this body would be accepted. Returns 204, or the refusal that the submission
            /// would get. Changes nothing.
            JobCheck { workspace: Workspace, name: Name } => {
                "/{workspace}/providers/Muster.Jobs/jobs/{name}/check", [Post], needs RunJobs,
                no log "it changes nothing"
            }
            /// Muster: lists the attempts of a job, with their costs, logs and kept files.
            JobAttempts { workspace: Workspace, name: Name } => {
                "/{workspace}/providers/Muster.Jobs/jobs/{name}/attempts", [Get], needs Read
            }
            /// Muster: a list of files. The response names the files that the server lacks. If it lacks none, it stores the list.
            Tree { workspace: Workspace, id: Name } => {
                "/{workspace}/providers/Muster.Jobs/trees/{id}", [Put], needs RunJobs,
                no log "it has no effect by itself; the job that uses it is logged"
            }
            /// Muster: the bytes of one file.
            Blob { workspace: Workspace, digest: Name } => {
                "/{workspace}/providers/Muster.Jobs/blobs/{digest}", [Put], needs RunJobs,
                no log "it has no effect by itself; the job that uses it is logged"
            }
            /// Muster: lists the post-mortems of a compute's nodes, newest first.
            PostMortems { workspace: Workspace, compute: Name } => {
                "/{workspace}/providers/Muster.PostMortem/computes/{compute}/nodes", [Get], needs Read
            }
            /// Muster: returns one post-mortem, with the end of the agent's log.
            PostMortem { workspace: Workspace, compute: Name, node: Name } => {
                "/{workspace}/providers/Muster.PostMortem/computes/{compute}/nodes/{node}", [Get], needs Read
            }
            /// Muster: evicts a low-priority node, with notice.
            EvictNode { workspace: Workspace, compute: Name, node: Name } => {
                "/{workspace}/providers/Muster.Rehearsal/computes/{compute}/nodes/{node}/evict",
                [Post], needs ManageComputes, log "Muster.Rehearsal/computes/nodes/evict/action"
            }
        }
    }
}

/// Users who run jobs upload data and download results.
pub mod storage {
    use crate::path::declare::routes;

    routes! {
        enum StorageRoute;
        rows {
            /// Lists the datastores. The two of the workspace come first (`isDefault`).
            Datastores(workspace: Workspace) => { "/{workspace}/datastores", [Get], needs Read }
            /// A datastore ([storage.md](storage.md)). DELETE keeps the contents of its container.
            Datastore { workspace: Workspace, name: Name } => {
                "/{workspace}/datastores/{name}", [Get, Put, Delete], needs Read or RunJobs,
                log "Microsoft.MachineLearningServices/workspaces/datastores"
            }
            /// Returns the credentials of a datastore. For containers of this server, this is a signed address that is valid for
            /// `expireAfterHours`.
            DatastoreSecrets { workspace: Workspace, name: Name } => {
                "/{workspace}/datastores/{name}/listSecrets", [Post], needs RunJobs,
                log "Microsoft.MachineLearningServices/workspaces/datastores/listSecrets/action"
            }
            /// Muster: lists what the server stores, with its size, its oldest entry and the settings that limit it.
            StorageSizes => { "/providers/Muster.Storage/sizes", [Get], needs Read }
            /// Muster: runs garbage collection, which deletes bytes that nothing references any more (`dryRun`, `graceSeconds`).
            /// It examines the files of all users.
            CollectGarbage => {
                "/providers/Muster.Storage/collectGarbage", [Post], needs ManageAccess,
                log "Muster.Storage/collectGarbage/action"
            }
        }
    }
}

/// Users who run jobs create the assets for them.
pub mod assets {
    use crate::path::declare::routes;

    routes! {
        enum AssetRoute;
        rows {
            /// Lists the names of {kind} ([assets.md](assets.md)). Accepts `listViewType`.
            AssetContainers { workspace: Workspace, kind: Kind } => { "/{workspace}/{kind}", [Get], needs Read }
            /// A name, with its latest and next version. PUT sets its description, archives it or restores it. DELETE deletes all
            /// its versions.
            AssetContainer { workspace: Workspace, kind: Kind, name: Name } => {
                "/{workspace}/{kind}/{name}", [Get, Put, Delete], needs Read or RunJobs,
                log "Microsoft.MachineLearningServices/workspaces/{kind}"
            }
            /// Lists the versions of a name, newest first. Accepts `$orderBy`, `$top` and `listViewType`. For code, `hash` lists
            /// the versions of all names with that content.
            AssetVersions { workspace: Workspace, kind: Kind, name: Name } => {
                "/{workspace}/{kind}/{name}/versions", [Get], needs Read
            }
            /// A version. Its content is never changed.
            AssetVersion { workspace: Workspace, kind: Kind, name: Name, version: Text } => {
                "/{workspace}/{kind}/{name}/versions/{version}", [Get, Put, Delete], needs Read or RunJobs,
                log "Microsoft.MachineLearningServices/workspaces/{kind}/versions"
            }
            /// Returns a container for the files of the version, and a signed address that is valid for an hour.
            AssetUpload { workspace: Workspace, kind: KindWithFiles, name: Name, version: Text } => {
                "/{workspace}/{kind}/{name}/versions/{version}/startPendingUpload", [Post], needs RunJobs,
                log "Microsoft.MachineLearningServices/workspaces/{kind}/versions/startPendingUpload/action"
            }
            /// Muster: lists the substitutes for curated environments and for images ([environments.md](environments.md)).
            Substitutes(workspace: Workspace) => {
                "/{workspace}/providers/Muster.Environments/substitutes", [Get], needs Read
            }
            /// Muster: returns the substitute for one curated environment.
            Substitute { workspace: Workspace, name: Name } => {
                "/{workspace}/providers/Muster.Environments/substitutes/{name}", [Get], needs Read
            }
            /// Muster: returns how an environment was built for jobs, with the output of the build.
            BuildLog { workspace: Workspace, name: Name, version: Text } => {
                "/{workspace}/providers/Muster.Environments/environments/{name}/versions/{version}/buildLog",
                [Get], needs Read
            }
        }
    }
}

/// The name of a run is unique in its workspace, so the experiment that some clients add to the path is not needed.
pub mod history {
    use crate::path::declare::routes;

    routes! {
        enum HistoryRoute;
        rows {
            /// Returns the run history's view of a job, with the addresses of its logs. Clients poll it.
            RunDetails { workspace: Workspace, run: Name } => {
                "/history/v1.0/{workspace}/runs/{run}/details"
                or "/history/v1.0/{workspace}/experiments/*/runs/{run}/details",
                [Get], needs Read, audience DataPlane
            }
            /// A run. PATCH changes the descriptive properties of the job, or archives it (`hidden`).
            Run { workspace: Workspace, run: Name } => {
                "/history/v1.0/{workspace}/runs/{run}" or "/history/v1.0/{workspace}/experiments/*/runs/{run}",
                [Get, Patch], needs Read or RunJobs,
                log "Microsoft.MachineLearningServices/workspaces/jobs", audience DataPlane
            }
            /// Returns a run and its outputs. The id of the run is in the body.
            RunData(workspace: Workspace) => {
                "/history/v1.0/{workspace}/rundata", [Post], needs Read, no log "it only reads",
                audience DataPlane
            }
            /// Lists the runs that a run started. A command has none.
            RunChildren { workspace: Workspace, run: Name } => {
                "/history/v1.0/{workspace}/runs/{run}/children"
                or "/history/v1.0/{workspace}/experiments/*/runs/{run}/children",
                [Get], needs Read, audience DataPlane
            }
            /// Returns the services on one node of a run, with links that open them ([services.md](services.md)).
            RunServices { workspace: Workspace, run: Name, node: Text } => {
                "/history/v1.0/{workspace}/runs/{run}/serviceinstances/{node}"
                or "/history/v1.0/{workspace}/experiments/*/runs/{run}/serviceinstances/{node}",
                [Get], needs Read, audience DataPlane
            }
            /// Returns where data is that runs left.
            ResolvedData(workspace: Workspace) => {
                "/data/v1.0/{workspace}/dataversion/batchGetResolvedUris", [Post], needs Read,
                no log "it only reads", audience DataPlane
            }
            /// Returns where models are that runs left.
            ResolvedModels(workspace: Workspace) => {
                "/modelregistry/v1.0/{workspace}/models/batchGetResolvedUris", [Post], needs Read,
                no log "it only reads", audience DataPlane
            }
        }
    }
}

/// azureml-core (SDK v1) reads computes from the data plane. The services behind its experiments are not supported.
pub mod v1 {
    use crate::path::declare::routes;

    routes! {
        enum V1Route;
        rows {
            /// Lists the clusters in the form that azureml-core (SDK v1) reads.
            V1Computes(workspace: Workspace) => {
                "/rp/workspaces/{workspace}/computes" or "/rp/v*/{workspace}/computes",
                [Get], needs Read, audience DataPlane
            }
            /// Returns one cluster in the form that azureml-core reads.
            V1Compute { workspace: Workspace, name: Name } => {
                "/rp/workspaces/{workspace}/computes/{name}" or "/rp/v*/{workspace}/computes/{name}",
                [Get], needs Read, audience DataPlane
            }
            /// Refused with the alternative, like all other requests of azureml-core for experiments, snapshots and runs.
            V1Experiments(workspace: Workspace) => {
                "/history/v1.0/{workspace}/experiments" or "/history/v*/{workspace}/experiments/**"
                or "/history/v*/{workspace}/experimentids/**" or "/content/v*/{workspace}/snapshots/**"
                or "/execution/v*/{workspace}/experiments/**",
                [Get, Put, Patch, Post, Delete], needs Read or RunJobs, no log "it is always refused",
                audience DataPlane
            }
        }
    }
}

/// These list workspaces and their contents, and leave out what the caller may not read.
pub mod manager {
    use crate::path::declare::routes;

    routes! {
        enum Manager;
        rows {
            /// Lists the only tenant.
            Tenants => { "/tenants", [Get], needs Token }
            /// Lists the subscriptions that have a resource group. With `muster up`, also the ids that examples use, such as
            /// `your_subscription_id`.
            Subscriptions => { "/subscriptions", [Get], needs Token }
            /// Returns one subscription.
            Subscription { subscription: Subscription } => {
                "/subscriptions/{subscription}", [Get], needs Something
            }
            /// Lists the regions: Azure's, your own (`regions`), and those of the workspaces.
            Locations { subscription: Subscription } => {
                "/subscriptions/{subscription}/locations", [Get], needs Something
            }
            /// Lists the providers below, with their types and api-versions.
            Providers { subscription: Subscription } => {
                "/subscriptions/{subscription}/providers", [Get], needs Something
            }
            /// Returns one provider. `az resource` uses the first version that is not a preview.
            Provider { subscription: Subscription, namespace: Text } => {
                "/subscriptions/{subscription}/providers/{namespace}", [Get], needs Something
            }
            /// Lists the resource groups.
            ResourceGroups { subscription: Subscription } => {
                "/subscriptions/{subscription}/resourceGroups", [Get], needs Something
            }
            /// A resource group. HEAD returns 204 or 404. DELETE also deletes everything in the group.
            ResourceGroup { subscription: Subscription, name: Group } => {
                "/subscriptions/{subscription}/resourceGroups/{name}", [Get, Head, Put, Patch, Delete],
                needs Something or ManageWorkspaces, log "Microsoft.Resources/subscriptions/resourceGroups"
            }
            /// Lists workspaces and clusters. Accepts `$filter`, `$expand` and `$top`.
            Resources { subscription: Subscription } => {
                "/subscriptions/{subscription}/resources", [Get], needs Something
            }
            /// Lists the workspaces and clusters of one group.
            ResourcesOfGroup { subscription: Subscription, name: Group } => {
                "/subscriptions/{subscription}/resourceGroups/{name}/resources", [Get], needs Something
            }
            /// Lists the sizes in the form that `az vm list-sizes` reads.
            MachineSizes { subscription: Subscription, location: Region } => {
                "/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{location}/vmSizes",
                [Get], needs Something
            }
            /// Lists the vCPUs of running nodes in the form that `az vm list-usage` reads.
            MachineUsages { subscription: Subscription, location: Region } => {
                "/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{location}/usages",
                [Get], needs Something
            }
        }
    }
}

/// The resources of a template are checked when it is read, and so is who may see which deployment.
pub mod deployments {
    use crate::path::declare::routes;

    routes! {
        enum DeploymentRoute;
        rows {
            /// Lists the deployments of a group, newest first (`$top`, `$filter=provisioningState eq '…'`).
            OfGroup(home: DeploymentHome) => {
                "/{home}/providers/Microsoft.Resources/deployments", [Get], needs Something
            }
            /// A deployment. PUT deploys a template. DELETE deletes the record of the deployment and keeps the resources that it
            /// created.
            One { home: DeploymentHome, name: Text } => {
                "/{home}/providers/Microsoft.Resources/deployments/{name}", [Get, Head, Put, Delete],
                needs Something, log "Microsoft.Resources/deployments"
            }
            /// Lists the operations of a deployment, one for each resource. As on Azure, also served without
            /// `providers/Microsoft.Resources`.
            Operations { home: DeploymentHome, name: Text } => {
                "/{home}/providers/Microsoft.Resources/deployments/{name}/operations"
                or "/{home}/deployments/{name}/operations",
                [Get], needs Something
            }
            /// Returns one operation.
            OneOperation { home: DeploymentHome, name: Text, id: Text } => {
                "/{home}/providers/Microsoft.Resources/deployments/{name}/operations/{id}"
                or "/{home}/deployments/{name}/operations/{id}",
                [Get], needs Something
            }
            /// Returns the status of a deployment, for clients that wait for it.
            Status { home: DeploymentHome, name: Text, id: Text } => {
                "/{home}/providers/Microsoft.Resources/deployments/{name}/operationStatuses/{id}",
                [Get], needs Something
            }
            /// Checks completely whether a template could be deployed.
            Validate { home: DeploymentHome, name: Text } => {
                "/{home}/providers/Microsoft.Resources/deployments/{name}/validate", [Post],
                needs Something, no log "it changes nothing"
            }
            /// Returns what would be created, and how existing resources would change, property by property.
            WhatIf { home: DeploymentHome, name: Text } => {
                "/{home}/providers/Microsoft.Resources/deployments/{name}/whatIf", [Post],
                needs Something, no log "it changes nothing"
            }
        }
    }
}

/// Roles are at Azure's own paths, users at Muster's, because they belong to the whole server.
pub mod access {
    use crate::path::declare::routes;

    routes! {
        enum AccessRoute;
        rows {
            /// Muster: returns the caller, with its roles.
            Me => { "/providers/Muster.Identity/me", [Get], needs Token }
            /// Muster: lists the users.
            Users => { "/providers/Muster.Identity/users", [Get], needs ManageAccess }
            /// Muster: a user. PUT creates a user and returns the key, which is shown only once.
            User { name: Text } => {
                "/providers/Muster.Identity/users/{name}", [Get, Put, Delete], needs ManageAccess,
                log "Muster.Identity/users"
            }
            /// Muster: creates a new key for a user. The old key is revoked immediately.
            RotateKey { name: Text } => {
                "/providers/Muster.Identity/users/{name}/rotateKey", [Post], needs ManageAccess,
                log "Muster.Identity/users/rotateKey/action"
            }
            /// Muster: revokes the key of a user.
            RevokeKey { name: Text } => {
                "/providers/Muster.Identity/users/{name}/revokeKey", [Post], needs ManageAccess,
                log "Muster.Identity/users/revokeKey/action"
            }
            /// Lists the role assignments on a scope, above it and below it.
            RoleAssignments(scope: Scope) => {
                "/{scope}/providers/Microsoft.Authorization/roleAssignments", [Get], needs Read
            }
            /// A role assignment of a user on a scope.
            RoleAssignment { scope: Scope, name: Text } => {
                "/{scope}/providers/Microsoft.Authorization/roleAssignments/{name}", [Get, Put, Delete],
                needs Read or ManageAccess, log "Microsoft.Authorization/roleAssignments"
            }
            /// Lists the available roles (`$filter=roleName eq '…'`).
            RoleDefinitions(scope: Scope) => {
                "/{scope}/providers/Microsoft.Authorization/roleDefinitions", [Get], needs Token
            }
        }
    }
}

/// As in Azure, locks are managed by those who manage roles.
pub mod governance {
    use crate::path::declare::routes;

    routes! {
        enum GovernanceRoute;
        rows {
            /// Lists the locks on a scope, above it and below it.
            Locks(scope: Lockable) => {
                "/{scope}/providers/Microsoft.Authorization/locks", [Get], needs Something
            }
            /// A lock. Here `SCOPE` may also be a compute.
            Lock { scope: Lockable, name: Text } => {
                "/{scope}/providers/Microsoft.Authorization/locks/{name}", [Get, Put, Delete],
                needs Read or ManageAccess, log "Microsoft.Authorization/locks"
            }
            /// Lists the activity log of a subscription, newest first (`$filter`).
            Activity { subscription: Subscription } => {
                "/subscriptions/{subscription}/providers/Microsoft.Insights/eventtypes/management/values",
                [Get], needs Something
            }
            /// Lists the activity log of the whole server, newest first (`$filter`).
            ServerActivity => {
                "/providers/Microsoft.Insights/eventtypes/management/values", [Get], needs Read
            }
            /// Muster: returns whether the activity log is intact, and its last digest.
            ActivityChain => { "/providers/Muster.Activity/chain", [Get], needs Read }
        }
    }
}

/// A joined host runs jobs of all users, so everything here requires the right to everything.
pub mod hosts {
    use crate::path::declare::routes;

    routes! {
        enum HostRoute;
        rows {
            /// Muster: lists the hosts, with their capacity and how much of it is used.
            Hosts => { "/providers/Muster.Hosts/hosts", [Get], needs ManageAccess }
            /// Muster: a host. DELETE is refused while it has nodes.
            Host { name: Text } => {
                "/providers/Muster.Hosts/hosts/{name}", [Get, Delete], needs ManageAccess,
                log "Muster.Hosts/hosts"
            }
            /// Muster: {action}.
            HostAction { name: Text, action: HostVerb } => {
                "/providers/Muster.Hosts/hosts/{name}/{action}", [Post], needs ManageAccess,
                log "Muster.Hosts/hosts/{action}/action"
            }
            /// Muster: creates a join token, which is valid once.
            HostToken => {
                "/providers/Muster.Hosts/token", [Post], needs ManageAccess, log "Muster.Hosts/token/action"
            }
        }
    }
}

/// The documents that a client reads before it has a token, and the ways to get one. The server has a single tenant, so the
/// name in the path of an authority makes no difference.
pub mod login {
    use crate::path::declare::routes;

    routes! {
        enum Login;
        rows {
            /// Returns the addresses of the cloud, without a token: a list for api-versions before 2022, one object for later
            /// ones.
            Metadata => { "/metadata/endpoints", [Get], needs Nothing }
            /// Returns the services of a workspace, which are the same for all workspaces, without a token.
            Discovery => { "/discovery" or "/discovery/**", [Get], needs Nothing }
            /// Returns a token for an API key ([identity.md](identity.md)), in the forms of App Service and of Azure ML. POST is for
            /// nodes and refused elsewhere.
            Token => { "/msi/token", [Get, Post], needs Nothing, no log "a token changes nothing" }
            /// Returns a token of the user who submitted a job, to that job on its nodes ([identity.md](identity.md)). It is refused
            /// elsewhere.
            OnBehalfOf => { "/obo/token", [Get], needs Nothing }
            /// Refused with the reason: this way of getting a token uses no secret. Nodes get a token.
            MachineIdentity => {
                "/metadata/identity/oauth2/token", [Get, Post], needs Nothing, no log "a token changes nothing"
            }
            /// Returns whether an address is an authority of this server.
            Instance => { "/common/discovery/instance", [Get], needs Nothing }
            /// Returns the endpoints of the authority, without a token. Also served under `/{tenant}/v2.0`, `/adfs` and
            /// `/adfs/{tenant}`.
            OpenId { authority: Authority } => {
                "/{authority}/.well-known/openid-configuration"
                or "/{authority}/v2.0/.well-known/openid-configuration",
                [Get], needs Nothing
            }
            /// Returns a token for a service principal. Also served at `/oauth2/v2.0/token`, and under `/adfs` and
            /// `/adfs/{tenant}`.
            ClientToken { authority: Authority } => {
                "/{authority}/oauth2/token" or "/{authority}/oauth2/v2.0/token", [Post], needs Nothing,
                no log "a token changes nothing"
            }
            /// Refused, with what to do instead: signing in with a browser is not supported.
            Browser { authority: Authority } => {
                "/{authority}/oauth2/authorize" or "/{authority}/oauth2/v2.0/authorize", [Get], needs Nothing
            }
            /// Refused, with what to do instead: signing in with a device code is not supported.
            DeviceCode { authority: Authority } => {
                "/{authority}/oauth2/devicecode" or "/{authority}/oauth2/v2.0/devicecode", [Post], needs Nothing,
                no log "it is always refused"
            }
        }
    }
}

pub use access::AccessRoute;
pub use assets::AssetRoute;
pub use deployments::DeploymentRoute;
pub use governance::GovernanceRoute;
pub use history::HistoryRoute;
pub use hosts::HostRoute;
pub use login::Login;
pub use manager::Manager;
pub use root::Route;
pub use storage::StorageRoute;
pub use v1::V1Route;
