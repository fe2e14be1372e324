//! Creating and changing clusters and compute instances.
//!
//! Only the given values are sent: the server adds defaults for a new cluster, and keeps the other values of an
//! existing one.

use std::collections::BTreeSet;

use muster_core::ClusterPatch;
use muster_core::model::{AdminAccount, Identity, RemoteLogin, ScaleUp, Tier, WorkspaceKey};
use muster_core::refusal::ClusterProperty;
use muster_core::time::Span;
use muster_wire::compute::{KINDS, ProvisioningState, SeenCompute, request_json};

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::file::{self, ComputeDraft, FIELDS};
use super::{Target, price, view};
use crate::client::Client;
use crate::complete;
use crate::defaults::Setting;
use crate::document::kinds::FileKind;
use crate::document::{self, Edits, Fields};
use crate::dry::{DryRun, Plan};
use crate::failure::{CliResult, Failure, quoted};
use crate::names::{self, MaybeName};
use crate::operation;
use crate::output::{self, Print};
use crate::scope::Scope;
use crate::spelling;
use crate::values::{self, ComputeType};

/// Stands for the cluster's own identity in a list of identities.
const SYSTEM_IDENTITY: &str = "[system]";

const CREATING: &str = "creating";

/// Create or update a cluster or compute instance
///
/// A cluster grows and shrinks with its jobs. A compute instance is a single node that you start and stop.
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating, costs money: nodes cost money while they exist, busy or idle.")]
pub struct CreateArgs {
    #[command(flatten)]
    name: MaybeName<names::NewCompute>,
    /// YAML file with the fields of Azure's schema, or - for standard input; flags override it
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Type of compute [default: AmlCompute]
    #[arg(short = 't', long = "type", value_enum, ignore_case = true, value_name = "TYPE")]
    compute_type: Option<ComputeType>,
    /// VM size of the nodes; cannot be changed later [default: STANDARD_DS3_V2]
    #[arg(long, value_name = "SIZE", add = complete::sizes())]
    size: Option<String>,
    /// Not supported: a compute instance belongs to its creator
    #[arg(long, value_name = "ID")]
    user_object_id: Option<String>,
    /// Not supported, like --user-object-id
    #[arg(long, value_name = "ID")]
    user_tenant_id: Option<String>,
    #[command(flatten)]
    scale: Scale,
    /// dedicated or low_priority; cannot be changed later [default: dedicated]
    #[arg(long, visible_alias = "vm-priority", value_name = "TIER", value_parser = values::tier)]
    tier: Option<Tier>,
    /// Region; cannot be changed later [default: as configured, or the workspace's]
    #[arg(short, long, value_name = "REGION", add = complete::locations())]
    location: Option<String>,
    /// Description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Tags, as key=value key=value …
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    tags: Option<Vec<String>>,
    /// Do not wait until the operation has finished
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    people: People,
    #[command(flatten)]
    network: Network,
    #[command(flatten)]
    edits: Edits,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    scope: Scope,
}

/// Update the limits, idle time or tags of a cluster, or the tags of a compute instance
///
/// Values that are not given are kept. Any update, even without a change, ends the pause after nodes failed to start.
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating, costs money: nodes cost money while they exist, busy or idle.")]
pub struct UpdateArgs {
    #[command(flatten)]
    scale: Scale,
    /// Tags, which replace all existing ones, as key=value key=value …; '' removes all
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    tags: Option<Vec<String>>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    edits: Edits,
    /// Do not wait until the operation has finished
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, clap::Args)]
struct Scale {
    /// Minimum number of nodes, kept even when idle [default: 0]
    #[arg(long, value_name = "COUNT", value_parser = values::count, allow_negative_numbers = true)]
    min_instances: Option<u32>,
    /// Maximum number of nodes [default: 4]
    #[arg(long, value_name = "COUNT", value_parser = values::count, allow_negative_numbers = true)]
    max_instances: Option<u32>,
    /// Idle time after which a node is deleted, in seconds [default: 120]
    #[arg(short = 'd', long, value_name = "SECONDS", value_parser = values::seconds,
          allow_negative_numbers = true)]
    idle_time_before_scale_down: Option<Span>,
    /// immediate, or predictive: add no node if another becomes free sooner than a new one could start
    /// [default: immediate]
    #[arg(long, value_name = "HOW", value_parser = values::scale_up)]
    scale_up: Option<ScaleUp>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Identity and access")]
pub struct IdentityArgs {
    /// SystemAssigned or UserAssigned
    #[arg(long, value_name = "TYPE")]
    pub identity_type: Option<String>,
    /// Ids of identities, separated by commas; [system] is the cluster's own
    #[arg(short = 'i', long, value_name = "IDS")]
    pub user_assigned_identities: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Identity and access")]
pub struct People {
    #[command(flatten)]
    pub identity: IdentityArgs,
    /// Name of the administrator of every node; for a compute instance always azureuser
    #[arg(long, value_name = "NAME")]
    pub admin_username: Option<String>,
    /// Password of the administrator; only its digest is stored
    #[arg(long, value_name = "PASSWORD", requires = "admin_username")]
    pub admin_password: Option<String>,
    /// SSH public key of the administrator
    #[arg(long, value_name = "KEY")]
    pub ssh_key_value: Option<String>,
    /// Whether the SSH port is publicly accessible
    #[arg(short = 'p', long, value_name = "BOOL", value_parser = values::boolean,
          num_args = 0..=1, default_missing_value = "true")]
    pub ssh_public_access_enabled: Option<bool>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Network")]
pub struct Network {
    /// Virtual network
    #[arg(long, value_name = "NAME", requires = "subnet", value_parser = values::name)]
    pub vnet_name: Option<String>,
    /// Subnet: its name together with --vnet-name, or its id
    #[arg(long, value_name = "NAME or ID", value_parser = values::name)]
    pub subnet: Option<String>,
    /// Whether nodes have a public IP address
    #[arg(long, value_name = "BOOL", value_parser = values::boolean, num_args = 0..=1,
          default_missing_value = "true")]
    pub enable_node_public_ip: Option<bool>,
}

pub async fn create(args: CreateArgs) -> CliResult {
    let workspace = args.scope.workspace()?;
    let mut document = match &args.file {
        Some(path) => document::read(path, FileKind::Compute, FIELDS)?,
        None => Fields::new(),
    };
    let flags = args.patch(&workspace)?;
    refuse_twice(&args.edits, &flags)?;
    args.edits.apply(&mut document, FIELDS)?;
    let filed = file::wanted(&document, &workspace)?;
    let name = match args.name.to_owned().or_else(|| file::text(&document, "name")) {
        Some(name) => values::name(&name)
            .map_err(|why| Failure::refused(format!("name is {}: {why}", quoted(&name))))?,
        None => return Err(Failure::refused("the file has no name; add one, or give --name")),
    };
    if args.user_object_id.is_some() || args.user_tenant_id.is_some() {
        let why = file::NOT_ON_BEHALF;
        return Err(Failure::refused(format!("--user-object-id and --user-tenant-id: {why}")));
    }
    // Flags take precedence over the file.
    let mut patch = flags.or(filed.patch);
    if patch.location.is_none() {
        patch.location = Setting::Location.value(None)?.map(String::into);
    }
    let password = args.people.admin_password.or(filed.password);
    let target = Target { name: name.into(), scope: args.scope };
    let client = target.scope.connect().await?;
    let doing = Doing { what: CREATING, no_wait: args.no_wait, print: args.print, dry: args.dry };
    doing.put(&client, &target, &file::settled(ComputeDraft { patch, password }, None)?).await
}

impl CreateArgs {
    /// What the flags request.
    fn patch(&self, workspace: &WorkspaceKey) -> CliResult<ClusterPatch> {
        Ok(ClusterPatch {
            kind: self.compute_type.map(ComputeType::kind),
            location: self.location.as_deref().map(Box::from),
            description: self.description.as_deref().map(Box::from),
            vm_size: self.size.as_deref().map(Arc::from),
            tier: self.tier,
            tags: self.tags.as_deref().map(values::tags).transpose()?,
            subnet: self.network.subnet_id(workspace)?.map(String::into),
            enable_node_public_ip: self.network.enable_node_public_ip,
            identity: self.people.identity.read()?,
            remote_login: self.people.remote_login(),
            admin: self.people.admin(),
            ..self.scale.patch()
        })
    }
}

/// Refuses a field that is given in two ways: one of them would be ignored.
fn refuse_twice(edits: &Edits, flags: &ClusterPatch) -> CliResult {
    let given = ClusterProperty::ALL.iter().filter(|property| flags.gives(**property));
    let mut given = given.map(|property| spelling::of_cluster(*property));
    match given.find_map(|it| it.flag.filter(|_| edits.sets(it.yaml)).map(|flag| (it.yaml, flag))) {
        Some((name, flag)) => {
            let text = format!("{name} is given by --set and by {flag}; give it once");
            Err(Failure::refused(text))
        }
        None => Ok(()),
    }
}

pub async fn update(args: UpdateArgs) -> CliResult {
    let tags = args.tags.as_deref().map(values::tags).transpose()?;
    let flags = ClusterPatch { tags, identity: args.identity.read()?, ..args.scale.patch() };
    refuse_twice(&args.edits, &flags)?;
    let workspace = args.target.scope.workspace()?;
    let route = super::route(workspace.clone(), &args.target.name);
    let client = args.target.scope.connect().await?;
    // A PUT would create a missing compute.
    let now: SeenCompute = match args.dry.dry_run {
        // Where workspaces are created on first use, a GET would create this one.
        true => client.found(&route).await?,
        false => client.get(&route).await?,
    };
    let edited = edited(&now, &args.edits, &workspace)?;
    let patch = flags.or(edited.patch);
    let now =
        KINDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(&now.properties.compute_type));
    let wanted = ComputeDraft { patch, password: edited.password };
    let wanted = file::settled(wanted, now.map(|(_, kind)| *kind))?;
    let doing = Doing { what: "updating", no_wait: args.no_wait, print: args.print, dry: args.dry };
    doing.put(&client, &args.target, &wanted).await
}

/// What the edits change in the current cluster.
fn edited(now: &SeenCompute, edits: &Edits, workspace: &WorkspaceKey) -> CliResult<ComputeDraft> {
    let mut before = Fields::new();
    if !edits.is_empty() {
        let shown = serde_json::to_value(view::entity(now)).expect("entities have text keys");
        if let Value::Object(shown) = shown {
            before.extend(shown.into_iter().filter(|(_, value)| !value.is_null()));
        }
    }
    let mut after = before.clone();
    edits.apply(&mut after, FIELDS)?;
    for (name, value) in &before {
        let is_shown = FIELDS
            .iter()
            .any(|field| field.name == name && matches!(field.kind, document::Kind::Shown));
        if is_shown && after.get(name) != Some(value) {
            return Err(Failure::refused(format!(
                "{name} is set by the server; it cannot be changed"
            )));
        }
        // An omitted value is kept, so an empty one has to be sent to remove it.
        if !after.contains_key(name) && !is_shown {
            let empty = match value {
                Value::Object(_) if name == "tags" => Value::Object(Fields::new()),
                Value::String(_) if name == "description" => Value::String(String::new()),
                _ => {
                    let text = format!("--remove: {name} must have a value; use --set");
                    return Err(Failure::refused(text));
                }
            };
            after.insert(name.clone(), empty);
        }
    }
    after.retain(|name, value| before.get(name) != Some(value));
    file::wanted(&after, workspace)
}

struct Doing {
    what: &'static str,
    no_wait: bool,
    print: Print,
    dry: DryRun,
}

impl Doing {
    async fn put(self, client: &Client, target: &Target, wanted: &ComputeDraft) -> CliResult {
        let route = target.route_to_change()?;
        let body = request_json(&wanted.patch, wanted.password.as_deref());
        if self.dry.dry_run {
            let usd_per_hour_max = price::usd_per_hour_max(client, &route, &wanted.patch).await?;
            let plan = Plan { usd_per_hour_max, ..Plan::new("PUT", &route, &body) };
            return plan.show(client, &self.print).await;
        }
        let answer = client.put(&route, body).await?;
        let seen: SeenCompute = answer.document()?;
        if self.what == CREATING
            && seen.properties.provisioning_state != ProvisioningState::Creating
        {
            let name = &target.name;
            output::say(&format!("note: {name} already exists; it is updated, not created"));
        }
        if !self.no_wait {
            operation::follow(client, &answer, format!("{} {}", self.what, target.name.as_str()))
                .await?;
        }
        super::print(client, &route, &self.print).await
    }
}

impl Scale {
    fn patch(&self) -> ClusterPatch {
        ClusterPatch {
            nodes_min: self.min_instances,
            nodes_max: self.max_instances,
            idle_time: self.idle_time_before_scale_down,
            scale_up: self.scale_up,
            ..ClusterPatch::default()
        }
    }
}

impl People {
    pub fn admin(&self) -> Option<AdminAccount> {
        if self.admin_username.is_none() && self.ssh_key_value.is_none() {
            return None;
        }
        Some(AdminAccount {
            // Whether it may be missing depends on the kind of compute.
            user_name: self.admin_username.clone().unwrap_or_default().into(),
            ssh_public_key: self.ssh_key_value.as_deref().map(Box::from),
            password_digest: None,
        })
    }

    pub fn remote_login(&self) -> Option<RemoteLogin> {
        self.ssh_public_access_enabled.map(|is_open| match is_open {
            true => RemoteLogin::Enabled,
            false => RemoteLogin::Disabled,
        })
    }
}

impl IdentityArgs {
    pub fn read(&self) -> CliResult<Option<Identity>> {
        let list = self.user_assigned_identities.as_deref().unwrap_or_default();
        let mut listed: BTreeSet<String> =
            list.split(',').map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned).collect();
        let lists_system = listed.remove(SYSTEM_IDENTITY);
        let kind = self.identity_type.as_deref();
        let folded = kind.map(|kind| kind.to_ascii_lowercase().replace(['_', '-', ' '], ""));
        let (wants_system, wants_users) = match folded.as_deref() {
            None if listed.is_empty() && !lists_system => return Ok(None),
            None => (lists_system, !listed.is_empty()),
            Some("none") => (false, false),
            Some("systemassigned") => (true, false),
            Some("userassigned") => (lists_system, true),
            Some("systemassigned,userassigned" | "userassigned,systemassigned") => (true, true),
            Some(_) => {
                return Err(Failure::refused(format!(
                    "--identity-type is {}; give SystemAssigned or UserAssigned",
                    quoted(kind.unwrap_or_default())
                )));
            }
        };
        if wants_users == listed.is_empty() {
            return Err(Failure::refused(format!(
                "--identity-type is {}, but --user-assigned-identities lists {} of them; make the two \
                 agree",
                quoted(kind.unwrap_or_default()),
                listed.len()
            )));
        }
        Ok(Some(Identity { system_assigned: wants_system, user_assigned: listed }))
    }
}

impl Network {
    pub fn subnet_id(&self, workspace: &WorkspaceKey) -> CliResult<Option<String>> {
        let Some(subnet) = &self.subnet else { return Ok(None) };
        // The server checks whether an id is valid.
        if subnet.contains('/') {
            return Ok(Some(subnet.clone()));
        }
        let Some(network) = &self.vnet_name else {
            return Err(Failure::refused(format!(
                "--subnet {} is a name without a network; add --vnet-name, or give the subnet's id",
                quoted(subnet)
            )));
        };
        Ok(Some(format!(
            "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/virtualNetworks/{network}/\
             subnets/{subnet}",
            workspace.subscription, workspace.resource_group
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(kind: Option<&str>, ids: Option<&str>) -> CliResult<Option<Identity>> {
        let (identity_type, user_assigned_identities) =
            (kind.map(str::to_owned), ids.map(str::to_owned));
        IdentityArgs { identity_type, user_assigned_identities }.read()
    }

    #[test]
    fn identities_are_put_together_from_both_flags() {
        let cases = [
            (None, None, None),
            (Some("SystemAssigned"), None, Some((true, 0))),
            (Some("system_assigned"), None, Some((true, 0))),
            (Some("UserAssigned"), Some("/a, /b"), Some((false, 2))),
            (Some("UserAssigned"), Some("[system],/a"), Some((true, 1))),
            (None, Some("[system]"), Some((true, 0))),
            (None, Some("/a"), Some((false, 1))),
            (Some("None"), None, Some((false, 0))),
        ];
        for (kind, ids, wanted) in cases {
            let found = identity(kind, ids).unwrap();
            let got = found.map(|id| (id.system_assigned, id.user_assigned.len()));
            assert_eq!(got, wanted, "{kind:?} {ids:?}");
        }
        for (kind, ids) in [
            (Some("Robot"), None),
            (Some("UserAssigned"), None),
            (Some("SystemAssigned"), Some("/a")),
            (Some("None"), Some("/a")),
        ] {
            assert!(identity(kind, ids).is_err(), "{kind:?} {ids:?}");
        }
    }

    #[test]
    fn a_subnet_is_named_or_given_by_id() {
        let workspace = WorkspaceKey::new("s", "g", "w");
        let id = |vnet: Option<&str>, subnet: Option<&str>| {
            let network = Network {
                vnet_name: vnet.map(str::to_owned),
                subnet: subnet.map(str::to_owned),
                enable_node_public_ip: None,
            };
            network.subnet_id(&workspace)
        };
        assert_eq!(id(None, None).unwrap(), None);
        assert_eq!(id(None, Some("/x/y")).unwrap().as_deref(), Some("/x/y"));
        assert_eq!(
            id(Some("v"), Some("n")).unwrap().as_deref(),
            Some(
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/n"
            )
        );
        assert!(id(None, Some("n")).is_err());
    }
}
