//! Which workspace a command acts on: az's flags, the configured defaults, and a fallback where az has none.

use muster_core::model::WorkspaceKey;

use crate::client::Client;
use crate::complete;
use crate::defaults::Setting;
use crate::env::shell_quoted;
use crate::failure::{CliResult, quoted};
use crate::output;
use crate::server_location::StateDirArg;
use crate::values;

const DEFAULT_NAME: &str = "default";
const DEFAULT_SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000000";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Where")]
pub struct Scope {
    /// Resource group [default: as configured, or "default"]
    #[arg(short = 'g', long, value_name = "NAME", value_parser = values::name, add = complete::groups())]
    resource_group: Option<String>,
    /// Workspace; `muster up` creates it on first use [default: as configured, or "default"]
    #[arg(short = 'w', long, value_name = "NAME", value_parser = values::name,
          add = complete::workspaces())]
    workspace_name: Option<String>,
    #[command(flatten)]
    subscription: SubscriptionScope,
}

/// The scope of resources that are in a resource group or a subscription, but not in a workspace.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Where")]
pub struct GroupScope {
    /// Resource group [default: as configured, or the whole subscription]
    #[arg(short = 'g', long, value_name = "NAME", value_parser = values::name, add = complete::groups())]
    resource_group: Option<String>,
    #[command(flatten)]
    subscription: SubscriptionScope,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Where")]
pub struct SubscriptionScope {
    /// Id of the subscription [default: as configured, or all zeros]
    #[arg(long, value_name = "ID", value_parser = values::name)]
    subscription: Option<String>,
    #[command(flatten)]
    place: StateDirArg,
}

impl SubscriptionScope {
    pub fn id(&self) -> CliResult<String> {
        let id = Setting::Subscription.value(self.subscription.as_deref())?;
        Ok(id.unwrap_or_else(|| DEFAULT_SUBSCRIPTION.to_owned()))
    }

    /// Returns a client for the server.
    pub async fn connect(&self) -> CliResult<Client> {
        Client::connect(self.place.find()?).await
    }
}

impl GroupScope {
    pub fn subscription(&self) -> CliResult<String> {
        self.subscription.id()
    }

    /// The resource group, if one was given or configured.
    pub fn group(&self) -> CliResult<Option<String>> {
        Setting::Group.value(self.resource_group.as_deref())
    }

    pub async fn connect(&self) -> CliResult<Client> {
        self.subscription.connect().await
    }
}

impl Scope {
    pub fn workspace(&self) -> CliResult<WorkspaceKey> {
        let choose =
            |setting: Setting, flag: &Option<String>, built_in: &str| -> CliResult<String> {
                Ok(setting.value(flag.as_deref())?.unwrap_or_else(|| built_in.to_owned()))
            };
        let subscription = self.subscription.id()?;
        let group = choose(Setting::Group, &self.resource_group, DEFAULT_NAME)?;
        let name = choose(Setting::Workspace, &self.workspace_name, DEFAULT_NAME)?;
        Ok(WorkspaceKey::new(&subscription, &group, &name))
    }

    /// The resource group, if one was given or configured.
    pub fn group(&self) -> CliResult<Option<String>> {
        Setting::Group.value(self.resource_group.as_deref())
    }

    /// The resource group, if the flag was given.
    pub fn group_given(&self) -> Option<&str> {
        self.resource_group.as_deref()
    }

    /// Like [`Scope::workspace`], for a command that changes something: it also prints the workspace, because a
    /// forgotten variable or default may not be the one that the user has in mind.
    pub fn workspace_to_change(&self) -> CliResult<WorkspaceKey> {
        let workspace = self.workspace()?;
        output::say(&format!(
            "in workspace {}, resource group {}, subscription {}",
            quoted(&workspace.name),
            quoted(&workspace.resource_group),
            quoted(&workspace.subscription)
        ));
        Ok(workspace)
    }

    /// The scope flags that were given, to be appended to another command for the same workspace.
    pub fn flags(&self) -> String {
        let text = |value: &Option<String>| value.as_deref().map(shell_quoted);
        let given = [
            ("--resource-group", text(&self.resource_group)),
            ("--workspace-name", text(&self.workspace_name)),
            ("--subscription", text(&self.subscription.subscription)),
            ("--state-dir", self.subscription.place.given().as_deref().map(shell_quoted)),
        ];
        let given = given.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
        given.map(|(flag, value)| format!(" {flag} {value}")).collect()
    }

    /// Returns a client for the server.
    pub async fn connect(&self) -> CliResult<Client> {
        self.subscription.connect().await
    }
}
