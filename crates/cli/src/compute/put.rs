//! Creating and changing clusters.
//!
//! Only what the user says is sent: the server fills in what a new cluster needs, and keeps what an existing
//! one has.

use std::collections::BTreeSet;

use muster_core::ClusterPatch;
use muster_core::model::{AdminAccount, Identity, RemoteLogin, ScaleUp, Tier, WorkspaceKey};
use muster_core::time::Span;
use muster_wire::compute::{ComputeResource, request_json};

use super::Target;
use crate::defaults::Setting;
use crate::failure::{Failure, Outcome, quoted};
use crate::operation;
use crate::output::Print;
use crate::values::{self, ComputeType};

/// What stands for the cluster's own identity in a list of identities.
const SYSTEM_IDENTITY: &str = "[system]";

/// Create a cluster, or change an existing one
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating, costs money: nodes cost while they are there, busy or not.")]
pub struct CreateArgs {
    /// The type of compute
    #[arg(
        short = 't',
        long = "type",
        value_enum,
        ignore_case = true,
        value_name = "TYPE",
        default_value = "AmlCompute"
    )]
    _compute_type: ComputeType,
    /// The nodes' VM size; fixed at creation [default: STANDARD_DS3_V2]
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,
    #[command(flatten)]
    scale: Scale,
    /// dedicated or low_priority; fixed at creation [default: dedicated]
    #[arg(long, visible_alias = "vm-priority", value_name = "TIER", value_parser = values::tier)]
    tier: Option<Tier>,
    /// The region; fixed at creation [default: as configured, or the workspace's]
    #[arg(short, long, value_name = "REGION")]
    location: Option<String>,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Tags, as key=value key=value …
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    tags: Option<Vec<String>>,
    /// Do not wait until it is done
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    people: People,
    #[command(flatten)]
    network: Network,
    #[command(flatten)]
    target: Target,
}

/// Change a cluster: its limits, its idle time, its tags
///
/// Whatever is not given stays. Any update, also one that changes nothing, ends the pause after nodes did not
/// come up.
#[derive(Debug, clap::Args)]
#[command(after_help = "Mutating, costs money: nodes cost while they are there, busy or not.")]
pub struct UpdateArgs {
    #[command(flatten)]
    scale: Scale,
    /// All tags, as key=value key=value …; '' removes them
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    tags: Option<Vec<String>>,
    /// Do not wait until it is done
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, clap::Args)]
struct Scale {
    /// Nodes that are kept without work [default: 0]
    #[arg(long, value_name = "COUNT", value_parser = values::count, allow_negative_numbers = true)]
    min_instances: Option<u32>,
    /// The most nodes [default: 4]
    #[arg(long, value_name = "COUNT", value_parser = values::count, allow_negative_numbers = true)]
    max_instances: Option<u32>,
    /// After how many seconds without work a node goes [default: 120]
    #[arg(short = 'd', long, value_name = "SECONDS", value_parser = values::seconds,
          allow_negative_numbers = true)]
    idle_time_before_scale_down: Option<Span>,
    /// immediate, or predictive: no new node when one frees sooner than it could boot
    /// [default: immediate]
    #[arg(long, value_name = "HOW", value_parser = values::scale_up)]
    scale_up: Option<ScaleUp>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Identity and access")]
struct People {
    /// SystemAssigned or UserAssigned
    #[arg(long, value_name = "TYPE")]
    identity_type: Option<String>,
    /// The ids of identities, separated by commas; [system] is the cluster's own
    #[arg(short = 'i', long, value_name = "IDS")]
    user_assigned_identities: Option<String>,
    /// The administrator of every node
    #[arg(long, value_name = "NAME")]
    admin_username: Option<String>,
    /// The administrator's password; only its digest is kept
    #[arg(long, value_name = "PASSWORD", requires = "admin_username")]
    admin_password: Option<String>,
    /// The administrator's SSH public key
    #[arg(long, value_name = "KEY", requires = "admin_username")]
    ssh_key_value: Option<String>,
    /// Whether the SSH port is open to the public
    #[arg(short = 'p', long, value_name = "BOOL", value_parser = values::boolean,
          num_args = 0..=1, default_missing_value = "true")]
    ssh_public_access_enabled: Option<bool>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Network")]
struct Network {
    /// The virtual network
    #[arg(long, value_name = "NAME", requires = "subnet", value_parser = values::name)]
    vnet_name: Option<String>,
    /// The subnet: its name with --vnet-name, or its id
    #[arg(long, value_name = "NAME or ID", value_parser = values::name)]
    subnet: Option<String>,
    /// Whether nodes have a public address
    #[arg(long, value_name = "BOOL", value_parser = values::boolean, num_args = 0..=1,
          default_missing_value = "true")]
    enable_node_public_ip: Option<bool>,
}

pub async fn create(args: CreateArgs) -> Outcome {
    let workspace = args.target.scope.workspace()?;
    let password = args.people.admin_password.clone();
    let patch = ClusterPatch {
        location: Setting::Location.value(args.location.as_deref())?.map(String::into),
        description: args.description.map(String::into),
        vm_size: args.size.map(String::into),
        tier: args.tier,
        tags: args.tags.as_deref().map(values::tags).transpose()?,
        subnet: args.network.subnet_id(&workspace)?.map(String::into),
        enable_node_public_ip: args.network.enable_node_public_ip,
        identity: args.people.identity()?,
        remote_login: args.people.remote_login(),
        admin: args.people.admin(),
        ..args.scale.patch()
    };
    let doing = Doing { what: "creating", no_wait: args.no_wait, print: args.print };
    doing.put(&args.target, &patch, password.as_deref(), false).await
}

pub async fn update(args: UpdateArgs) -> Outcome {
    let tags = args.tags.as_deref().map(values::tags).transpose()?;
    let patch = ClusterPatch { tags, ..args.scale.patch() };
    let doing = Doing { what: "updating", no_wait: args.no_wait, print: args.print };
    doing.put(&args.target, &patch, None, true).await
}

struct Doing {
    what: &'static str,
    no_wait: bool,
    print: Print,
}

impl Doing {
    async fn put(
        self,
        target: &Target,
        patch: &ClusterPatch,
        password: Option<&str>,
        must_exist: bool,
    ) -> Outcome {
        let route = target.route_to_change()?;
        let client = target.scope.connect().await?;
        if must_exist {
            // A PUT would create what is not there.
            let _: ComputeResource = client.get(&route).await?;
        }
        let answer = client.put(&route, request_json(patch, password)).await?;
        if !self.no_wait {
            operation::follow(&client, &answer, format!("{} {}", self.what, target.name)).await?;
        }
        super::print(&client, &route, &self.print).await
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
    fn admin(&self) -> Option<AdminAccount> {
        let user_name = self.admin_username.as_deref()?;
        Some(AdminAccount {
            user_name: user_name.into(),
            ssh_public_key: self.ssh_key_value.as_deref().map(Box::from),
            password_digest: None,
        })
    }

    fn remote_login(&self) -> Option<RemoteLogin> {
        self.ssh_public_access_enabled.map(|is_open| match is_open {
            true => RemoteLogin::Enabled,
            false => RemoteLogin::Disabled,
        })
    }

    fn identity(&self) -> Outcome<Option<Identity>> {
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
                "--identity-type is {}, and --user-assigned-identities lists {} of them; make the two \
                 agree",
                quoted(kind.unwrap_or_default()),
                listed.len()
            )));
        }
        Ok(Some(Identity { system_assigned: wants_system, user_assigned: listed }))
    }
}

impl Network {
    fn subnet_id(&self, workspace: &WorkspaceKey) -> Outcome<Option<String>> {
        let Some(subnet) = &self.subnet else { return Ok(None) };
        // Whether an id is a good one is up to the server.
        if subnet.contains('/') {
            return Ok(Some(subnet.clone()));
        }
        let Some(network) = &self.vnet_name else {
            return Err(Failure::refused(format!(
                "--subnet {} is a name without its network; add --vnet-name, or give the subnet's id",
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

    fn people(kind: Option<&str>, ids: Option<&str>) -> People {
        People {
            identity_type: kind.map(str::to_owned),
            user_assigned_identities: ids.map(str::to_owned),
            admin_username: None,
            admin_password: None,
            ssh_key_value: None,
            ssh_public_access_enabled: None,
        }
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
            let identity = people(kind, ids).identity().unwrap();
            let got = identity.map(|id| (id.system_assigned, id.user_assigned.len()));
            assert_eq!(got, wanted, "{kind:?} {ids:?}");
        }
        for (kind, ids) in [
            (Some("Robot"), None),
            (Some("UserAssigned"), None),
            (Some("SystemAssigned"), Some("/a")),
            (Some("None"), Some("/a")),
        ] {
            assert!(people(kind, ids).identity().is_err(), "{kind:?} {ids:?}");
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
