//! Authorizes blob requests: by a signed address that grants the right, or by a token for storage and a role.

use axum::http::HeaderMap;
use muster_core::model::{Action, Caller, Scope};
use muster_core::time::Wall;
use muster_store::storage::Container;
use muster_wire::blob::{Address, BlobQuery, Right, Sas, StorageError};

use super::{BlobOperation, unreadable};
use crate::app::App;
use crate::clock;
use crate::http::auth;
use crate::http::run_access::{self, Run};

pub struct Holder {
    /// The name in the log.
    pub name: Box<str>,
    /// Whether the caller may create blobs, but not change existing ones.
    pub may_only_create: bool,
}

pub fn check(
    app: &App,
    headers: &HeaderMap,
    address: &Address,
    query: &BlobQuery,
    wanted: &BlobOperation,
) -> Result<(Container, Holder), StorageError> {
    match Sas::of(query)? {
        Some(sas) => {
            // Checked before anything is looked up, so that the response does not reveal which containers exist.
            let holder = signed(app, &sas, address, query, wanted)?;
            let container = find(app, address)?.ok_or_else(StorageError::no_container)?;
            Ok((container, holder))
        }
        None => {
            match run_access::of(app, headers) {
                Some(Ok(run)) => return by_run(app, &run, address, query, wanted),
                Some(Err(why)) => {
                    return Err(StorageError::new(401, "InvalidAuthenticationInfo", why));
                }
                None => {}
            }
            let caller = auth::storage_caller(app, headers)?;
            let container = find(app, address)?;
            by_role(app, &caller, container, wanted.right())
        }
    }
}

fn find(app: &App, address: &Address) -> Result<Option<Container>, StorageError> {
    let found = app.storage.readers.look_up(|reader| reader.container(&address.container));
    found.map_err(|failed| unreadable(&failed))
}

fn signed(
    app: &App,
    sas: &Sas,
    address: &Address,
    query: &BlobQuery,
    wanted: &BlobOperation,
) -> Result<Holder, StorageError> {
    let is_about_one = !matches!(wanted, BlobOperation::List | BlobOperation::Batch);
    let name = address.blob.as_deref().filter(|_| is_about_one);
    let prefix = query.get("prefix").unwrap_or_default();
    let text = sas.signed_text(&address.container, name, prefix);
    let is_ours = text.is_some_and(|text| app.keyring.check_blob_address(&text, &sas.signature));
    if !is_ours {
        let message = "the signature does not match this address; use the address unchanged, and only for the purpose that it \
                       was issued for";
        return Err(StorageError::authentication_failed(message));
    }
    sas.is_in_time(Wall(clock::unix_us()))?;
    let right = wanted.right();
    let may_only_create = !sas.allows(right) && wanted.may_create() && sas.allows(Right::Create);
    if !sas.allows(right) && !may_only_create {
        let message = format!("the signed address does not grant the right to {}", right.as_str());
        return Err(StorageError::not_permitted(message));
    }
    Ok(Holder { name: "signed address".into(), may_only_create })
}

/// A job with its own token may use its own folder, and read its inputs.
fn by_run(
    app: &App,
    run: &Run,
    address: &Address,
    query: &BlobQuery,
    wanted: &BlobOperation,
) -> Result<(Container, Holder), StorageError> {
    let name = match wanted {
        BlobOperation::List => query.get("prefix").unwrap_or_default(),
        _ => address.blob.as_deref().unwrap_or_default(),
    };
    let right = wanted.right();
    let found = find(app, address)?;
    let may = match &found {
        Some(container) => run.may_touch(app, container, name, right)?,
        None => false,
    };
    match found.filter(|_| may) {
        Some(container) => {
            Ok((container, Holder { name: run.caller().name, may_only_create: false }))
        }
        None => Err(StorageError::not_permitted(format!(
            "the token of a run gives access to its own folder, and read access to its inputs; it does not grant the right to \
             {} here, or there is no such container",
            right.as_str()
        ))),
    }
}

/// The refusal is the same whether the container exists or not.
fn by_role(
    app: &App,
    caller: &Caller,
    container: Option<Container>,
    right: Right,
) -> Result<(Container, Holder), StorageError> {
    let action = match right {
        Right::Read | Right::List => Action::Read,
        Right::Write | Right::Create | Right::Delete => Action::RunJobs,
    };
    let may =
        |container: &Container| auth::may(app, caller, action, &Scope::workspace(&container.owner));
    match container.filter(may) {
        Some(container) => {
            Ok((container, Holder { name: caller.name.clone(), may_only_create: false }))
        }
        None if app.keyring.is_owner(&caller.object_id) => Err(StorageError::no_container()),
        None => Err(StorageError::not_permitted(format!(
            "'{}' has no role that grants the right to {} here, or there is no such container",
            caller.name,
            right.as_str()
        ))),
    }
}
