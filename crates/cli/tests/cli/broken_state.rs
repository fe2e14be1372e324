//! A state directory whose databases are missing, truncated or damaged: refused with a message that says what, where
//! and what to do, and not changed. A first start that was killed is none of these.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{self, Site, ends, signal};

/// A server that has done some work and was stopped properly.
fn stopped() -> Site {
    let mut site = Site::start();
    site.text(&support::CLUSTER);
    stop(&mut site);
    site
}

fn stop(site: &mut Site) {
    let mut server = site.take_server();
    signal("-TERM", &server);
    assert!(ends(&mut server) && server.wait().expect("ended").success());
}

/// What a server prints that must not start.
fn refused(site: &Site) -> String {
    let said = site.folder().join("said");
    let file = fs::File::create(&said).expect("our own folder");
    let mut command = site.command(&["up", "--listen", "127.0.0.1:0"]);
    let mut server = command.stdout(Stdio::null()).stderr(file).spawn().expect("it starts");
    let has_ended = ends(&mut server);
    if !has_ended {
        let _ = server.kill();
    }
    let status = server.wait().expect("a child of ours");
    let said = fs::read_to_string(said).expect("text");
    assert!(has_ended && status.code() == Some(1), "{status}: {said}");
    said
}

fn log_of(path: &Path) -> PathBuf {
    path.with_extension("db-wal")
}

#[test]
fn a_missing_or_truncated_database_is_not_replaced() {
    let mut site = stopped();
    for name in ["muster.db", "storage.db"] {
        let path = site.state().join(name);
        let whole = fs::read(&path).expect("it exists");
        let half = (whole.len() / 8_192) * 4_096;
        for content in [None, Some(&whole[..0]), Some(&whole[..half]), Some(&whole[..half + 100])] {
            match content {
                Some(content) => fs::write(&path, content).expect("written"),
                None => fs::remove_file(&path).expect("removed"),
            }
            let said = refused(&site);
            assert!(said.contains(&path.display().to_string()), "{said}");
            assert!(said.contains("muster restore") && said.contains("away"), "{said}");
            assert_eq!(fs::read(&path).ok().as_deref(), content, "{name} was changed");
            assert!(!log_of(&path).exists() || fs::metadata(log_of(&path)).unwrap().len() == 0);
        }
        fs::write(&path, whole).expect("put back");
    }
    site.up();
    assert_eq!(site.json(&["compute", "show", "-n", "cpu"])["name"], "cpu", "as it was");
}

/// It may be killed at any point.
#[test]
fn a_first_start_that_was_killed_can_be_made_again() {
    let mut site = Site::empty();
    for after_ms in [0, 4, 8, 12, 16, 20, 25, 30, 40, 60, 80] {
        let mut command = site.command(&["up", "--listen", "127.0.0.1:0"]);
        let mut server =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(after_ms));
        server.kill().expect("it runs");
        server.wait().expect("it was killed");
        // The leftover of another first start that was killed halfway.
        if after_ms % 8 == 4 {
            fs::remove_dir_all(site.state()).ok();
        }
    }
    site.up();
    site.text(&support::CLUSTER);
}

/// Old files that a start or garbage collection deletes: a blob that no row references, half a blob, half an
/// environment.
fn plant(site: &Site) -> [PathBuf; 3] {
    let digest = "ab".repeat(32);
    let blob = format!("blobs/{}/ab/{digest}", muster_core::ids::WorkspaceId(1));
    [blob.as_str(), "blobs/incoming/17", "environments/building/17"].map(|name| {
        let path = site.state().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        let file = fs::File::create(&path).expect("made");
        let year = Duration::from_secs(365 * 24 * 60 * 60);
        file.set_modified(std::time::SystemTime::now() - year).expect("ours");
        path
    })
}

#[test]
fn nothing_is_removed_before_both_databases_were_found_whole() {
    let mut site = stopped();
    let planted = plant(&site);
    for name in ["muster.db", "storage.db"] {
        let other = site.state().join(if name == "muster.db" { "storage.db" } else { "muster.db" });
        let path = site.state().join(name);
        let (whole, rest) = [&path, &other].map(|path| fs::read(path).expect("it exists")).into();
        fs::write(&path, &whole[..whole.len() / 8_192 * 4_096]).expect("written");
        refused(&site);
        let left: Vec<&PathBuf> = planted.iter().filter(|path| !path.exists()).collect();
        assert!(left.is_empty(), "{name} is damaged, but these were deleted: {left:?}");
        assert!(fs::read(&other).expect("it exists") == rest, "the other one was written to");
        fs::write(&path, whole).expect("put back");
    }
    // A start with both databases does delete them.
    site.up();
    support::sandbox::wait_until("they are deleted", || !planted.iter().any(|path| path.exists()));
}

/// Large enough to be checked only after the server is up.
fn enlarge(path: &Path) {
    let rows = rusqlite::Connection::open(path).expect("it opens");
    rows.execute_batch(
        "CREATE TABLE filler (data); \
         INSERT INTO filler WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 40) \
         SELECT randomblob(1000000) FROM n",
    )
    .expect("it is large now");
}

#[test]
fn damage_in_a_large_database_ends_the_server_before_anything_is_written() {
    let mut site = stopped();
    for (name, index) in [("muster.db", "ledger_by_end"), ("storage.db", "staged_by_digest")] {
        let path = site.state().join(name);
        enlarge(&path);
        // An undamaged store is served and written to.
        site.up();
        let update = ["compute", "update", "-n", "cpu", "--tags", "seen=yes"];
        let mut tried = 0;
        while site.run(&update).code != 0 {
            tried += 1;
            assert!(tried < 100, "an undamaged store accepts no changes");
            std::thread::sleep(Duration::from_millis(50));
        }
        stop(&mut site);

        let whole = fs::read(&path).expect("it exists");
        let page: u64 = {
            let rows = rusqlite::Connection::open(&path).expect("it opens");
            let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
            rows.query_row(sql, [index], |row| row.get(0)).expect("it exists")
        };
        let file = fs::OpenOptions::new().write(true).open(&path).expect("it opens");
        file.write_all_at(&[0xff; 64], (page - 1) * 4_096).expect("written");
        drop(file);
        let damaged = fs::read(&path).expect("it exists");
        let [unnamed, ..] = plant(&site);
        let said = refused(&site);
        assert!(unnamed.exists(), "a file was deleted before {name} was found damaged");
        assert!(said.contains(&format!("{} is damaged", path.display())), "{said}");
        assert!(said.contains("muster restore"), "{said}");
        assert!(fs::read(&path).expect("it exists") == damaged, "{name} was written to");
        fs::write(&path, whole).expect("put back");
    }
}

/// Shifts the system's time of day by the number in a file.
const SHIFT: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
static volatile long *shift;
__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("SHIFT_FILE"), O_RDONLY);
    void *found = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0 && found != MAP_FAILED) shift = found;
}
int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME && shift) time->tv_sec += *shift;
    return result;
}
"#;

struct Shifted {
    library: PathBuf,
    file: PathBuf,
}

impl Shifted {
    fn new(site: &Site) -> Shifted {
        let (source, library) = (site.folder().join("shift.c"), site.folder().join("shift.so"));
        fs::write(&source, SHIFT).expect("our own folder");
        let mut compiler = Command::new("cc");
        let made = compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(made.expect("there is a C compiler").success());
        let shifted = Shifted { library, file: site.folder().join("shift") };
        fs::write(&shifted.file, 0_i64.to_ne_bytes()).expect("our own folder");
        shifted
    }

    fn by(&self, seconds: i64) {
        let file = fs::OpenOptions::new().write(true).open(&self.file).expect("it exists");
        file.write_all_at(&seconds.to_ne_bytes(), 0).expect("written");
    }

    fn start(&self, site: &mut Site) {
        let mut command = site.command(&["up", "--listen", "127.0.0.1:0"]);
        command.env("LD_PRELOAD", &self.library).env("SHIFT_FILE", &self.file);
        site.start_by(command);
    }
}

/// A client that keeps its token.
pub struct Client {
    pub http: reqwest::Client,
    pub runtime: tokio::runtime::Runtime,
}

impl Client {
    pub fn of(site: &Site) -> Client {
        let ca = fs::read(site.state().join("pki/ca.pem")).expect("it exists");
        let ca = reqwest::Certificate::from_pem_bundle(&ca).expect("a CA");
        let http = reqwest::Client::builder().tls_certs_only(ca).no_proxy();
        // The server is restarted in between.
        let http = http.pool_max_idle_per_host(0).build();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Client { http: http.expect("a client"), runtime: runtime.expect("a runtime") }
    }

    /// A token, and when it expires by the clock of the client.
    pub fn token(&self, site: &Site) -> (String, u64) {
        let key = fs::read_to_string(site.state().join("keys/owner.key")).expect("it exists");
        let url = format!("{}/msi/token?resource={}", site.url(), site.url());
        let request = self.http.get(url).header("x-identity-header", key.trim());
        self.runtime.block_on(async {
            let text = request.send().await.expect("an answer").text().await.expect("text");
            let reply: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let ends = reply["expires_on"].as_str().expect("text").parse().expect("a number");
            (reply["access_token"].as_str().expect(&text).to_owned(), ends)
        })
    }

    fn status(&self, site: &Site, token: &str) -> u16 {
        let url = format!("{}/subscriptions?api-version=2022-12-01", site.url());
        let request = self.http.get(url).bearer_auth(token);
        self.runtime.block_on(async { request.send().await.expect("an answer").status().as_u16() })
    }
}

/// Also across a restart; and tokens expire when they should, whatever the clock shows.
#[test]
fn a_clock_that_is_set_back_voids_no_token_and_prolongs_none() {
    let mut site = Site::empty();
    let shifted = Shifted::new(&site);
    shifted.start(&mut site);
    let client = Client::of(&site);
    let (token, ends) = client.token(&site);
    assert_eq!(client.status(&site, &token), 200);

    shifted.by(-3_000);
    assert_eq!(client.status(&site, &token), 200, "the clock was set back");
    let (second, ends_second) = client.token(&site);
    assert_eq!(client.status(&site, &second), 200);
    assert!((ends - 3_000..=ends - 2_900).contains(&ends_second), "{ends} {ends_second}");
    site.text(&support::CLUSTER);

    stop(&mut site);
    shifted.start(&mut site);
    assert_eq!(client.status(&site, &token), 200, "it was set back, and the server was restarted");
    assert_eq!(client.status(&site, &second), 200);

    // Each is valid for an hour, and for a minute of tolerance.
    shifted.by(-3_000 + 3_600 + 120);
    assert_eq!(client.status(&site, &token), 200, "the clock is right again");
    shifted.by(3_600 + 120);
    assert_eq!(client.status(&site, &token), 401);
    shifted.by(-3_000);
    assert_eq!(client.status(&site, &token), 401, "an expired token stays expired");
    shifted.by(0);
}
