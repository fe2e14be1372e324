//! Opens a file without harming one that is damaged, newer than this version or not ours.
//!
//! The file is only ever opened by SQLite: closing a descriptor of our own would drop every lock that this process
//! holds on the file, and with them the safety of other connections.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::Durability;
use super::fault::{Doing, cannot_open};
use super::schema::{self, Format, Schema};
use crate::StoreError;

/// A commit of another process takes milliseconds; a process that holds the lock for longer is stuck.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// More than the number of distinct statements, so that each is compiled once.
const STATEMENTS_MAX: usize = 64;

/// One page of the smallest size.
const DATABASE_BYTES_MIN: u64 = 512;

/// In KiB. The inner pages of every index stay in memory even with a million jobs.
const WRITER_CACHE_KIB: i32 = 64 * 1024;
const READER_CACHE_KIB: i32 = 16 * 1024;

/// How much of a file is checked before it is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Header,
    /// A large file is not checked here; the caller checks it before anything is written, which takes a second for a
    /// gigabyte. The file must exist.
    WholeIfSmall,
    Whole,
}

/// A file up to this size is checked at once, which takes a few milliseconds.
const SMALL_BYTES_MAX: u64 = 32 << 20;

/// A writer's connection, and whether its file is still to be checked.
pub(super) struct Opened {
    pub connection: Connection,
    pub is_check_left: bool,
}

pub(super) fn writer(
    path: &Path,
    schema: &Schema<'_>,
    durability: Durability,
    look_at: Look,
) -> Result<Opened, StoreError> {
    let found = look(path)?;
    match found {
        Found::Content => refuse_strangers(path, schema)?,
        Found::Nothing | Found::Empty if look_at == Look::WholeIfSmall => {
            let what = if found == Found::Nothing { "is missing" } else { "is empty" };
            return Err(StoreError::Missing { path: path.to_owned(), what });
        }
        Found::Nothing | Found::Empty => {}
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = connect(path, flags)?;
    if found == Found::Nothing {
        // The file will contain password digests. Its companions (-wal, -shm) inherit the mode.
        let owner_only = fs::Permissions::from_mode(0o600);
        fs::set_permissions(path, owner_only).map_err(|why| cannot_open(path, why))?;
    }
    if connection.is_readonly("main").doing("opening the store", path)? {
        let why = std::io::Error::from(ErrorKind::PermissionDenied);
        return Err(cannot_open(path, why));
    }
    // If the file is refused below, closing it must not checkpoint it either.
    let hands_off = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection.set_db_config(hands_off, true).doing("opening the store", path)?;
    let format = schema::inspect(&mut connection, path, schema)?;
    let is_empty = format == Format::Empty;
    if look_at != Look::Header && !is_empty {
        refuse_torn_end(&connection, path)?;
    }
    let is_check_left = match look_at {
        // An older file is written to at once, because it is upgraded.
        Look::WholeIfSmall => is_large(path) && format == Format::Version(schema.known()),
        Look::Header | Look::Whole => false,
    };
    if look_at != Look::Header && !is_empty && !is_check_left {
        schema::check(&connection, path)?;
    }
    if !is_check_left {
        tidy_on_close(&connection, path)?;
    }
    configure_writer(&connection, path, durability)?;
    schema::migrate(&mut connection, path, schema)?;
    if durability == Durability::Disk && found != Found::Content {
        // SQLite syncs the file and its log; the existence of the file is recorded in the folder, which must be synced,
        // too.
        sync_folder(path)?;
    }
    Ok(Opened { connection, is_check_left })
}

/// The last connection to close moves the log into the file. That is not allowed until the file is known to be
/// undamaged.
pub(super) fn tidy_on_close(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let hands_off = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection.set_db_config(hands_off, false).map(|_| ()).doing("opening the store", path)
}

pub(super) fn reader(path: &Path, schema: &Schema<'_>) -> Result<Connection, StoreError> {
    let known = schema.known();
    match look(path)? {
        Found::Content => {}
        Found::Nothing => return Err(cannot_open(path, ErrorKind::NotFound.into())),
        Found::Empty => {
            return Err(StoreError::TooOld { path: path.to_owned(), found: 0, known });
        }
    }
    refuse_strangers(path, schema)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = connect(path, flags)?;
    let found = match schema::inspect(&mut connection, path, schema)? {
        Format::Empty => 0,
        Format::Version(version) => version,
    };
    if found < known {
        return Err(StoreError::TooOld { path: path.to_owned(), found, known });
    }
    pragma(&connection, "cache_size", -READER_CACHE_KIB, path)?;
    Ok(connection)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(path, flags).doing("opening the store", path)?;
    connection.busy_timeout(BUSY_TIMEOUT).doing("opening the store", path)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Query plans depend on the statement alone; otherwise some would be compiled again for every value.
    let stable_plans = DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG;
    connection.set_db_config(stable_plans, true).doing("opening the store", path)?;
    pragma(&connection, "temp_store", "MEMORY", path)?;
    Ok(connection)
}

fn configure_writer(
    connection: &Connection,
    path: &Path,
    durability: Durability,
) -> Result<(), StoreError> {
    let synchronous = match durability {
        Durability::Disk => "FULL",
        Durability::None => "OFF",
    };
    pragma(connection, "synchronous", synchronous, path)?;
    let mode = switch_to_log(connection, path)?;
    if mode != "wal" {
        let why = std::io::Error::other("its file system has no shared memory; use a local disk");
        return Err(cannot_open(path, why));
    }
    pragma(connection, "cache_size", -WRITER_CACHE_KIB, path)
}

/// SQLite does not wait here, because two processes that switch a new file at once would wait for each other. So the
/// one that is refused releases its lock and tries again, by which time the other is done.
fn switch_to_log(connection: &Connection, path: &Path) -> Result<String, StoreError> {
    const PAUSE: Duration = Duration::from_millis(5);
    let mut waited = Duration::ZERO;
    loop {
        let mode = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
            .doing("opening the store", path);
        match mode {
            Err(StoreError::Busy { .. }) if waited < BUSY_TIMEOUT => {
                std::thread::sleep(PAUSE);
                waited += PAUSE;
            }
            Ok(_) | Err(_) => return mode,
        }
    }
}

fn pragma(
    connection: &Connection,
    name: &str,
    value: impl rusqlite::ToSql,
    path: &Path,
) -> Result<(), StoreError> {
    connection.pragma_update(None, name, value).doing("opening the store", path)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Empty,
    Content,
}

fn look(path: &Path) -> Result<Found, StoreError> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(why) => return Err(cannot_open(path, why)),
    };
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "it is a folder" } else { "it is not a plain file" };
        return Err(StoreError::NotOurs { path: path.to_owned(), what });
    }
    if metadata.len() >= DATABASE_BYTES_MIN {
        return Ok(Found::Content);
    }
    if metadata.len() > 0 {
        // SQLite treats a file of one byte as empty, and would overwrite it.
        let what = "it is too short to be a database";
        return Err(StoreError::NotOurs { path: path.to_owned(), what });
    }
    if companion_is_filled(path, "-wal") {
        // SQLite would treat the log as a leftover and delete it with all its content.
        let what = "it is empty, but its log (-wal) is not".to_owned();
        return Err(StoreError::Damaged { path: path.to_owned(), what });
    }
    Ok(Found::Empty)
}

/// Examines the file alone, as if it could not change: no lock, no log, nothing rolled back or written.
///
/// The log may have newer content, so a file that looks empty or truncated is not refused yet: a crash while the log is
/// moved into the file leaves exactly that, and opening it properly repairs it.
fn refuse_strangers(path: &Path, schema: &Schema<'_>) -> Result<(), StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let mut connection =
        Connection::open_with_flags(immutable_uri(path), flags).doing("opening the store", path)?;
    match connection.pragma_query_value(None, "application_id", |_| Ok(())) {
        Ok(()) => schema::inspect(&mut connection, path, schema).map(|_| ()),
        Err(why) if why.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            let what = "it has no database header";
            Err(StoreError::NotOurs { path: path.to_owned(), what })
        }
        Err(why) if companion_is_filled(path, "-journal") => {
            // Our files have no such journal once they contain anything, so this one is not ours to roll back.
            Err(why).doing("reading the store's header", path)
        }
        Err(_) => Ok(()),
    }
}

/// SQLite reads the missing end of the last page as zeros. Only a crash while the log is moved into the file leaves
/// half a page there, and then the log still has the complete one.
fn refuse_torn_end(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let page_bytes: u64 = connection
        .pragma_query_value(None, "page_size", |row| row.get(0))
        .doing("checking the store", path)?;
    let bytes = fs::metadata(path).map_err(|why| cannot_open(path, why))?.len();
    if bytes % page_bytes == 0 || companion_is_filled(path, "-wal") {
        return Ok(());
    }
    let what = format!("it ends in the middle of a page, after {bytes} bytes");
    Err(StoreError::Damaged { path: path.to_owned(), what })
}

fn is_large(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.len() > SMALL_BYTES_MAX)
}

fn companion_is_filled(path: &Path, suffix: &str) -> bool {
    let mut companion = path.as_os_str().to_owned();
    companion.push(suffix);
    fs::metadata(PathBuf::from(companion)).is_ok_and(|metadata| metadata.len() > 0)
}

fn immutable_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte));
            }
            _ => write!(uri, "%{byte:02x}").expect("writing to a string cannot fail"),
        }
    }
    uri.push_str("?immutable=1");
    uri
}

fn sync_folder(path: &Path) -> Result<(), StoreError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|source| StoreError::Io { doing: "syncing the store's folder", source })
}
