//! `muster resource`: any resource by its id, with the commands and flags of `az resource`.

use clap::Subcommand;
use muster_wire::resources::GenericResource;
use muster_wire::{Manager, Request, Route};
use serde::Serialize;
use serde_json::Value;

use crate::compute::resource_group;
use crate::failure::{CliResult, Failure, quoted};
use crate::names::{self, MaybeName};
use crate::output::{self, Print};
use crate::scope::Scope;

const HEADER: [&str; 5] = ["Name", "Resource group", "Location", "Type", "Status"];
const EXPAND: (&str, &str) = ("$expand", "createdTime,changedTime,provisioningState");

/// Show workspaces and clusters as resources of the resource manager
#[derive(Debug, Subcommand)]
pub enum Command {
    List(ListArgs),
    Show(ShowArgs),
}

/// List the resources in a resource group, or in the whole subscription if no group is given or configured
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListArgs {
    /// List only resources of this type, such as Microsoft.MachineLearningServices/workspaces/computes
    #[arg(long, value_name = "TYPE")]
    resource_type: Option<String>,
    #[command(flatten)]
    name: MaybeName<names::ListedResource>,
    /// List only resources in this region
    #[arg(short, long, value_name = "REGION")]
    location: Option<String>,
    /// List only resources with this tag, as KEY or KEY=VALUE
    #[arg(long, value_name = "KEY[=VALUE]", conflicts_with_all = ["resource_type", "name", "location"])]
    tag: Option<String>,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

/// Show a resource, by its id or by its type and name
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ShowArgs {
    /// Ids of resources, from `muster resource list`
    #[arg(long, value_name = "ID", num_args = 1.., conflicts_with_all = ["name", "resource_type", "parent"],
          required_unless_present_all = ["name", "resource_type"])]
    ids: Vec<String>,
    #[command(flatten)]
    name: MaybeName<names::Resource>,
    /// Type of the resource, such as Microsoft.MachineLearningServices/workspaces
    #[arg(long, value_name = "TYPE", requires = "name")]
    resource_type: Option<String>,
    /// Parent of the resource, such as workspaces/NAME
    #[arg(long, value_name = "TYPE/NAME", requires = "name")]
    parent: Option<String>,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    scope: Scope,
}

/// The fields that az prints: what the server returned, and the resource group from the id.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    resource: GenericResource,
    #[serde(rename = "resourceGroup")]
    resource_group: Option<String>,
}

impl Line {
    fn row(&self) -> Vec<String> {
        let resource = &self.resource;
        vec![
            resource.name.clone(),
            self.resource_group.clone().unwrap_or_default(),
            resource.location.clone(),
            resource.resource_type.clone(),
            resource.provisioning_state.map(|state| format!("{state:?}")).unwrap_or_default(),
        ]
    }
}

pub async fn run(command: Command) -> CliResult {
    match command {
        Command::List(args) => list(&args).await,
        Command::Show(args) => show(&args).await,
    }
}

async fn list(args: &ListArgs) -> CliResult {
    let subscription = args.scope.workspace()?.subscription;
    let route = Route::Manager(match args.scope.group()? {
        Some(name) => Manager::ResourcesOfGroup { subscription, name: name.into() },
        None => Manager::Resources { subscription },
    });
    let filter = args.filter();
    let mut query = vec![EXPAND];
    if !filter.is_empty() {
        query.push(("$filter", &filter));
    }
    let client = args.scope.connect().await?;
    let found: Vec<GenericResource> = client.list_with(&route, &query, None).await?;
    let lines: Vec<_> = found
        .into_iter()
        .map(|resource| Line { resource_group: resource_group(&resource.id), resource })
        .collect();
    args.print.show(&lines, || {
        output::table(&HEADER, lines.iter().map(Line::row).collect(), "no matching resources")
    })
}

impl ListArgs {
    fn filter(&self) -> String {
        let is = |field: &str, text: &str| format!("{field} eq '{}'", text.replace('\'', "''"));
        let plain = [
            ("resourceType", self.resource_type.as_deref()),
            ("name", self.name.get()),
            ("location", self.location.as_deref()),
        ];
        let mut all: Vec<String> = plain
            .into_iter()
            .filter_map(|(field, text)| text.map(|text| is(field, text)))
            .collect();
        if let Some(tag) = &self.tag {
            let (key, value) =
                tag.split_once('=').map_or((tag.as_str(), None), |(k, v)| (k, Some(v)));
            all.push(is("tagName", key));
            all.extend(value.map(|value| is("tagValue", value)));
        }
        all.join(" and ")
    }
}

async fn show(args: &ShowArgs) -> CliResult {
    let ids = match args.id()? {
        Some(id) => vec![id],
        None => args.ids.clone(),
    };
    let routes: Vec<Route> = ids.iter().map(|id| route(id)).collect::<CliResult<_>>()?;
    let client = args.scope.connect().await?;
    let mut found: Vec<Value> = Vec::new();
    for (id, route) in ids.iter().zip(&routes) {
        let mut resource: Value = client.get(route).await?;
        if let (Value::Object(fields), Some(group)) = (&mut resource, resource_group(id)) {
            fields.insert("resourceGroup".to_owned(), Value::String(group));
        }
        found.push(resource);
    }
    let rows = || {
        let text = |value: &Value, name: &str| {
            value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let row = |one: &Value| {
            let state = one.get("properties").map(|inner| text(inner, "provisioningState"));
            let [name, group, location, kind] =
                ["name", "resourceGroup", "location", "type"].map(|name| text(one, name));
            vec![name, group, location, kind, state.unwrap_or_default()]
        };
        output::table(&HEADER, found.iter().map(row).collect(), "nothing")
    };
    // A single resource is printed as an object, several as a list, as az does.
    match found.as_slice() {
        [only] => args.print.show(only, rows),
        all => args.print.show(&all, rows),
    }
}

impl ShowArgs {
    /// The id that results from the names.
    fn id(&self) -> CliResult<Option<String>> {
        let (Some(name), Some(kind)) = (self.name.get(), &self.resource_type) else {
            return Ok(None);
        };
        let workspace = self.scope.workspace()?;
        let named =
            Named { flag: "--name", name, kind, namespace: None, parent: self.parent.as_deref() };
        named.id(&workspace.subscription, &workspace.resource_group).map(Some)
    }
}

/// A resource given by its names, in the parts that az uses.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// The flag with which the name was given.
    pub flag: &'static str,
    pub name: &'a str,
    pub kind: &'a str,
    /// For a type that does not begin with a namespace.
    pub namespace: Option<&'a str>,
    pub parent: Option<&'a str>,
}

impl Named<'_> {
    pub fn id(&self, subscription: &str, group: &str) -> CliResult<String> {
        let mut kinds = self.kind.split('/');
        let namespace = match self.namespace {
            Some(namespace) => namespace,
            None => kinds.next().unwrap_or_default(),
        };
        let kinds: Vec<&str> = kinds.collect();
        // az accepts the type of a child with and without its parents' types in front.
        let own = match self.parent {
            Some(_) => kinds.last().copied().into_iter().collect(),
            None => kinds,
        };
        let names: Vec<&str> = self.name.split('/').collect();
        if own.is_empty() || own.len() != names.len() {
            return Err(Failure::refused(format!(
                "--resource-type {} and {} {} do not match: a type NAMESPACE/a/b has a name A/B, or a name B \
                 with --parent a/A",
                quoted(self.kind),
                self.flag,
                quoted(self.name)
            )));
        }
        let parent = self.parent.map(|parent| format!("/{}", parent.trim_matches('/')));
        let pairs: String =
            own.iter().zip(names).map(|(kind, name)| format!("/{kind}/{name}")).collect();
        Ok(format!(
            "/subscriptions/{subscription}/resourceGroups/{group}/providers/{namespace}{}{pairs}",
            parent.unwrap_or_default()
        ))
    }
}

fn route(id: &str) -> CliResult<Route> {
    let refuse = |why: &str| {
        Err(Failure::refused(format!("{} is not the id of a resource: {why}", quoted(id)))
            .hint("list ids with `muster resource list --query [].id`"))
    };
    if !id.starts_with('/') {
        return refuse("an id starts with /subscriptions/");
    }
    match Request::parse(id, None).map(|request| request.route) {
        Ok(route @ (Route::Workspace(_) | Route::Compute { .. } | Route::Job { .. })) => Ok(route),
        Ok(
            route @ Route::Manager(Manager::ResourceGroup { .. } | Manager::Subscription { .. }),
        ) => Ok(route),
        Ok(_) => refuse("only workspaces, computes and jobs are resources"),
        Err(why) => refuse(&why.to_string()),
    }
}
