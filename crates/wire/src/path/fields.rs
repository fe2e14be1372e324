//! The kinds of fields that a row of the table of routes can have: which segments of a path they take, the value that they
//! become, and how it is printed.

use muster_core::model::{AssetKind, Scope as AnyScope, WorkspaceKey};

use super::PathError;
use super::actions::{ComputeAction, HostAction};
use super::authority::Authority as AnyAuthority;
use super::home::Home;
use super::ids::{is_provider, name_of, strip_prefix, workspace_path};
use super::location_name;
use super::scopes::{lockable_of, scope_of, scope_path};
use super::segments::encode;

/// What a path is printed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A request.
    Path,
    /// A log line or a metric: `{}` takes the place of every name that a caller chose.
    Label,
}

/// Converts the segments of a field to its value, and back.
pub trait Field {
    type Value;

    fn read(segments: &[String]) -> Result<Self::Value, PathError>;

    /// Without a slash at either end.
    fn show(value: &Self::Value, form: Form) -> String;

    /// Narrows the scope of a request to this value, if the value is a scope.
    fn narrow(_: &Self::Value, _: &mut AnyScope) {}
}

/// Which segments of a path a field takes.
pub trait Shape: Sync {
    /// How many segments the field can have.
    fn widths(&self) -> &'static [usize] {
        &[1]
    }

    fn accepts(&self, _: &[String]) -> bool {
        true
    }

    /// How docs/reference/arm.md shows a field of this name.
    fn in_documentation(&self, name: &str) -> String {
        format!("{{{name}}}")
    }

    /// If only some words are accepted, all of them, each with the text that describes it in the documentation.
    fn words(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }
}

fn without_slash(path: &str) -> String {
    path.strip_prefix('/').unwrap_or(path).to_owned()
}

/// Fields of one segment whose value is its text.
macro_rules! texts {
    ($($(#[$meta:meta])* $field:ident: $read:expr, $narrow:expr;)*) => {$(
        $(#[$meta])*
        pub struct $field;

        impl Shape for $field {}

        impl Field for $field {
            type Value = Box<str>;

            fn read(segments: &[String]) -> Result<Box<str>, PathError> {
                let read: fn(&str) -> Result<Box<str>, PathError> = $read;
                read(&segments[0])
            }

            fn show(value: &Box<str>, form: Form) -> String {
                match form {
                    Form::Path => encode(value),
                    Form::Label => "{}".to_owned(),
                }
            }

            fn narrow(value: &Box<str>, scope: &mut AnyScope) {
                let narrow: fn(&str, &mut AnyScope) = $narrow;
                narrow(value, scope);
            }
        }
    )*};
}

texts! {
    /// A name that clients may write with the prefix `azureml:`.
    Name: name_of, |_, _| {};
    /// A segment that is taken as it is.
    Text: |text| Ok(text.into()), |_, _| {};
    /// A region, in its canonical spelling.
    Region: |text| Ok(location_name(text)), |_, _| {};
    Subscription: |text| Ok(text.into()), |text, scope| *scope = AnyScope::subscription(text);
    /// A resource group, after the field of its subscription.
    Group: |text| Ok(text.into()), |text, scope| {
        if let AnyScope::Subscription(subscription) = scope {
            *scope = AnyScope::group(subscription, text);
        }
    };
}

/// The whole id of a workspace.
pub struct Workspace;

impl Shape for Workspace {
    fn widths(&self) -> &'static [usize] {
        &[8]
    }

    fn accepts(&self, segments: &[String]) -> bool {
        let is = |place: usize, word: &str| segments[place].eq_ignore_ascii_case(word);
        is(0, "subscriptions")
            && is(2, "resourcegroups")
            && is(4, "providers")
            && is_provider(&segments[5])
            && is(6, "workspaces")
    }

    fn in_documentation(&self, _: &str) -> String {
        "WORKSPACE".to_owned()
    }
}

impl Field for Workspace {
    type Value = WorkspaceKey;

    fn read(segments: &[String]) -> Result<WorkspaceKey, PathError> {
        name_of(&segments[7])?;
        Ok(WorkspaceKey::new(&segments[1], &segments[3], strip_prefix(&segments[7])))
    }

    fn show(value: &WorkspaceKey, form: Form) -> String {
        without_slash(&match form {
            Form::Path => workspace_path(value),
            Form::Label => AnyScope::Workspace(WorkspaceKey::new("{}", "{}", "{}")).to_string(),
        })
    }

    fn narrow(value: &WorkspaceKey, scope: &mut AnyScope) {
        *scope = AnyScope::workspace(value);
    }
}

fn show_scope(scope: &AnyScope, form: Form) -> String {
    let (blank, workspace) = (|| "{}".into(), || WorkspaceKey::new("{}", "{}", "{}"));
    without_slash(&match (form, scope) {
        (Form::Path, scope) => scope_path(scope),
        (Form::Label, AnyScope::Everything) => String::new(),
        (Form::Label, AnyScope::Subscription(_)) => AnyScope::Subscription(blank()).to_string(),
        (Form::Label, AnyScope::Group { .. }) => {
            AnyScope::Group { subscription: blank(), resource_group: blank() }.to_string()
        }
        (Form::Label, AnyScope::Workspace(_)) => AnyScope::Workspace(workspace()).to_string(),
        (Form::Label, AnyScope::Compute { .. }) => {
            AnyScope::Compute { workspace: workspace(), name: blank() }.to_string()
        }
    })
}

/// Anything that a role can be assigned on.
pub struct Scope;

impl Shape for Scope {
    fn widths(&self) -> &'static [usize] {
        &[0, 2, 4, 8]
    }

    fn accepts(&self, segments: &[String]) -> bool {
        scope_of(&segments.join("/")).is_some()
    }

    fn in_documentation(&self, _: &str) -> String {
        "SCOPE".to_owned()
    }
}

impl Field for Scope {
    type Value = AnyScope;

    fn read(segments: &[String]) -> Result<AnyScope, PathError> {
        Ok(scope_of(&segments.join("/")).expect("only scopes are accepted"))
    }

    fn show(value: &AnyScope, form: Form) -> String {
        show_scope(value, form)
    }

    fn narrow(value: &AnyScope, scope: &mut AnyScope) {
        *scope = value.clone();
    }
}

/// Anything that can have a lock.
pub struct Lockable;

impl Shape for Lockable {
    fn widths(&self) -> &'static [usize] {
        &[0, 2, 4, 8, 10]
    }

    fn accepts(&self, segments: &[String]) -> bool {
        lockable_of(&segments.join("/")).is_some()
    }

    fn in_documentation(&self, _: &str) -> String {
        "SCOPE".to_owned()
    }
}

impl Field for Lockable {
    type Value = AnyScope;

    fn read(segments: &[String]) -> Result<AnyScope, PathError> {
        Ok(lockable_of(&segments.join("/")).expect("only scopes are accepted"))
    }

    fn show(value: &AnyScope, form: Form) -> String {
        show_scope(value, form)
    }

    fn narrow(value: &AnyScope, scope: &mut AnyScope) {
        *scope = value.clone();
    }
}

/// The resource group of a deployment, with its subscription.
pub struct DeploymentHome;

impl Shape for DeploymentHome {
    fn widths(&self) -> &'static [usize] {
        &[4]
    }

    fn accepts(&self, segments: &[String]) -> bool {
        segments[0].eq_ignore_ascii_case("subscriptions")
            && segments[2].eq_ignore_ascii_case("resourcegroups")
    }

    fn in_documentation(&self, _: &str) -> String {
        "subscriptions/{subscription}/resourceGroups/{resourceGroup}".to_owned()
    }
}

impl Field for DeploymentHome {
    type Value = Home;

    fn read(segments: &[String]) -> Result<Home, PathError> {
        let text = |place: usize| segments[place].as_str().into();
        Ok(Home { subscription: text(1), resource_group: text(3) })
    }

    fn show(value: &Home, form: Form) -> String {
        let (subscription, resource_group) =
            (value.subscription.clone(), value.resource_group.clone());
        show_scope(&AnyScope::Group { subscription, resource_group }, form)
    }

    fn narrow(value: &Home, scope: &mut AnyScope) {
        *scope = value.scope();
    }
}

/// The address of an OAuth authority.
pub struct Authority;

impl Shape for Authority {
    fn widths(&self) -> &'static [usize] {
        &[1, 2]
    }

    fn accepts(&self, segments: &[String]) -> bool {
        AnyAuthority::of(segments).is_some()
    }

    fn in_documentation(&self, _: &str) -> String {
        "{tenant}".to_owned()
    }
}

impl Field for Authority {
    type Value = AnyAuthority;

    fn read(segments: &[String]) -> Result<AnyAuthority, PathError> {
        Ok(AnyAuthority::of(segments).expect("only authorities are accepted"))
    }

    fn show(value: &AnyAuthority, form: Form) -> String {
        match form {
            Form::Path => without_slash(&value.path()),
            Form::Label => "{}".to_owned(),
        }
    }
}

/// One of a few words, with what the documentation says about each.
type Words<T> = &'static [(&'static str, T, &'static str)];

fn word_of<T: Copy + PartialEq>(words: Words<T>, value: T) -> &'static str {
    let found = words.iter().find(|(_, known, _)| *known == value);
    found.map(|(word, ..)| *word).expect("the list contains every value")
}

fn value_of<T: Copy>(words: Words<T>, text: &str) -> Option<T> {
    let found = words.iter().find(|(word, ..)| word.eq_ignore_ascii_case(text));
    found.map(|(_, value, _)| *value)
}

macro_rules! words {
    ($(#[$meta:meta])* $field:ident: $value:ty = $words:expr) => {
        $(#[$meta])*
        pub struct $field;

        impl Shape for $field {
            fn accepts(&self, segments: &[String]) -> bool {
                value_of($words, &segments[0]).is_some()
            }

            fn words(&self) -> Vec<(&'static str, &'static str)> {
                $words.iter().map(|(word, _, text)| (*word, *text)).collect()
            }
        }

        impl Field for $field {
            type Value = $value;

            fn read(segments: &[String]) -> Result<$value, PathError> {
                Ok(value_of($words, &segments[0]).expect("only these words are accepted"))
            }

            fn show(value: &$value, _: Form) -> String {
                word_of($words, *value).to_owned()
            }
        }
    };
}

const KINDS: Words<AssetKind> = &[
    ("codes", AssetKind::Code, "code"),
    ("environments", AssetKind::Environment, "environments"),
    ("data", AssetKind::Data, "data"),
    ("models", AssetKind::Model, "models"),
    ("components", AssetKind::Component, "components"),
];
const KINDS_WITH_FILES: Words<AssetKind> = &[
    ("codes", AssetKind::Code, "code"),
    ("data", AssetKind::Data, "data"),
    ("models", AssetKind::Model, "models"),
];
const COMPUTE_ACTIONS: Words<ComputeAction> = &[
    ("start", ComputeAction::Start, "Starts"),
    ("stop", ComputeAction::Stop, "Stops"),
    ("restart", ComputeAction::Restart, "Restarts"),
];
const HOST_ACTIONS: Words<HostAction> = &[
    ("cordon", HostAction::Cordon, "cordons a host, so that it gets no new nodes and jobs"),
    ("uncordon", HostAction::Uncordon, "opens a host again"),
    (
        "drain",
        HostAction::Drain,
        "drains a host: idle nodes are deleted immediately, others after their jobs",
    ),
    ("giveUp", HostAction::GiveUp, "removes a host, with everything that runs there"),
];

words! {
    /// The kind of an asset.
    Kind: AssetKind = KINDS
}
words! {
    /// A kind of asset for which clients upload files; the others consist of their document only.
    KindWithFiles: AssetKind = KINDS_WITH_FILES
}
words! { ComputeVerb: ComputeAction = COMPUTE_ACTIONS }
words! { HostVerb: HostAction = HOST_ACTIONS }

/// The word for a kind of asset in paths and ids.
pub(crate) fn asset_word(kind: AssetKind) -> &'static str {
    word_of(KINDS, kind)
}

pub(crate) fn asset_kind_of(word: &str) -> Option<AssetKind> {
    value_of(KINDS, word)
}

impl ComputeAction {
    /// The last segment of the path.
    pub fn as_str(self) -> &'static str {
        word_of(COMPUTE_ACTIONS, self)
    }
}

impl HostAction {
    /// The last segment of the path.
    pub fn as_str(self) -> &'static str {
        word_of(HOST_ACTIONS, self)
    }
}
