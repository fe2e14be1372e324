//! A local file or folder, which is checked before anything is uploaded.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use muster_trees::{Folder, Listing, Skipped, Stamp};
use tempfile::TempDir;

use super::hash;
use crate::failure::{CliResult, Failure, printable, quoted};
use crate::job::ignore::{self, Ignore};

/// The listing records at most this many entries that are not plain files; more could be missed.
const LINKS_MAX: usize = 999;

/// The files to upload. None of them is outside its folder, and all are plain files.
pub struct Local {
    path: PathBuf,
    name: String,
    /// The folder itself, or the parent of the file; several if it was assembled.
    folders: Vec<Folder>,
    is_folder: bool,
    files: Vec<LocalFile>,
    /// The content of each folder, by path: names, and whether they are folders.
    entries: BTreeMap<String, Vec<(String, Option<usize>)>>,
    /// The location of files that were generated for the upload.
    _scratch: Option<TempDir>,
}

#[derive(Debug)]
pub struct LocalFile {
    /// The path within the upload, with slashes.
    pub path: String,
    /// The index of the folder that contains it.
    folder: usize,
    /// The path of its bytes within the folder; for a link, it differs from `path`.
    source: String,
    stamp: Stamp,
}

impl LocalFile {
    pub fn bytes(&self) -> u64 {
        self.stamp.bytes
    }

    /// The same file in another folder of the upload; `top` ends with a slash or is empty.
    pub(super) fn below(self, top: &str) -> LocalFile {
        LocalFile { path: format!("{top}{}", self.path), ..self }
    }
}

impl Local {
    /// `what` names it in messages, such as `inputs.data`.
    pub fn read(what: &str, path: &Path) -> CliResult<Local> {
        Local::read_but(what, path, None, false)
    }

    /// The same for code, which excludes virtual environments.
    pub fn read_code(what: &str, path: &Path) -> CliResult<Local> {
        Local::read_but(what, path, None, true)
    }

    /// The same with an additional pattern to exclude.
    pub fn read_but(
        what: &str,
        path: &Path,
        pattern: Option<&str>,
        is_code: bool,
    ) -> CliResult<Local> {
        let shown = path.display().to_string();
        let unreadable = |why: &dyn std::fmt::Display| {
            let why = printable(&why.to_string());
            Failure::refused(format!("{what}: cannot read {}: {why}", quoted(&shown)))
        };
        let found = path.canonicalize().map_err(|why| match why.kind() {
            std::io::ErrorKind::NotFound => {
                Failure::refused(format!("{what}: there is no file or folder {}", quoted(&shown)))
            }
            _ => unreadable(&why),
        })?;
        let name = found.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let name = name.ok_or_else(|| unreadable(&"its name is not UTF-8, or it has none"))?;
        if found.is_dir() {
            return Local::read_folder(what, found, name, pattern, is_code);
        }
        let parent = found.parent().unwrap_or(Path::new("/"));
        let folder = Folder::open(parent).map_err(|why| unreadable(&why))?;
        let (_, stamp) = folder.open_file(&name).map_err(|why| unreadable(&why))?;
        let files = vec![LocalFile { path: name.clone(), folder: 0, source: name.clone(), stamp }];
        let (folders, entries) = (vec![folder], BTreeMap::new());
        Ok(Local { path: found, name, folders, is_folder: false, files, entries, _scratch: None })
    }

    /// Assembles files of several folders, each with its path in the upload.
    pub(super) fn gathered(
        path: PathBuf,
        name: &str,
        parts: Vec<(Folder, Vec<LocalFile>)>,
        scratch: Option<TempDir>,
    ) -> Local {
        let mut folders = Vec::new();
        // If two files have the same path, the later one wins.
        let mut files = BTreeMap::new();
        for (folder, found) in parts {
            let number = folders.len();
            let found = found.into_iter().map(|file| LocalFile { folder: number, ..file });
            files.extend(found.map(|file| (file.path.clone(), file)));
            folders.push(folder);
        }
        let (name, files) = (name.to_owned(), files.into_values().collect());
        let entries = BTreeMap::new();
        Local { path, name, folders, is_folder: true, files, entries, _scratch: scratch }
    }

    /// A single file with its folder, to be combined with others.
    pub(super) fn into_part(mut self) -> (Folder, Vec<LocalFile>) {
        (self.folders.swap_remove(0), self.files)
    }

    /// Excludes what `leaves_out` matches.
    pub(super) fn without(mut self, leaves_out: impl Fn(&str) -> bool) -> Local {
        self.files.retain(|file| !leaves_out(&file.path));
        self
    }

    fn read_folder(
        what: &str,
        path: PathBuf,
        name: String,
        pattern: Option<&str>,
        is_code: bool,
    ) -> CliResult<Local> {
        let ignore = read_ignore(&path)?;
        let ignore = pattern.into_iter().fold(ignore, Ignore::and);
        let folders = RefCell::new(Vec::new());
        let unwanted = Unwanted::default();
        let keep = |name: &str, is_folder: bool| match is_folder {
            true if is_code && unwanted.is_environment(&path, name) => false,
            true => {
                // A folder may be excluded although its files are not: its name is part of the hash only if it is
                // included.
                if !ignore.leaves_out_file(name) {
                    folders.borrow_mut().push(name.to_owned());
                }
                !ignore.leaves_out_all_in(name)
            }
            false => !ignore.leaves_out_file(name),
        };
        let (folder, files) = listed(what, &path, &keep)?;
        unwanted.report();
        if files.is_empty() {
            let shown = quoted(&path.display().to_string());
            return Err(Failure::refused(format!("{what}: {shown} contains no files to upload")));
        }
        let mut known = folders.take();
        known.extend(behind_links(&files, &known));
        let (folders, entries) = (vec![folder], entries_of(&files, known));
        Ok(Local { path, name, folders, is_folder: true, files, entries, _scratch: None })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last name of its path, which is its name in storage.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_folder(&self) -> bool {
        self.is_folder
    }

    pub fn files(&self) -> &[LocalFile] {
        &self.files
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(LocalFile::bytes).sum()
    }

    /// The path of each file, relative to the path of the upload.
    pub fn target(&self, file: &LocalFile) -> String {
        match self.is_folder {
            true => format!("{}/{}", self.name, file.path),
            false => self.name.clone(),
        }
    }

    /// The bytes of a file from `offset` on. Fails if the file has changed since it was checked.
    pub fn open(&self, file: &LocalFile, offset: u64) -> CliResult<File> {
        let failed = |why: &dyn std::fmt::Display| {
            Failure::error(format!("cannot read {}: {why}", quoted(&file.path)))
        };
        let (mut opened, stamp) =
            self.folders[file.folder].open_file(&file.source).map_err(|why| failed(&why))?;
        if stamp != file.stamp {
            return Err(failed(
                &"it was changed during the upload; try again when it no longer changes",
            ));
        }
        opened.seek(SeekFrom::Start(offset)).map_err(|why| failed(&why))?;
        Ok(opened)
    }

    /// The hash with which azure-ai-ml identifies data, models and build contexts: the name of their folder in storage.
    pub fn object_hash(&self) -> CliResult<String> {
        let mut hasher = hash::Hasher::of_object();
        match self.is_folder {
            true => self.hash_folder("", &mut hasher)?,
            false => hasher.add_file(self.open(&self.files[0], 0)?, &self.files[0].path)?,
        }
        Ok(hasher.finish())
    }

    fn hash_folder(&self, folder: &str, hasher: &mut hash::Hasher) -> CliResult {
        for (name, file) in self.entries.get(folder).into_iter().flatten() {
            hasher.add(name.as_bytes());
            match file {
                Some(index) => {
                    let file = &self.files[*index];
                    hasher.add_file(self.open(file, 0)?, &file.path)?;
                }
                // The recursion is limited by the length of paths.
                None => self.hash_folder(&joined(folder, name), hasher)?,
            }
        }
        Ok(())
    }

    /// The hash with which the server finds code that it already has.
    pub fn content_hash(&self) -> CliResult<String> {
        let mut files: Vec<&LocalFile> = self.files.iter().collect();
        files.sort_by_cached_key(|file| file.path.to_lowercase());
        let mut hasher = hash::Hasher::of_content();
        hasher.add(files.len().to_string().as_bytes());
        for file in &files {
            hasher.add(format!("#{}#{}", file.path, file.bytes()).as_bytes());
        }
        for file in &files {
            hasher.add_file(self.open(file, 0)?, &file.path)?;
        }
        Ok(hasher.finish())
    }
}

/// Folders of a project that are of no use to a job and therefore not uploaded.
#[derive(Debug, Default)]
pub struct Unwanted {
    found: RefCell<Vec<String>>,
}

impl Unwanted {
    /// A virtual environment consists of paths and links of this machine.
    pub fn is_environment(&self, top: &Path, folder: &str) -> bool {
        let is_one = top.join(folder).join("pyvenv.cfg").is_file();
        if is_one {
            self.found.borrow_mut().push(folder.to_owned());
        }
        is_one
    }

    /// Reports what was left out.
    pub fn report(&self) {
        for folder in self.found.borrow().iter() {
            crate::output::say(&format!(
                "note: {} is a virtual environment and is not uploaded; a job's packages come from its environment",
                quoted(folder)
            ));
        }
    }
}

/// The folders that links to folders stand for, unless they are known already.
fn behind_links(files: &[LocalFile], known: &[String]) -> BTreeSet<String> {
    let above = |file: &LocalFile| -> Vec<String> {
        let ends = file.path.match_indices('/').map(|(at, _)| file.path[..at].to_owned());
        ends.collect()
    };
    let known: BTreeSet<&String> = known.iter().collect();
    let linked = files.iter().filter(|file| file.path != file.source);
    linked.flat_map(above).filter(|folder| !known.contains(folder)).collect()
}

/// The plain files of a folder to be uploaded. Anything else must be a link to a plain file or to a folder.
pub(super) fn listed(
    what: &str,
    path: &Path,
    keep: &dyn Fn(&str, bool) -> bool,
) -> CliResult<(Folder, Vec<LocalFile>)> {
    let shown = path.display().to_string();
    let refused = |why: &str| Failure::refused(format!("{what}: {} {why}", quoted(&shown)));
    let unreadable =
        |why: std::io::Error| refused(&format!("cannot be read: {}", printable(&why.to_string())));
    let folder = Folder::open(path).map_err(unreadable)?;
    let listing = folder.list_all(keep).map_err(unreadable)?;
    if listing.skipped.len() > LINKS_MAX {
        let why = format!("has more than {LINKS_MAX} links; replace them with plain files");
        return Err(refused(&why));
    }
    let links = linked(what, path, &listing, keep)?;
    let mut files: Vec<LocalFile> = listing
        .files
        .into_iter()
        .map(|file| {
            let path = file.path.to_string();
            LocalFile { source: path.clone(), folder: 0, path, stamp: file.stamp }
        })
        .collect();
    for (path, source) in links {
        let (_, stamp) = folder.open_file(&source).map_err(unreadable)?;
        files.push(LocalFile { path, folder: 0, source, stamp });
    }
    // The order in which azure-ai-ml uploads them: the first file is marked when all are uploaded.
    files.sort_by(|one, other| one.source.cmp(&other.source).then(one.path.cmp(&other.path)));
    Ok((folder, files))
}

fn joined(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_owned(),
        folder => format!("{folder}/{name}"),
    }
}

fn entries_of(
    files: &[LocalFile],
    folders: Vec<String>,
) -> BTreeMap<String, Vec<(String, Option<usize>)>> {
    let mut entries: BTreeMap<String, Vec<(String, Option<usize>)>> = BTreeMap::new();
    let files = files.iter().enumerate().map(|(index, file)| (file.path.as_str(), Some(index)));
    for (path, file) in files.chain(folders.iter().map(|path| (path.as_str(), None))) {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        entries.entry(folder.to_owned()).or_default().push((name.to_owned(), file));
    }
    for names in entries.values_mut() {
        names.sort_by_cached_key(|(name, _)| (name.to_lowercase(), name.clone()));
    }
    entries
}

/// The files to exclude. Only the ignore file at the top of a folder is used.
pub fn read_ignore(path: &Path) -> CliResult<Ignore> {
    for name in ignore::FILES {
        let file = path.join(name);
        let text = match std::fs::read(&file) {
            Ok(text) => text,
            Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => continue,
            Err(why) => return Err(Failure::refused(format!("{}: {why}", file.display()))),
        };
        let parsed = Ignore::parse(&String::from_utf8_lossy(&text));
        return parsed.map_err(|why| Failure::refused(format!("{}: {why}", file.display())));
    }
    Ok(Ignore::default())
}

/// Resolves links: the path of each file, and the path of its bytes. A link to a folder stands for everything in it
/// that is not excluded.
pub fn linked(
    what: &str,
    top: &Path,
    listing: &Listing,
    keep: &dyn Fn(&str, bool) -> bool,
) -> CliResult<Vec<(String, String)>> {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for skipped in &listing.skipped {
        match resolved(what, top, skipped)? {
            Target::File(source) => files.push((skipped.path.clone(), source)),
            Target::Folder(target) => folders.push((skipped.path.as_str(), target)),
        }
    }
    let plain = listing.files.iter().map(|file| (file.path.to_string(), file.path.to_string()));
    let known: Vec<(String, String)> = plain.chain(files.iter().cloned()).collect();
    for (link, target) in &folders {
        let below = format!("{target}/");
        let is_nested = |(other, _): &(&str, String)| other.starts_with(&below);
        if target.is_empty() || folders.iter().any(is_nested) {
            let why = "is a link to a folder with links to folders in it";
            return Err(Failure::refused(format!("{what}: {} {why}", quoted(link)))
                .hint("exclude it with .amlignore, or replace it with a plain folder"));
        }
        let inside = known.iter().filter_map(|(path, source)| {
            let path = format!("{link}/{}", path.strip_prefix(&below)?);
            keep(&path, false).then(|| (path, source.clone()))
        });
        files.extend(inside);
    }
    Ok(files)
}

/// The target of a link, as a path within the folder.
enum Target {
    File(String),
    Folder(String),
}

fn resolved(what: &str, top: &Path, skipped: &Skipped) -> CliResult<Target> {
    let refused = |why: &str| {
        Failure::refused(format!("{what}: {} {why}", quoted(&skipped.path)))
            .hint("exclude it with .amlignore, or replace it with a plain file")
    };
    if skipped.why != Skipped::LINK {
        return Err(refused(skipped.why));
    }
    let inside = || -> std::io::Result<(PathBuf, PathBuf)> {
        Ok((top.canonicalize()?, top.join(&skipped.path).canonicalize()?))
    };
    let (top, target) =
        inside().map_err(|_| refused("is a link to something that does not exist"))?;
    let below = target.strip_prefix(&top);
    let below = below.map_err(|_| refused("is a link to something outside the folder"))?;
    match below.to_str() {
        Some(path) if target.is_file() => Ok(Target::File(path.to_owned())),
        Some(path) if target.is_dir() => Ok(Target::Folder(path.to_owned())),
        _ => Err(refused("is a link to something that is not a plain file")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn why_not(path: &Path) -> String {
        Local::read("inputs.data", path).err().expect("refused").to_string()
    }

    /// The hashes are those that azure-ai-ml 1.35.2 computes of the same files.
    #[test]
    fn hashes_and_order_are_those_of_azure_ai_ml() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("h");
        for (name, text) in [
            ("b.txt", "one\n"),
            ("A/z.txt", "two\n"),
            ("d/e", ""),
            ("d/sub/Ü.txt", "three\n"),
            ("build/x/o.pyc", "no\n"),
            ("build/keep.txt", "keep\n"),
            ("c.pyc", "p\n"),
            (".amlignore", "build/\n*.pyc\n!keep.txt\n"),
        ] {
            let path = top.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::fs::create_dir(top.join("empty")).unwrap();
        symlink("b.txt", top.join("link")).unwrap();
        let local = Local::read("code", &top).unwrap();
        let targets: Vec<String> = local.files().iter().map(|file| local.target(file)).collect();
        assert_eq!(
            targets,
            [
                "h/.amlignore",
                "h/A/z.txt",
                "h/b.txt",
                "h/link",
                "h/build/keep.txt",
                "h/d/e",
                "h/d/sub/Ü.txt"
            ]
        );
        assert_eq!(
            local.object_hash().unwrap(),
            "b2eafaddf55990f80335590bcacf452095243a97a79f70cf290ed437497d345a"
        );
        assert_eq!(
            local.content_hash().unwrap(),
            "9709aca3bbfd20a7738721d97757b38da49c1f3e60e4cdff87864022b4b9705a"
        );
        let file = Local::read("inputs.data", &top.join("b.txt")).unwrap();
        assert_eq!(
            file.object_hash().unwrap(),
            "7c868b2b66b48680044e259626d8d2527ac70145666adab4bcfaefad2f5fc642"
        );
        assert_eq!(
            file.content_hash().unwrap(),
            "a6c8d3d131cd58c5ea20268fd620d6bef37472b539562cc8ab595e09f74c9990"
        );
        assert_eq!(file.target(&file.files()[0]), "b.txt");
    }

    #[test]
    fn what_is_no_plain_file_of_the_folder_is_refused_by_name() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(dir.path().join("real"), "content").unwrap();
        std::fs::write(other.path().join("secret"), "s").unwrap();
        symlink(other.path().join("secret"), dir.path().join("bad")).unwrap();
        let said = why_not(dir.path());
        assert!(said.contains("'bad' is a link to something outside the folder"), "{said}");
        std::fs::remove_file(dir.path().join("bad")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("sock")).unwrap();
        let said = why_not(dir.path());
        assert!(said.contains("'sock' is a socket"), "{said}");
        assert!(why_not(&dir.path().join("sock")).contains("cannot read"));
        assert!(why_not(Path::new("/dev/null")).contains("not a plain file"));
        std::fs::write(dir.path().join(".amlignore"), "sock\n").unwrap();
        assert!(Local::read("code", dir.path()).is_ok());
        assert!(why_not(&dir.path().join("nowhere")).contains("there is no file or folder"));
        let empty = tempfile::tempdir().unwrap();
        assert!(why_not(empty.path()).contains("contains no files to upload"));
    }

    #[test]
    fn a_file_that_changes_after_it_was_looked_at_is_not_sent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "before").unwrap();
        let local = Local::read("inputs.data", &path).unwrap();
        std::fs::write(&path, "after it").unwrap();
        let said = local.open(&local.files()[0], 0).err().unwrap().to_string();
        assert!(said.contains("was changed during the upload"), "{said}");
    }
}
