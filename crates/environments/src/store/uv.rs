//! Finds uv and runs it: in its own process group, with its output line by line, until it ends or has to be killed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process_group, set_parent_process_death_signal,
};

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The most output that is recorded; the rest is left out.
const LOG_BYTES_MAX: u64 = 4 << 20;
const LINE_CHARS_MAX: usize = 2_000;
/// The operator's variables that uv needs: the package indexes, and the trusted certificates.
const PASSED_ON: [&str; 15] = [
    "PATH",
    "HOME",
    "LANG",
    "XDG_CONFIG_HOME",
    "NETRC",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoUv {
    #[error(
        "the program {0}, which the server's setting uv names, does not exist; install uv (pip install uv) and correct the setting"
    )]
    NotThere(PathBuf),
    #[error(
        "uv, which builds environments, is not installed on the host that needs them; install it there (pip install uv), or \
         set its path with MUSTER_UV (on the server also with the setting uv)"
    )]
    Nowhere,
}

/// Finds uv: as the setting says, otherwise in the search path, otherwise beside this program.
pub fn find(setting: Option<&Path>) -> Result<PathBuf, NoUv> {
    if let Some(path) = setting {
        let found = Some(path.to_owned()).filter(|path| is_program(path));
        return found.ok_or_else(|| NoUv::NotThere(path.to_owned()));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let beside = std::env::current_exe().ok();
    let beside = beside.as_deref().and_then(Path::parent).map(Path::to_owned);
    let mut all = folders.chain(beside).map(|folder| folder.join("uv"));
    all.find(|path| is_program(path)).ok_or(NoUv::Nowhere)
}

/// Returns the message for the operator of this host if there is no uv, with the remedy.
pub fn missing(setting: Option<&Path>) -> Option<String> {
    let why = find(setting).err()?;
    Some(format!("jobs that need a Python environment will fail, because {why}"))
}

fn is_program(path: &Path) -> bool {
    let about = std::fs::metadata(path);
    about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// Creates a command with almost nothing of our own environment.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    let uv_own = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with("UV_"));
    let passed = std::env::vars_os()
        .filter(|(name, _)| PASSED_ON.iter().any(|one| name == *one) || uv_own(name));
    // From the root folder, because below another one there could be a project whose settings would apply.
    command.env_clear().envs(passed).env("NO_COLOR", "1").current_dir("/").stdin(Stdio::null());
    command
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot run it")]
    Io(#[from] io::Error),
    #[error("it took longer than {} minutes (environment-minutes)", .0.as_secs().div_ceil(60))]
    TooLong(Duration),
    #[error("the server is stopping")]
    Stopping,
}

/// Receives the output.
pub struct Listener<'a> {
    pub log: &'a Mutex<File>,
    pub say: &'a (dyn Fn(&str) + Sync),
}

impl Listener<'_> {
    pub fn line(&self, line: &str) {
        (self.say)(line);
        let mut log = self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_full = log.metadata().is_ok_and(|about| about.len() > LOG_BYTES_MAX);
        // If the log cannot be written, the line is still passed on.
        let _ = if is_full { Ok(()) } else { writeln!(log, "{line}") };
    }

    /// Reads the output until every process has closed the other end.
    fn read(&self, pipe: impl io::Read) {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        loop {
            line.clear();
            // A line without an end is read in chunks.
            let mut piece = io::Read::take(&mut pipe, 64 << 10);
            match piece.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&line);
            let plain = |c: char| if c.is_control() { ' ' } else { c };
            let text: String = text.trim_end().chars().take(LINE_CHARS_MAX).map(plain).collect();
            if !text.is_empty() {
                self.line(&text);
            }
        }
    }
}

/// Runs the command until it ends, or kills it and all its children. Only for a thread that lives until then: the
/// kernel kills what a thread started when the thread ends.
pub fn run(
    mut command: Command,
    listener: &Listener<'_>,
    until: Instant,
    within: Duration,
    is_stopping: &dyn Fn() -> bool,
) -> Result<ExitStatus, RunError> {
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer).process_group(0);
    let server = getpid();
    // SAFETY: only system calls are made between fork and exec; nothing allocates or takes a lock.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The server may have died before the line above, and then that signal never comes.
            match getppid() == Some(server) {
                true => Ok(()),
                false => Err(io::ErrorKind::BrokenPipe.into()),
            }
        });
    }
    let mut group = Group(command.spawn()?);
    // Our copy of the pipe must be closed, or reading would never end.
    drop(command);
    std::thread::scope(|scope| {
        scope.spawn(|| listener.read(reader));
        let ended = loop {
            if is_stopping() {
                break Err(RunError::Stopping);
            }
            if Instant::now() >= until {
                break Err(RunError::TooLong(within));
            }
            match group.0.try_wait()? {
                Some(status) => break Ok(status),
                None => std::thread::sleep(LOOK_EVERY),
            }
        };
        // Kills leftover processes too, or the reader would wait for them.
        drop(group);
        ended
    })
}

/// Kills the process group when it is dropped.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // The number is not reused until the process is reaped, or as long as a member of its group is alive.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}
