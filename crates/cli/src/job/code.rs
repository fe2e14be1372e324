//! `--code`: the files of a job, which are uploaded before the job is submitted.

use std::collections::BTreeMap;
use std::path::Path;

use muster_core::ErrorChain;
use muster_core::model::{BlobId, TreeId, WorkspaceKey};
use muster_trees::{File, Folder, Memory, Tree, snapshot, tree_of};
use muster_wire::Route;
use muster_wire::trees::Missing;

use crate::client::Client;
use crate::failure::{CliResult, Failure, printable, quoted};
use crate::output;
use crate::upload::{Unwanted, linked, read_ignore};

/// The server may delete a file between two requests, but not again and again.
const ROUNDS_MAX: usize = 4;

/// Files that Python's tools generate again when they need them.
const CACHES: [&str; 5] =
    ["__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints"];

/// A folder that is ready to be uploaded.
pub struct Code {
    folder: Folder,
    tree: Tree,
    /// Where the bytes of each file are: for a link, in its target.
    sources: BTreeMap<BlobId, String>,
}

impl Code {
    /// Reads the folder. Nothing is uploaded yet.
    pub fn read(path: &Path) -> CliResult<Code> {
        let unreadable = |why: &dyn std::fmt::Display| {
            Failure::refused(format!("--code {}: {}", path.display(), printable(&why.to_string())))
        };
        let folder = Folder::open(path).map_err(|why| unreadable(&why))?;
        let ignore = read_ignore(path)?;
        let unwanted = Unwanted::default();
        let keep = |name: &str, is_folder: bool| {
            let last = name.rsplit('/').next().unwrap_or(name);
            let is_unwanted =
                is_folder && (CACHES.contains(&last) || unwanted.is_environment(path, name));
            !is_unwanted && !ignore.leaves_out(name, is_folder)
        };
        let listing = folder.list_all(&keep).map_err(|why| unreadable(&why))?;
        let mut sent: Vec<(String, String)> = listing
            .files
            .iter()
            .map(|file| (file.path.to_string(), file.path.to_string()))
            .collect();
        sent.extend(linked("--code", path, &listing, &keep)?);
        unwanted.report();
        if sent.is_empty() {
            return Err(unreadable(&"it contains no files to upload"));
        }
        let mut files = Vec::with_capacity(sent.len());
        let mut sources = BTreeMap::new();
        let mut memory = Memory::default();
        for (name, source) in sent {
            let taken = snapshot(&folder, &[&source], &mut memory)
                .map_err(|why| unreadable(&ErrorChain(&why)))?;
            let Some(file) = taken.tree.files().first() else {
                return Err(unreadable(&format!("{name} was deleted while it was read")));
            };
            sources.insert(file.digest, source);
            files.push(File { path: name.into(), ..file.clone() });
        }
        let tree = Tree::new(files).map_err(|why| {
            unreadable(&why).hint("exclude files that the job does not need with .amlignore")
        })?;
        Ok(Code { folder, tree, sources })
    }

    pub fn id(&self) -> TreeId {
        tree_of(self.tree.to_text().as_bytes())
    }

    /// Uploads the files that the server does not have.
    pub async fn send(&self, client: &Client, workspace: &WorkspaceKey) -> CliResult {
        let text = self.tree.to_text();
        let id = self.id().to_string().into();
        let list = Route::Tree { workspace: workspace.clone(), id };
        for _ in 0..ROUNDS_MAX {
            let answer = client.put_text(&list, text.clone()).await?;
            let Missing { missing } = answer.document()?;
            if missing.is_empty() {
                return Ok(());
            }
            let count = self.tree.files().len();
            output::say(&format!("uploading {} of {count} files", missing.len()));
            for digest in missing {
                self.send_file(client, workspace, &digest).await?;
            }
        }
        Err(Failure::error("the server loses uploaded files; look at its log").passing())
    }

    async fn send_file(
        &self,
        client: &Client,
        workspace: &WorkspaceKey,
        digest: &BlobId,
    ) -> CliResult {
        let source = self.sources.get(digest);
        let source = source.ok_or_else(|| Failure::error("the server requests unknown files"))?;
        let open = || match self.folder.open_file(source) {
            Ok((file, stamp)) => Ok((file, stamp.bytes)),
            Err(why) => Err(Failure::error(format!("cannot read {}: {why}", quoted(source)))),
        };
        let digest = digest.to_string().into();
        let route = Route::Blob { workspace: workspace.clone(), digest };
        client.put_file(&route, open).await
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn paths(code: &Code) -> Vec<&str> {
        code.tree.files().iter().map(|file| &*file.path).collect()
    }

    fn why_not(path: &Path) -> String {
        Code::read(path).err().expect("it is refused").to_string()
    }

    #[test]
    fn what_is_ignored_is_left_out_and_amlignore_counts_before_gitignore() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        };
        for name in ["train.py", "src/a.py", "src/a.pyc", "data/big", ".git/config"] {
            write(name);
        }
        std::fs::write(dir.path().join(".gitignore"), "*.pyc\n").unwrap();
        let code = Code::read(dir.path()).unwrap();
        assert_eq!(paths(&code), [".gitignore", "data/big", "src/a.py", "train.py"]);
        std::fs::write(dir.path().join(".amlignore"), "data/\n.*ignore\n").unwrap();
        let code = Code::read(dir.path()).unwrap();
        assert_eq!(paths(&code), ["src/a.py", "src/a.pyc", "train.py"]);
    }

    #[test]
    fn links_inside_are_files_and_links_outside_are_refused() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(dir.path().join("real"), "content").unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        let code = Code::read(dir.path()).unwrap();
        assert_eq!(paths(&code), ["link", "real"]);
        assert_eq!(code.tree.files()[0].digest, code.tree.files()[1].digest);
        std::fs::write(other.path().join("secret"), "s").unwrap();
        for (target, why) in [
            (other.path().join("secret"), "outside the folder"),
            (other.path().to_owned(), "outside the folder"),
            (dir.path().join("nothing"), "does not exist"),
            (dir.path().to_owned(), "links to folders in it"),
        ] {
            let link = dir.path().join("bad");
            symlink(&target, &link).unwrap();
            let refused = why_not(dir.path());
            assert!(refused.contains(why) && refused.contains("bad"), "{refused}");
            std::fs::remove_file(link).unwrap();
        }
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        assert!(why_not(dir.path()).contains("is a socket"));
        std::fs::write(dir.path().join(".amlignore"), "socket\n").unwrap();
        assert!(Code::read(dir.path()).is_ok());
    }

    #[test]
    fn what_a_project_has_besides_its_code_stays_here() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        };
        for name in [
            "train.py",
            "lib/a.py",
            "lib/__pycache__/a.cpython-311.pyc",
            ".git/config",
            ".mypy_cache/x",
            "venv/pyvenv.cfg",
            "venv/lib/site.py",
            "envs/own/pyvenv.cfg",
        ] {
            write(name);
        }
        // The layout that `python3 -m venv` creates.
        symlink("/usr/bin/env", dir.path().join("venv/python")).unwrap();
        symlink("lib", dir.path().join("venv/lib64")).unwrap();
        symlink("lib", dir.path().join("shared")).unwrap();
        let code = Code::read(dir.path()).unwrap();
        assert_eq!(paths(&code), ["lib/a.py", "shared/a.py", "train.py"]);
        assert_eq!(code.tree.files()[0].digest, code.tree.files()[1].digest);
        std::fs::write(dir.path().join(".amlignore"), "shared\n").unwrap();
        assert_eq!(paths(&Code::read(dir.path()).unwrap()), [".amlignore", "lib/a.py", "train.py"]);
    }

    #[test]
    fn a_folder_that_is_none_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(why_not(&dir.path().join("missing")).contains("No such file"));
        assert!(why_not(dir.path()).contains("contains no files"));
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(why_not(&dir.path().join("file")).contains("Not a directory"));
    }
}
