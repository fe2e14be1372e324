//! Hosts, and what another machine needs to join. The format is Muster's own.

use muster_core::model::{Capacity, Host, HostName, HostState, JoinTokenRecord, Scope};
use muster_core::time::Span;
use serde::{Deserialize, Serialize};

use crate::error::ArmError;
use crate::json::{Field, parse_object, shorten};
use crate::path::lockable_of;
use crate::timestamp;

const BODY_BYTES_MAX: usize = 64 * 1024;
/// Long enough to walk over to the other machine.
const TICKET_SECONDS: u32 = 3600;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostDocument {
    pub name: String,
    /// `open`, `cordoned`, `draining`, `drained`, `removing`, or `silent` if the host does not report.
    pub state: String,
    /// The scope whose nodes the host accepts, in Azure's notation; `/` is every scope.
    pub pool: String,
    pub cores: u32,
    pub cores_used: u32,
    #[serde(rename = "memoryMB")]
    pub memory_mb: u64,
    #[serde(rename = "memoryMBUsed")]
    pub memory_mb_used: u64,
    pub gpus: u32,
    pub gpus_used: u32,
    pub nodes: u32,
    /// Whether it accepts more nodes than it has cores and memory for.
    pub over_commit: bool,
    /// What its nodes do not enforce, each as a message with the reason.
    #[serde(default)]
    pub not_enforced: Vec<String>,
    pub joined_on: String,
}

/// The capacity in use on a host, and the number of its nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    pub used: Capacity,
    pub nodes: u32,
}

pub fn document(
    host: &Host,
    load: Load,
    over_commit: bool,
    not_enforced: Vec<String>,
) -> HostDocument {
    let state = match host.state {
        HostState::Draining if load.nodes == 0 => "drained",
        HostState::Open if host.is_silent => "silent",
        state => state.as_str(),
    };
    HostDocument {
        name: host.name.to_string(),
        state: state.to_owned(),
        pool: host.intent.to_string(),
        cores: host.capacity.vcpus,
        cores_used: load.used.vcpus,
        memory_mb: host.capacity.memory_mb,
        memory_mb_used: load.used.memory_mb,
        gpus: host.capacity.gpus,
        gpus_used: load.used.gpus,
        nodes: load.nodes,
        over_commit: over_commit && host.name.is_local(),
        not_enforced,
        joined_on: timestamp::format(host.joined_at),
    }
}

/// The request for a join token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinTokenRequest {
    pub intent: Scope,
    pub host: Option<HostName>,
    pub good_for: Span,
}

pub fn parse_ticket(body: &[u8]) -> Result<JoinTokenRequest, ArmError> {
    if body.is_empty() {
        let good_for = Span::seconds(u64::from(TICKET_SECONDS));
        return Ok(JoinTokenRequest { intent: Scope::Everything, host: None, good_for });
    }
    let value = parse_object(body, BODY_BYTES_MAX)?;
    let root = Field::root(&value);
    let (pool, name) = (root.get("pool")?, root.get("name")?);
    let intent = match pool.string()? {
        None => Scope::Everything,
        Some(text) => lockable_of(text).ok_or_else(|| {
            pool.invalid(format!(
                "pool is {:?}; give the id of a compute, a workspace, a resource group or a subscription, or / for everything",
                shorten(text)
            ))
        })?,
    };
    let host = name.string()?.map(host_name).transpose()?;
    let seconds = root.get("expiresInSeconds")?.count()?.unwrap_or(TICKET_SECONDS);
    Ok(JoinTokenRequest { intent, host, good_for: Span::seconds(u64::from(seconds)) })
}

pub fn ticket_json(intent: &Scope, host: Option<&str>, seconds: Option<u64>) -> String {
    let mut body = serde_json::json!({ "pool": intent.to_string() });
    if let Some(host) = host {
        body["name"] = host.into();
    }
    if let Some(seconds) = seconds {
        body["expiresInSeconds"] = seconds.into();
    }
    crate::to_json(&body)
}

/// A host's name, in a path or a body.
pub fn host_name(text: &str) -> Result<HostName, ArmError> {
    HostName::new(text).map_err(|why| {
        let message = format!("host name {:?}: {why}", shorten(text));
        ArmError::invalid_property("name", message)
    })
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenDocument {
    /// The token is in this response only; it cannot be read again.
    pub token: String,
    pub pool: String,
    #[serde(default)]
    pub name: Option<String>,
    pub expires_on: String,
    /// The command to run on the other machine.
    pub command: String,
}

pub fn token(ticket: &JoinTokenRecord, token: String, url: &str) -> TokenDocument {
    let name = ticket.host.as_ref().map(ToString::to_string);
    let flag = name.as_ref().map(|name| format!(" --name {name}")).unwrap_or_default();
    TokenDocument {
        command: format!("muster agent --join {url} --token {token}{flag}"),
        token,
        pool: ticket.intent.to_string(),
        name,
        expires_on: timestamp::format(ticket.expires_at),
    }
}

#[cfg(test)]
mod tests {
    use muster_core::model::WorkspaceKey;

    use super::*;

    #[test]
    fn a_join_token_is_for_every_scope_unless_it_names_one() {
        assert_eq!(parse_ticket(b"").unwrap().intent, Scope::Everything);
        let key = WorkspaceKey::new("s", "g", "w");
        for intent in [Scope::Everything, Scope::workspace(&key), Scope::compute(&key, "cpu")] {
            let text = ticket_json(&intent, Some("box"), Some(60));
            let read = parse_ticket(text.as_bytes()).unwrap();
            let host = HostName::new("box").ok();
            assert_eq!(read, JoinTokenRequest { intent, host, good_for: Span::seconds(60) });
        }
        for bad in [r#"{"pool":"nowhere"}"#, r#"{"name":"-"}"#, r#"{"expiresInSeconds":-1}"#, "[]"]
        {
            assert!(parse_ticket(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
