//! A job's own layer over its environment, which all jobs share and none may write to. `pip install` in a job puts
//! packages there, and every Python of the job finds them first. The layer is deleted with the job's folder.
//!
//! ```text
//! pyvenv.cfg                          a copy of the shared one, so that bin/python finds this layer
//! bin/python*                         links to the shared ones
//! bin/pip, …                          the shared programs that look for the Python beside them
//! lib/pythonX.Y/site-packages/*.pth   leads to the shared packages
//! share/, etc/, …                     links to what packages installed beside their code, in folders of its own
//! ```

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// The name of the layer in the job's folder.
pub(super) const NAME: &str = ".python";
/// The first line of programs that uv made relocatable. Others have a fixed path or are not scripts.
const MOVABLE: &[u8] = b"#!/bin/sh\n";
const SCRIPT_BYTES_MAX: u64 = 64 << 10;

/// The folder of an environment's own interpreter, if nodes do not see the host's.
const INTERPRETER: &str = "python";

/// Down to this depth folders are the layer's own, so that packages can add to them:
/// `share/jupyter/labextensions/mine`.
const OWN_DEPTH: usize = 3;

/// Creates the layer. `shared` is also the path at which the job sees the environment.
pub(super) fn make(layer: &Path, shared: &Path) -> io::Result<()> {
    folder(layer)?;
    fs::write(layer.join("pyvenv.cfg"), settings(shared)?)?;
    for top in fs::read_dir(shared)? {
        let top = top?;
        let (name, from, to) = (top.file_name(), top.path(), layer.join(top.file_name()));
        match name.to_str() {
            Some("bin") => programs(&to, &from)?,
            Some("lib") => packages(&to, &from)?,
            // The settings lead there.
            Some(INTERPRETER) => {}
            _ if top.file_type()?.is_dir() => link(&to, &from, OWN_DEPTH)?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns the shared settings. If the interpreter is in the environment itself, they contain the path at which the job
/// sees it.
fn settings(shared: &Path) -> io::Result<String> {
    let text = fs::read_to_string(shared.join("pyvenv.cfg"))?;
    let bin = shared.join(INTERPRETER).join("bin");
    if !bin.is_dir() {
        return Ok(text);
    }
    let is_home = |line: &str| line.split('=').next().is_some_and(|name| name.trim() == "home");
    let lines = text.lines().filter(|line| !is_home(line)).map(|line| format!("{line}\n"));
    Ok([format!("home = {}\n", bin.display())].into_iter().chain(lines).collect())
}

/// Returns the library of an environment's own interpreter, if it has one.
pub(super) fn libraries(shared: &Path) -> Option<PathBuf> {
    let folder = shared.join(INTERPRETER).join("lib");
    let is_library = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(b"libpython"))
    };
    fs::read_dir(&folder).ok()?.any(is_library).then_some(folder)
}

fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

fn link(to: &Path, from: &Path, depth: usize) -> io::Result<()> {
    if depth == 0 || !fs::symlink_metadata(from)?.is_dir() {
        return symlink(from, to);
    }
    folder(to)?;
    for one in fs::read_dir(from)? {
        let one = one?;
        link(&to.join(one.file_name()), &one.path(), depth - 1)?;
    }
    Ok(())
}

fn programs(bin: &Path, shared: &Path) -> io::Result<()> {
    folder(bin)?;
    for program in fs::read_dir(shared)? {
        let program = program?;
        let (from, to) = (program.path(), bin.join(program.file_name()));
        if program.file_type()?.is_symlink() {
            symlink(&from, &to)?;
        } else if let Some(script) = movable(&from)? {
            fs::write(&to, script)?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

fn packages(lib: &Path, shared: &Path) -> io::Result<()> {
    for python in fs::read_dir(shared)? {
        let python = python?;
        if !python.file_name().as_encoded_bytes().starts_with(b"python") {
            continue;
        }
        let packages = lib.join(python.file_name()).join("site-packages");
        folder(&packages)?;
        let shared = python.path().join("site-packages");
        fs::write(packages.join("environment.pth"), line_to(shared.as_os_str())?)?;
    }
    Ok(())
}

/// Returns a line that also processes what a folder of packages requests when Python starts.
fn line_to(packages: &OsStr) -> io::Result<String> {
    let path = packages.to_str().filter(|path| !path.contains(['\'', '\\', '\n']));
    let path = path.ok_or_else(|| io::Error::other("the environment's path cannot be quoted"))?;
    Ok(format!("import site; site.addsitedir('{path}')\n"))
}

fn movable(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    let mut file = File::open(path)?.take(SCRIPT_BYTES_MAX);
    let mut start = [0; MOVABLE.len()];
    match file.read_exact(&mut start) {
        Err(short) if short.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    if start != *MOVABLE {
        return Ok(None);
    }
    text.extend_from_slice(&start);
    file.read_to_end(&mut text)?;
    Ok(((text.len() as u64) < SCRIPT_BYTES_MAX).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_leads_to_what_is_shared_and_takes_what_is_new() {
        let folder = tempfile::tempdir().unwrap();
        let (shared, own) = (folder.path().join("shared"), folder.path().join("own"));
        let packages = shared.join("lib/python3.9/site-packages");
        fs::create_dir_all(&packages).unwrap();
        fs::create_dir(shared.join("bin")).unwrap();
        fs::write(shared.join("pyvenv.cfg"), "home = /usr/bin\n").unwrap();
        symlink("/usr/bin/python3", shared.join("bin/python")).unwrap();
        let files: [(&str, &[u8]); 4] = [
            ("tool", b"#!/bin/sh\nexec python\n"),
            ("fixed", b"#!/somewhere/python\n"),
            ("empty", b""),
            ("program", b"\x7fELF and more of it"),
        ];
        for (name, content) in files {
            fs::write(shared.join("bin").join(name), content).unwrap();
        }
        fs::create_dir_all(shared.join("share/jupyter/lab/static")).unwrap();
        fs::write(shared.join("share/jupyter/lab/static/page"), "").unwrap();
        make(&own, &shared).unwrap();
        assert!(own.join("share/jupyter/lab/static/page").exists());
        fs::create_dir(own.join("share/jupyter/lab/mine")).unwrap();
        assert!(!shared.join("share/jupyter/lab/mine").exists());
        assert_eq!(fs::read_link(own.join("bin/python")).unwrap(), shared.join("bin/python"));
        let mut programs: Vec<_> =
            fs::read_dir(own.join("bin")).unwrap().map(|one| one.unwrap().file_name()).collect();
        programs.sort();
        assert_eq!(programs, ["python", "tool"]);
        let mode = fs::metadata(own.join("bin/tool")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(fs::read_to_string(own.join("pyvenv.cfg")).unwrap(), "home = /usr/bin\n");
        // This environment has its own interpreter.
        fs::create_dir_all(shared.join("python/bin")).unwrap();
        let other = folder.path().join("other");
        make(&other, &shared).unwrap();
        let wanted = format!("home = {}/python/bin\n", shared.display());
        assert_eq!(fs::read_to_string(other.join("pyvenv.cfg")).unwrap(), wanted);
        assert!(!other.join("python").exists());
        assert_eq!(libraries(&shared), None);
        fs::create_dir(shared.join("python/lib")).unwrap();
        fs::write(shared.join("python/lib/libpython3.9.so.1.0"), "").unwrap();
        assert_eq!(libraries(&shared), Some(shared.join("python/lib")));
        let line = own.join("lib/python3.9/site-packages/environment.pth");
        let wanted = format!("import site; site.addsitedir('{}')\n", packages.display());
        assert_eq!(fs::read_to_string(line).unwrap(), wanted);
    }
}
