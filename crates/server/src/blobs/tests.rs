use std::time::Duration;

use muster_trees::{Hasher, TREE_BYTES_MAX, blob_of};

use super::*;
use crate::room::Kind;

const HERE: WorkspaceId = WorkspaceId(1);
const THERE: WorkspaceId = WorkspaceId(2);

fn blobs() -> (tempfile::TempDir, Arc<Blobs>) {
    let dir = tempfile::tempdir().unwrap();
    let blobs =
        Blobs::with_room(dir.path().join("blobs"), Room::with_reserve(dir.path().into(), 0))
            .unwrap();
    (dir, Arc::new(blobs))
}

fn keep(blobs: &Arc<Blobs>, content: &[u8]) {
    let mut incoming = blobs.begin(HERE, None, Kind::OfJob).unwrap();
    incoming.write(content).unwrap();
    incoming.keep(&blob_of(content)).unwrap();
}

fn list_of(contents: &[&[u8]]) -> (TreeId, String) {
    let file = |content: &&[u8]| muster_trees::File {
        path: format!("f{}", blob_of(content)).into(),
        is_executable: false,
        bytes: content.len() as u64,
        digest: blob_of(content),
    };
    let text = Tree::new(contents.iter().map(file).collect()).unwrap().to_text();
    (tree_of(text.as_bytes()), text)
}

fn files_below(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).unwrap().flatten();
    entries.map(|entry| if entry.path().is_dir() { files_below(&entry.path()) } else { 1 }).sum()
}

#[test]
fn a_list_is_kept_when_all_its_files_are_there() {
    let (_dir, blobs) = blobs();
    let (id, text) = list_of(&[b"one", b"two"]);
    keep(&blobs, b"one");
    let listed = blobs.list(HERE, &id, text.as_bytes(), TREE_BYTES_MAX, Kind::OfJob).unwrap();
    assert_eq!(listed.missing, [blob_of(b"two")]);
    assert!(blobs.tree(HERE, &id).unwrap().is_none());
    keep(&blobs, b"two");
    assert_eq!(
        blobs.list(HERE, &id, text.as_bytes(), TREE_BYTES_MAX, Kind::OfJob).unwrap().missing,
        []
    );
    assert_eq!(blobs.tree(HERE, &id).unwrap().unwrap(), text.as_bytes());
    assert!(blobs.has_tree(HERE, &id).unwrap());
    // Another workspace has none of these files, and cannot find out that they exist.
    assert_eq!(
        blobs.list(THERE, &id, text.as_bytes(), TREE_BYTES_MAX, Kind::OfJob).unwrap().missing.len(),
        2
    );
    assert!(blobs.file_of(THERE, &id, &blob_of(b"one")).unwrap().is_none());
    assert!(blobs.file_of(HERE, &id, &blob_of(b"one")).unwrap().is_some());
    keep(&blobs, b"not on the list");
    assert!(blobs.file_of(HERE, &id, &blob_of(b"not on the list")).unwrap().is_none());
}

#[test]
fn bytes_with_another_digest_are_not_stored() {
    let (dir, blobs) = blobs();
    let mut incoming = blobs.begin(HERE, Some(3), Kind::OfJob).unwrap();
    incoming.write(b"two").unwrap();
    let refused = incoming.keep(&blob_of(b"one"));
    assert!(matches!(refused, Err(BlobError::WrongDigest { .. })));
    let (id, _) = list_of(&[b"one"]);
    let (_, other) = list_of(&[b"two"]);
    assert!(matches!(
        blobs.list(HERE, &id, other.as_bytes(), TREE_BYTES_MAX, Kind::OfJob),
        Err(BlobError::WrongDigest { .. })
    ));
    let evil = "muster-tree 1\n".to_owned() + &format!("{} - 1 ../x\n", blob_of(b"x"));
    let refused =
        blobs.list(HERE, &tree_of(evil.as_bytes()), evil.as_bytes(), TREE_BYTES_MAX, Kind::OfJob);
    assert!(matches!(refused, Err(BlobError::BadTree(_))), "{refused:?}");
    drop(blobs.begin(HERE, None, Kind::OfJob).unwrap());
    assert_eq!(files_below(dir.path()), 0);
    assert!(matches!(
        blobs.begin(HERE, Some(u64::MAX), Kind::OfJob),
        Err(BlobError::TooLarge { .. })
    ));
}

#[test]
fn room_is_kept_for_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Arc::new(
        Blobs::with_room(dir.path().join("blobs"), Room::with_reserve(dir.path().into(), u64::MAX))
            .unwrap(),
    );
    assert!(matches!(blobs.begin(HERE, Some(1), Kind::OfJob), Err(BlobError::Full(_))));
    let (id, text) = list_of(&[b"one"]);
    let listed = |bytes_max| blobs.list(HERE, &id, text.as_bytes(), bytes_max, Kind::OfJob);
    assert!(matches!(listed(TREE_BYTES_MAX), Err(BlobError::Full(_))), "refused before the upload");
    assert!(matches!(listed(2), Err(BlobError::TooLarge { limit: 2 })));
    assert_eq!(files_below(dir.path()), 0);
}

/// Uploads of one user used to take the space in which jobs of others would have left their files.
#[test]
fn room_is_reserved_for_the_files_of_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let room = Room::keeping(dir.path().into(), 0, u64::MAX);
    let blobs = Arc::new(Blobs::with_room(dir.path().join("blobs"), room).unwrap());
    let (id, text) = list_of(&[b"one"]);
    let listed = |kind| blobs.list(HERE, &id, text.as_bytes(), TREE_BYTES_MAX, kind);
    assert!(matches!(blobs.begin(HERE, Some(1), Kind::Upload), Err(BlobError::Full(_))));
    assert!(matches!(listed(Kind::Upload), Err(BlobError::Full(_))), "refused before the upload");
    assert_eq!(files_below(dir.path()), 0);
    assert_eq!(listed(Kind::OfJob).unwrap().missing.len(), 1);
    keep(&blobs, b"one");
    assert!(matches!(listed(Kind::Upload), Err(BlobError::Full(_))), "the list itself is new");
    assert_eq!(listed(Kind::OfJob).unwrap().missing, []);
    assert_eq!(listed(Kind::Upload).unwrap().missing, [], "the list exists already");
}

/// The frames that a node sends for a file that is a hole followed by data.
fn packed(hole: u64, data: &[u8]) -> Vec<u8> {
    let frames = [hole | 1 << 63, data.len() as u64].map(u64::to_le_bytes);
    [frames.as_flattened(), data].concat()
}

#[test]
fn holes_that_are_sent_stay_holes_and_take_no_room() {
    use std::os::unix::fs::MetadataExt as _;
    let (dir, blobs) = blobs();
    let mut hasher = Hasher::default();
    hasher.add_hole(40 << 20);
    hasher.add(b"end");
    let digest = hasher.finish();
    let sent = packed(40 << 20, b"end");
    let mut incoming = blobs.begin_packed(HERE, Some(sent.len() as u64), Kind::OfJob).unwrap();
    sent.chunks(5).for_each(|piece| incoming.write(piece).unwrap());
    incoming.keep(&digest).unwrap();
    let about = fs::metadata(blobs.path(HERE, &digest)).unwrap();
    assert_eq!(about.len(), (40 << 20) + 3);
    assert!(about.blocks() * 512 < 1 << 20, "{} blocks", about.blocks());
    // Zeros that are sent as data make the same file, and take no more space.
    let mut incoming = blobs.begin(THERE, None, Kind::OfJob).unwrap();
    (0..20).for_each(|_| incoming.write(&vec![0; 2 << 20]).unwrap());
    incoming.write(b"end").unwrap();
    incoming.keep(&digest).unwrap();
    assert!(fs::metadata(blobs.path(THERE, &digest)).unwrap().blocks() * 512 < 1 << 20);
    // An enormous hole is refused before any work is done for it, and so is an upload that ends within a frame.
    let mut incoming = blobs.begin_packed(HERE, None, Kind::OfJob).unwrap();
    let refused = incoming.write(&packed(1 << 62, b""));
    assert!(matches!(refused, Err(BlobError::TooLarge { .. })), "{refused:?}");
    drop(incoming);
    let mut incoming = blobs.begin_packed(HERE, None, Kind::OfJob).unwrap();
    incoming.write(&sent[..sent.len() - 1]).unwrap();
    assert!(matches!(incoming.keep(&digest), Err(BlobError::WrongDigest { .. })));
    assert_eq!(files_below(dir.path()), 2);
}

const DISK: &str = "MUSTER_SMALL_DISK";

/// Uses a disk that is really full: a small tmpfs in its own mount namespace. It is skipped if user namespaces are not
/// available.
#[test]
fn a_full_disk_is_reported_and_leaves_nothing() {
    use std::process::Command;
    let namespaces = Command::new("unshare").args(["-rm", "true"]).status();
    if !namespaces.is_ok_and(|status| status.success()) {
        return muster_testing::skip_or_fail("no user namespaces here");
    }
    let folder = tempfile::tempdir().unwrap();
    let script = format!("mount -t tmpfs -o size=1m none \"${DISK}\" && exec \"$@\"");
    let output = Command::new("unshare")
        .args(["-rm", "sh", "-c", &script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "blobs::tests::on_the_small_disk", "--nocapture"])
        .env(DISK, folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("survived"), "{said}{output:?}");
}

/// Runs inside the namespace. As an ordinary test, it does nothing.
#[test]
fn on_the_small_disk() {
    let Ok(disk) = std::env::var(DISK) else { return };
    let disk = Path::new(&disk);
    let blobs =
        Arc::new(Blobs::with_room(disk.to_owned(), Room::with_reserve(disk.into(), 0)).unwrap());
    let piece = vec![7; 300_000];
    keep(&blobs, &piece);
    let mut incoming = blobs.begin(HERE, None, Kind::OfJob).unwrap();
    let full = (0..9).find_map(|_| incoming.write(&piece).err());
    assert!(matches!(full, Some(BlobError::Full(_))), "{full:?}");
    drop(incoming);
    assert_eq!(files_below(disk), 1, "only the file from before is left");
    // An upload of unknown length ends where the space for jobs begins.
    let room = Room::keeping(disk.into(), 0, 400_000);
    let blobs = Arc::new(Blobs::with_room(disk.to_owned(), room).unwrap());
    let mut incoming = blobs.begin(HERE, None, Kind::Upload).unwrap();
    incoming.write(&piece).unwrap();
    let full = incoming.write(&piece);
    assert!(matches!(full, Err(BlobError::Full(_))), "{full:?}");
    drop(incoming);
    for number in [8, 9] {
        keep(&blobs, &vec![number; 300_000]);
    }
    println!("survived");
}

#[test]
fn files_of_no_job_are_deleted_after_a_time_and_the_rest_is_kept() {
    let (_dir, blobs) = blobs();
    for content in [&b"one"[..], b"two", b"three"] {
        keep(&blobs, content);
    }
    let (id, text) = list_of(&[b"one", b"two"]);
    assert_eq!(
        blobs.list(HERE, &id, text.as_bytes(), TREE_BYTES_MAX, Kind::OfJob).unwrap().missing,
        []
    );
    let collect_garbage = |wanted: &[(WorkspaceId, TreeId)], before| {
        let mut known = ReferencedBytes::default();
        known.follow(&blobs, wanted).unwrap();
        blobs.collect_garbage(&known, &mut |_, _| Ok(false), before, false).unwrap().files
    };
    let past = SystemTime::now() - Duration::from_secs(5);
    assert_eq!(collect_garbage(&[], past), 0, "all files are too young");
    let later = SystemTime::now() + Duration::from_secs(5);
    assert_eq!(collect_garbage(&[(HERE, id)], later), 1, "three");
    assert!(blobs.has_tree(HERE, &id).unwrap());
    assert_eq!(collect_garbage(&[(THERE, id)], later), 3, "another workspace references the list");
    assert!(!blobs.has_tree(HERE, &id).unwrap());
}

#[test]
fn files_of_blobs_and_held_files_are_kept() {
    let (_dir, blobs) = blobs();
    let take = |content: &[u8]| {
        let mut incoming = blobs.begin(HERE, None, Kind::OfJob).unwrap();
        incoming.write(content).unwrap();
        incoming.keep_as_found().unwrap()
    };
    let (named, held) = (take(b"named"), take(b"held"));
    let named_digest = named.digest;
    drop((named, take(b"orphaned")));
    let later = SystemTime::now() + Duration::from_secs(5);
    let mut is_named = |_: WorkspaceId, digest: &BlobId| Ok(*digest == named_digest);
    let would =
        blobs.collect_garbage(&ReferencedBytes::default(), &mut is_named, later, true).unwrap();
    assert_eq!(would, Removed { files: 1, bytes: 8, kept: 2 });
    assert_eq!(
        blobs.collect_garbage(&ReferencedBytes::default(), &mut is_named, later, false).unwrap(),
        would
    );
    assert!(blobs.open(HERE, &named_digest).unwrap().is_some());
    assert!(blobs.hold(HERE, held.digest, 4).unwrap().is_some());
    drop(held);
    assert_eq!(
        blobs
            .collect_garbage(&ReferencedBytes::default(), &mut is_named, later, false)
            .unwrap()
            .files,
        1
    );
    assert!(blobs.hold(HERE, blob_of(b"held"), 4).unwrap().is_none());
    let unreadable = &mut |_: WorkspaceId, _: &BlobId| Err(BlobError::WrongMd5);
    assert!(
        blobs.collect_garbage(&ReferencedBytes::default(), unreadable, later, false).is_err(),
        "an unknown file must not be deleted"
    );
    assert!(blobs.open(HERE, &named_digest).unwrap().is_some());
}

#[test]
fn a_digest_that_was_sent_along_is_checked() {
    use md5::{Digest as _, Md5};
    let (dir, blobs) = blobs();
    let take = |md5: [u8; 16]| {
        let mut incoming = blobs.begin_up_to(HERE, 3, Some(3), Some(md5), Kind::Upload).unwrap();
        incoming.write(b"abc").unwrap();
        incoming.keep_as_found()
    };
    assert!(matches!(take([0; 16]), Err(BlobError::WrongMd5)));
    assert_eq!(files_below(dir.path()), 0);
    assert_eq!(take(Md5::digest(b"abc").into()).unwrap().bytes, 3);
    let mut long = blobs.begin_up_to(HERE, 3, None, None, Kind::Upload).unwrap();
    assert!(matches!(long.write(b"abcd"), Err(BlobError::TooLarge { limit: 3 })));
}

#[test]
fn lists_are_read_once_and_what_was_only_on_one_that_is_gone_is_doubted() {
    let (_dir, blobs) = blobs();
    for content in [&b"one"[..], b"two", b"three"] {
        keep(&blobs, content);
    }
    let (old, old_text) = list_of(&[b"one", b"two"]);
    let (new, new_text) = list_of(&[b"two", b"three"]);
    for (id, text) in [(&old, &old_text), (&new, &new_text)] {
        assert_eq!(
            blobs.list(HERE, id, text.as_bytes(), TREE_BYTES_MAX, Kind::OfJob).unwrap().missing,
            []
        );
    }
    let brought = blobs.take_doubted();
    assert_eq!(brought.len(), 5, "three files and two lists");
    assert!(blobs.take_doubted().is_empty());

    let mut wanted = ReferencedBytes::default();
    assert!(wanted.follow(&blobs, &[(HERE, old)]).unwrap().is_empty());
    // The list is not read again; if it were, it would not be found.
    fs::rename(blobs.path(HERE, &BlobId(old.0)), blobs.root.join("aside")).unwrap();
    assert!(wanted.follow(&blobs, &[(HERE, old)]).unwrap().is_empty());
    fs::rename(blobs.root.join("aside"), blobs.path(HERE, &BlobId(old.0))).unwrap();
    assert!(wanted.names(&(HERE, blob_of(b"one"))) && !wanted.names(&(THERE, blob_of(b"one"))));

    let dropped = wanted.follow(&blobs, &[(HERE, new)]).unwrap();
    let expected = [blob_of(b"one"), blob_of(b"two"), BlobId(old.0)].map(|digest| (HERE, digest));
    assert_eq!(dropped, BTreeSet::from(expected));
    let is_wanted = |content: &[u8]| wanted.names(&(HERE, blob_of(content)));
    assert_eq!([b"one" as &[u8], b"two", b"three"].map(is_wanted), [false, true, true]);
    assert!(wanted.names(&(HERE, BlobId(new.0))) && !wanted.names(&(HERE, BlobId(old.0))));
}

fn with_share(root: &Path, bytes: u64) -> Arc<Blobs> {
    let room = Room::with_reserve(root.into(), 0);
    let blobs = Blobs::with_room(root.join("blobs"), room).unwrap();
    Arc::new(Blobs { usage: Usage::up_to(Some(bytes)), ..blobs })
}

fn try_keep(blobs: &Arc<Blobs>, workspace: WorkspaceId, content: &[u8]) -> Result<Held, BlobError> {
    let mut incoming = blobs.begin(workspace, None, Kind::OfJob)?;
    incoming.write(content)?;
    incoming.keep_as_found()
}

#[test]
fn a_workspace_has_its_share_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = with_share(dir.path(), 18);
    let first = try_keep(&blobs, HERE, b"12345678").unwrap();
    let refused = try_keep(&blobs, HERE, b"abcdefghijk").err().unwrap();
    assert!(matches!(refused, BlobError::ShareUsed { used: 8, more: 11, limit: 18 }), "{refused}");
    assert!(refused.to_string().contains("workspace-storage-gb"));
    assert_eq!(files_below(dir.path()), 1, "a refused upload leaves nothing");
    // A file that exists already counts only while it is uploaded again, and each workspace has its own share.
    try_keep(&blobs, HERE, b"12345678").unwrap();
    try_keep(&blobs, HERE, b"abcdefghij").unwrap();
    try_keep(&blobs, THERE, b"abc").unwrap();
    // Refused before the upload, because there is no room.
    let (id, text) = list_of(&[b"abc"]);
    let listed = blobs.list(HERE, &id, text.as_bytes(), TREE_BYTES_MAX, Kind::OfJob);
    assert!(matches!(listed, Err(BlobError::ShareUsed { .. })));
    // Holes take no space.
    let mut sparse = blobs.begin(HERE, None, Kind::OfJob).unwrap();
    sparse.write(&vec![0; 1 << 20]).unwrap();
    drop(sparse.keep_as_found().unwrap());
    // Files that exist when a server starts count, and deleted ones do not.
    drop(first);
    let blobs = with_share(dir.path(), 18);
    assert!(matches!(blobs.check_share(HERE, 1), Err(BlobError::ShareUsed { used: 18, .. })));
    let later = SystemTime::now() + Duration::from_secs(60);
    let eight = blob_of(b"12345678");
    assert_eq!(blobs.remove_old(HERE, &eight, later, true), Some(8), "a rehearsal");
    assert!(blobs.check_share(HERE, 1).is_err());
    assert_eq!(blobs.remove_old(HERE, &eight, later, false), Some(8));
    assert!(blobs.check_share(HERE, 8).is_ok() && blobs.check_share(HERE, 9).is_err());
}

#[test]
fn uploads_at_the_same_time_do_not_exceed_the_share_together() {
    const MIB: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let blobs = with_share(dir.path(), 4 * MIB);
    let together = std::sync::Barrier::new(6);
    let kept: u64 = std::thread::scope(|scope| {
        let upload = |number: u8| {
            let (blobs, together) = (&blobs, &together);
            move || {
                // Some uploads announce their length, and some do not.
                let announced = number.is_multiple_of(2).then_some(MIB);
                let begun = blobs.begin(HERE, announced, Kind::OfJob).and_then(|mut incoming| {
                    incoming.write(&vec![number; MIB as usize])?;
                    Ok(incoming)
                });
                // All uploads have arrived, or were refused, before the first is stored.
                together.wait();
                u64::from(begun.and_then(Incoming::keep_as_found).is_ok())
            }
        };
        let uploads: Vec<_> = (1..=6).map(|number| scope.spawn(upload(number))).collect();
        uploads.into_iter().map(|upload| upload.join().unwrap()).sum()
    });
    assert_eq!(kept, 4, "as many as fit are stored, and refused ones reserve nothing");
    assert_eq!(blobs.measure(HERE).unwrap(), 4 * MIB);
    let refused = blobs.check_share(HERE, 1);
    assert!(matches!(refused, Err(BlobError::ShareUsed { used, .. }) if used == 4 * MIB));
}
