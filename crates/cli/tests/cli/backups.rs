//! Backups that are created while the server works, whether they can be restored, and what is refused as a backup.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::support::{self, Site};

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// A job with code, an output file and a log, and a cluster that starts nothing.
fn fill(site: &Site) {
    let code = site.folder().join("code");
    fs::create_dir(&code).expect("our own folder");
    fs::write(code.join("run.sh"), "mkdir -p outputs; echo left > outputs/left.txt; echo said")
        .expect("our own folder");
    let job = site.folder().join("job.yml");
    let yaml =
        "type: command\nname: done\ncommand: sh run.sh\ncode: ./code\ncompute: azureml:cpu\n";
    fs::write(&job, yaml).expect("our own folder");
    site.text(&support::CLUSTER);
    site.text(&["compute", "create", "-n", "none", "--max-instances", "0"]);
    site.text(&["job", "create", "-f", text(&job)]);
    site.wait_for_job("done", |job| job["status"] == "Completed");
}

fn check_filled(site: &Site) {
    assert_eq!(site.json(&["job", "show", "-n", "done"])["status"], "Completed");
    let streamed = site.run(&["job", "stream", "-n", "done"]);
    let log = String::from_utf8(streamed.stdout).expect("text") + &streamed.stderr;
    assert!(log.contains("said"), "{log}");
    let to = tempfile::tempdir().expect("a folder");
    site.text(&["job", "download", "-n", "done", "-p", text(to.path())]);
    let is_left = |path: &PathBuf| path.ends_with("outputs/left.txt");
    let left = below(to.path()).into_iter().find(is_left).expect("what the job left");
    assert_eq!(fs::read_to_string(left).expect("text"), "left\n");
}

/// Every file below a folder.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => found.extend(below(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

#[test]
fn whatever_was_acknowledged_before_a_backup_is_there_after_a_restore() {
    let site = Site::start_plain();
    fill(&site);
    let (acknowledged, is_over) = (Mutex::new(Vec::<String>::new()), AtomicBool::new(false));
    let submit = |who: &str| {
        for number in 0.. {
            if is_over.load(Ordering::SeqCst) {
                return;
            }
            let name = format!("{who}-{number}");
            let job = ["job", "create", "--compute", "none", "-n", &name, "--command", "true"];
            site.text(&[&job[..], &["-o", "none"]].concat());
            acknowledged.lock().expect("no thread panicked").push(name);
        }
    };
    let backup = site.folder().join("backup");
    let before: BTreeSet<String> = std::thread::scope(|scope| {
        let submitters = ["ada", "bob"].map(|who| scope.spawn(move || submit(who)));
        let so_far = || acknowledged.lock().expect("no thread panicked").clone();
        while so_far().len() < 10 {
            assert!(!submitters.iter().any(|one| one.is_finished()), "a submission was refused");
            std::thread::sleep(Duration::from_millis(20));
        }
        let before = so_far().into_iter().collect();
        let manifest = site.json(&["backup", text(&backup)]);
        assert!(manifest["revision"].as_u64().expect("a number") > 10, "{manifest}");
        while so_far().len() < 30 {
            std::thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::SeqCst);
        before
    });
    // Only the owner can read it, and blobs take no additional space.
    let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!((mode(&backup), mode(&backup.join("state"))), (0o700, 0o700));
    let blobs = below(&backup.join("state/blobs"));
    assert!(blobs.len() > 2 && blobs.iter().all(|path| fs::metadata(path).unwrap().nlink() > 1));

    let mut restored = Site::empty();
    let state = restored.state();
    let told = restored.run(&["restore", text(&backup), "--state-dir", text(&state)]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert!(told.stderr.contains(&format!("muster up --state-dir {}", text(&state))));
    restored.start_with(&["--isolation", "none"]);
    check_filled(&restored);
    let listed = restored.json(&["job", "list", "--max-results", "1000"]);
    let listed = listed.as_array().expect("a list").iter();
    let there: BTreeSet<String> =
        listed.map(|job| job["name"].as_str().expect("text").to_owned()).collect();
    assert!(there.is_superset(&before), "{:?}", before.difference(&there));
    let submitted: BTreeSet<String> =
        acknowledged.into_inner().expect("no thread panicked").into_iter().collect();
    let others: Vec<&String> = there.difference(&submitted).collect();
    assert_eq!(others, ["done"], "no job was made up");

    // It works, and never issues a name that the other server could have issued.
    restored.text(&["compute", "create", "-n", "fresh", "--max-instances", "1", "-d", "60"]);
    restored.text(&["job", "create", "--compute", "fresh", "-n", "new", "--command", "true"]);
    restored.wait_for_job("new", |job| job["status"] == "Completed");
    let highest = |site: &Site| {
        let nodes = fs::read_dir(site.state().join("nodes")).expect("there are nodes");
        let names = nodes.map(|node| node.unwrap().file_name().into_string().unwrap());
        names.map(|name| name.rsplit_once('-').unwrap().1.to_owned()).max().expect("a node")
    };
    assert!(highest(&restored) > highest(&site));
    check_filled(&site);
}

/// A backup of a used server, to be damaged.
fn small() -> (Site, PathBuf) {
    let site = Site::start_plain();
    fill(&site);
    let backup = site.folder().join("backup");
    site.text(&["backup", text(&backup), "--verify", "-o", "none"]);
    site.text(&["restore", text(&backup), "--check"]);
    (site, backup)
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).expect("it exists");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    // A blob is a hard link, and the server's own file must not be changed.
    fs::remove_file(path).expect("ours");
    fs::write(path, bytes).expect("ours");
}

fn remove(path: &Path) {
    fs::remove_file(path).expect("it existed");
}

fn cut(path: &Path) {
    let bytes = fs::read(path).expect("it exists");
    fs::remove_file(path).expect("ours");
    fs::write(path, &bytes[..bytes.len() / 2]).expect("ours");
}

/// Removes a line from the list, and updates the list's own checksum.
fn unlist(backup: &Path, is_left_out: impl Fn(&str) -> bool) {
    let list = fs::read_to_string(backup.join("files")).expect("text");
    let kept: String =
        list.lines().filter(|line| !is_left_out(line)).map(|line| format!("{line}\n")).collect();
    assert_ne!(kept, list);
    let digest = muster_trees::blob_of(kept.as_bytes()).to_string();
    fs::write(backup.join("files"), kept).expect("ours");
    edit(backup, |manifest| manifest["list_digest"] = digest.into());
}

fn edit(backup: &Path, change: impl FnOnce(&mut Value)) {
    let path = backup.join("manifest.json");
    let mut manifest = serde_json::from_slice(&fs::read(&path).expect("it exists")).expect("JSON");
    change(&mut manifest);
    fs::write(path, manifest.to_string()).expect("ours");
}

/// What was done to the backup, and what the message says.
type Spoiled = (&'static str, fn(&Path), &'static str);

const SPOILED: &[Spoiled] = &[
    ("a flipped byte in the store", |it| flip(&it.join("state/muster.db")), "muster.db is damaged"),
    ("half of the rows of blobs", |it| cut(&it.join("state/storage.db")), "storage.db is damaged"),
    ("a flipped byte in a blob", |it| flip(&below(&it.join("state/blobs"))[0]), "is damaged"),
    ("a key is gone", |it| remove(&it.join("state/keys/token.key")), "token.key"),
    ("a flipped byte in a log", |it| flip(&below(&it.join("state/logs"))[0]), "is damaged"),
    ("half of the list", |it| cut(&it.join("files")), "not the list"),
    ("no manifest", |it| remove(&it.join("manifest.json")), "not a backup"),
    ("half a manifest", |it| cut(&it.join("manifest.json")), "not a backup"),
    ("newer", |it| edit(it, |manifest| manifest["format"] = 2.into()), "newer version"),
    ("another revision", |it| edit(it, |manifest| manifest["revision"] = 7.into()), "says 7"),
    (
        "a blob that rows name is not listed",
        |it| unlist(it, |line| line.contains(" blobs/")),
        "the database refers to this file",
    ),
    ("no store", |it| unlist(it, |line| line.ends_with(" muster.db")), "does not list muster.db"),
];

#[test]
fn a_backup_that_is_not_whole_is_refused_and_nothing_is_put_in_place() {
    let (site, backup) = small();
    for (what, spoil, said) in SPOILED {
        let copy = tempfile::tempdir().expect("a folder");
        let spoiled = copy.path().join("backup");
        let copied = std::process::Command::new("cp").arg("-a").args([&backup, &spoiled]).status();
        assert!(copied.expect("cp runs").success());
        spoil(&spoiled);
        let target = copy.path().join("state");
        for arguments in [&["--check"][..], &["--state-dir", text(&target)]] {
            let done = site.run(&[&["restore", text(&spoiled)][..], arguments].concat());
            assert!(done.code == 1 || done.code == 3, "{what} {arguments:?}: {}", done.stderr);
            assert!(done.stderr.contains(said), "{what}: {}", done.stderr);
        }
        let left = fs::read_dir(copy.path()).expect("a folder").count();
        assert_eq!(left, 1, "{what}: something was left behind");
    }

    // Existing files are never overwritten.
    for (arguments, said) in [
        (&["backup", text(&backup)][..], "is not empty"),
        (&["backup", text(&site.folder().join("no/backup"))], "/no does not exist; create it"),
        (&["backup", text(&site.state().join("backup"))], "is inside "),
        (&["restore", text(&backup), "--state-dir", text(&site.state())], "a server is running in"),
        (&["restore", text(&backup), "--state-dir", text(site.folder())], "is not empty"),
    ] {
        let done = site.run(arguments);
        assert_eq!(done.code, 2, "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
    let nowhere = site.run(&["backup", text(&backup), "--state-dir", "/nowhere"]);
    assert_eq!(nowhere.code, 3, "{}", nowhere.stderr);
    assert_eq!(site.run(&["restore", text(&backup)]).code, 2, "the target must be given");
    check_filled(&site);
}

/// A folder on another file system than the state directory, if there is one: there, blobs are copied instead of
/// linked.
fn other_disk(site: &Site) -> Option<tempfile::TempDir> {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    let memory = Path::new("/dev/shm");
    let is_other = device(memory).is_some() && device(memory) != device(site.folder());
    is_other.then(|| tempfile::tempdir_in(memory).ok()).flatten()
}

#[test]
fn rotten_files_are_left_out_and_named_and_everything_else_is_restored() {
    let site = Site::start_plain();
    fill(&site);
    let left = muster_trees::blob_of(b"left\n").to_string();
    let blobs = below(&site.state().join("blobs"));
    let has_left =
        |path: &&PathBuf| fs::read_to_string(path).is_ok_and(|text| text.contains(&left));
    let file = blobs.iter().find(|path| path.ends_with(&left)).expect("what the job left");
    let tree = blobs.iter().find(has_left).expect("the list of what it left");
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let disk = other_disk(&site);
    let other = disk.as_ref().map_or(site.folder(), |disk| disk.path());

    flip(file);
    for (to, more) in
        [(other.join("copied"), &["--verify"][..]), (site.folder().join("linked"), &["--verify"])]
    {
        let made = site.run(&[&["backup", text(&to), "-o", "json"][..], more].concat());
        assert_eq!(made.code, 4, "{}", made.stderr);
        let manifest: Value = serde_json::from_slice(&made.stdout).expect("JSON");
        let damaged = manifest["damaged"].as_array().expect("a list");
        assert_eq!(damaged.len(), 1, "{manifest}");
        assert!(damaged[0]["path"].as_str().unwrap().ends_with(&left), "{manifest}");
        assert_eq!(
            (&damaged[0]["workspace"], &damaged[0]["jobs"][0]),
            (&"default".into(), &"done".into())
        );

        let new = site.folder().join("new");
        let restored = site.run(&["restore", text(&to), "--state-dir", text(&new)]);
        for (done, what) in [(&made, "the backup"), (&restored, "the state directory")] {
            assert_eq!(done.code, 4, "{}", done.stderr);
            assert!(done.stderr.contains(&left), "{}", done.stderr);
            assert!(done.stderr.contains("(workspace default, blob "), "{}", done.stderr);
            assert!(done.stderr.contains("/outputs/left.txt, job done)"), "{}", done.stderr);
            let sum = format!("{what} lacks 1 damaged and 0 lost files");
            assert!(done.stderr.contains(&sum), "{}", done.stderr);
        }
        assert!(new.join("muster.db").exists());
        fs::remove_dir_all(&new).expect("ours");
    }

    // A tree is read anyway, even if it is a link.
    flip(tree);
    let to = site.folder().join("without-list");
    let made = site.run(&["backup", text(&to)]);
    assert_eq!(made.code, 4, "{}", made.stderr);
    assert!(made.stderr.contains(&name(tree)), "{}", made.stderr);
    let checked = site.run(&["restore", text(&to), "--check"]);
    assert_eq!(checked.code, 1, "the other one is in it, and was not read: {}", checked.stderr);
    assert!(checked.stderr.contains("--skip-damaged"), "{}", checked.stderr);
    let mut restored = Site::empty();
    let state = restored.state();
    let done = restored.run(&["restore", text(&to), "--skip-damaged", "--state-dir", text(&state)]);
    assert_eq!(done.code, 4, "{}", done.stderr);
    assert!(done.stderr.contains("lacks 2 damaged and 0 lost files"), "{}", done.stderr);
    restored.start_with(&["--isolation", "none"]);
    assert_eq!(restored.json(&["job", "show", "-n", "done"])["status"], "Completed");
}

#[test]
fn a_configuration_that_is_a_link_is_in_the_backup_and_restored_as_a_file() {
    let mut site = Site::empty();
    let config = site.folder().join("elsewhere.toml");
    fs::write(&config, "lease-seconds = 20\n").expect("ours");
    fs::create_dir(site.state()).expect("ours");
    let owner_only = fs::Permissions::from_mode(0o700);
    fs::set_permissions(site.state(), owner_only).expect("ours");
    std::os::unix::fs::symlink(&config, site.state().join("muster.toml")).expect("ours");
    site.start_with(&["--isolation", "none"]);
    let to = site.folder().join("backup");
    let made = site.run(&["backup", text(&to)]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let note = format!("muster.toml is a symbolic link to {}", text(&config));
    assert!(made.stderr.contains(&note), "{}", made.stderr);
    let new = site.folder().join("new");
    site.text(&["restore", text(&to), "--state-dir", text(&new)]);
    let restored = new.join("muster.toml");
    assert!(fs::symlink_metadata(&restored).expect("it exists").is_file());
    assert_eq!(fs::read_to_string(restored).expect("text"), "lease-seconds = 20\n");
}

/// Also with garbage collection in between, which deletes the outputs as soon as no backup is being created.
#[test]
fn backups_are_whole_while_jobs_are_deleted() {
    let site = Site::start_plain();
    fill(&site);
    let jobs: Vec<String> = (0..8).map(|number| format!("gone-{number}")).collect();
    for job in &jobs {
        let command = format!("mkdir -p outputs; echo {job} > outputs/left.txt; echo {job}");
        let create = ["job", "create", "--compute", "cpu", "-n", job, "--command", &command];
        site.text(&[&create[..], &["-o", "none"]].concat());
    }
    for job in &jobs {
        site.wait_for_job(job, |job| job["status"] == "Completed");
    }
    let is_over = AtomicBool::new(false);
    let backups = std::thread::scope(|scope| {
        let deleting = scope.spawn(|| {
            for job in &jobs {
                site.text(&["job", "delete", "-n", job, "--yes"]);
                // Refused while a backup is being created.
                site.run(&["storage", "gc", "--grace-seconds", "1"]);
            }
            is_over.store(true, Ordering::SeqCst);
        });
        let mut backups = Vec::new();
        while !is_over.load(Ordering::SeqCst) && !deleting.is_finished() {
            let to = site.folder().join(format!("backup-{}", backups.len()));
            site.text(&["backup", text(&to), "--verify", "-o", "none"]);
            backups.push(to);
        }
        backups
    });
    assert!(backups.len() > 1, "no backup was created in the meantime");
    for backup in &backups {
        site.text(&["restore", text(backup), "--check", "-o", "none"]);
    }
    let mut restored = Site::empty();
    let state = restored.state();
    let last = backups.last().expect("there are some");
    site.text(&["restore", text(last), "--state-dir", text(&state)]);
    restored.start_with(&["--isolation", "none"]);
    check_filled(&restored);
}

#[test]
fn nothing_is_collected_while_a_backup_is_created() {
    let site = Site::start_plain();
    let lock = fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(site.state().join("blobs.lock"))
        .expect("it opens");
    flock(&lock, FlockOperation::LockExclusive).expect("as a backup does it");
    let refused = site.run(&["storage", "gc"]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("a backup is being created"), "{}", refused.stderr);
    drop(lock);
    site.text(&["storage", "gc"]);
}
