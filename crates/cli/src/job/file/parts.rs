//! The parts of a job that have the same meaning in every kind of document.

use std::path::PathBuf;

use muster_core::time::Span;
use muster_wire::duration;
use muster_wire::job::property;
use muster_wire::yaml::tree::{Node, Value};
use serde_json::{Map, Value as Json, json};

use super::Code;
use crate::document::reader::{self, Reader};
use crate::failure::{CliResult, Failure, quoted};

const PREFIX: &str = "azureml:";

/// `azureml:NAME` and `NAME` both mean `NAME`.
pub fn without_prefix(text: &str) -> String {
    text.strip_prefix(PREFIX).unwrap_or(text).to_owned()
}

/// Paths in a file are relative to its folder, and may have the prefix `file:`.
pub fn local(job: &Reader<'_>, text: &str) -> PathBuf {
    job.source.folder.join(text.strip_prefix("file:").unwrap_or(text))
}

pub fn code(job: &Reader<'_>) -> CliResult<Option<Code>> {
    let Some(text) = job.text("code")? else { return Ok(None) };
    let node = job.get("code").unwrap_or(job.node);
    if ["git+", "https://", "http://"].iter().any(|scheme| text.starts_with(scheme)) {
        return Ok(Some(Code::Address(text)));
    }
    if text.starts_with("azureml://") || text.starts_with("/subscriptions/") {
        return Ok(Some(Code::Id(text)));
    }
    if let Some(reference) = text.strip_prefix(PREFIX) {
        if reference.starts_with('/') || reference.starts_with("//") {
            return Ok(Some(Code::Id(reference.to_owned())));
        }
        return match reference.split_once(':') {
            Some((name, version)) => Ok(Some(Code::Asset(name.to_owned(), version.to_owned()))),
            None => Err(job.wrong("code", node, "azureml:NAME:VERSION, or the path of a folder")),
        };
    }
    let (path, file) = (local(job, &text), job.source.name.clone());
    Ok(Some(Code::Local { path, at: node.place, file }))
}

/// Environment variables are strings, also where the file has numbers or booleans.
pub fn variables(job: &Reader<'_>) -> CliResult<Option<Json>> {
    let Some(node) = job.get("environment_variables") else { return Ok(None) };
    let mut variables = Map::new();
    for entry in job.named("environment_variables")? {
        let value = match &entry.value.value {
            Value::Bool(value) => Some(value.to_string()),
            Value::Null => Some(String::new()),
            _ => entry.value.as_python(),
        };
        let value = value.ok_or_else(|| {
            job.wrong(&format!("environment_variables.{}", entry.key), node, "a text")
        })?;
        variables.insert(entry.key.clone(), value.into());
    }
    Ok(Some(variables.into()))
}

pub fn resources(job: &Reader<'_>) -> CliResult<Option<Json>> {
    let known = [
        "instance_count",
        "instance_type",
        "max_instance_count",
        "shm_size",
        "docker_args",
        "locations",
        "properties",
    ];
    let Some(resources) = job.inner("resources", &known)? else { return Ok(None) };
    let mut wanted = Map::new();
    let mut put = |key: &str, value: Option<Json>| {
        if let Some(value) = value {
            wanted.insert(key.to_owned(), value);
        }
    };
    put("instanceCount", resources.whole("instance_count")?.map(Json::from));
    put("maxInstanceCount", resources.whole("max_instance_count")?.map(Json::from));
    put("instanceType", resources.text("instance_type")?.map(Json::from));
    put("shmSize", resources.text("shm_size")?.map(Json::from));
    match resources.get("docker_args") {
        Some(Node { value: Value::List(items), .. }) => {
            let items = items.iter().filter_map(|item| item.as_text().map(Json::from));
            put("dockerArgsList", Some(items.collect::<Vec<_>>().into()));
        }
        _ => put("dockerArgs", resources.text("docker_args")?.map(Json::from)),
    }
    put("locations", resources.get("locations").map(json_of));
    // This is sent even if it is empty, as azure-ai-ml does.
    let more = resources.get("properties").map(json_of);
    put("properties", Some(more.unwrap_or_else(|| json!({}))));
    Ok(Some(wanted.into()))
}

/// The JSON form of a value that is passed on unchanged.
fn json_of(node: &Node) -> Json {
    serde_json::to_value(node).unwrap_or_default()
}

pub fn distribution(job: &Reader<'_>) -> CliResult<Option<Json>> {
    let known = [
        "type",
        "process_count_per_instance",
        "worker_count",
        "parameter_server_count",
        "port",
        "address",
        "include_dashboard",
        "dashboard_port",
        "head_node_additional_args",
        "worker_node_additional_args",
    ];
    let Some(said) = job.inner("distribution", &known)? else { return Ok(None) };
    let kinds =
        [("pytorch", "PyTorch"), ("mpi", "Mpi"), ("tensorflow", "TensorFlow"), ("ray", "Ray")];
    let Some(kind) = said.choice("type", &kinds)? else {
        let node = job.get("distribution").unwrap_or(job.node);
        return Err(job.wrong("distribution", node, "its type: pytorch, mpi or tensorflow"));
    };
    let mut wanted = Map::new();
    wanted.insert("distributionType".to_owned(), kind.into());
    let mut put = |key: &str, value: Option<Json>| {
        if let Some(value) = value {
            wanted.insert(key.to_owned(), value);
        }
    };
    put("processCountPerInstance", said.whole("process_count_per_instance")?.map(Json::from));
    let servers = said.whole("parameter_server_count")?;
    let servers = servers.or((kind == "TensorFlow").then_some(0));
    put("parameterServerCount", servers.map(Json::from));
    put("workerCount", said.whole("worker_count")?.map(Json::from));
    put("port", said.whole("port")?.map(Json::from));
    put("address", said.text("address")?.map(Json::from));
    put("includeDashboard", said.boolean("include_dashboard")?.map(Json::from));
    put("dashboardPort", said.whole("dashboard_port")?.map(Json::from));
    put("headNodeAdditionalArgs", said.text("head_node_additional_args")?.map(Json::from));
    put("workerNodeAdditionalArgs", said.text("worker_node_additional_args")?.map(Json::from));
    Ok(Some(wanted.into()))
}

pub fn limits(job: &Reader<'_>) -> CliResult<Option<Json>> {
    let Some(limits) = job.inner("limits", &["timeout"])? else { return Ok(None) };
    let timeout = limits.whole("timeout")?;
    let timeout = timeout.map(|seconds| duration::format(Span::seconds(seconds)));
    Ok(Some(match timeout {
        Some(timeout) => json!({ "jobLimitsType": "Command", "timeout": timeout }),
        None => json!({ "jobLimitsType": "Command" }),
    }))
}

/// The properties that make a job an array: `array: 0-99%8`, or the same as fields.
pub fn array(job: &Reader<'_>) -> CliResult<Vec<(String, Json)>> {
    let Some(node) = job.get("array") else { return Ok(Vec::new()) };
    let (text, timeout) = match node.as_text() {
        Some(text) => (text.to_owned(), None),
        None => {
            let known = ["indices", "max_concurrent_tasks", "timeout"];
            let fields = job.inner("array", &known)?;
            let indices = fields.as_ref().map(|fields| fields.text("indices")).transpose()?;
            let (Some(fields), Some(indices)) = (fields, indices.flatten()) else {
                return Err(job.wrong("array", node, "indices, such as 0-99 or 0-99%8"));
            };
            let limit = fields.whole("max_concurrent_tasks")?;
            let limit = limit.map(|limit| format!("%{limit}")).unwrap_or_default();
            (format!("{indices}{limit}"), fields.whole("timeout")?)
        }
    };
    muster_wire::job::parse_plan(&text).map_err(|why| {
        let at = reader::place(job.source, node.place);
        Failure::refused(format!("{at}array is {}: {why}", quoted(&text)))
    })?;
    let timeout = timeout.map(|seconds| duration::format(Span::seconds(seconds)));
    let timeout = timeout.map(|timeout| (property::ARRAY_TIMEOUT.to_owned(), timeout.into()));
    let array = (property::ARRAY.to_owned(), text.into());
    Ok(std::iter::once(array).chain(timeout).collect())
}

pub fn identity(job: &Reader<'_>) -> CliResult<Option<Json>> {
    let known = ["type", "client_id", "object_id", "msi_resource_id"];
    let Some(identity) = job.inner("identity", &known)? else { return Ok(None) };
    let kinds = [
        ("managed", "Managed"),
        ("managed_identity", "Managed"),
        ("aml_token", "AMLToken"),
        ("user_identity", "UserIdentity"),
    ];
    let Some(kind) = identity.choice("type", &kinds)? else {
        let node = job.get("identity").unwrap_or(job.node);
        let wanted = "its type: managed, user_identity or aml_token";
        return Err(job.wrong("identity", node, wanted));
    };
    let mut wanted = Map::new();
    wanted.insert("identityType".to_owned(), kind.into());
    for (key, name) in
        [("client_id", "clientId"), ("object_id", "objectId"), ("msi_resource_id", "resourceId")]
    {
        if let Some(text) = identity.text(key)? {
            wanted.insert(name.to_owned(), text.into());
        }
    }
    Ok(Some(wanted.into()))
}

pub fn services(job: &Reader<'_>) -> CliResult<Option<Json>> {
    if job.get("services").is_none() {
        return Ok(None);
    }
    let known = [
        "type",
        "port",
        "nodes",
        "properties",
        "log_dir",
        "ssh_public_keys",
        "endpoint",
        "status",
        "error_message",
        "job_service_type",
    ];
    let kinds = [
        ("jupyter_lab", Some("JupyterLab")),
        ("ssh", Some("SSH")),
        ("tensor_board", Some("TensorBoard")),
        ("vs_code", Some("VSCode")),
        // azure-ai-ml sends this type for its classes, but not for its files: then nothing would tell the port.
        ("ray_dashboard", Some("RayDashboard")),
        // Azure's clients send these without their type.
        ("custom", None),
        ("tracking", None),
        ("studio", None),
    ];
    let mut services = Map::new();
    for entry in job.named("services")? {
        let path = format!("services.{}", entry.key);
        let said = Reader::of(job.source, &path, &entry.value, &known)?;
        let mut service = Map::new();
        let mut put = |key: &str, value: Option<Json>| {
            if let Some(value) = value {
                service.insert(key.to_owned(), value);
            }
        };
        put("jobServiceType", said.choice("type", &kinds)?.flatten().map(Json::from));
        put("port", said.whole("port")?.map(Json::from));
        if said.choice("nodes", &[("all", ())])?.is_some() {
            put("nodes", Some(json!({ "nodesValueType": "All" })));
        }
        let mut noted = said.texts("properties")?.unwrap_or_default();
        for (key, name) in [("log_dir", "logDir"), ("ssh_public_keys", "sshPublicKeys")] {
            if let Some(text) = said.text(key)? {
                noted.insert(name.to_owned(), text.into());
            }
        }
        put("properties", (!noted.is_empty()).then(|| noted.into()));
        services.insert(entry.key.clone(), service.into());
    }
    Ok(Some(services.into()))
}

pub fn queue(job: &Reader<'_>) -> CliResult<Option<Json>> {
    let Some(queue) = job.inner("queue_settings", &["job_tier", "priority"])? else {
        return Ok(None);
    };
    let tiers = [
        ("null", "Null"),
        ("spot", "Spot"),
        ("basic", "Basic"),
        ("standard", "Standard"),
        ("premium", "Premium"),
    ];
    let mut wanted = Map::new();
    if let Some(tier) = queue.choice("job_tier", &tiers)? {
        wanted.insert("jobTier".to_owned(), tier.into());
    }
    if let Some(priority) = queue.choice("priority", &[("low", 1), ("medium", 2), ("high", 3)])? {
        wanted.insert("priority".to_owned(), priority.into());
    }
    Ok(Some(wanted.into()))
}
