use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, SystemTime};

use super::*;

const FILES: [(&str, &str); 20] = [
    ("comp/src/a.py", "a\n"),
    ("comp/src/.amlignore", "*.tmp\n/secret.txt\n"),
    ("comp/src/x.tmp", "no\n"),
    ("comp/src/__pycache__/a.pyc", "no\n"),
    ("comp/src/sub/.gitignore", "*.log\n"),
    ("comp/src/sub/b.log", "no\n"),
    ("comp/src/sub/b.py", "b\n"),
    ("lib/one.py", "1\n"),
    ("lib/skip.tmp", "no\n"),
    ("lib/.amlignore", "data/\n!data/keep\n"),
    ("lib/data/d", "no\n"),
    ("lib/data/keep", "k\n"),
    ("lib/deep/two.py", "2\n"),
    ("lib/deep/__pycache__/t.pyc", "no\n"),
    ("shared.txt", "s\n"),
    ("secret.txt", "s\n"),
    ("packed/p.py", "p\n"),
    ("packed/ü.txt", "u\n"),
    ("packed/sub/q.py", "q\n"),
    ("packed/no.tmp", "no\n"),
];

/// A tree whose files have the same time, and modes that no umask changes.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_709_210_097);
    let settle = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        fs::File::open(path).unwrap().set_modified(then).unwrap();
    };
    for (name, text) in FILES {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        settle(&path, 0o644);
    }
    ["packed/sub", "packed"].iter().for_each(|name| settle(&dir.path().join(name), 0o755));
    dir
}

fn gathered(top: &Path, code: Option<&str>, paths: &[&str]) -> CliResult<Local> {
    let base = top.join("comp");
    let code = code.map(|code| base.join(code));
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    component_code("code", code.as_deref(), &Includes { base, paths })
}

/// Files and hashes are those of azure-ai-ml 1.35.2 for the same tree.
#[test]
fn it_is_put_together_as_azure_ai_ml_does_it() {
    let dir = tree();
    let lib = "lib/.amlignore lib/data/keep lib/deep/two.py lib/one.py";
    for (code, paths, files, hash) in [
        (
            Some("src"),
            &["../lib", "../shared.txt", "../secret.txt"][..],
            format!(".amlignore a.py {lib} shared.txt sub/.gitignore sub/b.py"),
            "c6ed67447b4499272ffc81ecdcd97f336c41ee14ed1e4aaec0798fd9eae9abd7",
        ),
        (
            Some("src"),
            &["../lib", "../packed.zip"],
            format!(".amlignore a.py {lib} packed.zip sub/.gitignore sub/b.py"),
            "1e392c708b8416ccd5c1161553e8d952af04a55383f13cb68272021e38949bfe",
        ),
        (
            None,
            &["../lib"],
            format!("{lib} lib/skip.tmp"),
            "32bce7b00e1f2c8f81332056a2e81129adeccdf09a525eba9e932a93cd6f29f2",
        ),
        (
            Some("src/a.py"),
            &["../shared.txt"],
            "a.py shared.txt".to_owned(),
            "8e8c41030ce47673275fd3acb871ec241cd044fba81f53fea0767c824c66bba2",
        ),
        (
            Some("src"),
            &[],
            ".amlignore a.py sub/.gitignore sub/b.log sub/b.py".to_owned(),
            "97bc484cfae4af0b291280a81739f8025e97d37cc48301f16b1d814f133f30f6",
        ),
    ] {
        let local = gathered(dir.path(), code, paths).unwrap();
        let mut found: Vec<&str> = local.files().iter().map(|file| file.path.as_str()).collect();
        found.sort_unstable();
        assert_eq!(found.join(" "), files, "{paths:?}");
        assert_eq!(local.content_hash().unwrap(), hash, "{paths:?}");
        let is_merged = !paths.is_empty();
        assert_eq!(local.name(), if is_merged { NAME } else { "src" });
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let dir = tree();
    let top = dir.path();
    fs::create_dir_all(top.join("other/a.py")).unwrap();
    fs::write(top.join("other/a.py/x"), "x").unwrap();
    fs::create_dir_all(top.join("links")).unwrap();
    symlink("/etc/passwd", top.join("links/out")).unwrap();
    fs::create_dir_all(top.join("more/lib")).unwrap();
    fs::write(top.join("more/lib/one.py"), "another\n").unwrap();
    let refused = |paths: &[&str]| {
        gathered(top, Some("src"), paths).err().map(|why| why.to_string()).unwrap_or_default()
    };
    for (paths, wanted) in [
        (&["../nowhere"][..], "there is no file or folder"),
        (&["../other/a.py"], "already contains"),
        (&["../comp/src/sub"], "already contains"),
        (&["../links"], "is a link to something outside the folder"),
        (&["/dev/null"], "not a plain file"),
        (&["/"], "it has no name"),
    ] {
        let said = refused(paths);
        assert!(said.contains(wanted), "{paths:?}: {said}");
    }
    let said = gathered(top, Some("src/a.py"), &["../other/a.py"]).err().unwrap().to_string();
    assert!(said.contains("a file and a folder 'a.py'"), "{said}");
    let many = vec!["../lib"; INCLUDES_MAX + 1];
    assert!(refused(&many).contains("the limit is 100"));
    // Folders with the same name are merged; for files, the later one wins.
    let local = gathered(top, Some("src"), &["../lib", "../more/lib"]).unwrap();
    let one = local.files().iter().find(|file| file.path == "lib/one.py").unwrap();
    let text = std::io::read_to_string(local.open(one, 0).unwrap()).unwrap();
    assert_eq!(text, "another\n");
    // A link in the code to exactly the included file is not a conflict.
    symlink("../../shared.txt", top.join("comp/src/shared.txt")).unwrap();
    let local = gathered(top, Some("src"), &["../shared.txt"]).unwrap();
    assert!(local.files().iter().any(|file| file.path == "shared.txt"));
    fs::write(top.join("more/shared.txt"), "other").unwrap();
    assert!(refused(&["../more/shared.txt"]).contains("already contains"));
}
