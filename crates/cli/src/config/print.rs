//! The configuration as a file: every key with its description, its default, and the source of its value.

use super::kind::Value;
use super::settings::Preset;
use super::{Config, Settled, Source};

/// The output can be read back as it is. It contains no secrets: of keys, only the paths.
pub fn print(config: &Config, state_dir: &std::path::Path) -> String {
    let mut text = format!(
        "# Configuration of the server with the state directory {}.\n\
         # Flags take precedence over variables, variables over this file, and this file over the defaults.\n",
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
        "# {}\n# Flag --{}, variable {}, default: {default}. Source of this value: {from}.\n{line}\n",
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
