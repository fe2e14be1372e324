//! Creates a node's folder and starts its agent there.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use muster_agent::descriptors::close_others_on_exec;
use muster_agent::home::{Home, make_private_dir};
use muster_agent::identity::Identity;
use muster_agent::kin;
use muster_core::ids::ClusterId;
use rustix::process::{Signal, setsid};

use super::LocalConfig;
use crate::CreateError;

/// The variables that an agent inherits. The rest of the server's environment is not passed on, because it may contain
/// secrets.
const INHERITED: [&str; 7] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "RUST_LOG", "RUST_BACKTRACE"];
/// The waiting thread only calls one function.
const REAPER_STACK_BYTES: usize = 64 * 1024;

pub(super) fn start(
    config: &LocalConfig,
    (name, cluster): (&str, ClusterId),
    home: &Home,
) -> Result<(), CreateError> {
    let folder_failed = |source| CreateError::Folder { dir: home.dir().to_path_buf(), source };
    if has_agent(home).map_err(folder_failed)? {
        return Ok(());
    }
    let secret = (config.node_secret)(name);
    prepare(home, &secret).map_err(folder_failed)?;
    spawn(config, (name, cluster), home).map_err(|source| CreateError::Start {
        node: name.to_owned(),
        program: config.agent_binary.clone(),
        source,
    })
}

fn has_agent(home: &Home) -> io::Result<bool> {
    Ok(Identity::read(&home.agent_pid())?.is_some_and(|agent| agent.is_alive()))
}

fn prepare(home: &Home, secret: &str) -> io::Result<()> {
    make_private_dir(home.dir())?;
    let temporary = home.secret().with_extension("new");
    let mut file = private().truncate(true).write(true).open(&temporary)?;
    file.write_all(secret.as_bytes())?;
    std::fs::rename(temporary, home.secret())?;
    match std::fs::remove_file(home.agent_pid()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

/// If we die in here, nothing is lost: the agent records itself first of all, until then its environment identifies it,
/// and a second agent for the folder ends by itself.
fn spawn(config: &LocalConfig, (name, cluster): (&str, ClusterId), home: &Home) -> io::Result<()> {
    let log = private().append(true).open(home.agent_log())?;
    let child = command(config, (name, cluster), home, log)?.spawn()?;
    // An existing record is not overwritten: it would be that of an earlier agent, and ours is about to end.
    if let Some(agent) = Identity::of(child.id())? {
        agent.write_if_absent(&home.agent_pid())?;
    }
    reap_when_over(child)
}

fn command(
    config: &LocalConfig,
    (name, cluster): (&str, ClusterId),
    home: &Home,
    log: File,
) -> io::Result<Command> {
    let environments = config.environments.as_ref().map(|dir| dir.join(cluster.0.to_string()));
    let inherited = INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mut command = Command::new(&config.agent_binary);
    command
        .args(["agent", "--node", name, "--dir"])
        .arg(home.dir())
        .args(["--server", &config.server_url, "--ca"])
        .arg(&config.ca_file)
        .args(environments.iter().flat_map(|dir| ["--environments".as_ref(), dir.as_os_str()]))
        .current_dir(home.dir())
        .env_clear()
        .envs(inherited)
        .env(kin::NODE_VARIABLE, name)
        .env(kin::DIR_VARIABLE, home.dir())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    // SAFETY: only two system calls are made between fork and exec; nothing allocates or takes a lock.
    unsafe {
        command.pre_exec(|| {
            // In its own session, the agent outlives the server and the server's terminal.
            setsid()?;
            close_others_on_exec()
        });
    }
    Ok(command)
}

/// Reaps the agent when it ends. A thread for each works for any number of nodes that one host can run, cannot reap the
/// children of another part, and, unlike a double fork, needs no init process that reaps orphans (in a container there
/// is often none).
fn reap_when_over(mut child: Child) -> io::Result<()> {
    let agent = Identity::of(child.id())?;
    let thread = std::thread::Builder::new().name("reaper".into()).stack_size(REAPER_STACK_BYTES);
    let waiting = thread.spawn(move || {
        // This fails only if the agent has already been reaped.
        let _ = child.wait();
    });
    if let Err(error) = waiting {
        // A host without room for a thread has no room for a node either.
        if let Some(agent) = agent.map(|agent| agent.open()).transpose()?.flatten() {
            agent.signal(Signal::KILL)?;
        }
        return Err(error);
    }
    Ok(())
}
