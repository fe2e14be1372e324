//! `muster env`: the environment variables that point Azure's own clients at this server.
//!
//! It prints all of them or none: with half of the set, a client would silently talk to Azure itself.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use muster_server::pki;
use muster_wire::cloud::CLOUD_NAME;
use muster_wire::{Login, Route};

use crate::failure::{CliResult, Failure};
use crate::output;
use crate::server_location::{self, Server, StateDirArg};

/// The name of this program.
const NAME: &str = "muster";
/// Some clients expect a list of clouds and some a single object. This version of the document is a list, which every
/// client that reads the variable understands.
const METADATA_API_VERSION: &str = "2019-05-01";

/// Variables that select another identity, which clients would try first, that direct clients to another server, or
/// that disable certificate checks.
const STRAY: [&str; 19] = [
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_TENANT_ID",
    "AZURE_CLIENT_CERTIFICATE_PATH",
    "AZURE_USERNAME",
    "AZURE_PASSWORD",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_POD_IDENTITY_AUTHORITY_HOST",
    "AZURE_REGIONAL_AUTHORITY_NAME",
    "AZURE_CLOUD_NAME",
    "AZURE_CLI_DISABLE_CONNECTION_VERIFICATION",
    "ADAL_PYTHON_SSL_NO_VERIFY",
    "AZUREML_DEV_URL_MFE",
    "AZUREML_SERVICE_PRINCIPAL_ID",
    "AZUREML_SERVICE_PRINCIPAL_PASSWORD",
    "AZUREML_SERVICE_PRINCIPAL_TENANT_ID",
    "IDENTITY_SERVER_THUMBPRINT",
    "IMDS_ENDPOINT",
    "MSI_CLIENT_ID",
];

const PROXY_VARIABLES: [&str; 3] = ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"];

/// Print the environment variables that point Azure's clients at this server
///
/// Use it as: eval "$(muster env)", in fish: muster env --shell fish | source,
/// in PowerShell: muster env --shell powershell | Out-String | Invoke-Expression
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only, exposes: the output contains your key; do not share it.")]
pub struct Args {
    /// Shell, or json, to print the variables for
    #[arg(long, value_enum, default_value_t = Shell::Sh)]
    shell: Shell,
    #[command(flatten)]
    place: StateDirArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shell {
    /// sh, bash, zsh and similar shells
    Sh,
    /// fish
    Fish,
    /// PowerShell
    Powershell,
    /// A JSON object, for programs
    Json,
}

type Variables = BTreeMap<&'static str, String>;

pub fn run(args: &Args) -> CliResult {
    let server = args.place.find()?;
    let mut variables = variables(&server)?;
    let set = |name: &str| {
        let value = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        value(&name.to_ascii_lowercase()).or_else(|| value(name))
    };
    if PROXY_VARIABLES.iter().any(|name| set(name).is_some()) {
        let direct = without_proxy(set("NO_PROXY").as_deref(), host_of(&server.url));
        variables.insert("NO_PROXY", direct.clone());
        variables.insert("no_proxy", direct);
    }
    match args.shell {
        Shell::Sh => output::bytes(sh(&variables).as_bytes()),
        Shell::Fish => output::bytes(fish(&variables).as_bytes()),
        Shell::Powershell => output::bytes(powershell(&variables).as_bytes()),
        Shell::Json => output::json(&variables),
    }
}

fn variables(server: &Server) -> CliResult<Variables> {
    let query = [("api-version", METADATA_API_VERSION)];
    let metadata =
        Route::Login(Login::Metadata).url(&server.url, &query).expect("the metadata has a path");
    let authority = format!("{}/adfs", server.url.trim_end_matches('/'));
    let token =
        Route::Login(Login::Token).url(&server.url, &[]).expect("the token's route has a path");
    let bundle = match &server.ca_bundle {
        Some(bundle) => existing(bundle)?,
        None => own_bundle(server)?,
    };
    let mut variables = BTreeMap::from([
        ("ARM_CLOUD_METADATA_URL", metadata),
        // With the name set, a client that cannot read the metadata fails instead of falling back to Azure.
        ("AZUREML_CURRENT_CLOUD", CLOUD_NAME.to_owned()),
        ("IDENTITY_ENDPOINT", token.clone()),
        ("IDENTITY_HEADER", server.key.clone()),
        // The same for azureml-core, which reads them only if it believes that it runs in a web app.
        ("MSI_ENDPOINT", token),
        ("MSI_SECRET", server.key.clone()),
        ("APPSETTING_WEBSITE_SITE_NAME", "muster".to_owned()),
        // Prevents fallback to another identity of this machine, such as az's or an editor's, when ours is refused. Of
        // the values that keep ours, azure-identity 1.23 accepts only this one.
        ("AZURE_TOKEN_CREDENTIALS", "prod".to_owned()),
        // If the user sets the variables of a service principal afterwards, it signs in here. For an `adfs` authority
        // no client asks Microsoft whether it is valid; az has its own switch for that.
        ("AZURE_AUTHORITY_HOST", authority),
        ("AZURE_CORE_INSTANCE_DISCOVERY", "false".to_owned()),
        ("AZURE_CORE_COLLECT_TELEMETRY", "no".to_owned()),
        // az stores a cloud's addresses and logins there. They must not mix with those of the real Azure or of another
        // server.
        ("AZURE_CONFIG_DIR", text(&az_dir(server)?)?),
        ("REQUESTS_CA_BUNDLE", bundle.clone()),
        ("SSL_CERT_FILE", bundle),
        ("NODE_EXTRA_CA_CERTS", existing(&server.ca_file)?),
    ]);
    if let Some(dir) = extension_dir(|name| std::env::var_os(name)) {
        variables.insert("AZURE_EXTENSION_DIR", text(&dir)?);
    }
    // Lets our own commands find the server in the same way as this one did.
    match &server.dir {
        Some(dir) => variables.extend([("MUSTER_STATE_DIR", text(dir.root())?)]),
        None => variables.extend([
            ("MUSTER_URL", server.url.clone()),
            ("MUSTER_API_KEY", server.key.clone()),
            ("MUSTER_CA_FILE", text(&server.ca_file)?),
        ]),
    }
    Ok(variables)
}

/// The bundle is stored beside the login: the server's own is in its state directory, which may be on another machine.
fn own_bundle(server: &Server) -> CliResult<String> {
    let ca_pem = String::from_utf8_lossy(&server.ca_pem);
    let written = pki::write_bundle(&server_location::own_dir(&server.url)?, &ca_pem);
    text(&written.map_err(|why| Failure::of(&why))?.path)
}

/// az creates the folder. There is one per address, because az never re-reads a cloud's addresses.
fn az_dir(server: &Server) -> CliResult<PathBuf> {
    match &server.dir {
        Some(dir) => Ok(dir.root().join("az").join(server_location::file_name_of(&server.url))),
        None => Ok(server_location::own_dir(&server.url)?.join("az")),
    }
}

/// Where az's extensions are by default; `az ml` is one.
fn extension_dir(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("AZURE_EXTENSION_DIR").or_else(|| {
        let config = set("AZURE_CONFIG_DIR").or_else(|| Some(set("HOME")?.join(".azure")));
        Some(config?.join("cliextensions"))
    })
}

fn existing(path: &Path) -> CliResult<String> {
    if !path.is_file() {
        return Err(Failure::error(format!("{} is missing", path.display()))
            .hint("restart the server, which writes this file: use muster up, or muster serve if it was started with that"));
    }
    text(path)
}

fn text(path: &Path) -> CliResult<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::refused(format!(
            "the path {} is not UTF-8, so it cannot be printed; use a state directory with a UTF-8 path",
            path.display()
        ))
    })
}

/// `https://[::1]:7443/` → `::1`.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.split(':').next().unwrap_or(authority),
    }
}

/// The list of hosts to reach without a proxy, including the server's.
fn without_proxy(present: Option<&str>, host: &str) -> String {
    let known =
        |list: &str| list.split(',').any(|one| matches!(one.trim(), "*") || one.trim() == host);
    match present {
        Some(list) if known(list) => list.to_owned(),
        Some(list) => format!("{list},{host}"),
        None => host.to_owned(),
    }
}

/// Each line ends with `;` and the comments come last, so that the script still works when the quotes around
/// `$(muster env)` are forgotten and the shell joins all lines into one.
fn sh(variables: &Variables) -> String {
    let mut script = String::new();
    for (name, value) in variables {
        script.push_str(&format!("export {name}={};\n", shell_quoted(value)));
    }
    script.push_str(&format!("unset {};\n", STRAY.join(" ")));
    script.push_str(
        "# Unset because they would lead Azure's clients to another identity or another server.\n",
    );
    script.push_str("# Use as: eval \"$(muster env)\"\n");
    script
}

/// In PowerShell's single quotes, a quote is doubled and nothing else is special.
fn powershell(variables: &Variables) -> String {
    let mut script = String::new();
    for (name, value) in variables {
        script.push_str(&format!("$env:{name} = '{}'\n", value.replace('\'', "\'\'")));
    }
    for name in STRAY {
        script.push_str(&format!("Remove-Item Env:{name} -ErrorAction SilentlyContinue\n"));
    }
    script
}

fn fish(variables: &Variables) -> String {
    let mut script = String::new();
    for (name, value) in variables {
        let value = value.replace('\\', "\\\\").replace('\'', "\\'");
        script.push_str(&format!("set -gx {name} '{value}';\n"));
    }
    // Erasing an unset variable is an error in fish, but a silent one.
    script.push_str(&format!("set -e {};\n", STRAY.join(" ")));
    script.push_str(
        "# Erased because they would lead Azure's clients to another identity or another server.\n",
    );
    script.push_str("# Use as: muster env --shell fish | source\n");
    script
}

/// This program as another shell finds it: by name if PATH leads to it, else by path.
pub fn program() -> String {
    let Ok(own) = std::env::current_exe() else { return NAME.to_owned() };
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&folders).map(|folder| folder.join(NAME));
    let found = found.find(|file| file.is_file()).and_then(|file| file.canonicalize().ok());
    match found {
        Some(found) if found == own => NAME.to_owned(),
        _ => shell_quoted(&own.to_string_lossy()),
    }
}

/// Quotes with single quotes, in which a shell interprets nothing but a single quote.
pub fn shell_quoted(text: &str) -> String {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | ':' | '@');
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const NASTY: &str = "a b'c\"d$HOME`id`\\e\n;f*?#";

    #[test]
    fn a_shell_reads_back_every_value() {
        let variables = BTreeMap::from([("ONE", NASTY.to_owned()), ("TWO", "plain/x".to_owned())]);
        let script = format!("{}printf '%s|%s' \"$ONE\" \"$TWO\"", sh(&variables));
        let printed = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(printed.stdout).unwrap(), format!("{NASTY}|plain/x"));
        assert!(printed.stderr.is_empty());
    }

    #[test]
    fn it_also_works_when_the_quotes_are_forgotten() {
        let variables = BTreeMap::from([("ONE", "1".to_owned()), ("TWO", "plain/x".to_owned())]);
        let joined = sh(&variables).replace('\n', " ");
        let script = format!(
            "AZURE_CLIENT_ID=x; {joined}\nprintf '%s|%s|%s' $ONE $TWO \"$AZURE_CLIENT_ID\""
        );
        let printed = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(printed.stdout).unwrap(), "1|plain/x|");
    }

    #[test]
    fn fish_quotes_are_escaped_its_own_way() {
        let variables = BTreeMap::from([("ONE", r"a\b'c".to_owned())]);
        assert!(fish(&variables).starts_with("set -gx ONE 'a\\\\b\\'c';\n"));
    }

    #[test]
    fn powershell_doubles_quotes() {
        let variables = BTreeMap::from([("ONE", r"a$b'c".to_owned())]);
        let script = powershell(&variables);
        assert!(script.starts_with("$env:ONE = 'a$b''c'\n"), "{script}");
        assert!(script.contains("Remove-Item Env:AZURE_CLIENT_ID"), "{script}");
    }

    #[test]
    fn the_extensions_of_az_stay_where_they_are() {
        let found = |set: &[(&str, &str)]| {
            let found = extension_dir(|name| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            });
            found.map(|dir| dir.display().to_string())
        };
        let home = ("HOME", "/home/ada");
        assert_eq!(found(&[home]).as_deref(), Some("/home/ada/.azure/cliextensions"));
        let config = ("AZURE_CONFIG_DIR", "/a");
        assert_eq!(found(&[home, config]).as_deref(), Some("/a/cliextensions"));
        let ours = [home, config, ("AZURE_EXTENSION_DIR", "/e")];
        assert_eq!(found(&ours).as_deref(), Some("/e"));
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn the_host_is_added_to_what_goes_without_a_proxy() {
        assert_eq!(host_of("https://localhost:7443"), "localhost");
        assert_eq!(host_of("https://[::1]:7443/"), "::1");
        assert_eq!(without_proxy(None, "h"), "h");
        assert_eq!(without_proxy(Some("a, b"), "h"), "a, b,h");
        assert_eq!(without_proxy(Some("a, h"), "h"), "a, h");
        assert_eq!(without_proxy(Some("*"), "h"), "*");
    }
}
