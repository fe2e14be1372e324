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

/// The file in an environment with its recipe and the notes for its users.
const RECIPE: &str = "muster-recipe";
const NOTES: &str = "muster-notes";
/// The most logs; the oldest are deleted.
const LOGS_MAX: usize = 500;
/// How much of the end of a log is shown.
const LOG_SHOWN_BYTES_MAX: u64 = 256 << 10;
const NOTES_BYTES_MAX: u64 = 64 << 10;
/// The folder with `python` for jobs without a built environment.
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
    /// Held while an environment is being shown or hidden.
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
        // Every user of a node can read here; other users of the host cannot reach this folder.
        for folder in [&disk.ready, &disk.shown] {
            make_public(folder)?;
        }
        disk.make_plain(&disk.ready)?;
        disk.drop_old_logs();
        Ok(disk)
    }

    /// Many programs call it `python`, but some hosts have only `python3`.
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

    /// Creates an empty log.
    pub fn new_log(&self, id: &RecipeId) -> io::Result<File> {
        let options =
            OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).clone();
        options.open(self.log_path(id))
    }

    /// Returns the end of a log, without the path of this folder.
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
            let _ = fs::remove_file(path); // Failing to remove an old log does no harm.
        }
    }

    /// Returns the notes of a usable environment, or `None` if there is none. Its interpreter may have disappeared in
    /// an upgrade of the host.
    pub fn notes_of(&self, id: &RecipeId) -> Option<Vec<String>> {
        use std::io::Read as _;
        let folder = self.ready.join(id.to_string());
        fs::metadata(folder.join("bin/python")).ok().filter(|about| about.is_file())?;
        let mut text = String::new();
        let notes = File::open(folder.join(NOTES)).ok()?;
        notes.take(NOTES_BYTES_MAX).read_to_string(&mut text).ok()?;
        Some(text.lines().map(str::to_owned).collect())
    }

    /// Records that it was requested now.
    pub fn touch(&self, id: &RecipeId) -> io::Result<()> {
        let options =
            OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).clone();
        options.open(self.used.join(id.to_string()))?.set_modified(SystemTime::now())
    }

    /// An environment without a record of a request counts as old.
    fn used(&self, id: &RecipeId) -> SystemTime {
        let about = fs::metadata(self.used.join(id.to_string()));
        about.and_then(|about| about.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    pub fn is_older_than(&self, id: &RecipeId, age: Duration) -> bool {
        // Setting the clock back makes nothing old.
        SystemTime::now().duration_since(self.used(id)).is_ok_and(|passed| passed >= age)
    }

    /// Lists every environment, with the time of its last request.
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

    /// Creates the folder that the nodes of a cluster see, if it does not exist.
    pub fn open_to(&self, cluster: ClusterId) -> io::Result<()> {
        let _one_at_a_time = self.lock();
        let folder = self.shown_to(cluster);
        make_public(&folder)?;
        self.make_plain(&folder)
    }

    /// Shows a ready environment to the nodes of a cluster. Its files are hard links, its folders are copies.
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
        // As for a build: moving a folder requires write permission on it.
        fs::set_permissions(&new, Permissions::from_mode(0o755))?;
        fs::rename(&new, &place)?;
        fs::set_permissions(&place, Permissions::from_mode(0o555))
    }

    /// Lists every cluster to which something is shown.
    fn viewers(&self) -> io::Result<Vec<ClusterId>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.shown)? {
            let name = entry?.file_name();
            all.extend(name.to_str().and_then(|name| name.parse().ok()).map(ClusterId));
        }
        Ok(all)
    }

    /// Removes the folders of deleted clusters. A folder that was just created may belong to a new cluster.
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

    /// The space that all environments use, counting each file once; with or without the cache.
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
                // A file that disappears meanwhile takes no space.
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

    /// Moves an environment aside, to be removed. It is built again if it is requested now.
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
        let _ = fs::remove_file(self.used.join(id.to_string())); // Without it the environment counts as old.
        Ok(to)
    }

    pub fn empty_cache(&self) -> io::Result<()> {
        remove(&self.cache)?;
        DirBuilder::new().mode(0o700).create(&self.cache)
    }

    /// Publishes a complete environment: it is read-only and readable by everyone, and is on disk before it gets its
    /// name.
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
        // One call for ten thousand small files, most of which are links to files of the cache.
        rustix::fs::syncfs(File::open(made)?)?;
        self.touch(id)?;
        let place = self.ready.join(id.to_string());
        if place.exists() {
            // Its interpreter has disappeared, otherwise it would not have been built again.
            remove(&self.set_aside(id)?)?;
            self.touch(id)?;
        }
        // Moving a folder requires write permission on it, because its parent entry changes.
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

/// Links the same files into other folders.
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

/// File systems limit how many names a file may have.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == io::ErrorKind::TooManyLinks => fs::copy(from, to).map(drop),
        linked => linked,
    }
}

/// Makes everything readable by all and writable by none, without set-user-ID bits. Files are links to those of the
/// cache, which are never written to either.
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

/// Restores our permission to write to a folder.
fn unlock(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, Permissions::from_mode(0o755))
}

/// Removes a folder with everything in it, even if it is read-only. A missing folder is not an error.
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
