//! Users, keys and roles. Role assignments and definitions are Azure's documents. Users are Muster's own, because Azure
//! keeps them in another product.

use muster_core::model::{Role, RoleAssignment, Scope, User, UserKind};
use serde::{Deserialize, Serialize};

use crate::error::ArmError;
use crate::json::{Field, parse_object};
use crate::{odata, timestamp};

/// These bodies have only a handful of short fields.
const BODY_BYTES_MAX: usize = 64 * 1024;
const ASSIGNMENT_TYPE: &str = "Microsoft.Authorization/roleAssignments";
const DEFINITIONS: &str = "/providers/Microsoft.Authorization/roleDefinitions/";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserDocument {
    pub name: String,
    pub object_id: String,
    /// `User` or `ServicePrincipal`.
    pub principal_type: String,
    pub created_on: String,
    /// When the current key was created; `None` if the user has no key.
    #[serde(default)]
    pub key_made_on: Option<String>,
    /// The key itself. Only the response that creates it has it; it cannot be read again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

pub fn user(user: &User, key: Option<&str>) -> UserDocument {
    UserDocument {
        name: user.name.to_string(),
        object_id: user.object_id.to_string(),
        principal_type: user.kind.as_str().to_owned(),
        created_on: timestamp::format(user.created_at),
        key_made_on: user.key.map(|key| timestamp::format(key.made_at)),
        key: key.map(str::to_owned),
    }
}

/// The kind of user to create. Without a body, it is a person.
pub fn parse_user(body: &[u8]) -> Result<UserKind, ArmError> {
    if body.is_empty() {
        return Ok(UserKind::Person);
    }
    let value = parse_object(body, BODY_BYTES_MAX)?;
    let kinds = [UserKind::Person, UserKind::Service].map(|kind| (kind.as_str(), kind));
    let kind = Field::root(&value).get("principalType")?.choice(&kinds)?;
    Ok(kind.unwrap_or(UserKind::Person))
}

pub fn user_json(kind: UserKind) -> String {
    crate::to_json(&serde_json::json!({ "principalType": kind.as_str() }))
}

/// Who the caller is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeDocument {
    pub name: String,
    pub object_id: String,
    pub tenant_id: String,
    /// The owner of the state directory may do everything, without a role.
    pub is_owner: bool,
    pub roles: Vec<MyRole>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MyRole {
    pub role: String,
    pub scope: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleAssignmentDocument {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub properties: RoleAssignmentProperties,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleAssignmentProperties {
    pub role_definition_id: String,
    pub principal_id: String,
    #[serde(default)]
    pub principal_type: Option<String>,
    pub scope: String,
    #[serde(default)]
    pub created_on: Option<String>,
    /// Muster's own: the names that Azure's clients would look up by the two ids.
    #[serde(default)]
    pub role_name: Option<String>,
    #[serde(default)]
    pub principal_name: Option<String>,
    /// Muster's own: what the person who assigned the role should know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

pub fn role_assignment(role: &RoleAssignment, user: Option<&User>) -> RoleAssignmentDocument {
    let scope = role.scope.to_string();
    RoleAssignmentDocument {
        id: format!("{}/providers/{ASSIGNMENT_TYPE}/{}", scope.trim_end_matches('/'), role.name),
        name: role.name.to_string(),
        kind: ASSIGNMENT_TYPE.to_owned(),
        properties: RoleAssignmentProperties {
            role_definition_id: format!("{DEFINITIONS}{}", role.role.definition_id()),
            principal_id: role.object_id.to_string(),
            principal_type: user.map(|user| user.kind.as_str().to_owned()),
            scope,
            created_on: Some(timestamp::format(role.created_at)),
            role_name: Some(role.role.as_str().to_owned()),
            principal_name: user.map(|user| user.name.to_string()),
            note: None,
        },
    }
}

/// The role, and the principal that it is assigned to.
pub fn parse_role_assignment(body: &[u8]) -> Result<(Role, Box<str>), ArmError> {
    let value = parse_object(body, BODY_BYTES_MAX)?;
    let properties = Field::root(&value).get("properties")?;
    let definition = properties.get("roleDefinitionId")?;
    let principal = properties.get("principalId")?;
    let text = definition
        .string()?
        .ok_or_else(|| definition.missing("give the id of a role, or its name, such as Reader"))?;
    let role = Role::parse(text.rsplit('/').next().unwrap_or(text))
        .ok_or_else(|| definition.unknown(text, &Role::ALL.map(Role::as_str)))?;
    let principal = principal
        .text()?
        .ok_or_else(|| principal.missing("give the object id that `muster user list` shows"))?;
    Ok((role, principal))
}

pub fn role_assignment_json(role: Role, principal_id: &str) -> String {
    crate::to_json(&serde_json::json!({ "properties": {
        "roleDefinitionId": format!("{DEFINITIONS}{}", role.definition_id()),
        "principalId": principal_id,
    }}))
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleDefinitionDocument {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub properties: RoleDefinitionProperties,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleDefinitionProperties {
    pub role_name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub description: String,
    pub assignable_scopes: Vec<String>,
}

/// All roles, or those that `$filter` asks for: `roleName eq 'Reader'` is what Azure's clients send.
pub fn role_definitions(filter: Option<&str>) -> Result<Vec<RoleDefinitionDocument>, ArmError> {
    let wanted = match filter {
        None => None,
        Some(filter) => Some(odata::equal_to(filter, "roleName").ok_or_else(|| {
            ArmError::invalid_property(
                "$filter",
                "$filter is not understood; leave it out, or write roleName eq 'Reader'",
            )
        })?),
    };
    let is_wanted = |role: &Role| {
        wanted.as_ref().is_none_or(|wanted| role.as_str().eq_ignore_ascii_case(wanted))
    };
    Ok(Role::ALL.into_iter().filter(is_wanted).map(definition).collect())
}

fn definition(role: Role) -> RoleDefinitionDocument {
    let description = match role {
        Role::Owner => "Everything, users, keys and roles included",
        Role::Contributor => "Everything but users, keys and roles",
        Role::DataScientist => "Submit and cancel jobs, and read everything",
        Role::ComputeOperator => "Create, change and delete computes, and read everything",
        Role::Reader => "Read everything",
    };
    RoleDefinitionDocument {
        id: format!("{DEFINITIONS}{}", role.definition_id()),
        name: role.definition_id().to_owned(),
        kind: "Microsoft.Authorization/roleDefinitions".to_owned(),
        properties: RoleDefinitionProperties {
            role_name: role.as_str().to_owned(),
            kind: "BuiltInRole".to_owned(),
            description: description.to_owned(),
            assignable_scopes: vec![Scope::Everything.to_string()],
        },
    }
}

#[cfg(test)]
mod tests {
    use muster_core::model::WorkspaceKey;
    use muster_core::time::Wall;

    use super::*;

    #[test]
    fn a_role_is_read_from_what_clients_send_and_what_we_send() {
        for role in Role::ALL {
            let ours = role_assignment_json(role, "someone");
            assert_eq!(parse_role_assignment(ours.as_bytes()), Ok((role, "someone".into())));
            let named = format!(
                r#"{{"properties":{{"roleDefinitionId":"{}","principalId":"x"}}}}"#,
                role.as_str()
            );
            assert_eq!(parse_role_assignment(named.as_bytes()).map(|(role, _)| role), Ok(role));
        }
        for bad in [
            "",
            "[]",
            r#"{"properties":{}}"#,
            r#"{"properties":{"roleDefinitionId":"god","principalId":"x"}}"#,
            r#"{"properties":{"roleDefinitionId":"Reader"}}"#,
            r#"{"properties":{"roleDefinitionId":7,"principalId":"x"}}"#,
        ] {
            assert_eq!(parse_role_assignment(bad.as_bytes()).expect_err(bad).status, 400, "{bad}");
        }
    }

    #[test]
    fn an_assignment_has_azures_id_and_reads_back() {
        let assignment = |scope: Scope| RoleAssignment {
            name: "guid".into(),
            object_id: "oid".into(),
            role: Role::Reader,
            scope,
            created_at: Wall(0),
        };
        let everything = role_assignment(&assignment(Scope::Everything), None);
        assert_eq!(everything.id, "/providers/Microsoft.Authorization/roleAssignments/guid");
        let workspace = Scope::workspace(&WorkspaceKey::new("s", "g", "w"));
        let document = role_assignment(&assignment(workspace), None);
        assert!(
            document
                .id
                .ends_with("/workspaces/w/providers/Microsoft.Authorization/roleAssignments/guid")
        );
        let read: RoleAssignmentDocument = crate::from_json(crate::to_json(&document).as_bytes())
            .expect("the document can be read back");
        assert_eq!(read, document);
    }

    #[test]
    fn definitions_are_found_by_name() {
        assert_eq!(role_definitions(None).map(|all| all.len()), Ok(5));
        let found = role_definitions(Some("roleName eq 'azureml data scientist'")).expect("one");
        assert_eq!(found.len(), 1);
        assert_eq!(role_definitions(Some("roleName eq 'God'")).map(|all| all.len()), Ok(0));
        assert_eq!(role_definitions(Some("atScope()")).expect_err("unknown").status, 400);
    }

    #[test]
    fn a_user_without_a_body_is_a_person() {
        assert_eq!(parse_user(b""), Ok(UserKind::Person));
        let service = user_json(UserKind::Service);
        assert_eq!(parse_user(service.as_bytes()), Ok(UserKind::Service));
        assert_eq!(parse_user(br#"{"principalType":"Robot"}"#).expect_err("no").status, 400);
    }
}
