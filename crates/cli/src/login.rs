//! `muster login` and `muster logout`, in az's words: who later commands act as, and on which server.
//!
//! A login is one file of its user's: the server's address, its key, and where its CA is. It is for the server that was
//! found when it was made, and for no other: a variable or a flag that leads elsewhere does not take the key
//! along.

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

/// Keep who you are, for later commands
///
/// Without a flag it asks for your key, which an owner made with `muster user create`, and does not show what you type.
///
/// The server is the one that other commands would use: of the state directory, or of MUSTER_URL and
/// MUSTER_CA_FILE.
#[derive(Debug, clap::Args)]
#[command(
    group = ArgGroup::new("how").args(["identity", "service_principal"]),
    after_help = "Mutating, exposes: keeps the key in login.json of the configuration directory, for this user only."
)]
pub struct Args {
    /// With the key at hand: MUSTER_API_KEY, or the owner's in the state directory
    #[arg(long)]
    identity: bool,
    /// As a service principal, with its client id and secret
    #[arg(long, requires_all = ["username", "password"])]
    service_principal: bool,
    /// Who you are: your name, or for a service principal its client id, which is its object id in `muster user list`
    #[arg(short, long, value_name = "ID", conflicts_with = "identity")]
    username: Option<String>,
    /// The key; "-" reads it from standard input, where no list of processes shows it [default: ask for it]
    #[arg(short, long, value_name = "SECRET", conflicts_with = "identity")]
    password: Option<String>,
    /// Any: a server has one tenant [az's flag, of no effect]
    #[arg(short, long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    place: StateDirArg,
}

/// Forget who you are: commands use the state directory or the variables again
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mutating: removes login.json of the configuration directory. The key stays valid."
)]
pub struct LogoutArgs {}

/// The file's content.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    pub url: String,
    pub key: String,
    pub ca_file: PathBuf,
}

impl Login {
    /// Where the file is, or would be.
    pub fn path() -> CliResult<PathBuf> {
        Ok(defaults::path()?.with_file_name(FILE))
    }

    /// None without a login, or without a place for one.
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

    /// The file's content.
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
    // A program is known by its id alone.
    let is_name = |wanted: &str| !args.service_principal && wanted.eq_ignore_ascii_case(&me.name);
    let is_same = |wanted: &str| wanted.eq_ignore_ascii_case(&me.object_id) || is_name(wanted);
    if let Some(wanted) = args.username.as_deref().filter(|wanted| !is_same(wanted)) {
        return Err(Failure::error(format!(
            "the key is not that of {}, so nothing was kept",
            quoted(wanted)
        ))
        .hint("a service principal's client id is its object id in `muster user list`"));
    }
    // A copy, as the state directory may be another's, or go.
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
        output::say("there is no login");
        return Ok(());
    }
    files::remove(&path).map_err(|why| Failure::of(&why))?;
    output::say(&format!("the login is gone from {}", path.display()));
    Ok(())
}

/// What a terminal shows while the key is typed is nothing.
fn ask_for_key() -> CliResult<String> {
    const HOW: &str = "an owner makes a key with `muster user create --name NAME`; who owns the state directory needs none: \
                       muster login --identity";
    let stdin = std::io::stdin();
    let hidden = match stdin.is_terminal() {
        true => {
            output::say(&format!("paste your key, which is not shown ({HOW})"));
            Some(Hidden::begin(&stdin)?)
        }
        false => None,
    };
    let key = secret_of("-")?;
    drop(hidden);
    if key.is_empty() {
        return Err(Failure::refused("no key was given, so nothing was kept").hint(HOW));
    }
    Ok(key)
}

/// A terminal that does not echo, until it is dropped.
struct Hidden<'t> {
    stdin: &'t Stdin,
    before: Termios,
}

impl Hidden<'_> {
    fn begin(stdin: &Stdin) -> CliResult<Hidden<'_>> {
        let failed = |why| Failure::error(format!("cannot hide what is typed: {why}"));
        let before = tcgetattr(stdin).map_err(failed)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stdin, OptionalActions::Flush, &silent).map_err(failed)?;
        Ok(Hidden { stdin, before })
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        // There is nobody to tell that it failed, and nothing else to try.
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
