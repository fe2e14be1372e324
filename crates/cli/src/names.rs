//! The name that a command is about, in both forms: as an argument (`muster job show NAME`) and as az's flag
//! (`muster job show --name NAME`, `-n NAME`).

use std::marker::PhantomData;
use std::ops::Deref;

use clap::{Arg, ArgGroup, ArgMatches, Command, FromArgMatches};

use crate::{asset, complete, values};

/// The argument group that contains both forms. Other arguments refer to it with `requires`, `conflicts_with` and so
/// on.
const GROUP: &str = "name";
const ALONE: &str = "name_alone";
const FLAG: &str = "name_flag";

/// The kind of thing that a name refers to.
pub trait Subject: 'static {
    const HELP: &'static str;
    const VALUE: &'static str = "NAME";
    /// Another argument that can replace the name; the command needs one of the two.
    const INSTEAD: Option<&'static str> = None;

    fn parse(text: &str) -> Result<String, String> {
        values::name(text)
    }

    /// Adds settings to both forms.
    fn both(arg: Arg) -> Arg {
        arg
    }

    /// Adds settings to the flag only.
    fn flag(arg: Arg) -> Arg {
        arg
    }
}

/// A required name.
#[derive(Debug)]
pub struct Name<S> {
    value: String,
    subject: PhantomData<S>,
}

/// An optional name.
#[derive(Debug)]
pub struct MaybeName<S> {
    value: Option<String>,
    subject: PhantomData<S>,
}

impl<S> Deref for Name<S> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.value
    }
}

impl<S> From<String> for Name<S> {
    fn from(value: String) -> Self {
        Name { value, subject: PhantomData }
    }
}

impl<S> std::fmt::Display for Name<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.value)
    }
}

impl<S> Name<S> {
    pub fn as_str(&self) -> &str {
        &self.value
    }
}

impl<S> MaybeName<S> {
    pub fn get(&self) -> Option<&str> {
        self.value.as_deref()
    }

    pub fn to_owned(&self) -> Option<String> {
        self.value.clone()
    }
}

fn add<S: Subject>(command: Command, is_required: bool) -> Command {
    let arg = |id: &'static str| {
        let arg = Arg::new(id).value_name(S::VALUE).value_parser(S::parse);
        S::both(arg.display_order(0).help_heading(None::<&str>))
    };
    let mut alone = arg(ALONE).help(S::HELP);
    if let Some(other) = S::INSTEAD {
        alone = alone.required_unless_present_any([FLAG, other]);
    }
    let flag = arg(FLAG).short('n').long("name").help(format!("Same as {}", S::VALUE));
    let group = ArgGroup::new(GROUP).args([ALONE, FLAG]).required(is_required);
    command.arg(alone).arg(S::flag(flag)).group(group)
}

fn given(matches: &ArgMatches) -> Option<String> {
    let one = |id: &str| matches.get_one::<String>(id).cloned();
    one(ALONE).or_else(|| one(FLAG))
}

impl<S: Subject> clap::Args for Name<S> {
    fn augment_args(command: Command) -> Command {
        add::<S>(command, true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        add::<S>(command, false)
    }
}

impl<S: Subject> FromArgMatches for Name<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = clap::error::ErrorKind::MissingRequiredArgument;
        let value = given(matches).ok_or_else(|| clap::Error::raw(missing, "give a name\n"))?;
        Ok(value.into())
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Name::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<S: Subject> clap::Args for MaybeName<S> {
    fn augment_args(command: Command) -> Command {
        add::<S>(command, false)
    }

    fn augment_args_for_update(command: Command) -> Command {
        add::<S>(command, false)
    }
}

impl<S: Subject> FromArgMatches for MaybeName<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(MaybeName { value: given(matches), subject: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = MaybeName::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Declares subjects that need nothing but a help text.
macro_rules! subjects {
    ($($(#[$doc:meta])* $name:ident, $help:literal $(, $completer:path)?;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $name {}

        impl Subject for $name {
            const HELP: &'static str = $help;
            $(fn both(arg: Arg) -> Arg {
                arg.add($completer())
            })?
        }
    )*};
}

subjects! {
    Job, "Name of the job", complete::jobs;
    NewJob, "Name of the job, unique in its workspace [default: generated]";
    Compute, "Name of the cluster or compute instance", complete::computes;
    WatchedCompute, "Show only this cluster or compute instance", complete::computes;
    Waiting, "Name of a job or a cluster; a job takes precedence";
    User, "Name of the user", complete::users;
    NewLock, "Name of the lock";
    Lock, "Name of the lock", complete::locks;
    Role, "Show only the role with this name";
    Quota, "VM family, TotalDedicatedCores or TotalLowPriorityCores";
    Datastore, "Name of the datastore";
    ListedResource, "List only resources with this name; for a cluster, WORKSPACE/CLUSTER";
}

/// A cluster or compute instance whose name may be in a file.
#[derive(Debug)]
pub enum NewCompute {}

impl Subject for NewCompute {
    const HELP: &'static str =
        "Name of the cluster or compute instance; can be in the file instead";
    const INSTEAD: Option<&'static str> = Some("file");

    fn both(arg: Arg) -> Arg {
        arg.add(complete::computes())
    }
}

/// A cluster, whose flag has a second name.
#[derive(Debug)]
pub enum Cluster {}

impl Subject for Cluster {
    const HELP: &'static str = "Name of the cluster";

    fn both(arg: Arg) -> Arg {
        arg.add(complete::computes())
    }

    fn flag(arg: Arg) -> Arg {
        arg.visible_alias("cluster")
    }
}

/// A datastore whose name may be in a file.
#[derive(Debug)]
pub enum NewDatastore {}

impl Subject for NewDatastore {
    const HELP: &'static str = "Name of the datastore; can be in the file instead";
    const INSTEAD: Option<&'static str> = Some("file");
}

/// An asset of any kind.
#[derive(Debug)]
pub enum Asset {}

impl Subject for Asset {
    const HELP: &'static str = "Name of the asset";

    fn parse(text: &str) -> Result<String, String> {
        asset::parse_name(text)
    }
}

/// An asset to be created, whose name may be in a file.
#[derive(Debug)]
pub enum NewAsset {}

impl Subject for NewAsset {
    const HELP: &'static str = "Name of the asset; can be in the file instead";

    fn parse(text: &str) -> Result<String, String> {
        asset::parse_name(text)
    }
}

/// An asset whose versions are listed.
#[derive(Debug)]
pub enum ListedAsset {}

impl Subject for ListedAsset {
    const HELP: &'static str = "List the versions of the asset with this name";

    fn parse(text: &str) -> Result<String, String> {
        asset::parse_name(text)
    }
}

/// A resource that is selected by its type and name.
#[derive(Debug)]
pub enum Resource {}

impl Subject for Resource {
    const HELP: &'static str = "Name of the resource; for a cluster, WORKSPACE/CLUSTER unless --parent names the workspace";

    fn both(arg: Arg) -> Arg {
        arg.requires("resource_type")
    }
}

/// A resource group. Its flag `-g` is the one that all other commands have.
#[derive(Debug)]
pub enum Group {}

impl Subject for Group {
    const HELP: &'static str = "Name of the resource group";

    fn both(arg: Arg) -> Arg {
        arg.add(complete::groups())
    }

    fn flag(arg: Arg) -> Arg {
        arg.visible_short_alias('g').visible_alias("resource-group")
    }
}

/// A workspace, whose name can also be given with `-w`, as for other commands.
#[derive(Debug)]
pub enum Workspace {}

impl Subject for Workspace {
    const HELP: &'static str = "Name of the workspace; same as --workspace-name";

    fn both(arg: Arg) -> Arg {
        arg.conflicts_with("workspace_name").add(complete::workspaces())
    }
}

/// A host on which nodes run.
#[derive(Debug)]
pub enum Host {}

impl Subject for Host {
    const HELP: &'static str = "Name of the host; `local` is the server's own host";
    const VALUE: &'static str = "HOST";
}
