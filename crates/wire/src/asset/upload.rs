//! Where a client uploads the files of a version.

use serde::{Deserialize, Serialize};

/// Where to upload the files of a version.
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

/// `blob_uri` is the URL of a container, and `sas` the query that gives access to it.
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
