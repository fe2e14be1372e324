//! What a row of the table of routes says.

use muster_core::model::{Action, Scope};

use super::PathError;
use super::fields::{Form, Shape};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Put,
    Patch,
    Post,
    Delete,
}

impl Method {
    pub const ALL: [Method; 6] =
        [Method::Get, Method::Head, Method::Put, Method::Patch, Method::Post, Method::Delete];

    pub const fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Post => "POST",
            Method::Delete => "DELETE",
        }
    }

    pub const fn reads(self) -> bool {
        matches!(self, Method::Get | Method::Head)
    }
}

/// What a caller needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Not even a token.
    Nothing,
    /// Any valid token.
    Token,
    /// A role on anything in the scope of the route; the response leaves out everything that the caller may not read.
    Something,
    /// A role that grants this action on the scope of the route.
    To(Action),
}

/// What the activity log says about a request that changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// The row has only methods that read.
    OnlyReads,
    /// A name that ends with `/action` is the operation. Any other name is the type of the resource, and
    /// `/write` or `/delete` is added to it.
    As(&'static str),
    /// Nothing, and why.
    Not(&'static str),
}

impl Log {
    /// In a constant, fails to compile if a row with changes says nothing about the activity log.
    pub const fn check(self, methods: &[Method]) {
        let (mut only_reads, mut at) = (true, 0);
        while at < methods.len() {
            only_reads = only_reads && methods[at].reads();
            at += 1;
        }
        match self {
            Log::OnlyReads => {
                assert!(only_reads, "say `log` or `no log` in the row of a route with changes")
            }
            Log::As(_) | Log::Not(_) => {
                assert!(!only_reads, "a route that only reads logs nothing")
            }
        }
    }
}

/// The tokens that a route accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// For the resource manager.
    Manager,
    /// For the resource manager or for Azure ML: the data plane of a workspace. Azure's clients use both there;
    /// azure-ai-ml 1.35 and azureml-core use the former.
    DataPlane,
}

#[derive(Clone, Copy)]
pub struct Row {
    /// The name of the variant.
    pub name: &'static str,
    /// The first is the one that is printed, the others are also understood. `{name}` is a field, `*` is any segment, `v*` is
    /// one that starts with `v`, and `**` is any number of segments.
    pub paths: &'static [&'static str],
    pub fields: &'static [(&'static str, &'static dyn Shape)],
    pub methods: &'static [Method],
    /// What reading needs.
    pub reads: Needs,
    /// What every other method needs, whether the route has it or not: a refusal does not reveal which methods exist.
    pub changes: Needs,
    pub log: Log,
    pub audience: Audience,
    pub documentation: &'static str,
}

impl Row {
    pub(crate) const fn checked(self) -> Row {
        self.log.check(self.methods);
        self
    }

    /// The segments of each field, if this is the path of the row.
    pub(crate) fn find<'p>(&self, segments: &'p [String]) -> Option<Found<'p>> {
        // The others are more specific than the first.
        self.paths.iter().rev().find_map(|path| {
            let mut found = Found(Vec::new());
            self.accepts(path, segments, &mut found).then_some(found)
        })
    }

    fn accepts<'p>(&self, path: &str, segments: &'p [String], found: &mut Found<'p>) -> bool {
        let Some(path) = path.strip_prefix('/') else { return segments.is_empty() };
        let end = path.find('/').unwrap_or(path.len());
        let (piece, rest) = path.split_at(end);
        if let Some(name) = piece.strip_prefix('{') {
            let (name, shape) = self.field(name.trim_end_matches('}'));
            return shape.widths().iter().any(|width| {
                let Some((own, others)) = segments.split_at_checked(*width) else { return false };
                let before = found.0.len();
                found.0.push((name, own));
                let fits = shape.accepts(own) && self.accepts(rest, others, found);
                if !fits {
                    found.0.truncate(before);
                }
                fits
            });
        }
        if piece == "**" {
            return true;
        }
        let Some((first, others)) = segments.split_first() else { return false };
        let fits = match piece {
            "*" => true,
            "v*" => first.starts_with(['v', 'V']),
            word => word.eq_ignore_ascii_case(first),
        };
        fits && self.accepts(rest, others, found)
    }

    fn field(&self, name: &str) -> (&'static str, &'static dyn Shape) {
        let found = self.fields.iter().find(|(known, _)| *known == name);
        *found.unwrap_or_else(|| panic!("{} has no field '{name}'", self.name))
    }

    /// The path with a text for each field.
    pub(crate) fn fill(&self, mut text: impl FnMut(&'static str) -> String) -> String {
        let mut path = String::new();
        for piece in self.paths[0].split('/').skip(1) {
            let piece = match piece.strip_prefix('{') {
                Some(name) => text(self.field(name.trim_end_matches('}')).0),
                None => piece.to_owned(),
            };
            if !piece.is_empty() {
                path.push('/');
                path.push_str(&piece);
            }
        }
        path
    }

    /// The methods in the form of an `Allow` header.
    pub fn allow(&self) -> String {
        self.methods.iter().map(|method| method.as_str()).collect::<Vec<_>>().join(", ")
    }

    pub fn needs(&self, method: &str) -> Needs {
        if is_read(method) { self.reads } else { self.changes }
    }
}

pub(crate) fn is_read(method: &str) -> bool {
    matches!(method, "GET" | "HEAD")
}

/// The segments of each field.
pub(crate) struct Found<'p>(Vec<(&'static str, &'p [String])>);

impl<'p> Found<'p> {
    pub(crate) fn of(&self, field: &str) -> &'p [String] {
        let found = self.0.iter().find(|(name, _)| *name == field);
        found.map(|(_, segments)| *segments).unwrap_or_else(|| panic!("no path has '{field}'"))
    }
}

/// A request that no endpoint answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoEndpoint {
    Route,
    /// The route has only these methods.
    Method {
        allow: String,
    },
}

/// A group of routes, made by `routes!`.
pub trait Table: Sized {
    /// A route with one of its methods.
    type Endpoint;

    /// All rows, also those of the groups within this one.
    fn rows() -> Vec<&'static Row>;
    /// `None` for a path that is not served.
    fn row(&self) -> Option<&'static Row>;
    fn find(segments: &[String]) -> Result<Option<Self>, PathError>;
    fn show(&self, field: &str, form: Form) -> String;
    /// The narrowest scope that the path names.
    fn scope(&self) -> Scope;
    fn on(self, method: &str) -> Result<Self::Endpoint, NoEndpoint>;
}
