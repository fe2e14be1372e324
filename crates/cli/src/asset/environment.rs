//! Environments as documents of their own, and inside of components.

use muster_wire::asset::AssetProperties;

use super::draft::DraftContext;
use super::fields;
use crate::document::{self, Fields};
use crate::environment::{nameless, of_fields, settle};
use crate::failure::CliResult;

/// An environment inside of another document: the id of the nameless one that is made of it.
pub async fn inline(context: &DraftContext<'_>, document: &Fields) -> CliResult<String> {
    document::check(document, fields::ENVIRONMENT, "environment.", None)?;
    let described = of_fields(document, &context.base, "environment")?;
    let (id, _) = nameless(context.client, context.workspace, &described, context.is_dry).await?;
    Ok(format!("azureml:{id}"))
}

/// What a document says about an environment. A build context that is here is sent.
pub async fn settled(context: &DraftContext<'_>, document: &Fields) -> CliResult<AssetProperties> {
    let mut document = document.clone();
    // What every asset has is read with all others.
    document.retain(|name, _| !["name", "version", "description", "tags"].contains(&name.as_str()));
    let described = of_fields(&document, &context.base, "")?;
    Ok(settle(context.client, context.workspace, &described, context.is_dry).await?.properties)
}
