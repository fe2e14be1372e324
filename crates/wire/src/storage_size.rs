//! How much space everything takes that the server stores.

use serde::{Deserialize, Serialize};

/// The size of one kind of content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageSize {
    /// What it is.
    pub content: String,
    /// The file or folder in the state directory.
    pub location: String,
    pub bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// When the oldest entry was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<String>,
    /// The settings that limit how long, or how much of it, is kept.
    #[serde(default)]
    pub settings: Vec<SettingValue>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingValue {
    pub name: String,
    /// 0 means no limit.
    pub value: u64,
}
