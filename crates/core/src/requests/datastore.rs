//! Requests about datastores. Whether their containers exist is not checked here.

use super::{check_tags, check_text, find_workspace, shorten, workspace_to_change};
use crate::change::Change;
use crate::input::{InputResult, Refused, Reply};
use crate::limits;
use crate::model::{
    ARTIFACT_DATASTORE, Caller, DEFAULT_DATASTORE, Datastore, DatastoreSpec, Scope, WorkspaceKey,
};
use crate::refusal::Field;
use crate::step::Transaction;

pub(crate) fn put(
    tx: &mut Transaction<'_>,
    key: &WorkspaceKey,
    name: &str,
    wanted: &DatastoreSpec,
    by: &Caller,
) -> InputResult {
    check_name(name)?;
    check_tags(&wanted.tags)?;
    check_tags(&wanted.properties)?;
    let description = wanted.description.as_deref();
    check_text(Field::AssetDescription, description, limits::DESCRIPTION_BYTES_MAX)?;
    let workspace = workspace_to_change(tx, key, ("datastore", name, "changed"))?;
    let datastore = Box::new(Datastore {
        workspace,
        name: name.into(),
        about: wanted.clone(),
        created_at: tx.now.wall,
        created_by: by.clone(),
        changed_at: tx.now.wall,
    });
    tx.emit(Change::DatastoreChanged(datastore.clone()));
    Ok(Reply::Datastore(datastore))
}

/// Deletes a datastore. The content of its container is kept until the workspace is deleted.
pub(crate) fn delete(tx: &mut Transaction<'_>, key: &WorkspaceKey, name: &str) -> InputResult {
    check_name(name)?;
    let workspace = find_workspace(tx, key)?.id;
    if let Some(lock) = tx.world.governance().against_delete(&Scope::workspace(key)) {
        return Err(super::governance::locked("datastore", name, "deleted", lock));
    }
    let name = name.to_ascii_lowercase().into();
    tx.emit(Change::DatastoreGone { workspace, name });
    Ok(Reply::Noted)
}

fn check_name(name: &str) -> Result<(), Refused> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty()
        || name.len() > limits::DATASTORE_NAME_BYTES_MAX
        || !name.bytes().all(is_plain)
    {
        let message = format!(
            "datastore {:?}: a name has 1 to {} letters, digits and '_'",
            shorten(name),
            limits::DATASTORE_NAME_BYTES_MAX
        );
        return Err(Refused::invalid("name", message));
    }
    let own = [DEFAULT_DATASTORE, ARTIFACT_DATASTORE];
    if own.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        let message = format!(
            "datastore '{name}' is part of every workspace and cannot be changed; choose another name"
        );
        return Err(Refused::conflict("name", message));
    }
    Ok(())
}
