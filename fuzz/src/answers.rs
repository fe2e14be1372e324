//! The documents of the API, as our own command line reads them from any server.

use std::fmt::Debug;

use muster_wire::Page;
use muster_wire::access::{MeDocument, RoleAssignmentDocument, UserDocument};
use muster_wire::compute::{ComputeResource, NodeList};
use muster_wire::error::ErrorBody;
use muster_wire::job::JobResource;
use muster_wire::lock::LockDocument;
use muster_wire::post_mortem::PostMortem;
use muster_wire::workspace::WorkspaceResource;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub fn documents(data: &[u8]) {
    round::<Page<ComputeResource>>(data);
    round::<ComputeResource>(data);
    round::<NodeList>(data);
    round::<JobResource>(data);
    round::<WorkspaceResource>(data);
    round::<UserDocument>(data);
    round::<MeDocument>(data);
    round::<RoleAssignmentDocument>(data);
    round::<LockDocument>(data);
    round::<PostMortem>(data);
    round::<ErrorBody>(data);
}

fn round<T: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    let Ok(read) = muster_wire::from_json::<T>(data) else { return };
    let again = muster_wire::to_json(&read);
    let read_again: T = muster_wire::from_json(again.as_bytes()).expect("our own JSON");
    assert_eq!(read_again, read);
}
