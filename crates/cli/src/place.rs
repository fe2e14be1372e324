//! Finding the server: by the directory in which it keeps its state, and which only its owner can read; or, for
//! everybody else, by its address and a key of their own.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use muster_server::state_dir::{StateDir, StateDirError};
use muster_server::tokens::OWNER_KEY_FILE;

use crate::failure::{Failure, Outcome, printable, quoted};

const VARIABLE: &str = "MUSTER_STATE_DIR";
/// The three that say where a server is without its directory.
const URL_VARIABLE: &str = "MUSTER_URL";
const KEY_VARIABLE: &str = "MUSTER_API_KEY";
const CA_VARIABLE: &str = "MUSTER_CA_FILE";
/// Keys and certificates take about 1 KiB, all public CAs about 250.
const FILE_BYTES_MAX: u64 = 2 << 20;

#[derive(Debug, clap::Args)]
pub struct StateDirArg {
    /// Where the server keeps its state
    /// [default: $MUSTER_STATE_DIR, $XDG_STATE_HOME/muster or ~/.local/state/muster]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// A server, and what it takes to speak to it.
pub struct Server {
    /// Only where it was found by its directory.
    pub dir: Option<StateDir>,
    pub url: String,
    pub key: String,
    pub ca_pem: Vec<u8>,
    /// Our CA alone: what is added to a client's own list.
    pub ca_file: PathBuf,
    /// The public CAs and ours: what replaces a client's own list.
    pub ca_bundle: PathBuf,
    /// Where the key is from, for whoever must look.
    pub key_source: String,
}

impl StateDirArg {
    /// The directory, absolute; whether it exists is another question.
    pub fn path(&self) -> Outcome<PathBuf> {
        let path = match &self.state_dir {
            Some(path) => path.clone(),
            None => default_path(|name| std::env::var_os(name).map(PathBuf::from))?,
        };
        std::path::absolute(&path)
            .map_err(|why| Failure::error(format!("cannot find {}: {why}", path.display())))
    }

    /// As given on the command line. A path that is not UTF-8 is left to whoever reads the command.
    pub fn given(&self) -> Option<&str> {
        self.state_dir.as_deref().and_then(Path::to_str)
    }

    pub fn find(&self) -> Outcome<Server> {
        let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        if let (None, Some(url)) = (&self.state_dir, variable(URL_VARIABLE)) {
            return by_address(url, variable(KEY_VARIABLE), variable(CA_VARIABLE));
        }
        let mut server = self.find_by_directory()?;
        if let Some(key) = variable(KEY_VARIABLE) {
            server.key = checked_key(key, KEY_VARIABLE)?;
            server.key_source = KEY_VARIABLE.to_owned();
        }
        Ok(server)
    }

    fn find_by_directory(&self) -> Outcome<Server> {
        let dir = StateDir::new(&self.path()?);
        let connection = dir.read_connection().map_err(|why| match &why {
            StateDirError::NeverStarted { .. } => Failure::not_found(printable(&why.to_string())),
            StateDirError::Unusable { .. }
            | StateDirError::Taken { .. }
            | StateDirError::File(_)
            | StateDirError::Damaged { .. } => Failure::of(&why),
        })?;
        if !connection.url.starts_with("https://") {
            return Err(Failure::error(format!(
                "{} names the address {}, which is not https; start the server again, it is written anew",
                dir.root().join("connection.json").display(),
                quoted(&connection.url)
            )));
        }
        let key_file = dir.keys().join(OWNER_KEY_FILE);
        let key = String::from_utf8(read(&key_file)?).unwrap_or_default().trim_end().to_owned();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::error(format!(
                "{} holds no key; restore it from a backup, or remove it and start the server again",
                key_file.display()
            )));
        }
        let ca_bundle = dir.pki().join("ca-bundle.pem");
        let ca_file = match connection.has_own_certificate {
            true => ca_bundle.clone(),
            false => dir.pki().join("ca.pem"),
        };
        Ok(Server {
            url: connection.url,
            key,
            ca_pem: read(&ca_file)?,
            ca_file,
            ca_bundle,
            key_source: key_file.display().to_string(),
            dir: Some(dir),
        })
    }
}

/// A server on another machine, or another user's.
fn by_address(url: String, key: Option<String>, ca_file: Option<String>) -> Outcome<Server> {
    let missing = |name: &str, what: &str| {
        Failure::refused(format!("{URL_VARIABLE} is set, but {name} is not: it has to be {what}"))
    };
    if !url.starts_with("https://") {
        return Err(Failure::refused(format!(
            "{URL_VARIABLE} is {}, which is no https address; write it as https://HOST:PORT",
            quoted(&url)
        )));
    }
    let key =
        key.ok_or_else(|| missing(KEY_VARIABLE, "the key that `muster user create` printed"))?;
    let ca_file = PathBuf::from(ca_file.ok_or_else(|| {
        missing(CA_VARIABLE, "the file with the server's CA, pki/ca.pem in its state directory")
    })?);
    Ok(Server {
        dir: None,
        url: url.trim_end_matches('/').to_owned(),
        key: checked_key(key, KEY_VARIABLE)?,
        ca_pem: read(&ca_file)?,
        ca_bundle: ca_file.clone(),
        ca_file,
        key_source: KEY_VARIABLE.to_owned(),
    })
}

/// It goes into a header.
fn checked_key(key: String, source: &str) -> Outcome<String> {
    if key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(key);
    }
    Err(Failure::refused(format!("{source} holds no key: keys are plain letters and digits")))
}

fn default_path(variable: impl Fn(&str) -> Option<PathBuf>) -> Outcome<PathBuf> {
    let set = |name: &str| variable(name).filter(|path| !path.as_os_str().is_empty());
    if let Some(path) = set(VARIABLE) {
        return Ok(path);
    }
    // A relative one is to be ignored, says the XDG specification.
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

fn read(path: &Path) -> Outcome<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut content)).map_err(
        |why| {
            Failure::error(format!("cannot read {}: {why}", path.display()))
                .hint("start the server again: `muster up` makes what is missing")
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
