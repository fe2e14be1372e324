//! Which resource group, workspace, subscription and region a command uses when its flags do not specify them.
//!
//! Flags take precedence, then environment variables (Muster's own, then those that Azure's tools and machines set),
//! then the file that `muster configure` writes. The caller supplies the built-in fallback.

use std::path::{Path, PathBuf};

use muster_server::pki::files;
use serde::{Deserialize, Serialize};

use crate::failure::{CliResult, Failure, brief, quoted};
use crate::values;

const FILE: &str = "defaults.json";
const DIR_VARIABLE: &str = "MUSTER_CONFIG_DIR";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    Group,
    Workspace,
    Subscription,
    Location,
}

/// The content of the defaults file.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<String>,
}

/// A value, and the variable or file that it comes from.
pub struct Found {
    pub value: String,
    pub source: String,
}

impl Setting {
    pub const ALL: [Setting; 4] =
        [Setting::Group, Setting::Workspace, Setting::Subscription, Setting::Location];

    /// The name that az uses.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Group => "group",
            Setting::Workspace => "workspace",
            Setting::Subscription => "subscription",
            Setting::Location => "location",
        }
    }

    /// The first variable that is set wins. The last ones are set in jobs and on compute instances of Azure ML.
    fn variables(self) -> &'static [&'static str] {
        match self {
            Setting::Group => &[
                "MUSTER_RESOURCE_GROUP",
                "AZURE_DEFAULTS_GROUP",
                "AZUREML_ARM_RESOURCEGROUP",
                "CI_RESOURCE_GROUP",
            ],
            Setting::Workspace => &[
                "MUSTER_WORKSPACE_NAME",
                "AZURE_DEFAULTS_WORKSPACE",
                "AZUREML_ARM_WORKSPACE_NAME",
                "CI_WORKSPACE",
            ],
            Setting::Subscription => {
                &["MUSTER_SUBSCRIPTION", "AZURE_SUBSCRIPTION_ID", "AZUREML_ARM_SUBSCRIPTION"]
            }
            Setting::Location => &["MUSTER_LOCATION", "AZURE_DEFAULTS_LOCATION"],
        }
    }

    /// The value that applies without a flag, if one was set.
    pub fn find(self) -> CliResult<Option<Found>> {
        if let Some(found) = self.find_variable(|name| std::env::var_os(name))? {
            return Ok(Some(found));
        }
        let Ok(path) = path() else { return Ok(None) };
        let Some(value) = Defaults::read(&path)?.slot(self).take() else { return Ok(None) };
        Ok(Some(Found { value, source: path.display().to_string() }))
    }

    pub fn value(self, flag: Option<&str>) -> CliResult<Option<String>> {
        match flag {
            Some(flag) => Ok(Some(flag.to_owned())),
            None => Ok(self.find()?.map(|found| found.value)),
        }
    }

    fn find_variable(
        self,
        variable: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> CliResult<Option<Found>> {
        for name in self.variables() {
            // An empty variable counts as unset, because shells cannot always unset one.
            let Some(value) = variable(name).filter(|value| !value.is_empty()) else { continue };
            let Some(text) = value.to_str() else {
                return Err(Failure::refused(format!(
                    "the variable {name} is {}, which is not UTF-8; set it again",
                    quoted(&value.to_string_lossy())
                )));
            };
            let value = values::name(text).map_err(|why| {
                Failure::refused(format!("the variable {name} is {}: {why}", quoted(text)))
            })?;
            return Ok(Some(Found { value, source: (*name).to_owned() }));
        }
        Ok(None)
    }
}

impl Defaults {
    pub fn read(path: &Path) -> CliResult<Defaults> {
        let content = files::read(path, files::FILE_BYTES_MAX).map_err(|why| Failure::of(&why))?;
        content.map_or_else(|| Ok(Defaults::default()), |content| Defaults::parse(&content, path))
    }

    pub fn parse(content: &[u8], path: &Path) -> CliResult<Defaults> {
        let damaged = |why: String| {
            Failure::error(format!(
                "the defaults in {} cannot be used: {}",
                path.display(),
                brief(&why)
            ))
            .hint("correct the file, or remove it and run `muster configure --defaults` again")
        };
        let mut defaults: Defaults =
            serde_json::from_slice(content).map_err(|why| damaged(why.to_string()))?;
        for setting in Setting::ALL {
            if let Some(value) = defaults.slot(setting) {
                let name = setting.name();
                values::name(value).map_err(|why| damaged(format!("{name}: {why}")))?;
            }
        }
        Ok(defaults)
    }

    /// Replaces the file atomically: concurrent readers see the old content or the new.
    pub fn write(&self, path: &Path) -> CliResult {
        use std::os::unix::fs::DirBuilderExt as _;
        if let Some(dir) = path.parent() {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.map_err(|why| Failure::error(format!("cannot create {}: {why}", dir.display())))?;
        }
        files::write(path, &self.text(), files::PRIVATE).map_err(|why| Failure::of(&why))
    }

    /// The defaults as the bytes of their file.
    pub fn text(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("plain fields");
        text.push(b'\n');
        text
    }

    pub fn slot(&mut self, setting: Setting) -> &mut Option<String> {
        match setting {
            Setting::Group => &mut self.group,
            Setting::Workspace => &mut self.workspace,
            Setting::Subscription => &mut self.subscription,
            Setting::Location => &mut self.location,
        }
    }
}

/// The path of the defaults file, whether or not it exists.
pub fn path() -> CliResult<PathBuf> {
    path_by(|name| std::env::var_os(name).map(PathBuf::from))
}

fn path_by(variable: impl Fn(&str) -> Option<PathBuf>) -> CliResult<PathBuf> {
    let set = |name: &str| variable(name).filter(|path| !path.as_os_str().is_empty());
    if let Some(dir) = set(DIR_VARIABLE) {
        return Ok(dir.join(FILE));
    }
    // The XDG specification requires that relative paths be ignored.
    let base = set("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    match base.or_else(|| set("HOME").map(|home| home.join(".config"))) {
        Some(base) => Ok(base.join("muster").join(FILE)),
        None => Err(Failure::refused(format!(
            "neither {DIR_VARIABLE} nor HOME is set, so there is no directory for defaults; set one of them"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn our_own_variables_go_before_those_of_others() {
        let find = |setting: Setting, set: &[(&str, &str)]| {
            let found = setting.find_variable(|name| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            });
            found.map(|found| found.map(|found| format!("{}={}", found.source, found.value)))
        };
        for setting in Setting::ALL {
            let mut set: Vec<_> = setting.variables().iter().map(|name| (*name, *name)).collect();
            while let Some((first, _)) = set.first().copied() {
                let found = find(setting, &set).expect("good names");
                assert_eq!(found, Some(format!("{first}={first}")));
                set.remove(0);
            }
            assert_eq!(find(setting, &[]).expect("nothing"), None);
        }
        let empty = [("MUSTER_RESOURCE_GROUP", ""), ("CI_RESOURCE_GROUP", "ci")];
        let found = find(Setting::Group, &empty).expect("good names");
        assert_eq!(found.as_deref(), Some("CI_RESOURCE_GROUP=ci"));
        let why = find(Setting::Group, &[("CI_RESOURCE_GROUP", "..")]).expect_err("dots");
        assert!(why.to_string().starts_with("the variable CI_RESOURCE_GROUP is '..'"), "{why}");
    }

    #[test]
    fn the_file_is_where_the_most_specific_variable_says() {
        let with = |variables: &[(&str, &str)]| {
            let found = path_by(|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| PathBuf::from(value))
            });
            found.ok().map(|path| path.display().to_string())
        };
        let home = ("HOME", "/home/ada");
        let usual = "/home/ada/.config/muster/defaults.json";
        assert_eq!(with(&[home]).as_deref(), Some(usual));
        let xdg = ("XDG_CONFIG_HOME", "/x");
        assert_eq!(with(&[home, xdg]).as_deref(), Some("/x/muster/defaults.json"));
        assert_eq!(with(&[home, ("XDG_CONFIG_HOME", "x")]).as_deref(), Some(usual));
        let all = [home, xdg, (DIR_VARIABLE, "/here")];
        assert_eq!(with(&all).as_deref(), Some("/here/defaults.json"));
        assert_eq!(with(&[]), None);
    }
}
