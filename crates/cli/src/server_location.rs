//! Finding the server: through its state directory, which only its owner can read, or, for all other users, through its
//! address and their own key, from environment variables or from `muster login`.
//!
//! A flag or a variable selects the server; without either, the login does. The login's key is used whenever the
//! selected server is the login's, unless MUSTER_API_KEY is set.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use muster_server::pki::{BUNDLE_FILE, CA_FILE, files};
use muster_server::state_dir::{StateDir, StateDirError};
use muster_server::tokens::OWNER_KEY_FILE;

use crate::defaults;
use crate::failure::{CliResult, Failure, printable, quoted};
use crate::login::Login;
use crate::server_process;

const VARIABLE: &str = "MUSTER_STATE_DIR";
/// The three variables that describe a server without its state directory.
const URL_VARIABLE: &str = "MUSTER_URL";
const KEY_VARIABLE: &str = "MUSTER_API_KEY";
const CA_VARIABLE: &str = "MUSTER_CA_FILE";
/// Keys and certificates take about 1 KiB, all public CAs about 250.
const FILE_BYTES_MAX: u64 = 2 << 20;

#[derive(Debug, clap::Args)]
pub struct StateDirArg {
    /// State directory of the server
    /// [default: $MUSTER_STATE_DIR, $XDG_STATE_HOME/muster or ~/.local/state/muster]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// A server, and what is needed to connect to it.
pub struct Server {
    /// Set only if the server was found through its state directory.
    pub dir: Option<StateDir>,
    pub url: String,
    pub key: String,
    pub ca_pem: Vec<u8>,
    /// The server's CA alone, to be added to a client's own list.
    pub ca_file: PathBuf,
    /// The public CAs and the server's, to replace a client's own list. The server writes this file into its directory.
    pub ca_bundle: Option<PathBuf>,
    /// Where the key comes from, for messages.
    pub key_source: String,
}

impl StateDirArg {
    /// The absolute path of the directory, which may not exist.
    pub fn path(&self) -> CliResult<PathBuf> {
        let path = match &self.state_dir {
            Some(path) => path.clone(),
            None => default_path(|name| std::env::var_os(name).map(PathBuf::from))?,
        };
        std::path::absolute(&path)
            .map_err(|why| Failure::error(format!("cannot find {}: {why}", path.display())))
    }

    /// Like [`path`](Self::path), for a user with another home directory.
    pub fn path_for(&self, home: &Path) -> CliResult<PathBuf> {
        if self.state_dir.is_some() {
            return self.path();
        }
        default_path(|name| match name {
            VARIABLE => std::env::var_os(name).map(PathBuf::from),
            "HOME" => Some(home.to_owned()),
            _ => None,
        })
    }

    /// As given on the command line, but absolute: the command that contains it may run in another directory. A path
    /// that is not UTF-8 is left for the reader to correct.
    pub fn given(&self) -> Option<String> {
        let path = std::path::absolute(self.state_dir.as_deref()?).ok()?;
        path.to_str().map(str::to_owned)
    }

    pub fn find(&self) -> CliResult<Server> {
        let login = Login::read()?;
        if let Some(key) = variable(KEY_VARIABLE) {
            return self.find_server(login, Some((key, KEY_VARIABLE)));
        }
        self.find_server(login, None)
    }

    /// Uses this key instead of any other; `source` names its origin in messages.
    pub fn find_with_key(&self, key: String, source: &'static str) -> CliResult<Server> {
        self.find_server(Login::read().unwrap_or_default(), Some((key, source)))
    }

    fn find_server(
        &self,
        login: Option<Login>,
        key: Option<(String, &'static str)>,
    ) -> CliResult<Server> {
        let mut server = match (&self.state_dir, variable(URL_VARIABLE), login) {
            (None, Some(url), login) => return by_address(url, key, login),
            (None, None, Some(login)) if variable(VARIABLE).is_none() => {
                return by_address(login.url.clone(), key, Some(login));
            }
            (_, _, login) => {
                let mut server = self.find_by_directory()?;
                if let Some(login) = login.filter(|login| login.url == server.url) {
                    server.key = login.key;
                    server.key_source = Login::path()?.display().to_string();
                }
                server
            }
        };
        if let Some((key, source)) = key {
            server.key = checked_key(key, source)?;
            server.key_source = source.to_owned();
        }
        Ok(server)
    }

    /// The server that commands use if it is selected by an address rather than a directory, and what selected it.
    pub fn find_by_address(&self) -> CliResult<Option<(Server, &'static str)>> {
        let (url, chosen_by) = match variable(URL_VARIABLE) {
            _ if self.state_dir.is_some() => return Ok(None),
            Some(url) => (Some(url), URL_VARIABLE),
            None if variable(VARIABLE).is_some() => return Ok(None),
            None => (Login::read()?.map(|login| login.url), "muster login"),
        };
        let Some(url) = url else { return Ok(None) };
        let key = variable(KEY_VARIABLE).map(|key| (key, KEY_VARIABLE));
        by_address(url, key, Login::read()?).map(|server| Some((server, chosen_by)))
    }

    /// The server that is running for this directory, with its owner's key, and its process.
    pub fn find_running(&self) -> CliResult<Option<(Server, u32)>> {
        let dir = self.dir()?;
        let Some(connection) = unless_never(dir.read_connection())? else { return Ok(None) };
        let Some(pid) = server_process::holder(&dir, connection.pid) else { return Ok(None) };
        Ok(Some((self.find_by_directory()?, pid)))
    }

    /// The directory, if no other user could have changed its content.
    fn dir(&self) -> CliResult<StateDir> {
        let dir = StateDir::new(&self.path()?);
        dir.check_unshared(caller_of_sudo()).map_err(|why| Failure::of(&why))?;
        Ok(dir)
    }

    fn find_by_directory(&self) -> CliResult<Server> {
        let dir = self.dir()?;
        let connection = dir.read_connection().map_err(|why| match &why {
            StateDirError::NeverStarted { .. } => Failure::not_found(printable(&why.to_string())),
            StateDirError::Unusable { .. }
            | StateDirError::Taken { .. }
            | StateDirError::OtherMode { .. }
            | StateDirError::File(_)
            | StateDirError::Damaged { .. } => Failure::of(&why),
        })?;
        if !connection.url.starts_with("https://") {
            return Err(Failure::error(format!(
                "{} contains the address {}, which is not https; restart the server, which writes the file again",
                dir.connection_file().display(),
                quoted(&connection.url)
            )));
        }
        let key_file = dir.keys().join(OWNER_KEY_FILE);
        let key = String::from_utf8(read(&key_file)?).unwrap_or_default().trim_end().to_owned();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::error(format!(
                "{} contains no key; restore it from a backup, or remove it and restart the server",
                key_file.display()
            )));
        }
        let ca_bundle = dir.pki().join(BUNDLE_FILE);
        let ca_file = match connection.has_own_certificate {
            true => ca_bundle.clone(),
            false => dir.pki().join(CA_FILE),
        };
        Ok(Server {
            url: connection.url,
            key,
            ca_pem: read(&ca_file)?,
            ca_file,
            ca_bundle: Some(ca_bundle),
            key_source: key_file.display().to_string(),
            dir: Some(dir),
        })
    }
}

/// A server on another machine, or of another user. Missing values come from the login if it is for this server.
fn by_address(
    url: String,
    key: Option<(String, &'static str)>,
    login: Option<Login>,
) -> CliResult<Server> {
    let missing = |name: &str, what: &str| {
        Failure::refused(format!("{URL_VARIABLE} is set, but {name} is not; set it to {what}"))
    };
    if !url.starts_with("https://") {
        return Err(Failure::refused(format!(
            "{URL_VARIABLE} is {}, which is not an https address; write it as https://HOST:PORT",
            quoted(&url)
        )));
    }
    let url = url.trim_end_matches('/').to_owned();
    let login = login.filter(|login| login.url == url);
    let (key, key_source) = match (key, &login) {
        (Some((key, source)), _) => (checked_key(key, source)?, source.to_owned()),
        (None, Some(login)) => (login.key.clone(), Login::path()?.display().to_string()),
        (None, None) => {
            return Err(missing(KEY_VARIABLE, "the key that `muster user create` printed"));
        }
    };
    let ca_file = variable(CA_VARIABLE).map(PathBuf::from).or(login.map(|login| login.ca_file));
    let ca_file = ca_file.ok_or_else(|| {
        missing(CA_VARIABLE, "the file with the server's CA, pki/ca.pem in its state directory")
    })?;
    let ca_pem = read(&ca_file)?;
    Ok(Server { dir: None, url, key, ca_pem, ca_file, ca_bundle: None, key_source })
}

/// A directory for files that belong to this server and this user; it is created if necessary.
pub fn own_dir(url: &str) -> CliResult<PathBuf> {
    let dir = defaults::path()?.with_file_name("servers").join(file_name_of(url));
    files::ensure_dir(&dir).map_err(|why| Failure::of(&why))?;
    Ok(dir)
}

/// `https://localhost:7443` → `localhost-7443`.
pub fn file_name_of(url: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    url.trim_start_matches("https://").chars().map(plain).collect()
}

/// The result of reading the directory, where "no server" is one of the possibilities.
fn unless_never<T>(read: Result<T, StateDirError>) -> CliResult<Option<T>> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(StateDirError::NeverStarted { .. }) => Ok(None),
        Err(why) => Err(Failure::of(&why)),
    }
}

/// With `sudo`, the files of the calling user are accepted.
fn caller_of_sudo() -> Option<u32> {
    variable("SUDO_UID").filter(|_| rustix::process::geteuid().is_root())?.parse().ok()
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The key is sent in a header, so it must be plain text.
fn checked_key(key: String, source: &str) -> CliResult<String> {
    if key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(key);
    }
    Err(Failure::refused(format!("{source} contains no key: keys are plain letters and digits")))
}

fn default_path(variable: impl Fn(&str) -> Option<PathBuf>) -> CliResult<PathBuf> {
    let set = |name: &str| variable(name).filter(|path| !path.as_os_str().is_empty());
    if let Some(path) = set(VARIABLE) {
        return Ok(path);
    }
    // The XDG specification requires that relative paths be ignored.
    if let Some(path) = set("XDG_STATE_HOME").filter(|path| path.is_absolute()) {
        return Ok(path.join("muster"));
    }
    match set("HOME") {
        Some(home) => Ok(home.join(".local/state/muster")),
        None => Err(Failure::refused(format!(
            "neither {VARIABLE} nor HOME is set, so there is no state directory; give --state-dir"
        ))),
    }
}

fn read(path: &Path) -> CliResult<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut content)).map_err(
        |why| {
            Failure::error(format!("cannot read {}: {why}", path.display()))
                .hint("restart the server, which creates missing files: use muster up, or muster serve if it was started with that")
        },
    )?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_variable_wins() {
        let with = |variables: &[(&str, &str)]| {
            let found = default_path(|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| PathBuf::from(value))
            });
            found.ok().map(|path| path.display().to_string())
        };
        let home = ("HOME", "/home/ada");
        assert_eq!(with(&[home]).as_deref(), Some("/home/ada/.local/state/muster"));
        assert_eq!(with(&[home, ("XDG_STATE_HOME", "/x")]).as_deref(), Some("/x/muster"));
        let relative = [home, ("XDG_STATE_HOME", "x")];
        assert_eq!(with(&relative).as_deref(), Some("/home/ada/.local/state/muster"));
        let all = [home, ("XDG_STATE_HOME", "/x"), ("MUSTER_STATE_DIR", "here")];
        assert_eq!(with(&all).as_deref(), Some("here"));
        let empty = [home, ("MUSTER_STATE_DIR", "")];
        assert_eq!(with(&empty).as_deref(), Some("/home/ada/.local/state/muster"));
        assert_eq!(with(&[]), None);
    }
}
