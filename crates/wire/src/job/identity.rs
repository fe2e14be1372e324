//! The identity of a job: stored and shown as it was written.

use muster_core::model::{JobIdentity, JobSpec};
use serde::{Deserialize, Serialize};

use crate::error::ArmError;
use crate::json::Field;

const AML_TOKEN: &str = "AMLToken";
const USER: &str = "UserIdentity";
const MANAGED: &str = "Managed";
const ID_BYTES_MAX: usize = 2_048;

/// `identity` as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityEntry {
    pub identity_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<String>,
}

impl IdentityEntry {
    pub(super) fn of(identity: &JobIdentity) -> IdentityEntry {
        let text = |id: &Option<Box<str>>| id.as_deref().map(str::to_owned);
        let plain = |kind: &str| IdentityEntry {
            identity_type: kind.to_owned(),
            client_id: None,
            object_id: None,
            resource_id: None,
        };
        match identity {
            JobIdentity::AmlToken => plain(AML_TOKEN),
            JobIdentity::User => plain(USER),
            JobIdentity::Managed { client, object, resource } => IdentityEntry {
                client_id: text(client),
                object_id: text(object),
                resource_id: text(resource),
                ..plain(MANAGED)
            },
        }
    }
}

/// The note for an identity that has no effect.
pub(super) fn identity_note(spec: &JobSpec) -> Option<String> {
    match spec.identity.as_deref()? {
        JobIdentity::User if !spec.services.is_empty() => Some(
            "identity UserIdentity has no effect in a job with services: everyone who may run jobs in the workspace can \
             open them, and would act as the user who submitted it; leave out one of the two"
                .to_owned(),
        ),
        JobIdentity::User if !spec.acts_as_submitter() => Some(
            "identity UserIdentity has no effect in a job that shares its node: other jobs there could act as the user \
             who submitted it; leave out cpus, memory and gpus, so that the job has whole nodes"
                .to_owned(),
        ),
        JobIdentity::User | JobIdentity::AmlToken | JobIdentity::Managed { .. } => None,
    }
}

pub(super) fn parse_identity(field: &Field<'_>) -> Result<Option<Box<JobIdentity>>, ArmError> {
    let kind = field.get("identityType")?;
    let allowed = [(AML_TOKEN, AML_TOKEN), (USER, USER), (MANAGED, MANAGED)];
    let id = |name: &str| {
        let field = field.get(name)?;
        let text = field.text()?.filter(|text| !text.is_empty());
        match &text {
            Some(text) if text.len() > ID_BYTES_MAX => Err(field.invalid(format!(
                "{} has {} bytes; at most {ID_BYTES_MAX} are allowed",
                field.path,
                text.len()
            ))),
            Some(_) | None => Ok(text),
        }
    };
    let identity = match kind.choice(&allowed)? {
        None if field.is_filled() => {
            return Err(kind.missing("give AMLToken, UserIdentity or Managed"));
        }
        None => return Ok(None),
        Some(AML_TOKEN) => JobIdentity::AmlToken,
        Some(USER) => JobIdentity::User,
        Some(_) => JobIdentity::Managed {
            client: id("clientId")?,
            object: id("objectId")?,
            resource: id("resourceId")?,
        },
    };
    Ok(Some(Box::new(identity)))
}
