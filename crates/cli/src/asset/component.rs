//! Components: their documents are sent unchanged, except for references: local files are uploaded, and inline assets
//! are created without a name, as azure-ai-ml does it.

use std::path::Path;

use muster_core::model::AssetKind;
use muster_wire::asset::{AssetProperties, AssetResource, Reference, Which, request_json};
use muster_wire::{AssetRoute, JsonText, Route};
use serde_json::{Map, Value};

use super::draft::DraftContext;
use super::{environment, fields, files, id_of, pick};
use crate::document::kinds::FileKind;
use crate::document::{self, Fields};
use crate::failure::{CliResult, Failure, quoted};
use crate::upload::{self, Includes};

/// azure-ai-ml's name for components without a name.
const ANONYMOUS: &str = "azureml_anonymous";
/// The limit for files that refer to files: one that refers to itself would never end.
const DEPTH_MAX: usize = 8;

/// The specification to be sent.
pub async fn settled(context: &DraftContext<'_>, document: &Fields) -> CliResult<Fields> {
    settled_at(context, document, 0).await
}

async fn settled_at(
    context: &DraftContext<'_>,
    document: &Fields,
    depth: usize,
) -> CliResult<Fields> {
    if depth > DEPTH_MAX {
        return Err(Failure::refused(format!(
            "components refer to each other {DEPTH_MAX} levels deep; does one of them refer to itself?"
        )));
    }
    let mut spec: Map<_, _> = document
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    spec.entry("type").or_insert_with(|| "command".into());
    if let Some(Value::Number(number)) = spec.get("version") {
        let text = number.to_string();
        spec.insert("version".to_owned(), Value::String(text));
    }
    settle_step(context, &mut spec, "").await?;
    for inner in ["task", "trial"] {
        if let Some(Value::Object(step)) = spec.get_mut(inner) {
            settle_step(context, step, &format!("{inner}.")).await?;
        }
    }
    settle_file(context, &mut spec, "trial", "", depth).await?;
    if let Some(Value::Object(jobs)) = spec.get_mut("jobs") {
        for (name, job) in jobs {
            let Value::Object(job) = job else {
                let words = format!("jobs.{name} has no fields; write them as 'name: value'");
                return Err(Failure::refused(words));
            };
            let path = format!("jobs.{name}.");
            settle_step(context, job, &path).await?;
            if let Some(Value::Object(task)) = job.get_mut("task") {
                settle_step(context, task, &format!("{path}task.")).await?;
            }
            settle_file(context, job, "component", &path, depth).await?;
            settle_file(context, job, "trial", &path, depth).await?;
        }
    }
    Ok(spec)
}

/// Resolves the code and the environment of one step.
async fn settle_step(context: &DraftContext<'_>, step: &mut Fields, path: &str) -> CliResult {
    let includes = Includes { base: context.base.clone(), paths: includes_of(step, path)? };
    let code = step.get("code").and_then(Value::as_str);
    if let Some(found) = code_of(context, code, &includes, &format!("{path}code")).await? {
        step.insert("code".to_owned(), Value::String(found));
    }
    let found = match step.get("environment") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(inline)) => environment::inline(context, inline).await?,
        Some(Value::String(text)) => {
            environment_of(context, text, &format!("{path}environment")).await?
        }
        Some(_) => {
            let words = "use azureml:NAME:VERSION, azureml:NAME@latest, or fields such as image";
            return Err(Failure::refused(format!(
                "{path}environment is not an environment; {words}"
            )));
        }
    };
    step.insert("environment".to_owned(), Value::String(found));
    Ok(())
}

/// `additional_includes`: local paths.
fn includes_of(step: &Fields, path: &str) -> CliResult<Vec<String>> {
    let refused = |what: &str, hint: &str| {
        Failure::refused(format!("{path}additional_includes {what}")).hint(hint)
    };
    let all = match step.get("additional_includes") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(all)) => all,
        Some(_) => return Err(refused("is not a list", "give files and folders: [../lib, x.py]")),
    };
    let text = |one: &Value| match one {
        Value::String(text) => Ok(text.clone()),
        _ => Err(refused(
            "contains an item that is not a path; artifacts of Azure DevOps are not downloaded",
            "download it yourself, and give the path of the folder",
        )),
    };
    all.iter().map(text).collect()
}

/// The code to upload, if it is local; otherwise it is unchanged.
async fn code_of(
    context: &DraftContext<'_>,
    code: Option<&str>,
    includes: &Includes,
    path: &str,
) -> CliResult<Option<String>> {
    if let Some(code) = code.filter(|code| code.starts_with("git+") || code.starts_with("git@")) {
        return Err(Failure::refused(format!(
            "{path} is {}; repositories are not cloned",
            quoted(code)
        ))
        .hint("clone it yourself, and give the path of the folder"));
    }
    let has_includes = !includes.paths.is_empty();
    if code.is_none() && !has_includes {
        return Ok(None);
    }
    if let Some(code) = code.filter(|code| files::is_address(code)) {
        return match has_includes {
            false => Ok(None),
            true => Err(Failure::refused(format!(
                "{path} is {}, but additional_includes require local code",
                quoted(code)
            ))
            .hint("give the path of the code's folder, or remove additional_includes")),
        };
    }
    let place = code.map(|code| context.base.join(code));
    let local = upload::component_code(path, place.as_deref(), includes)?;
    if context.is_dry {
        return Ok(None);
    }
    let id = upload::code(context.client, context.workspace, &local).await?;
    Ok(Some(format!("azureml:{id}")))
}

/// The id of the referenced environment; environments of registries are unchanged.
async fn environment_of(context: &DraftContext<'_>, text: &str, path: &str) -> CliResult<String> {
    let kind = AssetKind::Environment;
    let found = Reference::parse(kind, text, context.workspace)
        .map_err(|why| Failure::refused(format!("{path}: {why}")))?;
    let (name, which) = match found {
        Reference::Registry { .. } => return Ok(text.to_owned()),
        Reference::Workspace { name, which, .. } | Reference::Curated { name, which } => {
            (name, which)
        }
    };
    let version = match which {
        Which::Version(version) => version,
        Which::Latest => pick::latest(context.client, context.workspace, kind, &name).await?.into(),
    };
    let workspace = context.workspace.clone();
    let route = Route::Assets(AssetRoute::AssetVersion { workspace, kind, name, version });
    let found: AssetResource = context.client.get(&route).await?;
    Ok(id_of(&found))
}

/// A component that is given by its file or inline: it is created without a name.
async fn settle_file(
    context: &DraftContext<'_>,
    holder: &mut Fields,
    name: &str,
    path: &str,
    depth: usize,
) -> CliResult {
    let (inner, base) = match holder.get(name) {
        Some(Value::String(text)) => {
            let file = text.strip_prefix("file:").unwrap_or(text);
            if files::is_address(file) {
                return Ok(());
            }
            let file = context.base.join(file);
            let base = file.parent().map(Path::to_owned).unwrap_or_default();
            (document::read_by(&file, FileKind::Component, fields::component)?, base)
        }
        Some(Value::Object(inner)) if name == "component" => {
            document::check(inner, fields::component(inner)?, &format!("{path}{name}."), None)?;
            (inner.clone(), context.base.clone())
        }
        _ => return Ok(()),
    };
    let nested = DraftContext { base, ..*context };
    let spec = Box::pin(settled_at(&nested, &inner, depth + 1)).await?;
    let id = anonymous(context, spec).await?;
    holder.insert(name.to_owned(), Value::String(id));
    Ok(())
}

async fn anonymous(context: &DraftContext<'_>, mut spec: Fields) -> CliResult<String> {
    for own in ["name", "version"] {
        spec.remove(own);
    }
    let text = Value::Object(spec).to_string();
    let version = upload::of_text(&text).into();
    let properties = AssetProperties {
        is_anonymous: true,
        component_spec: JsonText::new(&text),
        ..AssetProperties::default()
    };
    let (workspace, kind, name) =
        (context.workspace.clone(), AssetKind::Component, ANONYMOUS.into());
    let route = Route::Assets(AssetRoute::AssetVersion { workspace, kind, name, version });
    if context.is_dry {
        return Ok(format!("azureml:{}", route.path().unwrap_or_default()));
    }
    let made: AssetResource =
        context.client.put(&route, request_json(&properties)).await?.document()?;
    Ok(id_of(&made))
}
