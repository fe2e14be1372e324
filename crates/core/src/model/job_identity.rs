//! In whose name a job asks for what needs a name. It is kept and shown; a job's programs have the token of the
//! compute that they run on.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobIdentity {
    /// A token of the workspace for this job.
    AmlToken,
    /// Whoever submits it.
    User,
    /// That of its compute, or of the one that is named.
    Managed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<Box<str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        object: Option<Box<str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resource: Option<Box<str>>,
    },
}
