//! The services of a job, which people open in a browser: as clients request them, as a job shows them, and as run
//! history has them for one of its nodes.

use std::collections::BTreeMap;

use muster_core::model::{JobPhase, JobService, ServiceKind};
use serde::{Deserialize, Serialize};

use super::resource::JobFacts;
use crate::error::{ArmError, ErrorDetail};
use crate::json::{Field, shorten};

/// The only value of `nodes`.
const ALL_NODES: &str = "All";
/// Services that the server adds to every job. Clients send them back when they resubmit a job.
const OWN: [&str; 2] = ["Tracking", STUDIO];
/// The service whose endpoint is the job's page.
pub const STUDIO: &str = "Studio";
const KINDS: [ServiceKind; 6] = [
    ServiceKind::JupyterLab,
    ServiceKind::TensorBoard,
    ServiceKind::VsCode,
    ServiceKind::RayDashboard,
    ServiceKind::Ssh,
    ServiceKind::Custom,
];

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceEntry {
    #[serde(default)]
    pub job_service_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Nodes {
    pub nodes_value_type: String,
}

/// The state of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceStatus {
    /// The job has not started.
    NotStarted,
    /// Nothing is listening on its port yet.
    Starting,
    Running,
    Failed,
    /// The job has ended.
    Stopped,
}

impl ServiceStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            ServiceStatus::NotStarted => "NotStarted",
            ServiceStatus::Starting => "Starting",
            ServiceStatus::Running => "Running",
            ServiceStatus::Failed => "Failed",
            ServiceStatus::Stopped => "Stopped",
        }
    }

    /// The status that follows from the job alone.
    fn of(phase: JobPhase) -> ServiceStatus {
        match phase {
            JobPhase::Queued => ServiceStatus::NotStarted,
            JobPhase::Starting | JobPhase::Running => ServiceStatus::Starting,
            JobPhase::CancelRequested
            | JobPhase::Completed
            | JobPhase::Failed
            | JobPhase::Canceled => ServiceStatus::Stopped,
        }
    }
}

/// What only the node knows about a service, and the URL of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceView {
    pub status: ServiceStatus,
    pub port: Option<u16>,
    pub error: Option<String>,
    pub endpoint: Option<String>,
}

impl ServiceEntry {
    pub(super) fn of(service: &JobService) -> ServiceEntry {
        let nodes = Nodes { nodes_value_type: ALL_NODES.to_owned() };
        ServiceEntry {
            job_service_type: Some(service.kind.as_str().to_owned()),
            port: service.port,
            nodes: service.on_all_nodes.then_some(nodes),
            properties: Some(service.properties.clone()).filter(|all| !all.is_empty()),
            ..ServiceEntry::default()
        }
    }

    /// The entry for the job's page at this URL.
    pub fn page(url: String) -> ServiceEntry {
        ServiceEntry {
            job_service_type: Some(STUDIO.to_owned()),
            endpoint: Some(url),
            ..ServiceEntry::default()
        }
    }

    pub fn tell(&mut self, view: &ServiceView) {
        self.status = Some(view.status.as_str().to_owned());
        self.port = view.port.or(self.port);
        self.error_message.clone_from(&view.error);
        self.endpoint.clone_from(&view.endpoint);
    }
}

/// The services of a job, with the status that follows from the job alone.
pub(super) fn services(facts: &JobFacts<'_>) -> BTreeMap<String, ServiceEntry> {
    let status = ServiceStatus::of(facts.job.phase()).as_str();
    let entry = |service: &JobService| ServiceEntry {
        status: Some(status.to_owned()),
        ..ServiceEntry::of(service)
    };
    super::resource::named(&facts.spec.services, entry)
}

pub(super) fn parse_services(field: &Field<'_>) -> Result<BTreeMap<String, JobService>, ArmError> {
    let mut services = BTreeMap::new();
    for (name, service) in field.entries()?.unwrap_or_default() {
        let type_field = service.get("jobServiceType")?;
        let text = type_field.string()?;
        if !service.is_present() || text.is_some_and(|text| is_any_of(text, &OWN)) {
            continue;
        }
        let kind = kind_of(&type_field, text)?;
        let port = service.get("port")?;
        let number = port.count()?;
        let number = number.map(u16::try_from).transpose().map_err(|_| {
            let given = number.unwrap_or_default();
            port.invalid(format!("{} is {given}; give a port from 1 to 65535", port.path))
        })?;
        let nodes = service.get("nodes")?;
        let which = nodes.get("nodesValueType")?;
        let on_all_nodes = which.choice(&[(ALL_NODES, true)])?.unwrap_or(nodes.is_filled());
        let properties = service.get("properties")?.string_map()?.unwrap_or_default();
        services
            .insert(name.to_owned(), JobService { kind, port: number, on_all_nodes, properties });
    }
    Ok(services)
}

fn kind_of(field: &Field<'_>, text: Option<&str>) -> Result<ServiceKind, ArmError> {
    // Clients omit the type for a custom port.
    let Some(text) = text else { return Ok(ServiceKind::Custom) };
    if let Some(kind) = KINDS.into_iter().find(|kind| is_any_of(text, &[kind.as_str()])) {
        return Ok(kind);
    }
    Err(field.unknown(text, &KINDS.map(ServiceKind::as_str)))
}

fn is_any_of(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(text))
}

/// The services on one node of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceInstances {
    pub instances: BTreeMap<String, ServiceInstance>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceInstance {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub port: Option<u16>,
    #[serde(default)]
    pub status: Option<String>,
    #[serde(default)]
    pub error: Option<InstanceError>,
    #[serde(default)]
    pub endpoint: Option<String>,
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceError {
    pub error: ErrorDetail,
}

/// `node` is the index in the path of the request; `view` returns what is known about a service there.
pub fn instances(
    facts: &JobFacts<'_>,
    node: &str,
    view: impl Fn(&str, u32) -> Option<ServiceView>,
) -> Result<ServiceInstances, ArmError> {
    let nodes = facts.spec.nodes;
    let Some(rank) = node.parse::<u32>().ok().filter(|rank| *rank < nodes) else {
        return Err(ArmError::not_found(
            "nodeId",
            format!(
                "job '{}' has no node '{}'; its nodes are 0 to {}",
                facts.job.name,
                shorten(node),
                nodes.saturating_sub(1)
            ),
        ));
    };
    let from_job = ServiceStatus::of(facts.job.phase());
    let on_node = facts.spec.services.iter().filter(|(_, service)| service.is_on(rank));
    let instance = |(name, service): (&String, &JobService)| {
        let known = view(name, rank);
        let view = known.unwrap_or(ServiceView {
            status: from_job,
            port: service.port,
            error: None,
            endpoint: None,
        });
        let error = view
            .error
            .map(|message| InstanceError { error: ErrorDetail::new("ServiceFailed", message) });
        let instance = ServiceInstance {
            kind: service.kind.as_str().to_owned(),
            port: view.port.or(service.port),
            status: Some(view.status.as_str().to_owned()),
            error,
            endpoint: view.endpoint,
            properties: service.properties.clone(),
        };
        (name.clone(), instance)
    };
    Ok(ServiceInstances { instances: on_node.map(instance).collect() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(services: &Value) -> Result<BTreeMap<String, JobService>, ArmError> {
        let body = json!({ "services": services });
        parse_services(&Field::root(&body).get("services")?)
    }

    #[test]
    fn services_are_read_as_clients_send_them() {
        let read = parse(&json!({
            "jl": {"jobServiceType": "JupyterLab"},
            "tb": {"jobServiceType": "TensorBoard", "port": 6006, "properties": {"logDir": "outputs"},
                   "nodes": {"nodesValueType": "All"}},
            "code": {"jobServiceType": "vscode"},
            "ray": {"jobServiceType": "RayDashboard"},
            "shell": {"jobServiceType": "SSH", "properties": {"sshPublicKeys": "<keys>"}},
            "web": {"jobServiceType": null, "port": 8080, "nodes": null, "endpoint": null},
            "Tracking": {"jobServiceType": "Tracking", "endpoint": "https://x", "port": null},
            "Studio": {"jobServiceType": "Studio", "endpoint": "https://x"},
            "none": null,
        }))
        .unwrap();
        assert_eq!(read.keys().collect::<Vec<_>>(), ["code", "jl", "ray", "shell", "tb", "web"]);
        assert_eq!(read["jl"].kind, ServiceKind::JupyterLab);
        assert_eq!(read["code"].kind, ServiceKind::VsCode);
        assert_eq!((read["ray"].port, read["ray"].known_port()), (None, Some(8265)));
        assert_eq!((read["shell"].kind, read["shell"].known_port()), (ServiceKind::Ssh, None));
        assert!(read["tb"].on_all_nodes && !read["web"].on_all_nodes);
        assert_eq!((read["tb"].port, read["web"].kind), (Some(6006), ServiceKind::Custom));
        assert_eq!(read["tb"].properties["logDir"], "outputs");
        // What is shown equals what was sent, and is read back as that.
        let shown = serde_json::to_value(super::super::resource::named(&read, ServiceEntry::of));
        assert_eq!(parse(&shown.unwrap()).unwrap(), read);
        assert!(parse(&json!(null)).unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_served_is_refused_with_what_can() {
        for (service, words) in [
            (json!({"jobServiceType": "Web"}), "give 'JupyterLab', 'TensorBoard'"),
            (json!({"port": 70000}), "give a port from 1 to 65535"),
            (json!({"port": "x"}), "port"),
            (json!({"port": 1, "nodes": {"nodesValueType": "Some"}}), "'All'"),
            (json!([]), "services.s"),
        ] {
            let error = parse(&json!({ "s": service })).unwrap_err();
            assert_eq!((error.status, error.code()), (400, "InvalidPropertyValue"), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
