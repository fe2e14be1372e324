//! A component's code with its `additional_includes`, assembled as azure-ai-ml does it: the same files under the same
//! names, so that each client recognises what the other uploaded.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::local::{self, Local, LocalFile, read_ignore};
use super::zip;
use crate::failure::{CliResult, Failure, quoted};
use crate::job::ignore::{self, Ignore};

/// Files that azure-ai-ml never uploads for components.
const NEVER: &str = "__pycache__";
/// azure-ai-ml's name for the folder.
const NAME: &str = "code_with_additional_includes";
const ZIP: &str = "zip";
pub const INCLUDES_MAX: usize = 100;

/// Additional files and folders of a component's code, and the folder that their paths are relative to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Includes {
    pub base: PathBuf,
    pub paths: Vec<String>,
}

/// The files to upload for a component; `what` names it in messages.
pub fn component_code(what: &str, code: Option<&Path>, includes: &Includes) -> CliResult<Local> {
    if let (Some(code), true) = (code, includes.paths.is_empty()) {
        return Local::read_but(what, code, Some(NEVER), true);
    }
    if includes.paths.len() > INCLUDES_MAX {
        return Err(Failure::refused(format!(
            "{what}: there are {} additional_includes; the limit is {INCLUDES_MAX}, so include a folder that contains them",
            includes.paths.len()
        )));
    }
    let code = code.map(|code| found(what, code)).transpose()?;
    let is_folder = code.as_deref().is_some_and(Path::is_dir);
    // The exclusions of the code apply to its includes too.
    let outer = match &code {
        Some(_) if !is_folder => Ignore::default(),
        Some(code) => read_ignore(code)?,
        None => read_ignore(&includes.base)?,
    };
    let outer = outer.and(NEVER);
    let others = includes.paths.iter().map(|path| Include::find(what, &includes.base, path));
    let others = others.collect::<CliResult<Vec<Include>>>()?;
    let mut parts = Vec::new();
    match &code {
        Some(folder) if is_folder => {
            others.iter().try_for_each(|other| other.check_free(folder))?;
            // A link in the code to exactly the included file is not a conflict.
            let is_other = |path: &str| others.iter().any(|other| other.name == path);
            let keep = |path: &str| !is_other(path);
            parts.push(of_folder(what, folder, "", &outer, &keep)?);
        }
        Some(file) => parts.extend(of_file(what, file, &Ignore::default())?),
        None => {}
    }
    let scratch = tempfile::tempdir()
        .map_err(|why| Failure::error(format!("cannot create a temporary folder: {why}")))?;
    for (number, Include { what, source, name, is_zip }) in others.iter().enumerate() {
        if *is_zip {
            let place = scratch.path().join(number.to_string());
            std::fs::create_dir(&place).map_err(|why| {
                Failure::error(format!("cannot create {}: {why}", place.display()))
            })?;
            zip::write(&place.join(name), source, &zipped(what, source, &outer)?)?;
            parts.extend(of_file(what, &place.join(name), &Ignore::default())?);
        } else if source.is_dir() {
            parts.push(of_folder(what, source, &format!("{name}/"), &outer, &|_| true)?);
        } else {
            parts.extend(of_file(what, source, &outer)?);
        }
    }
    let path = code.unwrap_or_else(|| includes.base.clone());
    let gathered = Local::gathered(path, NAME, parts, Some(scratch));
    check_places(what, &gathered)?;
    let ignore = ignore_of(&gathered)?.and(NEVER);
    let gathered = gathered.without(|path| ignore.leaves_out_file(path));
    match gathered.files().is_empty() {
        true => Err(Failure::refused(format!("{what}: there are no files to upload"))),
        false => Ok(gathered),
    }
}

fn found(what: &str, path: &Path) -> CliResult<PathBuf> {
    path.canonicalize().map_err(|why| {
        let shown = quoted(&path.display().to_string());
        match why.kind() {
            std::io::ErrorKind::NotFound => {
                Failure::refused(format!("{what}: there is no file or folder {shown}"))
            }
            _ => Failure::refused(format!("{what}: cannot read {shown}: {why}")),
        }
    })
}

fn name_of(what: &str, path: &Path) -> CliResult<String> {
    let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    name.ok_or_else(|| {
        Failure::refused(format!("{what}: it has no name, or one that is not UTF-8; use another"))
    })
}

/// If `x.zip` does not exist, it stands for the folder `x`, packed.
fn folder_to_zip(path: &Path) -> Option<PathBuf> {
    let is_wanted = path.extension().is_some_and(|end| end == ZIP) && !path.exists();
    is_wanted.then(|| path.with_extension("")).filter(|folder| folder.is_dir())
}

/// One included file or folder.
struct Include {
    /// For messages.
    what: String,
    source: PathBuf,
    /// The name under which it is uploaded.
    name: String,
    is_zip: bool,
}

impl Include {
    fn find(what: &str, base: &Path, include: &str) -> CliResult<Include> {
        let what = format!("{what}: additional_includes {}", quoted(include));
        let path = base.join(include);
        let folder = folder_to_zip(&path);
        let source = found(&what, folder.as_deref().unwrap_or(&path))?;
        let (name, is_zip) = (name_of(&what, &source)?, folder.is_some());
        let name = if is_zip { format!("{name}.{ZIP}") } else { name };
        Ok(Include { what, source, name, is_zip })
    }

    /// Whether the code has nothing with that name, or a link to exactly this.
    fn check_free(&self, code: &Path) -> CliResult {
        let place = code.join(&self.name);
        let is_taken = match place.is_symlink() {
            true => place.canonicalize().ok().as_ref() != Some(&self.source),
            false => place.exists(),
        };
        match is_taken {
            false => Ok(()),
            true => Err(Failure::refused(format!(
                "{}: the code already contains {}; rename one of them, or remove it",
                self.what,
                quoted(&place.display().to_string())
            ))),
        }
    }
}

type Part = (muster_trees::Folder, Vec<LocalFile>);

/// Everything in a folder that is not excluded by `outer`, by its own ignore file, or by one in a subfolder.
fn of_folder(
    what: &str,
    path: &Path,
    top: &str,
    outer: &Ignore,
    is_wanted: &dyn Fn(&str) -> bool,
) -> CliResult<Part> {
    let inner: RefCell<Vec<(String, Ignore)>> = RefCell::default();
    let failed: RefCell<Option<Failure>> = RefCell::default();
    let read = |below: &str| match read_ignore(&path.join(below)) {
        Ok(ignore) => inner.borrow_mut().push((below.to_owned(), ignore)),
        Err(failure) => drop(failed.borrow_mut().get_or_insert(failure)),
    };
    if !top.is_empty() {
        read("");
    }
    let keep = |below: &str, is_folder: bool| {
        let is_left_out = |(folder, ignore): &(String, Ignore)| {
            let rest = below.strip_prefix(folder.as_str());
            rest.is_some_and(|rest| ignore.leaves_out_file(rest.trim_start_matches('/')))
        };
        let is_above = |(folder, _): &&(String, Ignore)| {
            folder.is_empty() || below.starts_with(&format!("{folder}/"))
        };
        if !is_wanted(below)
            || outer.leaves_out_file(&format!("{top}{below}"))
            || inner.borrow().iter().filter(is_above).any(is_left_out)
        {
            return false;
        }
        if is_folder {
            read(below);
        }
        true
    };
    let listed = local::listed(what, path, &keep)?;
    if let Some(failure) = failed.take() {
        return Err(failure);
    }
    let (folder, files) = listed;
    Ok((folder, files.into_iter().map(|file| file.below(top)).collect()))
}

fn of_file(what: &str, path: &Path, outer: &Ignore) -> CliResult<Option<Part>> {
    let name = name_of(what, path)?;
    if outer.leaves_out_file(&name) {
        return Ok(None);
    }
    Local::read(what, path).map(|local| Some(local.into_part()))
}

/// The files of a folder to pack, with their names in the archive.
fn zipped(what: &str, path: &Path, outer: &Ignore) -> CliResult<Vec<String>> {
    let name = name_of(what, path)?;
    let own = read_ignore(path)?.and(NEVER);
    let keep = |below: &str, is_folder: bool| {
        let is_left_out =
            own.leaves_out_file(below) || outer.leaves_out_file(&format!("{name}/{below}"));
        is_folder || !is_left_out
    };
    let (_, files) = local::listed(what, path, &keep)?;
    let mut paths: Vec<String> = files.into_iter().map(|file| file.path).collect();
    paths.sort();
    Ok(paths)
}

/// Refuses a file and a folder with the same name.
fn check_places(what: &str, gathered: &Local) -> CliResult {
    let files: BTreeSet<&str> = gathered.files().iter().map(|file| file.path.as_str()).collect();
    for path in &files {
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        if let Some(both) = above.into_iter().find(|above| files.contains(above)) {
            return Err(Failure::refused(format!(
                "{what}: additional_includes has a file and a folder {}; rename one of them",
                quoted(both)
            )));
        }
    }
    Ok(())
}

/// The ignore rules for everything: they come with the code.
fn ignore_of(gathered: &Local) -> CliResult<Ignore> {
    for name in ignore::FILES {
        if let Some(file) = gathered.files().iter().find(|file| file.path == name) {
            let text = std::io::read_to_string(gathered.open(file, 0)?)
                .map_err(|why| Failure::refused(format!("{name}: {why}")))?;
            return Ignore::parse(&text).map_err(|why| Failure::refused(format!("{name}: {why}")));
        }
    }
    Ok(Ignore::default())
}

#[cfg(test)]
mod tests;
