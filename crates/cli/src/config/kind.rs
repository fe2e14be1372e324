//! The kinds of values that settings have, and how they are parsed.

use std::net::SocketAddr;

use muster_core::limits::LOCATION_BYTES_MAX;

use crate::failure::quoted;
use crate::logging;

const OBJECT_STORES: [&str; 3] = ["s3://", "az://", "gs://"];
/// Folders that every node, or every job, has its own version of.
const OWN_FOLDERS: [&str; 8] =
    ["/tmp", "/proc", "/dev", "/sys", "/run", "/job", "/node", "/environments"];
/// The longest user name on Linux.
const ACCOUNT_CHARS_MAX: usize = 256;
/// The longest host name in DNS.
const HOST_CHARS_MAX: usize = 253;

#[derive(Clone, Copy)]
pub enum Kind {
    Address,
    Port,
    Seconds {
        least: u64,
        most: u64,
    },
    Count {
        least: u64,
        most: u64,
    },
    File,
    Folders,
    Addresses,
    Regions,
    Host,
    Account,
    /// The address of an object store; there may be none.
    ObjectStore,
    Switch,
    Word(&'static [&'static str]),
    Filter,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Number(u64),
    Switch(bool),
}

impl Kind {
    pub fn value_name(self) -> &'static str {
        match self {
            Kind::Address => "ADDRESS:PORT",
            Kind::Port => "PORT",
            Kind::Seconds { .. } => "SECONDS",
            Kind::Count { .. } => "COUNT",
            Kind::File => "FILE",
            Kind::Folders => "DIR:DIR",
            Kind::Addresses => "URLS",
            Kind::Regions => "NAMES",
            Kind::Host | Kind::Account => "NAME",
            Kind::ObjectStore => "ADDRESS",
            Kind::Switch => "BOOL",
            Kind::Word(_) => "WORD",
            Kind::Filter => "FILTER",
        }
    }

    /// The valid values, for an error message.
    pub fn wanted(self) -> String {
        match self {
            Kind::Address => "an address and a port, such as \"127.0.0.1:7443\"".to_owned(),
            Kind::Port => "a port from 0 to 65535; 0 means any free port".to_owned(),
            Kind::Seconds { least, most } => {
                format!("a whole number of seconds from {least} to {most}")
            }
            Kind::Count { least, most } => format!("a whole number from {least} to {most}"),
            Kind::File => "the path of a file, as a string".to_owned(),
            Kind::Folders => format!(
                "absolute paths of folders, separated by colons, none of them in {}",
                OWN_FOLDERS.join(", ")
            ),
            Kind::Addresses => {
                "addresses that begin with https:// or http://, separated by spaces".to_owned()
            }
            Kind::Regions => format!(
                "names of lower-case letters, digits and '-', each of at most {LOCATION_BYTES_MAX} characters, separated \
                 by spaces"
            ),
            Kind::Host => format!(
                "a host name or an address without a port, of at most {HOST_CHARS_MAX} characters, as a string"
            ),
            Kind::Account => "the name or the id of a user of this machine".to_owned(),
            Kind::ObjectStore => {
                "s3://BUCKET/PREFIX, az://CONTAINER/PREFIX or gs://BUCKET/PREFIX".to_owned()
            }
            Kind::Switch => "true or false".to_owned(),
            Kind::Word(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                words.join(" or ")
            }
            Kind::Filter => "a level (error, warn, info, debug, trace) or a filter such as \
                             \"muster_server=debug,info\""
                .to_owned(),
        }
    }

    /// Parses the text of a variable or a flag.
    pub fn read(self, text: &str) -> Result<Value, String> {
        let value = match self {
            Kind::Port | Kind::Seconds { .. } | Kind::Count { .. } => {
                text.parse().ok().map(Value::Number)
            }
            Kind::Switch => text.parse().ok().map(Value::Switch),
            _ => Some(Value::Text(text.to_owned())),
        };
        value
            .filter(|value| self.takes(value))
            .ok_or_else(|| format!("is {}; give {}", quoted(text), self.wanted()))
    }

    pub fn takes(self, value: &Value) -> bool {
        match (self, value) {
            (Kind::Address, Value::Text(text)) => text.parse::<SocketAddr>().is_ok(),
            (Kind::Port, Value::Number(port)) => u16::try_from(*port).is_ok(),
            (Kind::Seconds { least, most } | Kind::Count { least, most }, Value::Number(count)) => {
                (least..=most).contains(count)
            }
            (Kind::File, Value::Text(text)) => !text.is_empty() && !text.contains('\0'),
            (Kind::Folders, Value::Text(text)) => text.split(':').all(is_folder_to_show),
            (Kind::Addresses, Value::Text(text)) => text.split_whitespace().all(is_address),
            (Kind::Regions, Value::Text(text)) => text.split_whitespace().all(is_region),
            (Kind::Host, Value::Text(text)) => is_host(text),
            (Kind::Account, Value::Text(text)) => is_account(text),
            (Kind::ObjectStore, Value::Text(text)) => is_object_store(text),
            (Kind::Switch, Value::Switch(_)) => true,
            (Kind::Word(words), Value::Text(text)) => words.contains(&text.as_str()),
            (Kind::Filter, Value::Text(text)) => logging::filter(text).is_some(),
            _ => false,
        }
    }
}

/// An absolute path that is not in a folder that nodes and jobs have their own version of.
fn is_folder_to_show(path: &str) -> bool {
    let is_within =
        |own: &&str| path.strip_prefix(*own).is_some_and(|rest| !rest.starts_with(|c| c != '/'));
    path.starts_with('/')
        && !path.contains(['\0', '\n'])
        && !path.trim_end_matches('/').is_empty()
        && !OWN_FOLDERS.iter().any(is_within)
}

fn is_object_store(text: &str) -> bool {
    let rest = OBJECT_STORES.iter().find_map(|scheme| text.strip_prefix(scheme));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    rest.is_some_and(|rest| {
        rest.starts_with(|first: char| first.is_ascii_alphanumeric()) && rest.bytes().all(is_plain)
    })
}

fn is_region(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= LOCATION_BYTES_MAX && name.bytes().all(is_plain)
}

fn is_address(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic()))
}

fn is_account(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@".contains(&byte);
    (1..=ACCOUNT_CHARS_MAX).contains(&text.len())
        && !text.starts_with('-')
        && text.bytes().all(is_plain)
}

fn is_host(text: &str) -> bool {
    let is_name = || text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    let starts_well = text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    let is_address = text.parse::<std::net::IpAddr>().is_ok();
    text.len() <= HOST_CHARS_MAX && (is_address || starts_well && is_name())
}
