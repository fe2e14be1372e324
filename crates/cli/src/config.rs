//! The configuration of a server: flags take precedence over variables, variables over the file, the file over
//! defaults.
//!
//! Unknown keys and invalid values are refused, with the place where they are written: a typing mistake must never
//! silently select a default.

mod kind;
mod print;
mod settings;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches};
use muster_server::Isolation;
use muster_server::pki::files;
use toml::de::{DeTable, DeValue};

use crate::failure::{CliResult, Failure, brief, quoted};
use crate::nearest::nearest;
use kind::{Kind, Value};
pub use print::print;
use settings::{Preset, SETTINGS, Setting};

/// The file in the state directory that is read if no other is named.
const FILE_NAME: &str = muster_server::state_dir::names::CONFIG;
const FILE_VARIABLE: &str = "MUSTER_CONFIG";
/// A configuration is about a page of text; a file near this size is something else.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The flags for every setting and for the configuration file.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    file: Option<PathBuf>,
    pub print: bool,
    given: BTreeMap<&'static str, String>,
}

/// The effective settings, each with its source.
pub struct Config {
    settled: Vec<Settled>,
}

pub struct Settled {
    setting: &'static Setting,
    value: Option<Value>,
    source: Source,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Default,
    File { path: PathBuf, line: usize },
    Variable,
    Flag,
}

impl clap::Args for Flags {
    fn augment_args(command: clap::Command) -> clap::Command {
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf));
        let file = file.help(format!(
            "Configuration file, in TOML [env: {FILE_VARIABLE}] [default: {FILE_NAME} in the state directory, \
             if it exists]"
        ));
        let print = Arg::new("print-config")
            .long("print-config")
            .action(ArgAction::SetTrue)
            .help("Print the effective configuration as a file with comments, and exit");
        let args = SETTINGS.iter().map(|setting| {
            let default = match setting.default {
                Preset::Fixed(text) | Preset::Derived(text) => format!(" [default: {text}]"),
                Preset::Unset => String::new(),
            };
            let what = setting.what.trim_end_matches('.');
            let arg = Arg::new(setting.key).long(setting.key).value_name(setting.kind.value_name());
            let arg = arg.help(format!("{what} [env: {}]{default}", setting.variable));
            let arg = arg.visible_aliases(setting.alias);
            match setting.kind {
                // With a value, the flag can also override the file.
                Kind::Switch => {
                    arg.num_args(0..=1).require_equals(true).default_missing_value("true")
                }
                _ => arg,
            }
        });
        command.arg(file).arg(print).args(args)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Flags::augment_args(command)
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Flags, clap::Error> {
        let text = |key: &'static str| Some((key, matches.get_one::<String>(key)?.clone()));
        Ok(Flags {
            file: matches.get_one("config").cloned(),
            print: matches.get_flag("print-config"),
            given: SETTINGS.iter().filter_map(|setting| text(setting.key)).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Flags::from_arg_matches(matches)?;
        Ok(())
    }
}

/// An empty variable counts as unset.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl Config {
    /// Loads the settings from all sources. `log_level` is the default for this command.
    pub fn gather(flags: &Flags, state_dir: &Path, log_level: &str) -> CliResult<Config> {
        let named = flags.file.clone().or_else(|| variable(FILE_VARIABLE).map(PathBuf::from));
        let filed = match named {
            Some(path) => read_file(&path, true)?,
            None => read_file(&state_dir.join(FILE_NAME), false)?,
        };
        Config::settle(flags, variable, filed, log_level)
    }

    /// The same, with the environment passed in.
    pub fn settle(
        flags: &Flags,
        variable: impl Fn(&str) -> Option<OsString>,
        mut filed: Filed,
        log_level: &str,
    ) -> CliResult<Config> {
        let mut settled = Vec::with_capacity(SETTINGS.len());
        for setting in SETTINGS {
            let wrong = |place: String| move |why| Failure::refused(format!("{place} {why}"));
            let (value, source) = if let Some(text) = flags.given.get(setting.key) {
                let value = setting.kind.read(text).map_err(wrong(format!("--{}", setting.key)))?;
                (Some(from_here(value, setting.kind)?), Source::Flag)
            } else if let Some(text) = variable(setting.variable) {
                let text = text.to_string_lossy();
                let value = setting.kind.read(&text).map_err(wrong(setting.variable.to_owned()))?;
                (Some(from_here(value, setting.kind)?), Source::Variable)
            } else if let Some((value, source)) = filed.remove(setting.key) {
                (Some(value), source)
            } else {
                (preset(setting), Source::Default)
            };
            settled.push(Settled { setting, value, source });
        }
        let mut config = Config { settled };
        config.derive("log-level", Value::Text(log_level.to_owned()));
        let api = config.address("listen").map_or(0, |listen| listen.port());
        let next = if api == 0 { 0 } else { api.checked_add(1).unwrap_or(0) };
        config.derive("files-port", Value::Number(next.into()));
        Ok(config)
    }

    /// Sets a default that depends on something else.
    fn derive(&mut self, key: &str, value: Value) {
        let mut missing = self.settled.iter_mut().filter(|settled| settled.value.is_none());
        if let Some(settled) = missing.find(|settled| settled.setting.key == key) {
            settled.value = Some(value);
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        let found = self.settled.iter().find(|settled| settled.setting.key == key);
        found.unwrap_or_else(|| unreachable!("no setting is called {key}")).value.as_ref()
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub fn path(&self, key: &str) -> Option<PathBuf> {
        self.text(key).map(PathBuf::from)
    }

    pub fn folders(&self, key: &str) -> Vec<PathBuf> {
        self.text(key).into_iter().flat_map(|text| text.split(':')).map(PathBuf::from).collect()
    }

    pub fn words(&self, key: &str) -> Vec<String> {
        self.text(key).into_iter().flat_map(str::split_whitespace).map(str::to_owned).collect()
    }

    pub fn address(&self, key: &str) -> Option<SocketAddr> {
        self.text(key).and_then(|text| text.parse().ok())
    }

    pub fn number(&self, key: &str) -> Option<u64> {
        match self.get(key) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    pub fn is_on(&self, key: &str) -> bool {
        self.switch(key) == Some(true)
    }

    /// Returns `None` if the default is derived.
    pub fn switch(&self, key: &str) -> Option<bool> {
        match self.get(key) {
            Some(Value::Switch(is_on)) => Some(*is_on),
            _ => None,
        }
    }

    pub fn isolation(&self) -> Isolation {
        match self.text("isolation") {
            Some("sandbox") => Isolation::Sandbox,
            Some("none") => Isolation::None,
            _ => Isolation::Auto,
        }
    }
}

/// A path in a flag or variable is relative to the working directory, one in the file is relative to the file.
fn from_here(value: Value, kind: Kind) -> CliResult<Value> {
    match (kind, value) {
        (Kind::File, Value::Text(path)) => {
            let path = std::path::absolute(&path)
                .map_err(|why| Failure::refused(format!("cannot find {}: {why}", quoted(&path))))?;
            Ok(Value::Text(path.to_string_lossy().into_owned()))
        }
        (_, value) => Ok(value),
    }
}

fn preset(setting: &Setting) -> Option<Value> {
    match setting.default {
        Preset::Fixed(text) => Some(setting.kind.read(text).expect("a default of ours is good")),
        Preset::Unset | Preset::Derived(_) => None,
    }
}

pub type Filed = BTreeMap<&'static str, (Value, Source)>;

fn read_file(path: &Path, must_exist: bool) -> CliResult<Filed> {
    let path = std::path::absolute(path)
        .map_err(|why| Failure::refused(format!("cannot find {}: {why}", path.display())))?;
    let content = files::read(&path, FILE_BYTES_MAX).map_err(|why| Failure::of(&why))?;
    let content = match content {
        Some(content) => content,
        None if must_exist => {
            return Err(Failure::refused(format!(
                "the configuration file {} does not exist; check --config and {FILE_VARIABLE}, or write one with \
                 `muster serve --print-config`",
                path.display()
            )));
        }
        None => return Ok(Filed::new()),
    };
    let text = String::from_utf8(content).map_err(|_| {
        Failure::refused(format!("{} is not UTF-8 text; save it as UTF-8", path.display()))
    })?;
    parse(&text, &path)
}

pub fn parse(text: &str, path: &Path) -> CliResult<Filed> {
    let line_at = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
    let place = |at: usize| format!("{}:{}", path.display(), line_at(at));
    let table = DeTable::parse(text).map_err(|why| {
        let at = why.span().map_or(0, |span| span.start);
        let why = brief(why.message());
        Failure::refused(format!("{}: invalid TOML: {why}; write it as key = value", place(at)))
    })?;
    let mut filed = Filed::new();
    for (key, value) in table.into_inner() {
        let place = place(key.span().start);
        let Some(setting) = settings::find(key.get_ref()) else {
            return Err(unknown(&place, key.get_ref()));
        };
        let (key, line) = (setting.key, line_at(value.span().start));
        let wrong = |shown: &str| {
            let wanted = setting.kind.wanted();
            Failure::refused(format!("{place}: {key} is {}; give {wanted}", quoted(shown)))
        };
        let shown = &text[value.span()];
        let value = match value.into_inner() {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Integer(number) => {
                let number = u64::from_str_radix(number.as_str(), number.radix());
                Value::Number(number.map_err(|_| wrong(shown))?)
            }
            DeValue::Boolean(is_on) => Value::Switch(is_on),
            _ => return Err(wrong(shown)),
        };
        if !setting.kind.takes(&value) {
            return Err(wrong(shown));
        }
        let value = match (setting.kind, value) {
            // Relative to the file, wherever the server is started.
            (Kind::File, Value::Text(file)) => {
                let folder = path.parent().unwrap_or(Path::new("/"));
                Value::Text(folder.join(file).to_string_lossy().into_owned())
            }
            (_, value) => value,
        };
        filed.insert(key, (value, Source::File { path: path.to_owned(), line }));
    }
    Ok(filed)
}

fn unknown(place: &str, key: &str) -> Failure {
    let known: Vec<String> = SETTINGS.iter().map(|setting| setting.key.to_owned()).collect();
    let guess = nearest(key, &known).map(|near| format!("did you mean {near}? "));
    Failure::refused(format!(
        "{place}: unknown key {}; {}the keys are {}",
        quoted(key),
        guess.unwrap_or_default(),
        known.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        match parse(text, Path::new("/etc/muster.toml")) {
            Ok(_) => panic!("{text} was accepted"),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn a_slip_is_refused_with_its_place() {
        for (text, place, words) in [
            ("\nlisten = 7443", ":2:", "listen is '7443'; give an address and a port"),
            ("lisen = \"[::1]:1\"", ":1:", "did you mean listen?"),
            (
                "# x\n\ndrain-seconds = 3601",
                ":3:",
                "is '3601'; give a whole number of seconds from 0 to 3600",
            ),
            ("node-folders = \"/data:/tmp/x\"", ":1:", "none of them in /tmp, /proc"),
            ("node-folders = \"data\"", ":1:", "absolute paths"),
            ("node-folders = \"/\"", ":1:", "absolute paths"),
            ("drain-seconds = -1", ":1:", "a whole number of seconds"),
            ("drain-seconds = 1.5", ":1:", "a whole number of seconds"),
            ("trusted-users = \"yes\"", ":1:", "true or false"),
            ("package-indexes = \"pypi\"", ":1:", "begin with https://"),
            ("public-host = \"a b\"", ":1:", "a host name"),
            ("public-host = \"lab:7443\"", ":1:", "without a port"),
            ("[listen]\nport = 1", ":1:", "give an address and a port"),
            ("listen = \"a\"\nlisten = \"b\"", ":2:", "duplicate key"),
            ("drain-seconds = 1\nlisten =", ":2:", "invalid TOML"),
        ] {
            let why = refusal(text);
            assert!(why.contains(&format!("/etc/muster.toml{place}")), "{text:?}: {why}");
            assert!(why.contains(words), "{text:?}: {why}");
        }
    }

    #[test]
    fn files_are_beside_the_file_that_names_them() {
        let filed = parse("prices = \"p.json\"", Path::new("/etc/muster.toml")).ok();
        let (value, source) =
            filed.and_then(|mut filed| filed.remove("prices")).expect("it is there");
        assert_eq!(value, Value::Text("/etc/p.json".to_owned()));
        assert_eq!(source, Source::File { path: "/etc/muster.toml".into(), line: 1 });
    }

    #[test]
    fn every_setting_has_the_names_that_its_key_leads_to() {
        for setting in SETTINGS {
            let rule = format!("MUSTER_{}", setting.key.to_uppercase().replace('-', "_"));
            // This variable is older than the rule.
            let variable = if setting.key == "log-level" { "MUSTER_LOG" } else { &rule };
            assert_eq!(setting.variable, variable);
            assert!(setting.what.ends_with('.'), "{}", setting.key);
            preset(setting);
        }
    }
}
