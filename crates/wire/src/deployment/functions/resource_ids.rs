//! Ids of resources, and names derived from them.
//!
//! Azure does not document how it computes `uniqueString` and `guid`. The values here are as stable and as long as
//! Azure's, but differ from them.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{FunctionResult, text};

/// Thirteen characters of five bits each.
const UNIQUE_CHARS: usize = 13;

pub fn unique_string(arguments: &[Value]) -> FunctionResult {
    const SIGNS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let digest = digest(arguments)?;
    let bits = u128::from_be_bytes(*digest.first_chunk::<16>().expect("32 bytes"));
    let sign = |place: usize| char::from(SIGNS[(bits >> (5 * place) & 31) as usize]);
    Ok(Value::String((0..UNIQUE_CHARS).map(sign).collect()))
}

pub fn guid_of(arguments: &[Value]) -> FunctionResult {
    Ok(Value::String(guid(digest(arguments)?, 5)))
}

fn digest(arguments: &[Value]) -> Result<[u8; 32], String> {
    let mut hasher = Sha256::new();
    for argument in arguments {
        let text = text(argument)?;
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text);
    }
    Ok(hasher.finalize().into())
}

pub fn guid(bytes: [u8; 32], version: u16) -> String {
    let half = |from: usize| u16::from_be_bytes([bytes[from], bytes[from + 1]]);
    let tail: String = bytes[10..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{:04x}{:04x}-{:04x}-{:04x}-{:04x}-{tail}",
        half(0),
        half(2),
        half(4),
        half(6) & 0x0fff | version << 12,
        half(8) & 0x3fff | 0x8000,
    )
}

/// The subscription and the resource group of ids that do not name others.
pub struct ResourceIds<'a> {
    pub subscription: &'a str,
    pub resource_group: &'a str,
}

impl ResourceIds<'_> {
    /// `resourceId([subscription], [group], type, name, …)`.
    pub fn resource_id(&self, arguments: &[Value]) -> FunctionResult {
        let (before, kind, names) = split(arguments)?;
        let (subscription, group) = match before.as_slice() {
            [] => (self.subscription, self.resource_group),
            [group] => (self.subscription, *group),
            [subscription, group] => (*subscription, *group),
            _ => {
                return Err(
                    "too many arguments before the type; give a subscription and a group".into()
                );
            }
        };
        let path = path(kind, &names)?;
        Ok(format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/{path}").into())
    }

    pub fn subscription_resource_id(&self, arguments: &[Value]) -> FunctionResult {
        let (before, kind, names) = split(arguments)?;
        let subscription = match before.as_slice() {
            [] => self.subscription,
            [subscription] => subscription,
            _ => return Err("too many arguments before the type; give a subscription".into()),
        };
        let path = path(kind, &names)?;
        Ok(format!("/subscriptions/{subscription}/providers/{path}").into())
    }
}

pub(in super::super) fn tenant_resource_id(arguments: &[Value]) -> FunctionResult {
    let (before, kind, names) = split(arguments)?;
    if !before.is_empty() {
        return Err(
            "the first argument is not a type such as 'Microsoft.Storage/storageAccounts'".into()
        );
    }
    Ok(format!("/providers/{}", path(kind, &names)?).into())
}

pub(in super::super) fn extension_resource_id(arguments: &[Value]) -> FunctionResult {
    let Some((base, rest)) = arguments.split_first() else {
        return Err("it has no arguments; give an id, a type and a name".into());
    };
    let (before, kind, names) = split(rest)?;
    if !before.is_empty() {
        return Err(
            "the second argument is not a type such as 'Microsoft.Storage/storageAccounts'".into(),
        );
    }
    Ok(format!("{}/providers/{}", text(base)?, path(kind, &names)?).into())
}

/// The arguments before the type, the type, and the names after it.
fn split(arguments: &[Value]) -> Result<(Vec<&str>, &str, Vec<&str>), String> {
    let texts: Vec<&str> = arguments.iter().map(text).collect::<Result<_, _>>()?;
    let at = texts.iter().position(|text| text.contains('/'));
    let at = at.ok_or("no argument is a type such as 'Microsoft.Storage/storageAccounts'")?;
    Ok((texts[..at].to_vec(), texts[at], texts[at + 1..].to_vec()))
}

/// `A/b/c` and `x`, `y` → `A/b/x/c/y`.
pub(in super::super) fn path(kind: &str, names: &[&str]) -> Result<String, String> {
    let (provider, kinds) = kind.split_once('/').ok_or("the type has no provider before a '/'")?;
    let kinds: Vec<&str> = kinds.split('/').collect();
    if kinds.len() != names.len() {
        return Err(format!(
            "the type '{}' needs {} names, but has {}",
            crate::json::shorten(kind),
            kinds.len(),
            names.len()
        ));
    }
    let pairs: String =
        kinds.iter().zip(names).map(|(kind, name)| format!("/{kind}/{name}")).collect();
    Ok(format!("{provider}{pairs}"))
}
