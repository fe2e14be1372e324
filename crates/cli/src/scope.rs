//! Which workspace a command is about: az's flags, az's variables, and a default where az has none.

use muster_core::model::WorkspaceKey;

use crate::client::Client;
use crate::env::shell_quoted;
use crate::failure::{Failure, Outcome, quoted};
use crate::place::StateDirArg;
use crate::values;

const DEFAULT_NAME: &str = "default";
const DEFAULT_SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000000";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Where")]
pub struct Scope {
    /// The resource group [default: $AZURE_DEFAULTS_GROUP, or "default"]
    #[arg(short = 'g', long, value_name = "NAME", value_parser = values::name)]
    resource_group: Option<String>,
    /// The workspace; the first use makes it [default: $AZURE_DEFAULTS_WORKSPACE, or "default"]
    #[arg(short = 'w', long, value_name = "NAME", value_parser = values::name)]
    workspace_name: Option<String>,
    /// The subscription's id [default: $AZURE_SUBSCRIPTION_ID, or zeros]
    #[arg(long, value_name = "ID", value_parser = values::name)]
    subscription: Option<String>,
    #[command(flatten)]
    place: StateDirArg,
}

impl Scope {
    pub fn workspace(&self) -> Outcome<WorkspaceKey> {
        let subscription =
            choose(self.subscription.as_deref(), "AZURE_SUBSCRIPTION_ID", DEFAULT_SUBSCRIPTION)?;
        let group = choose(self.resource_group.as_deref(), "AZURE_DEFAULTS_GROUP", DEFAULT_NAME)?;
        let name =
            choose(self.workspace_name.as_deref(), "AZURE_DEFAULTS_WORKSPACE", DEFAULT_NAME)?;
        Ok(WorkspaceKey::new(&subscription, &group, &name))
    }

    /// What was given on the command line, to be put behind another command about the same place.
    pub fn flags(&self) -> String {
        let text = |value: &Option<String>| value.as_deref().map(shell_quoted);
        let given = [
            ("--resource-group", text(&self.resource_group)),
            ("--workspace-name", text(&self.workspace_name)),
            ("--subscription", text(&self.subscription)),
            ("--state-dir", self.place.given().map(shell_quoted)),
        ];
        let given = given.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
        given.map(|(flag, value)| format!(" {flag} {value}")).collect()
    }

    /// The server, ready to be asked.
    pub async fn connect(&self) -> Outcome<Client> {
        Client::connect(self.place.find()?).await
    }
}

fn choose(flag: Option<&str>, variable: &str, default: &str) -> Outcome<String> {
    if let Some(flag) = flag {
        return Ok(flag.to_owned());
    }
    match std::env::var(variable) {
        // Set but empty is as good as unset, for shells cannot always unset.
        Ok(value) if value.is_empty() => Ok(default.to_owned()),
        Ok(value) => values::name(&value).map_err(|why| {
            Failure::refused(format!("the variable {variable} is {}: {why}", quoted(&value)))
        }),
        Err(std::env::VarError::NotPresent) => Ok(default.to_owned()),
        Err(std::env::VarError::NotUnicode(value)) => Err(Failure::refused(format!(
            "the variable {variable} is {}, which is not UTF-8; set it anew",
            quoted(&value.to_string_lossy())
        ))),
    }
}
