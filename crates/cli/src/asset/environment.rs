//! Environments as separate documents, and inside components.

use muster_wire::asset::AssetProperties;

use super::draft::DraftContext;
use super::fields;
use crate::document::{self, Fields};
use crate::environment::{nameless, of_fields, settle};
use crate::failure::CliResult;

/// An inline environment of another document: returns the id of the nameless environment that is created from it.
pub async fn inline(context: &DraftContext<'_>, document: &Fields) -> CliResult<String> {
    document::check(document, fields::ENVIRONMENT, "environment.", None)?;
    let described = of_fields(document, &context.base, "environment")?;
    let (id, _) = nameless(context.client, context.workspace, &described, context.is_dry).await?;
    Ok(format!("azureml:{id}"))
}

/// The properties of an environment from its document. A local build context is uploaded.
pub async fn settled(context: &DraftContext<'_>, document: &Fields) -> CliResult<AssetProperties> {
    let mut document = document.clone();
    // The fields that every asset has are read with all others.
    document.retain(|name, _| !["name", "version", "description", "tags"].contains(&name.as_str()));
    let described = of_fields(&document, &context.base, "")?;
    Ok(settle(context.client, context.workspace, &described, context.is_dry).await?.properties)
}
