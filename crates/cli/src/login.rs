//! `muster login` and `muster logout`, as in az: which user later commands act as, and on which server.
//!
//! A login is one file in the user's configuration directory, with the server's address, the key, and the path of the
//! CA. It applies only to the server that was found at login: the key is never sent to another server that a variable
//! or a flag selects.

use std::io::{BufRead as _, IsTerminal as _, Stdin};
use std::path::{Path, PathBuf};

use clap::ArgGroup;
use muster_server::pki::files;
use muster_wire::access::MeDocument;
use muster_wire::{AccessRoute, Route};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::defaults;
use crate::failure::{CliResult, Failure, brief, quoted};
use crate::output;
use crate::server_location::{self, StateDirArg};

const FILE: &str = "login.json";

/// Sign in and save the credentials
///
/// Without flags, it asks for your key, which an owner creates with `muster user create`, and does not echo it.
///
/// The server is the one that other commands would use: from the state directory, or from MUSTER_URL and
/// MUSTER_CA_FILE.
#[derive(Debug, clap::Args)]
#[command(
    group = ArgGroup::new("how").args(["identity", "service_principal"]),
    after_help = "Mutating, exposes: saves the key to login.json in the configuration directory, for this user only."
)]
pub struct Args {
    /// Use the available key: MUSTER_API_KEY, or the owner's from the state directory
    #[arg(long)]
    identity: bool,
    /// Sign in as a service principal, with its client id and secret
    #[arg(long, requires_all = ["username", "password"])]
    service_principal: bool,
    /// Your user name, or for a service principal its client id (the object id in `muster user list`)
    #[arg(short, long, value_name = "ID", conflicts_with = "identity")]
    username: Option<String>,
    /// Key; "-" reads it from standard input, so that it is not in the process list [default: prompt]
    #[arg(short, long, value_name = "SECRET", conflicts_with = "identity")]
    password: Option<String>,
    /// Ignored: a server has only one tenant [accepted for compatibility with az]
    #[arg(short, long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    place: StateDirArg,
}

/// Sign out: delete the saved credentials
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mutating: removes login.json from the configuration directory. The key remains valid."
)]
pub struct LogoutArgs {}

/// The content of the login file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    pub url: String,
    pub key: String,
    pub ca_file: PathBuf,
}

impl Login {
    /// The path of the login file, whether or not it exists.
    pub fn path() -> CliResult<PathBuf> {
        Ok(defaults::path()?.with_file_name(FILE))
    }

    /// Returns `None` if there is no login, or no directory for one.
    pub fn read() -> CliResult<Option<Login>> {
        let Ok(path) = Login::path() else { return Ok(None) };
        let content = files::read_private(&path).map_err(|why| Failure::of(&why))?;
        content.map(|content| Login::parse(&content, &path)).transpose()
    }

    pub fn parse(content: &[u8], path: &Path) -> CliResult<Login> {
        serde_json::from_slice(content).map_err(|why| {
            let why = brief(&why.to_string());
            Failure::error(format!("the login in {} cannot be used: {why}", path.display()))
                .hint("run `muster logout`, then `muster login` again")
        })
    }

    fn write(&self, path: &Path) -> CliResult {
        if let Some(dir) = path.parent() {
            files::ensure_dir(dir).map_err(|why| Failure::of(&why))?;
        }
        files::write(path, &self.text(), files::PRIVATE).map_err(|why| Failure::of(&why))
    }

    /// The login as the bytes of its file.
    pub fn text(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("plain fields");
        text.push(b'\n');
        text
    }
}

pub async fn run(args: &Args) -> CliResult {
    let path = Login::path()?;
    let server = match &args.password {
        Some(secret) => args.place.find_with_key(secret_of(secret)?, "--password")?,
        None if args.identity => args.place.find()?,
        None => args.place.find_with_key(ask_for_key()?, "standard input")?,
    };
    let (url, key, ca_pem) = (server.url.clone(), server.key.clone(), server.ca_pem.clone());
    let client = Client::connect(server).await?;
    let me: MeDocument = client.get(&Route::Access(AccessRoute::Me)).await?;
    // A service principal is identified by its id alone.
    let is_name = |wanted: &str| !args.service_principal && wanted.eq_ignore_ascii_case(&me.name);
    let is_same = |wanted: &str| wanted.eq_ignore_ascii_case(&me.object_id) || is_name(wanted);
    if let Some(wanted) = args.username.as_deref().filter(|wanted| !is_same(wanted)) {
        return Err(Failure::error(format!(
            "the key does not belong to {}; nothing was saved",
            quoted(wanted)
        ))
        .hint("a service principal's client id is its object id in `muster user list`"));
    }
    // The CA is copied because the state directory may belong to another user or be deleted.
    let ca_file = server_location::own_dir(&url)?.join("ca.pem");
    files::write(&ca_file, &ca_pem, files::PUBLIC).map_err(|why| Failure::of(&why))?;
    let login = Login { url, key, ca_file };
    login.write(&path)?;
    output::say(&format!(
        "logged in as {} (object id {}, tenant {}) on {}",
        quoted(&me.name),
        me.object_id,
        me.tenant_id,
        login.url
    ));
    Ok(())
}

pub fn log_out(_: &LogoutArgs) -> CliResult {
    let path = Login::path()?;
    if !path.exists() {
        output::say("not logged in");
        return Ok(());
    }
    files::remove(&path).map_err(|why| Failure::of(&why))?;
    output::say(&format!("logged out: removed {}", path.display()));
    Ok(())
}

/// Reads the key; a terminal does not echo it.
fn ask_for_key() -> CliResult<String> {
    const HOW: &str = "an owner creates a key with `muster user create --name NAME`; the owner of the state directory needs \
                       none: muster login --identity";
    let stdin = std::io::stdin();
    let hidden = match stdin.is_terminal() {
        true => {
            output::say(&format!("paste your key; it is not displayed ({HOW})"));
            Some(Hidden::begin(&stdin)?)
        }
        false => None,
    };
    let key = secret_of("-")?;
    drop(hidden);
    if key.is_empty() {
        return Err(Failure::refused("no key was given; nothing was saved").hint(HOW));
    }
    Ok(key)
}

/// Turns off the terminal's echo until it is dropped.
struct Hidden<'t> {
    stdin: &'t Stdin,
    before: Termios,
}

impl Hidden<'_> {
    fn begin(stdin: &Stdin) -> CliResult<Hidden<'_>> {
        let failed = |why| Failure::error(format!("cannot turn off the terminal's echo: {why}"));
        let before = tcgetattr(stdin).map_err(failed)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stdin, OptionalActions::Flush, &silent).map_err(failed)?;
        Ok(Hidden { stdin, before })
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        // A failure here cannot be reported, and there is no alternative.
        let _ = tcsetattr(self.stdin, OptionalActions::Now, &self.before);
    }
}

fn secret_of(given: &str) -> CliResult<String> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|why| Failure::error(format!("cannot read the secret: {why}")))?;
    Ok(line.trim_end().to_owned())
}
