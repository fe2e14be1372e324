//! The resources of a template: their names, where they are created, and what they depend on.

use serde_json::Value;

use super::evaluate::{Fault, Frame, Machine, Slot, refuse_copy};
use super::{NESTING_MAX, RESOURCES_MAX, functions, parameters};
use crate::json::{kind, shorten};

pub(super) const WORKSPACES: &str = "Microsoft.MachineLearningServices/workspaces";
pub(super) const COMPUTES: &str = "Microsoft.MachineLearningServices/workspaces/computes";
const DEPLOYMENTS: &str = "Microsoft.Resources/deployments";

/// Resources that workspaces need around them in the cloud. Each entry also covers everything below it.
pub(super) const LEFT_OUT: [&str; 9] = [
    "Microsoft.Authorization/roleAssignments",
    "Microsoft.ContainerRegistry/registries",
    "Microsoft.Insights",
    "Microsoft.KeyVault/vaults",
    "Microsoft.MachineLearningServices/workspaces/providers/roleAssignments",
    "Microsoft.ManagedIdentity/userAssignedIdentities",
    "Microsoft.Network",
    "Microsoft.OperationalInsights/workspaces",
    "Microsoft.Storage/storageAccounts",
];

/// The most levels of child resources; Azure's longest type has fewer parts.
const CHILDREN_MAX: usize = 8;
const NAME_BYTES_MAX: usize = 512;
const ID_BYTES_MAX: usize = 2_048;

/// A resource of the template.
#[derive(Debug)]
pub(super) struct Entry<'t> {
    pub(super) id: String,
    pub(super) kind: String,
    /// The name including those of its parents: `workspace/cluster`.
    pub(super) name: String,
    pub(super) subscription: String,
    pub(super) resource_group: String,
    /// The symbolic name, which newer templates give to their resources.
    symbol: Option<&'t str>,
    /// The place of the resource in the template.
    pub(super) place: String,
    pub(super) raw: &'t Value,
    /// The frame whose names the resource uses.
    pub(super) frame: usize,
    pub(super) properties: Slot<'t>,
    /// The frame of the nested template, if the resource is one.
    pub(super) inner: Option<usize>,
    /// The entry of the nested template that contains the resource.
    pub(super) within: Option<usize>,
    pub(super) depends: Vec<String>,
    /// False if its condition is false, or if it is declared as existing.
    pub(super) is_wanted: bool,
}

impl Entry<'_> {
    /// Azure accepts ids, names, and ids without their beginning.
    pub(super) fn is_called(&self, text: &str) -> bool {
        let after = self.id.split_once("/providers/").map_or("", |(_, after)| after);
        self.symbol == Some(text)
            || [self.id.as_str(), &self.name, after]
                .iter()
                .any(|known| known.eq_ignore_ascii_case(text))
    }

    pub(super) fn is_nested(&self) -> bool {
        self.kind.eq_ignore_ascii_case(DEPLOYMENTS)
    }
}

/// The context of a list of resources.
#[derive(Clone, Copy)]
pub(super) struct Home<'h> {
    pub(super) frame: usize,
    pub(super) place: &'h str,
    pub(super) subscription: &'h str,
    pub(super) resource_group: &'h str,
    /// The type and the name of the parent resource.
    parent: Option<(&'h str, &'h str)>,
    within: Option<usize>,
    children: usize,
    nesting: usize,
}

impl<'h> Home<'h> {
    pub(super) fn of_template(
        place: &'h str,
        subscription: &'h str,
        resource_group: &'h str,
    ) -> Home<'h> {
        Home {
            frame: 0,
            place,
            subscription,
            resource_group,
            parent: None,
            within: None,
            children: 0,
            nesting: 0,
        }
    }
}

impl<'t> Machine<'t> {
    /// Collects a list of resources, including their child resources.
    pub(super) fn collect(&mut self, list: &'t Value, home: Home<'_>) -> Result<(), Fault> {
        let found: Vec<(Option<&'t str>, String, &'t Value)> = match list {
            Value::Array(items) => {
                let place = |index| format!("{}[{index}]", home.place);
                let items = items.iter().enumerate();
                items.map(|(index, item)| (None, place(index), item)).collect()
            }
            Value::Object(map) => {
                let place = |name: &str| format!("{}.{}", home.place, shorten(name));
                map.iter().map(|(name, item)| (Some(name.as_str()), place(name), item)).collect()
            }
            other => {
                let message = format!("the resources are {}; give a JSON array", kind(other));
                return Err(Fault::new(message).at(home.place));
            }
        };
        for (symbol, place, raw) in found {
            self.take_in(symbol, &place, raw, home).map_err(|fault| fault.at(&place))?;
        }
        Ok(())
    }

    fn take_in(
        &mut self,
        symbol: Option<&'t str>,
        place: &str,
        raw: &'t Value,
        home: Home<'_>,
    ) -> Result<(), Fault> {
        let Value::Object(map) = raw else {
            return Err(Fault::new(format!("a resource is {}; give a JSON object", kind(raw))));
        };
        refuse_copy(map)?;
        if self.entries.len() >= RESOURCES_MAX {
            return Err(Fault::new(format!(
                "the template has more than {RESOURCES_MAX} resources, which is the limit; split it up"
            )));
        }
        let frame = home.frame;
        let (resource_kind, name) = self.kind_and_name(raw, home)?;
        let subscription = self.text(raw, "subscriptionId", frame)?;
        let resource_group = self.text(raw, "resourceGroup", frame)?;
        let subscription = subscription.unwrap_or_else(|| home.subscription.to_owned());
        let resource_group = resource_group.unwrap_or_else(|| home.resource_group.to_owned());
        let names: Vec<&str> = name.split('/').collect();
        let path = functions::path(&resource_kind, &names)?;
        let condition = match raw.get("condition") {
            None | Some(Value::Null) => true,
            Some(condition) => {
                let value = self.resolve(condition, frame)?;
                functions::truth(&value).map_err(|why| Fault::new(format!("condition: {why}")))?
            }
        };
        let is_there = raw.get("existing").and_then(Value::as_bool) == Some(true);
        let id = format!(
            "/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/{path}"
        );
        if id.len() > ID_BYTES_MAX {
            return Err(Fault::new(format!(
                "the id has {} bytes; at most {ID_BYTES_MAX} are allowed, so shorten its names",
                id.len()
            )));
        }
        let entry = Entry {
            id,
            subscription,
            resource_group,
            symbol,
            place: place.to_owned(),
            raw,
            frame,
            properties: Slot::Raw(raw.get("properties").unwrap_or(&Value::Null), frame),
            inner: None,
            within: home.within,
            depends: self.dependencies(raw, frame)?,
            is_wanted: condition && !is_there,
            kind: resource_kind.clone(),
            name: name.clone(),
        };
        let (at, is_nested, is_wanted) = (self.entries.len(), entry.is_nested(), entry.is_wanted);
        self.entries.push(entry);
        if is_nested && is_wanted {
            self.nest(at, home)?;
        }
        let Some(children) = raw.get("resources").filter(|children| !children.is_null()) else {
            return Ok(());
        };
        if home.children >= CHILDREN_MAX {
            return Err(Fault::new(format!(
                "resources are nested over more than {CHILDREN_MAX} levels; put them side by side"
            )));
        }
        let place = format!("{place}.resources");
        let parent = Some((resource_kind.as_str(), name.as_str()));
        self.collect(children, Home { place: &place, parent, children: home.children + 1, ..home })
    }

    /// The type and the name. A child resource may omit the parts that its parent already states.
    fn kind_and_name(&mut self, raw: &Value, home: Home<'_>) -> Result<(String, String), Fault> {
        let frame = home.frame;
        let missing = |what| move || Fault::new(format!("the resource has no {what}; give one"));
        let mut kind = self.text(raw, "type", frame)?.ok_or_else(missing("type"))?;
        let mut name = self.text(raw, "name", frame)?.ok_or_else(missing("name"))?;
        if let Some((parent_kind, parent_name)) = home.parent {
            let has_parent = kind.len() > parent_kind.len()
                && kind.is_char_boundary(parent_kind.len())
                && kind[..parent_kind.len()].eq_ignore_ascii_case(parent_kind);
            if !has_parent {
                kind = format!("{parent_kind}/{kind}");
            }
            // A type starts with its provider, so it has one part more than the name.
            if name.split('/').count() + 1 != kind.split('/').count() {
                name = format!("{parent_name}/{name}");
            }
        }
        if name.len() > NAME_BYTES_MAX || kind.len() > NAME_BYTES_MAX {
            return Err(Fault::new(format!(
                "a name or type has more than {NAME_BYTES_MAX} bytes, which is the limit; shorten it"
            )));
        }
        if name.split('/').any(str::is_empty) || name.chars().any(char::is_control) {
            return Err(Fault::new(format!(
                "'{}' is not a valid name of a resource",
                shorten(&name)
            )));
        }
        Ok((kind, name))
    }

    /// A computed string property of a resource.
    fn text(&mut self, raw: &Value, key: &str, frame: usize) -> Result<Option<String>, Fault> {
        let Some(value) = raw.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
        match self.resolve(value, frame)? {
            Value::String(text) => Ok(Some(text)),
            other => Err(Fault::new(format!("its {key} is {}; give a string", kind(&other)))),
        }
    }

    fn dependencies(&mut self, raw: &Value, frame: usize) -> Result<Vec<String>, Fault> {
        let Some(value) = raw.get("dependsOn").filter(|value| !value.is_null()) else {
            return Ok(Vec::new());
        };
        let Value::Array(items) = self.resolve(value, frame)? else {
            return Err(Fault::new("its dependsOn is not an array; give an array of ids or names"));
        };
        if items.len() > RESOURCES_MAX {
            let got = items.len();
            return Err(Fault::new(format!(
                "its dependsOn has {got} entries; a template has at most {RESOURCES_MAX} resources"
            )));
        }
        let text = |item: Value| match item {
            Value::String(text) => Ok(text),
            other => {
                Err(Fault::new(format!("dependsOn contains {}; give ids or names", kind(&other))))
            }
        };
        items.into_iter().map(text).collect()
    }

    /// Collects the resources of a nested template as if they were part of this one.
    fn nest(&mut self, at: usize, home: Home<'_>) -> Result<(), Fault> {
        if home.nesting >= NESTING_MAX {
            return Err(Fault::new(format!(
                "templates are nested over more than {NESTING_MAX} levels; put them side by side"
            )));
        }
        let entry = &self.entries[at];
        let (raw, outer) = (entry.raw, entry.frame);
        let (subscription, group) = (entry.subscription.clone(), entry.resource_group.clone());
        let place = format!("{}.properties.template.resources", entry.place);
        let deployment = entry.name.clone();
        let properties = raw.get("properties");
        let template = properties.and_then(|properties| properties.get("template"));
        let Some(template) = template else {
            return Err(Fault::new(
                "it has no properties.template; linked templates (templateLink) are not fetched, so put \
                 the template here",
            ));
        };
        let options = properties.and_then(|found| found.get("expressionEvaluationOptions"));
        let scope = options.and_then(|options| options.get("scope")).and_then(Value::as_str);
        let is_own = scope.is_some_and(|scope| scope.eq_ignore_ascii_case("inner"));
        let frame = if is_own {
            let given = properties.and_then(|properties| properties.get("parameters"));
            let names = (subscription.clone(), group.clone(), deployment);
            self.open(template, given, Some(outer), names)?
        } else {
            outer
        };
        self.entries[at].inner = Some(frame);
        let Some(resources) = template.get("resources") else { return Ok(()) };
        self.collect(
            resources,
            Home {
                frame,
                place: &place,
                subscription: &subscription,
                resource_group: &group,
                parent: None,
                within: Some(at),
                children: 0,
                nesting: home.nesting + 1,
            },
        )
    }

    /// Opens a frame with the names of a template. `given_in` is the frame of the parameter values; `None` if they are
    /// literal values.
    pub(super) fn open(
        &mut self,
        template: &'t Value,
        given: Option<&'t Value>,
        given_in: Option<usize>,
        (subscription, resource_group, deployment): (String, String, String),
    ) -> Result<usize, Fault> {
        let frame = self.frames.len();
        let declared = template.get("parameters");
        let parameters = parameters::read(declared, given, given_in, frame)?;
        let variables = parameters::entries(template.get("variables"), "variables")?;
        if let Some(Value::Object(map)) = template.get("variables") {
            refuse_copy(map).map_err(|fault| fault.at("variables"))?;
        }
        let variables = variables.into_iter();
        self.frames.push(Frame {
            subscription,
            resource_group,
            deployment,
            parameters: parameters.into_iter().collect(),
            variables: variables
                .map(|(name, raw)| (name.to_ascii_lowercase(), Slot::Raw(raw, frame)))
                .collect(),
        });
        Ok(frame)
    }
}
