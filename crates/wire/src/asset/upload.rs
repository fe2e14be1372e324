//! Where a client is to put the files of a version.

use serde::{Deserialize, Serialize};

/// Where to put the files of a version.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingUpload {
    pub pending_upload_id: String,
    pub pending_upload_type: String,
    pub blob_reference_for_consumption: BlobReference,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlobReference {
    pub blob_uri: String,
    pub storage_account_arm_id: String,
    pub credential: SasCredential,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SasCredential {
    pub credential_type: String,
    pub sas_uri: String,
}

/// `blob_uri` is the address of a container, `sas` the query that opens it.
pub fn pending(id: &str, blob_uri: &str, sas: &str) -> PendingUpload {
    PendingUpload {
        pending_upload_id: id.to_owned(),
        pending_upload_type: "TemporaryBlobReference".to_owned(),
        blob_reference_for_consumption: BlobReference {
            blob_uri: blob_uri.to_owned(),
            storage_account_arm_id: String::new(),
            credential: SasCredential {
                credential_type: "SAS".to_owned(),
                sas_uri: format!("{blob_uri}?{sas}"),
            },
        },
    }
}
