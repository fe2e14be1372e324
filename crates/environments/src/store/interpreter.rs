//! Provides an interpreter that nodes do not see, in an environment that they do see.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::disk::{link_all, remove};

/// The folder in an environment.
const FOLDER: &str = "python";

/// Puts a copy of an interpreter that nodes do not see into an environment, as `python/`. Jobs start it as
/// `bin/python`, and their own layer contains its path. All environments share one copy of it.
pub fn bring(pythons: &Path, python: &Path, made: &Path) -> io::Result<()> {
    let bad = || io::Error::other(format!("{} is not in a folder bin", python.display()));
    let name = python.file_name().and_then(|name| name.to_str()).ok_or_else(bad)?;
    let prefix = python.parent().and_then(Path::parent).ok_or_else(bad)?;
    let version = prefix.file_name().and_then(|name| name.to_str()).ok_or_else(bad)?;
    let kept = pythons.join(version);
    if !kept.is_dir() {
        // Two builds may create it at once.
        let new = made.with_extension("python");
        remove(&new)?;
        fs::create_dir_all(new.join("bin"))?;
        fs::copy(python, new.join("bin").join(name))?;
        copy_library(&prefix.join("lib"), &new.join("lib"), name)?;
        match fs::rename(&new, &kept) {
            Err(_) if kept.is_dir() => remove(&new)?,
            renamed => renamed?,
        }
    }
    link_all(&kept, &made.join(FOLDER))?;
    let program = made.join("bin/python");
    fs::remove_file(&program)?;
    symlink(Path::new("..").join(FOLDER).join("bin").join(name), &program)
}

/// Copies what a Python needs from the folder `lib` beside it: its own modules and shared libraries, without packages,
/// tests and files for compilers.
fn copy_library(from: &Path, to: &Path, python: &str) -> io::Result<()> {
    const NOT_NEEDED: [&str; 6] =
        ["site-packages", "test", "tests", "idlelib", "ensurepip", "__pycache__"];
    let mut dirs = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = dirs.pop() {
        fs::create_dir_all(&to)?;
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_top = from.ends_with("lib");
            let is_wanted = match fs::metadata(entry.path()) {
                Ok(about) if about.is_dir() => {
                    (!is_top || *name == *python)
                        && !NOT_NEEDED.contains(&&*name)
                        && !name.starts_with("config-")
                }
                Ok(about) => {
                    about.is_file()
                        && (!is_top || (name.starts_with("libpython") && name.contains(".so")))
                }
                // A broken link.
                Err(_) => false,
            };
            let place = to.join(entry.file_name());
            match (is_wanted, entry.path().is_dir()) {
                (false, _) => {}
                (true, true) => dirs.push((entry.path(), place)),
                (true, false) => fs::copy(entry.path(), place).map(drop)?,
            }
        }
    }
    Ok(())
}

/// Returns true if a package is installed in an environment, according to the name of its metadata.
pub fn has_package(folder: &Path, name: &str) -> io::Result<bool> {
    for python in fs::read_dir(folder.join("lib"))? {
        let Ok(packages) = fs::read_dir(python?.path().join("site-packages")) else { continue };
        for package in packages {
            let found = package?.file_name();
            let found = found.to_string_lossy();
            if found.ends_with(".dist-info") && found.starts_with(&format!("{name}-")) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_gets_the_interpreter_without_what_it_does_not_need() {
        let folder = tempfile::tempdir().unwrap();
        let (prefix, made) = (folder.path().join("cpython-3.10.13"), folder.path().join("made"));
        let pythons = folder.path().join("pythons");
        for file in [
            "bin/python3.10",
            "lib/libpython3.10.so.1.0",
            "lib/libpython3.10.a",
            "lib/libtcl8.6.so",
            "lib/tcl8.6/init.tcl",
            "lib/python3.10/os.py",
            "lib/python3.10/lib-dynload/_ssl.so",
            "lib/python3.10/test/test_os.py",
            "lib/python3.10/site-packages/six.py",
            "lib/python3.10/config-3.10-x86_64/libpython3.10.a",
        ] {
            let path = prefix.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        fs::create_dir_all(&pythons).unwrap();
        for round in 0..2 {
            let made = made.with_extension(round.to_string());
            fs::create_dir_all(made.join("bin")).unwrap();
            symlink(prefix.join("bin/python3.10"), made.join("bin/python")).unwrap();
            bring(&pythons, &prefix.join("bin/python3.10"), &made).unwrap();
            // The path is relative to the environment, wherever that is mounted.
            assert_eq!(
                fs::read_link(made.join("bin/python")).unwrap(),
                Path::new("../python/bin/python3.10")
            );
            let text = fs::read_to_string(made.join("bin/python")).unwrap();
            assert_eq!(text, "bin/python3.10");
            let there = |path: &str| made.join("python/lib").join(path).exists();
            assert!(there("libpython3.10.so.1.0") && there("python3.10/os.py"));
            assert!(there("python3.10/lib-dynload/_ssl.so"));
            for path in [
                "libpython3.10.a",
                "libtcl8.6.so",
                "tcl8.6",
                "python3.10/test",
                "python3.10/site-packages",
            ] {
                assert!(!there(path), "{path}");
            }
            assert!(!there("python3.10/config-3.10-x86_64"));
        }
        let kept: Vec<_> = fs::read_dir(&pythons).unwrap().collect();
        assert_eq!(kept.len(), 1, "both share one copy");
    }
}
