//! The identity that a job asks to run as. It is stored and shown, but a job's programs always get a token of the
//! compute that they run on.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobIdentity {
    /// A token of the workspace for this job.
    AmlToken,
    /// The user who submits it.
    User,
    /// The identity of its compute, or the one that is named.
    Managed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<Box<str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        object: Option<Box<str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resource: Option<Box<str>>,
    },
}
