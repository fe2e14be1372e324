//! The folders of environments on disk.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use muster_core::ids::ClusterId;
use muster_core::model::RecipeId;

use crate::python::Interpreters;

/// In an environment: what it was made of, and what its users should know.
const RECIPE: &str = "muster-recipe";
const NOTES: &str = "muster-notes";
/// Of logs; the oldest go.
const LOGS_MAX: usize = 500;
/// Of a log that is shown: its last part.
const LOG_SHOWN_BYTES_MAX: u64 = 256 << 10;
const NOTES_BYTES_MAX: u64 = 64 << 10;
/// What `python` leads to where nothing is built.
const PLAIN: &str = "plain";

#[derive(Debug)]
pub struct Disk {
    pub ready: PathBuf,
    pub shown: PathBuf,
    pub building: PathBuf,
    pub cache: PathBuf,
    /// Copies of interpreters that nodes do not see.
    pub pythons: PathBuf,
    logs: PathBuf,
    used: PathBuf,
    /// Held while something is shown, or hidden again.
    showing: Mutex<()>,
}

impl Disk {
    pub fn open(dir: &Path) -> io::Result<Disk> {
        let disk = Disk {
            ready: dir.join("ready"),
            shown: dir.join("shown"),
            building: dir.join("building"),
            cache: dir.join("cache"),
            pythons: dir.join("pythons"),
            logs: dir.join("logs"),
            used: dir.join("used"),
            showing: Mutex::default(),
        };
        remove(&disk.building)?;
        let own = [dir, &disk.building, &disk.cache, &disk.pythons, &disk.logs, &disk.used];
        for folder in own {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        // Every user of a node reads in here; who is not in a node does not get this far.
        for folder in [&disk.ready, &disk.shown] {
            make_public(folder)?;
        }
        disk.make_plain(&disk.ready)?;
        disk.drop_old_logs();
        Ok(disk)
    }

    /// Many call it `python`, and some machines have only `python3`.
    fn make_plain(&self, folder: &Path) -> io::Result<()> {
        let Some(usual) = Interpreters::of_this_machine().usual else { return Ok(()) };
        let bin = folder.join(PLAIN).join("bin");
        let link = bin.join("python");
        if fs::read_link(&link).is_ok_and(|target| target == usual.path) {
            return Ok(());
        }
        let new = self.building.join(PLAIN);
        DirBuilder::new().recursive(true).mode(0o755).create(new.join("bin"))?;
        for folder in [&new, &new.join("bin")] {
            fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        }
        symlink(&usual.path, new.join("bin/python"))?;
        let old = folder.join(PLAIN);
        if old.exists() {
            fs::rename(&old, self.building.join("old-plain"))?;
        }
        fs::rename(&new, &old)?;
        remove(&self.building.join("old-plain"))
    }

    pub fn log_path(&self, id: &RecipeId) -> PathBuf {
        self.logs.join(format!("{id}.log"))
    }

    /// An empty log.
    pub fn new_log(&self, id: &RecipeId) -> io::Result<File> {
        let options =
            OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).clone();
        options.open(self.log_path(id))
    }

    /// The end of a log. Where all this is kept is left out.
    pub fn log_of(&self, id: &RecipeId) -> Option<String> {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let mut file = File::open(self.log_path(id)).ok()?;
        let bytes = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(LOG_SHOWN_BYTES_MAX))).ok()?;
        let mut text = Vec::new();
        file.take(LOG_SHOWN_BYTES_MAX).read_to_end(&mut text).ok()?;
        let own = self.logs.parent().unwrap_or(&self.logs).display().to_string();
        Some(String::from_utf8_lossy(&text).replace(&own, "environments"))
    }

    fn drop_old_logs(&self) {
        let entries = fs::read_dir(&self.logs).into_iter().flatten().flatten();
        let mut all: Vec<(SystemTime, PathBuf)> = entries
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        all.sort();
        for (_, path) in &all[..all.len().saturating_sub(LOGS_MAX)] {
            let _ = fs::remove_file(path); // It is a log of long ago.
        }
    }

    /// What is to be said of an environment that is there and of use; `None`: it is not. Its interpreter may have gone
    /// when the machine was given another.
    pub fn notes_of(&self, id: &RecipeId) -> Option<Vec<String>> {
        use std::io::Read as _;
        let folder = self.ready.join(id.to_string());
        fs::metadata(folder.join("bin/python")).ok().filter(|about| about.is_file())?;
        let mut text = String::new();
        let notes = File::open(folder.join(NOTES)).ok()?;
        notes.take(NOTES_BYTES_MAX).read_to_string(&mut text).ok()?;
        Some(text.lines().map(str::to_owned).collect())
    }

    /// Notes that it is wanted now.
    pub fn touch(&self, id: &RecipeId) -> io::Result<()> {
        let options =
            OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).clone();
        options.open(self.used.join(id.to_string()))?.set_modified(SystemTime::now())
    }

    /// What was never noted as wanted is old.
    fn used(&self, id: &RecipeId) -> SystemTime {
        let about = fs::metadata(self.used.join(id.to_string()));
        about.and_then(|about| about.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    pub fn is_older_than(&self, id: &RecipeId, age: Duration) -> bool {
        // A clock that was set back makes nothing old.
        SystemTime::now().duration_since(self.used(id)).is_ok_and(|passed| passed >= age)
    }

    /// Every environment, with when it was last wanted.
    pub fn list(&self) -> io::Result<Vec<(RecipeId, SystemTime)>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.ready)? {
            let name = entry?.file_name();
            if let Some(id) = name.to_str().and_then(|name| name.parse().ok()) {
                all.push((id, self.used(&id)));
            }
        }
        Ok(all)
    }

    fn shown_to(&self, cluster: ClusterId) -> PathBuf {
        self.shown.join(cluster.0.to_string())
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.showing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the folder that the nodes of a cluster see, if it is not there.
    pub fn open_to(&self, cluster: ClusterId) -> io::Result<()> {
        let _one_at_a_time = self.lock();
        let folder = self.shown_to(cluster);
        make_public(&folder)?;
        self.make_plain(&folder)
    }

    /// Shows an environment that is ready to the nodes of a cluster. Its files are the same, its folders are copies.
    pub fn show(&self, cluster: ClusterId, id: &RecipeId) -> io::Result<()> {
        let name = id.to_string();
        let (from, place) = (self.ready.join(&name), self.shown_to(cluster).join(&name));
        if place.is_dir() {
            return Ok(());
        }
        self.open_to(cluster)?;
        let _one_at_a_time = self.lock();
        if place.is_dir() {
            return Ok(());
        }
        let new = self.building.join(format!("shown-{name}"));
        remove(&new)?;
        link_all(&from, &new)?;
        seal(&new)?;
        // As with what is built: a folder is moved by who may write to it.
        fs::set_permissions(&new, Permissions::from_mode(0o755))?;
        fs::rename(&new, &place)?;
        fs::set_permissions(&place, Permissions::from_mode(0o555))
    }

    /// Every cluster that is shown something.
    fn viewers(&self) -> io::Result<Vec<ClusterId>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.shown)? {
            let name = entry?.file_name();
            all.extend(name.to_str().and_then(|name| name.parse().ok()).map(ClusterId));
        }
        Ok(all)
    }

    /// Shows nothing any more to clusters that are gone. What was made just now may be of one that is new.
    pub fn close_to_others(&self, clusters: &BTreeSet<ClusterId>, age: Duration) -> io::Result<()> {
        for cluster in self.viewers()?.into_iter().filter(|cluster| !clusters.contains(cluster)) {
            let folder = self.shown_to(cluster);
            let made = fs::metadata(&folder)?.modified()?;
            if SystemTime::now().duration_since(made).is_ok_and(|passed| passed >= age) {
                remove(&folder)?;
            }
        }
        Ok(())
    }

    /// What all environments take, each file once however many have it; with the cache, or without.
    pub fn bytes(&self, with_cache: bool) -> io::Result<u64> {
        let mut seen = BTreeSet::new();
        let mut bytes = 0;
        let mut dirs = vec![self.ready.clone(), self.shown.clone()];
        dirs.extend(with_cache.then(|| self.cache.clone()));
        while let Some(dir) = dirs.pop() {
            let entries = match fs::read_dir(&dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                // What goes while we look takes nothing.
                let Ok(about) = entry.metadata() else { continue };
                if about.is_dir() {
                    dirs.push(entry.path());
                }
                if about.nlink() < 2 || about.is_dir() || seen.insert((about.dev(), about.ino())) {
                    bytes += about.blocks() * 512;
                }
            }
        }
        Ok(bytes)
    }

    /// Out of sight, to be removed. Whoever asks for it now has it built again.
    pub fn set_aside(&self, id: &RecipeId) -> io::Result<PathBuf> {
        let (from, to) =
            (self.ready.join(id.to_string()), self.building.join(format!("gone-{id}")));
        remove(&to)?;
        unlock(&from)?;
        fs::rename(&from, &to)?;
        let _one_at_a_time = self.lock();
        for cluster in self.viewers()? {
            remove(&self.shown_to(cluster).join(id.to_string()))?;
        }
        let _ = fs::remove_file(self.used.join(id.to_string())); // Then it counts as old, and it is gone.
        Ok(to)
    }

    pub fn empty_cache(&self) -> io::Result<()> {
        remove(&self.cache)?;
        DirBuilder::new().mode(0o700).create(&self.cache)
    }

    /// Shows what is whole: nobody may write to it, everybody may read it, and it is on disk before it has its name.
    pub fn publish(
        &self,
        id: &RecipeId,
        made: &Path,
        recipe: &str,
        notes: &[String],
    ) -> io::Result<()> {
        fs::write(made.join(RECIPE), recipe)?;
        let lines: String = notes.iter().map(|note| format!("{note}\n")).collect();
        fs::write(made.join(NOTES), lines)?;
        seal(made)?;
        // One call for ten thousand small files, of which most are links to files of the cache.
        rustix::fs::syncfs(File::open(made)?)?;
        self.touch(id)?;
        let place = self.ready.join(id.to_string());
        if place.exists() {
            // Its interpreter is gone, or it would not have been built again.
            remove(&self.set_aside(id)?)?;
            self.touch(id)?;
        }
        // A folder can be moved by who may write to it, as its way up changes.
        fs::set_permissions(made, Permissions::from_mode(0o755))?;
        fs::rename(made, &place)?;
        fs::set_permissions(&place, Permissions::from_mode(0o555))?;
        File::open(&self.ready)?.sync_all()
    }
}

fn make_public(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o755))
}

/// The same files under other folders.
pub fn link_all(from: &Path, to: &Path) -> io::Result<()> {
    let mut dirs = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = dirs.pop() {
        DirBuilder::new().mode(0o755).create(&to)?;
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            let place = to.join(entry.file_name());
            match entry.file_type()?.is_dir() {
                true => dirs.push((entry.path(), place)),
                false => link(&entry.path(), &place)?,
            }
        }
    }
    Ok(())
}

/// A file system has a limit for how many names a file may have.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == io::ErrorKind::TooManyLinks => fs::copy(from, to).map(drop),
        linked => linked,
    }
}

/// Readable for all, writable for nobody, without rights of its owner's. Files are links to the cache's, which are
/// never written to either.
fn seal(top: &Path) -> io::Result<()> {
    let mut dirs = vec![top.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let about = entry.metadata()?;
            if about.is_dir() {
                dirs.push(entry.path());
            } else if about.is_file() {
                let mode = if about.mode() & 0o111 == 0 { 0o444 } else { 0o555 };
                if about.mode() & 0o7777 != mode {
                    fs::set_permissions(entry.path(), Permissions::from_mode(mode))?;
                }
            }
        }
        fs::set_permissions(&dir, Permissions::from_mode(0o555))?;
    }
    Ok(())
}

/// Gives us back the right to write to a folder.
fn unlock(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, Permissions::from_mode(0o755))
}

/// With everything in it, also what is sealed. What is not there is gone.
pub fn remove(top: &Path) -> io::Result<()> {
    let about = match fs::symlink_metadata(top) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        about => about?,
    };
    if !about.is_dir() {
        return fs::remove_file(top);
    }
    let mut dirs = vec![top.to_owned()];
    while let Some(dir) = dirs.pop() {
        unlock(&dir)?;
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    fs::remove_dir_all(top)
}
