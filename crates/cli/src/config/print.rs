//! The configuration as a file: every key with what it does, its default, and where its value is from.

use super::kind::Value;
use super::settings::Preset;
use super::{Config, Settled, Source};

/// Can be read again as it is. Nothing in it is secret: of keys it has only the paths.
pub fn print(config: &Config, state_dir: &std::path::Path) -> String {
    let mut text = format!(
        "# The configuration of a server with the state directory {}.\n\
         # A flag wins over a variable, a variable over this file, this file over the default.\n",
        one_line(&state_dir.to_string_lossy())
    );
    for settled in &config.settled {
        text.push('\n');
        text.push_str(&entry(settled));
    }
    text
}

fn entry(Settled { setting, value, source }: &Settled) -> String {
    let default = match setting.default {
        Preset::Fixed(text) => text,
        Preset::Unset => "unset",
        Preset::Derived(words) => words,
    };
    let from = match source {
        Source::Default => "the default".to_owned(),
        Source::File { path, line } => {
            format!("{}, line {line}", one_line(&path.to_string_lossy()))
        }
        Source::Variable => format!("the variable {}", setting.variable),
        Source::Flag => format!("the flag --{}", setting.key),
    };
    let line = match value {
        Some(value) => format!("{} = {}", setting.key, toml(value)),
        None => format!("# {} = {}", setting.key, setting.kind.value_name()),
    };
    format!(
        "# {}\n# Flag --{}, variable {}, default: {default}. This value is from: {from}.\n{line}\n",
        setting.what, setting.key, setting.variable
    )
}

fn toml(value: &Value) -> String {
    match value {
        Value::Text(text) => toml::Value::String(text.clone()).to_string(),
        Value::Number(number) => number.to_string(),
        Value::Switch(is_on) => is_on.to_string(),
    }
}

/// A comment ends with its line.
fn one_line(text: &str) -> String {
    crate::failure::printable(text)
}
