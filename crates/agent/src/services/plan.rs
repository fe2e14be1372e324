//! Plans which services an attempt has on this node, and what is run for them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use muster_core::agent::Assignment;
use muster_core::model::{JobService, JobSpec, ServiceKind, service_path};

use crate::environment::path_of;

/// Passes the script that starts the services to the shell that becomes the job's command.
const VARIABLE: &str = "MUSTER_SERVICES";
/// Precedes the job's own command. The parent of each service has already exited, so that a `wait` in the command does
/// not wait for it.
const BEFORE: &str = "eval \"$MUSTER_SERVICES\"; unset MUSTER_SERVICES\n";
/// The folder of their output, below the job's folder: saved and shown with the rest of `logs/`.
const LOGS: &str = "logs/services";
/// What a board shows by default.
const DEFAULT_LOG_DIR: &str = "outputs";
/// The name of code-server's login cookie.
const EDITOR_COOKIE: &str = "code-server-session";
const NO_SSH: &str =
    "jobs here do not support ssh; use a service of type JupyterLab, which has a terminal";

#[derive(Debug, Default)]
pub(crate) struct Services(BTreeMap<String, Service>);

#[derive(Debug)]
pub(super) struct Service {
    kind: ServiceKind,
    pub(super) port: Option<u16>,
    /// The secret that grants access, which other processes on the node do not know.
    token: Option<String>,
    /// The path at which the service is found.
    path: String,
    /// Why there is no such service.
    pub(super) refused: Option<String>,
}

impl Service {
    /// Whether we start the service.
    pub(super) fn is_ours(&self) -> bool {
        program(self.kind).is_some()
    }

    /// Whether the service is told the path at which it is found.
    pub(super) fn keeps_path(&self) -> bool {
        matches!(self.kind, ServiceKind::JupyterLab | ServiceKind::TensorBoard)
    }

    pub(super) fn authorization(&self) -> Option<Box<str>> {
        let token = self.token.as_ref().filter(|_| self.kind == ServiceKind::JupyterLab)?;
        Some(format!("token {token}").into())
    }

    pub(super) fn cookie(&self) -> Option<Box<str>> {
        let token = self.token.as_ref().filter(|_| self.kind == ServiceKind::VsCode)?;
        Some(format!("{EDITOR_COOKIE}={token}").into())
    }

    fn command(&self, name: &str, log_dir: Option<&str>) -> Option<String> {
        let (port, path) = (self.port.filter(|_| self.refused.is_none())?, &self.path);
        let start = match self.kind {
            ServiceKind::Custom | ServiceKind::RayDashboard | ServiceKind::Ssh => return None,
            ServiceKind::JupyterLab => format!(
                "JUPYTER_TOKEN={} jupyter-lab --no-browser --allow-root --ServerApp.ip=127.0.0.1 \
                 --ServerApp.port={port} --ServerApp.port_retries=0 --ServerApp.base_url={path}/ \
                 --ServerApp.allow_remote_access=True \
                 --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate --LabApp.news_url=None",
                self.token.as_deref().unwrap_or_default()
            ),
            ServiceKind::TensorBoard => format!(
                "tensorboard --logdir {} --host 127.0.0.1 --port {port} --path_prefix {path} --reload_interval 5",
                folder(log_dir.unwrap_or(DEFAULT_LOG_DIR))
            ),
            // A job's own PORT would win over the flag. code-server accepts the hash of the password as its cookie.
            ServiceKind::VsCode => format!(
                "HASHED_PASSWORD={} env -u PORT -u CODE_SERVER_HOST code-server --bind-addr 127.0.0.1:{port} \
                 --auth password --disable-telemetry --disable-update-check --disable-workspace-trust .",
                self.token.as_deref().unwrap_or_default()
            ),
        };
        Some(format!("( {start} </dev/null >>{LOGS}/{name}.log 2>&1 & )\n"))
    }
}

impl Services {
    pub(crate) fn plan(
        assignment: &Assignment,
        spec: &JobSpec,
        server_port: Option<u16>,
    ) -> io::Result<Services> {
        let mut all = BTreeMap::new();
        for (name, wanted) in spec.services.iter().filter(|(_, one)| one.is_on(assignment.rank)) {
            let path = service_path(assignment.epoch, assignment.rank, name);
            let refused = refusal(wanted, &path_of(spec), server_port);
            let port = match (wanted.known_port(), program(wanted.kind)) {
                (None, Some(_)) => Some(free_port()?),
                (port, _) => port,
            };
            // Both execute arbitrary code for their clients.
            let token = match wanted.kind {
                ServiceKind::JupyterLab | ServiceKind::VsCode => Some(secret()?),
                ServiceKind::TensorBoard
                | ServiceKind::RayDashboard
                | ServiceKind::Ssh
                | ServiceKind::Custom => None,
            };
            all.insert(name.clone(), Service { kind: wanted.kind, port, token, path, refused });
        }
        Ok(Services(all))
    }

    pub(super) fn all(&self) -> &BTreeMap<String, Service> {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lines in the job's log about services that are not available.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(|(name, service)| {
            let why = service.refused.as_deref()?;
            Some(format!("service '{name}' is not available: {why}"))
        })
    }

    /// Returns the command to run instead of the job's, and the variable that it needs.
    pub(crate) fn beside(
        &self,
        command: String,
        log_dirs: &BTreeMap<String, String>,
    ) -> (String, Option<(String, OsString)>) {
        let start = |(name, service): (&String, &Service)| {
            service.command(name, log_dirs.get(name).map(String::as_str))
        };
        let script: String = self.0.iter().filter_map(start).collect();
        if script.is_empty() {
            return (command, None);
        }
        let script = format!("mkdir -p {LOGS}\n{script}");
        (format!("{BEFORE}{command}"), Some((VARIABLE.to_owned(), script.into())))
    }
}

/// Refers to the log of a service.
pub(super) fn log_words(name: &str) -> String {
    format!("; see {LOGS}/{name}.log of the job")
}

/// Returns why there cannot be such a service here, with the remedy.
fn refusal(wanted: &JobService, path: &str, server_port: Option<u16>) -> Option<String> {
    if wanted.kind == ServiceKind::Ssh {
        return Some(NO_SSH.to_owned());
    }
    if let Some(port) = wanted.known_port().filter(|port| Some(*port) == server_port) {
        return Some(format!("port {port} leads to the server on every node; choose another"));
    }
    let (program, remedy) = program(wanted.kind)?;
    let is_there = path.split(':').any(|folder| is_program(&Path::new(folder).join(program)));
    (!is_there).then(|| format!("{program} is not installed in the job's environment; {remedy}"))
}

/// Returns the program that we start for a service, and how to install it. There is none if the job's own command
/// listens.
fn program(kind: ServiceKind) -> Option<(&'static str, &'static str)> {
    match kind {
        ServiceKind::JupyterLab => {
            Some(("jupyter-lab", "add jupyterlab to the pip packages of its conda file"))
        }
        ServiceKind::TensorBoard => {
            Some(("tensorboard", "add tensorboard to the pip packages of its conda file"))
        }
        ServiceKind::VsCode => Some((
            "code-server",
            "install code-server on the node's host (it is not a pip package), or start a web-based editor in the \
             command and give its port to a service of type Custom",
        )),
        ServiceKind::RayDashboard | ServiceKind::Ssh | ServiceKind::Custom => None,
    }
}

fn is_program(path: &Path) -> bool {
    let found = path.is_absolute().then(|| path.metadata().ok()).flatten();
    found.is_some_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Finds a port that is not in use right now.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Creates a secret that no other process on this node can guess.
fn secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Quotes a path as one shell word, with the job's own folder for `~`.
fn folder(text: &str) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    match text.strip_prefix("~/") {
        Some(rest) => format!("\"$HOME\"/{}", quoted(rest)),
        None => quoted(text),
    }
}

#[cfg(test)]
mod tests {
    use muster_core::ids::Epoch;
    use muster_core::model::SpecHash;

    use super::*;

    fn assignment(rank: u32) -> Assignment {
        Assignment {
            epoch: Epoch(7),
            job_name: "j".into(),
            attempt: 1,
            spec: SpecHash::made_up("hash"),
            rank,
            nodes: 2,
            go: true,
            share: None,
            addresses: Vec::new(),
            evict: None,
            task: None,
            followers: Vec::new(),
            is_recalled: false,
        }
    }

    fn service(kind: ServiceKind, port: Option<u16>) -> JobService {
        JobService { kind, port, on_all_nodes: false, properties: BTreeMap::new() }
    }

    fn spec(services: &[(&str, JobService)], path: &str) -> JobSpec {
        let services = services.iter().map(|(name, one)| ((*name).to_owned(), one.clone()));
        let environment_variables = BTreeMap::from([("PATH".to_owned(), path.to_owned())]);
        JobSpec {
            services: services.collect(),
            environment_variables,
            ..JobSpec::new("cpu", "true")
        }
    }

    #[test]
    fn what_is_not_installed_is_named_with_its_remedy() {
        let spec = spec(&[("jl", service(ServiceKind::JupyterLab, None))], "/nowhere:relative");
        let plan = Services::plan(&assignment(0), &spec, None).unwrap();
        let why = plan.0["jl"].refused.as_deref().unwrap();
        assert!(
            why.contains("jupyter-lab is not installed") && why.contains("jupyterlab"),
            "{why}"
        );
        let said: Vec<String> = plan.refusals().collect();
        assert_eq!(said, [format!("service 'jl' is not available: {why}")]);
        // There is nothing to start in this case.
        assert_eq!(plan.beside("true".into(), &BTreeMap::new()), ("true".to_owned(), None));
    }

    #[test]
    fn an_unsupported_azure_service_does_not_stop_a_job() {
        let all = [
            ("code", service(ServiceKind::VsCode, None)),
            ("ray", service(ServiceKind::RayDashboard, None)),
            ("shell", service(ServiceKind::Ssh, Some(22))),
        ];
        let plan = Services::plan(&assignment(0), &spec(&all, "/nowhere"), None).unwrap();
        let said: Vec<String> = plan.refusals().collect();
        assert_eq!(said.len(), 2);
        assert!(said[0].contains("code-server is not installed"), "{said:?}");
        assert!(said[1].contains("do not support ssh"), "{said:?}");
        assert_eq!((plan.0["ray"].port, plan.0["shell"].port), (Some(8265), None));
        assert_eq!(plan.beside("true".into(), &BTreeMap::new()), ("true".to_owned(), None));
    }

    #[test]
    fn an_editor_admits_only_clients_with_its_cookie() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("code-server");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = folder.path().display().to_string();
        let spec = spec(&[("code", service(ServiceKind::VsCode, Some(8080)))], &path);
        let plan = Services::plan(&assignment(0), &spec, None).unwrap();
        let editor = &plan.0["code"];
        assert!(!editor.keeps_path() && editor.authorization().is_none());
        let cookie = editor.cookie().unwrap();
        let secret = cookie.strip_prefix("code-server-session=").unwrap();
        let (_, variable) = plan.beside("true".into(), &BTreeMap::new());
        let script = variable.unwrap().1.into_string().unwrap();
        assert!(script.contains(&format!("HASHED_PASSWORD={secret} ")), "{script}");
        assert!(script.contains("--bind-addr 127.0.0.1:8080 --auth password"), "{script}");
    }

    #[test]
    fn services_are_started_beside_the_command_and_do_not_hold_it_up() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("tensorboard");
        std::fs::write(&program, "#!/bin/sh\necho \"$@\"; exec sleep 30\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let spec = spec(&[("tb", service(ServiceKind::TensorBoard, Some(6006)))], &path);
        let plan = Services::plan(&assignment(0), &spec, Some(7443)).unwrap();
        let dirs = BTreeMap::from([("tb".to_owned(), "~/it's here".to_owned())]);
        let command = "wait; sleep 0.3; echo ${MUSTER_SERVICES-none}; exit 3";
        let (command, variable) = plan.beside(command.into(), &dirs);
        let began = std::time::Instant::now();
        let done = std::process::Command::new("/bin/sh")
            .args(["-c", &command])
            .current_dir(folder.path())
            .env_clear()
            .env("PATH", &path)
            .env("HOME", "/home/x")
            .envs(variable)
            .output()
            .unwrap();
        assert!(began.elapsed().as_secs() < 20, "its `wait` does not wait for the service");
        assert_eq!(done.status.code(), Some(3));
        assert_eq!(String::from_utf8_lossy(&done.stdout), "none\n");
        let log = std::fs::read_to_string(folder.path().join("logs/services/tb.log")).unwrap();
        assert_eq!(
            log.trim_end(),
            "--logdir /home/x/it's here --host 127.0.0.1 --port 6006 --path_prefix \
             /services/a0000000000000007/0/tb --reload_interval 5"
        );
    }

    #[test]
    fn the_port_of_the_server_is_no_service_and_other_nodes_have_none() {
        let spec = spec(&[("own", service(ServiceKind::Custom, Some(7443)))], "/bin");
        let plan = Services::plan(&assignment(0), &spec, Some(7443)).unwrap();
        assert!(plan.0["own"].refused.as_deref().unwrap().contains("leads to the server"));
        assert!(Services::plan(&assignment(1), &spec, Some(7443)).unwrap().is_empty());
    }
}
