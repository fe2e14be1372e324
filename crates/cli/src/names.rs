//! The name of what a command is about, in both forms: alone (`muster job show NAME`), and behind a flag as az has it
//! (`muster job show --name NAME`, `-n NAME`).

use std::marker::PhantomData;
use std::ops::Deref;

use clap::{Arg, ArgGroup, ArgMatches, Command, FromArgMatches};

use crate::{asset, complete, values};

/// The group of both forms. Other arguments refer to it with `requires`, `conflicts_with` and the like.
const GROUP: &str = "name";
const ALONE: &str = "name_alone";
const FLAG: &str = "name_flag";

/// What is named.
pub trait Subject: 'static {
    const HELP: &'static str;
    const VALUE: &'static str = "NAME";
    /// Another argument that can take the name's place: the command needs one of both.
    const INSTEAD: Option<&'static str> = None;

    fn parse(text: &str) -> Result<String, String> {
        values::name(text)
    }

    /// What both forms have besides.
    fn both(arg: Arg) -> Arg {
        arg
    }

    /// What the flag has besides.
    fn flag(arg: Arg) -> Arg {
        arg
    }
}

/// A name that must be given.
#[derive(Debug)]
pub struct Name<S> {
    value: String,
    subject: PhantomData<S>,
}

/// A name that may be left out.
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
    let flag = arg(FLAG).short('n').long("name").help("The same, as az has it");
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

/// A subject whose names are like any others.
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
    Job, "The job's name", complete::jobs;
    NewJob, "The job's name, unique in its workspace [default: made up]";
    Compute, "The name of the cluster or instance", complete::computes;
    WatchedCompute, "Only this cluster or instance", complete::computes;
    Waiting, "The name of a job, or else of a cluster";
    User, "The user's name", complete::users;
    NewLock, "The lock's name";
    Lock, "The lock's name", complete::locks;
    Role, "Only the one of this name";
    Quota, "The VM family, TotalDedicatedCores or TotalLowPriorityCores";
    Datastore, "The datastore's name";
    ListedResource, "Only those of this name; a cluster's has its workspace's in front: WORKSPACE/CLUSTER";
}

/// A cluster or instance that may be in a file.
#[derive(Debug)]
pub enum NewCompute {}

impl Subject for NewCompute {
    const HELP: &'static str = "Its name; may be in the file";
    const INSTEAD: Option<&'static str> = Some("file");

    fn both(arg: Arg) -> Arg {
        arg.add(complete::computes())
    }
}

/// A cluster, under the flag's second name too.
#[derive(Debug)]
pub enum Cluster {}

impl Subject for Cluster {
    const HELP: &'static str = "The name of the cluster";

    fn both(arg: Arg) -> Arg {
        arg.add(complete::computes())
    }

    fn flag(arg: Arg) -> Arg {
        arg.visible_alias("cluster")
    }
}

/// A datastore that may be in a file.
#[derive(Debug)]
pub enum NewDatastore {}

impl Subject for NewDatastore {
    const HELP: &'static str = "The datastore's name; may be in the file";
    const INSTEAD: Option<&'static str> = Some("file");
}

/// An asset of any kind.
#[derive(Debug)]
pub enum Asset {}

impl Subject for Asset {
    const HELP: &'static str = "The name";

    fn parse(text: &str) -> Result<String, String> {
        asset::parse_name(text)
    }
}

/// An asset that is made, and whose name may be in a file.
#[derive(Debug)]
pub enum NewAsset {}

impl Subject for NewAsset {
    const HELP: &'static str = "Its name; may be in the file";

    fn parse(text: &str) -> Result<String, String> {
        asset::parse_name(text)
    }
}

/// An asset whose versions are listed.
#[derive(Debug)]
pub enum ListedAsset {}

impl Subject for ListedAsset {
    const HELP: &'static str = "The versions of this name, instead of all names";

    fn parse(text: &str) -> Result<String, String> {
        asset::parse_name(text)
    }
}

/// A resource that is shown by its type and name.
#[derive(Debug)]
pub enum Resource {}

impl Subject for Resource {
    const HELP: &'static str =
        "Its name; a cluster's is WORKSPACE/CLUSTER, unless --parent names the workspace";

    fn both(arg: Arg) -> Arg {
        arg.requires("resource_type")
    }
}

/// A resource group, whose flag is also the one that every other command has.
#[derive(Debug)]
pub enum Group {}

impl Subject for Group {
    const HELP: &'static str = "The resource group's name";

    fn both(arg: Arg) -> Arg {
        arg.add(complete::groups())
    }

    fn flag(arg: Arg) -> Arg {
        arg.visible_short_alias('g').visible_alias("resource-group")
    }
}

/// A workspace, whose name can also be given as everywhere else.
#[derive(Debug)]
pub enum Workspace {}

impl Subject for Workspace {
    const HELP: &'static str = "The workspace's name, as --workspace-name";

    fn both(arg: Arg) -> Arg {
        arg.conflicts_with("workspace_name").add(complete::workspaces())
    }
}

/// A machine that nodes are made on.
#[derive(Debug)]
pub enum Host {}

impl Subject for Host {
    const HELP: &'static str = "The host's name; `local` is the server's own machine";
    const VALUE: &'static str = "HOST";
}
