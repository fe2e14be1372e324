//! Every kind of write on a server that cannot write: refused at once with 503, `Retry-After` and the reason, and never
//! carried out. The disks are those of `full_disk.rs`.

mod table;

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::table::{Places, Row, check_that_none_is_missing, given, operations, places, rows};
use crate::full_disk::{Disk, fill, fill_once, free, is_inside, started};
use crate::support::Site;
use crate::support::sandbox::{wait_until, works};

struct Client {
    http: reqwest::Client,
    runtime: tokio::runtime::Runtime,
    base: String,
    token: String,
}

#[derive(Debug)]
struct ApiResponse {
    status: u16,
    retry_after: Option<String>,
    text: String,
}

impl ApiResponse {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("JSON: {self:?}"))
    }
}

impl Client {
    fn of(site: &Site) -> Client {
        let ca = fs::read(site.state().join("pki/ca.pem")).expect("it exists");
        let ca = reqwest::Certificate::from_pem_bundle(&ca).expect("a CA");
        let http = reqwest::Client::builder().tls_certs_only(ca).no_proxy().build();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (http, runtime) = (http.expect("a client"), runtime.expect("a runtime"));
        let mut client = Client { http, runtime, base: site.url(), token: String::new() };
        let key = fs::read_to_string(site.state().join("keys/owner.key")).expect("it exists");
        let url = format!("{0}/msi/token?resource={0}", client.base);
        let asked = client.send(client.http.get(url).header("x-identity-header", key.trim()));
        client.token = asked.json()["access_token"].as_str().expect("a token").to_owned();
        client
    }

    fn send(&self, request: reqwest::RequestBuilder) -> ApiResponse {
        self.runtime.block_on(async {
            let answer = request.send().await.expect("an answer");
            let retry_after = answer.headers().get("retry-after");
            let retry_after = retry_after.map(|it| it.to_str().expect("text").to_owned());
            let status = answer.status().as_u16();
            ApiResponse { status, retry_after, text: answer.text().await.expect("text") }
        })
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> ApiResponse {
        let method = method.parse().expect("a method");
        let url = format!("{}{path}?api-version=2024-04-01", self.base);
        let request = self.http.request(method, url).bearer_auth(&self.token);
        self.send(match body {
            Value::Null => request,
            Value::String(text) => request.body(text.clone()),
            body => request.header("content-type", "application/json").body(body.to_string()),
        })
    }

    fn blob(&self, method: &str, url: &str, body: &str) -> ApiResponse {
        let method = method.parse().expect("a method");
        let request = self.http.request(method, url).header("x-ms-blob-type", "BlockBlob");
        self.send(request.header("x-ms-meta-state", "late").body(body.to_owned()))
    }
}

/// What exists at a path, or above it: what a POST acts on.
fn look(client: &Client, row: &Row) -> (u16, bool) {
    let path = match row.method {
        "POST" => row.path.rsplit_once('/').map_or("", |(above, _)| above),
        _ => &row.path,
    };
    let seen = client.call("GET", path, &Value::Null);
    (seen.status, seen.status == 200 && seen.text.contains("\"late\""))
}

#[test]
fn every_kind_of_write_is_refused_with_the_reason_and_never_done() {
    let test = "full_writes::every_kind_of_write_is_refused_with_the_reason_and_never_done";
    if !is_inside(test, Disk::Ext4) {
        return;
    }
    let site = started();
    let client = Client::of(&site);
    let command = "i=0; while true; do i=$((i+1)); echo line $i; sleep 0.05; done";
    let create = ["job", "create", "--compute", "cpu", "--command", command, "-n", "long"];
    assert_eq!(site.run(&create).code, 0);
    wait_until("it runs", || site.text(&["job", "show", "-n", "long"]).contains("Running"));
    let at = places(&site, &client);
    for (path, body) in given(&at) {
        let made = client.call("PUT", &path, &body);
        assert!((200..300).contains(&made.status), "{path}: {made:?}");
    }
    let blobs = Blobs::of(&client, &at);
    let rows = rows(&at);
    check_that_none_is_missing(&rows);
    let before: Vec<_> = rows.iter().map(|row| look(&client, row)).collect();

    let ballast = fill(&site);
    let mut wrong = Vec::new();
    for row in &rows {
        let began = Instant::now();
        let said = client.call(row.method, &row.path, &row.body);
        let is_refused = said.status == row.status
            && said.retry_after.is_some() == (row.status == 503)
            && said.text.contains("disk is full")
            && began.elapsed() < Duration::from_secs(5);
        // A store on its reserve accepts changes that end things; these two are invalid, and so write nothing.
        let ends = row.path.ends_with("/stop") || row.path.ends_with("/evict");
        let is_wrong_anyway = ends && !row.works && matches!(said.status, 400 | 404);
        if !is_refused && !is_wrong_anyway {
            wrong.push(format!(
                "{} {}: {said:?} after {:?}",
                row.method,
                row.path,
                began.elapsed()
            ));
        }
    }
    blobs.are_refused(&client, &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // One of the requests was its delete.
    let said = site.text(&["job", "stream", "-n", "before"]);
    assert!(said.contains("there is space"), "the job exists, but its log was deleted: {said}");
    let kept = kept_lines(&site);
    free(&ballast);

    // Once the store can write again, none of the changes has been made.
    wait_until("it writes again", || {
        client.call("PUT", &format!("{}y", at.group), &json!({ "location": "eastus" })).status < 300
    });
    for (row, before) in rows.iter().zip(before) {
        assert_eq!(look(&client, row), before, "{} {} was carried out", row.method, row.path);
    }
    blobs.are_as_before(&client);
    assert!(site.text(&["job", "show", "-n", "long"]).contains("Running"), "it was not cancelled");
    // All requests were valid: now they work.
    let mut changed = Vec::new();
    for row in rows.iter().filter(|row| row.works) {
        let done = client.call(row.method, &row.path, &row.body);
        // There is nothing left to delete in a name without versions.
        changed.extend((done.status != 204).then_some(row));
        assert!((200..300).contains(&done.status), "{} {}: {done:?}", row.method, row.path);
    }
    let noted = noted(&client);
    let wanted = operations(changed.into_iter());
    assert!(wanted.len() > 40, "{wanted:?}");
    let missing: Vec<_> = wanted.difference(&noted).collect();
    assert!(missing.is_empty(), "not in the activity log: {missing:?}");
    wait_until("it ends", || site.text(&["job", "show", "-n", "long"]).contains("Canceled"));
    // The job's output from that time arrived later, and complete.
    let said = site.run(&["job", "stream", "-n", "long"]).stdout;
    let said = String::from_utf8(said).expect("text");
    let numbers: Vec<u32> =
        said.lines().filter_map(|line| line.strip_prefix("line ")?.parse().ok()).collect();
    let whole: Vec<u32> = (1..=numbers.len() as u32).collect();
    assert!(numbers.len() > kept && numbers == whole, "{said}");
}

/// The operations that succeeded, by the activity log.
fn noted(client: &Client) -> BTreeSet<String> {
    let log = "providers/Microsoft.Insights/eventtypes/management/values?api-version=2015-04-01";
    let (mut noted, mut next) = (BTreeSet::new(), Some(format!("{}/{log}", client.base)));
    while let Some(url) = next {
        let page = client.send(client.http.get(url).bearer_auth(&client.token)).json();
        let entries = page["value"].as_array().expect("a list");
        let succeeded = entries.iter().filter(|entry| entry["status"]["value"] == "Succeeded");
        let name = |entry: &Value| entry["operationName"]["value"].as_str().map(str::to_owned);
        noted.extend(succeeded.filter_map(name));
        next = page["nextLink"].as_str().map(str::to_owned);
    }
    noted
}

/// How many lines of the counting job the server has.
fn kept_lines(site: &Site) -> usize {
    let folders = fs::read_dir(site.state().join("logs")).expect("there are logs").flatten();
    let logs = folders.flat_map(|folder| fs::read_dir(folder.path()).expect("a folder").flatten());
    let text = logs.map(|log| fs::read_to_string(log.path()).expect("text"));
    text.map(|text| text.lines().filter(|line| line.starts_with("line ")).count()).sum()
}

/// A container of blobs, and the query that gives access to it.
struct Blobs {
    container: String,
    sas: String,
}

impl Blobs {
    fn of(client: &Client, at: &Places) -> Blobs {
        let store = format!("{}/datastores/workspaceblobstore", at.workspace);
        let seen = client.call("GET", &store, &Value::Null).json();
        let seen = &seen["properties"];
        let text = |key: &str| seen[key].as_str().expect("text");
        let account = format!("https://{}.blob.{}", text("accountName"), text("endpoint"));
        let container = format!("{account}/{}", text("containerName"));
        let secrets = client.call("POST", &format!("{store}/listSecrets"), &json!({}));
        let sas = secrets.json()["sasToken"].as_str().expect("text").to_owned();
        let blobs = Blobs { container, sas };
        let made = client.blob("PUT", &blobs.url("old", ""), "old");
        assert_eq!(made.status, 201, "{made:?}");
        let staged =
            client.blob("PUT", &blobs.url("staged", "comp=block&blockid=QQ%3D%3D"), "block");
        assert_eq!(staged.status, 201, "{staged:?}");
        blobs
    }

    fn url(&self, name: &str, query: &str) -> String {
        format!("{}/{name}?{query}&{}", self.container, self.sas)
    }

    fn are_refused(&self, client: &Client, wrong: &mut Vec<String>) {
        let list = "<BlockList><Latest>QQ==</Latest></BlockList>";
        for (method, name, query, body, status) in [
            // With a 5xx, clients would try to send the bytes again for minutes.
            ("PUT", "late", "", "late", 409),
            ("PUT", "late", "comp=block&blockid=QQ%3D%3D", "late", 409),
            ("PUT", "staged", "comp=blocklist", list, 503),
            ("PUT", "old", "comp=metadata", "", 503),
            ("PUT", "old", "comp=properties", "", 503),
            ("DELETE", "old", "", "", 503),
        ] {
            let said = client.blob(method, &self.url(name, query), body);
            let is_known = said.status == status && said.text.contains("disk is full");
            if !is_known || (status == 503) != said.retry_after.is_some() {
                wrong.push(format!("{method} {name} {query}: {said:?}"));
            }
        }
    }

    fn are_as_before(&self, client: &Client) {
        for (name, status) in [("old", 200), ("late", 404), ("staged", 404)] {
            assert_eq!(client.blob("GET", &self.url(name, ""), "").status, status, "{name}");
        }
        let seen = client.blob("GET", &self.url("old", ""), "");
        assert_eq!(seen.text, "old");
    }
}

/// The reserve is for this: a user who finds the disk full can free space, and stop what fills it.
#[test]
fn on_a_full_disk_jobs_can_be_cancelled_and_blobs_deleted() {
    let test = "full_writes::on_a_full_disk_jobs_can_be_cancelled_and_blobs_deleted";
    if !is_inside(test, Disk::Ext4) {
        return;
    }
    let site = started();
    let client = Client::of(&site);
    let create = ["job", "create", "--compute", "cpu", "--command", "sleep 600", "-n", "long"];
    assert_eq!(site.run(&create).code, 0);
    wait_until("it runs", || site.text(&["job", "show", "-n", "long"]).contains("Running"));
    let at = places(&site, &client);
    let blobs = Blobs::of(&client, &at);
    // Once, to the last byte: then the disk is full, but not yet the reserve.
    let path = site.folder().join("ballast");
    fill_once(&path);
    // The first may find the disk full; the store then uses its reserve.
    wait_until("a blob is deleted", || {
        client.blob("DELETE", &blobs.url("old", ""), "").status == 202
    });
    let cancel = format!("{}/jobs/long/cancel", at.workspace);
    wait_until("a job is cancelled", || client.call("POST", &cancel, &Value::Null).status < 300);
    wait_until("it ends", || site.text(&["job", "show", "-n", "long"]).contains("Canceled"));
    assert_eq!(client.blob("GET", &blobs.url("old", ""), "").status, 404);
}

/// Refusals and submissions must not use up the reserve.
#[test]
fn on_its_reserve_a_store_takes_only_what_ends_things() {
    let test = "full_writes::on_its_reserve_a_store_takes_only_what_ends_things";
    if !is_inside(test, Disk::Ext4) {
        return;
    }
    let site = started();
    let client = Client::of(&site);
    let size = ["--size", "Standard_DS2_v2", "--max-instances", "1", "-d", "600"];
    site.text(&[&["compute", "create", "-n", "two"][..], &size].concat());
    let shown = |name: &str| site.text(&["job", "show", "-n", name]);
    for name in ["long", "ends"] {
        let waits = "while [ ! -e end ]; do sleep 0.1; done";
        let create = ["job", "create", "--compute", "two", "--cpus", "1", "--command", waits];
        assert_eq!(site.run(&[&create[..], &["-n", name]].concat()).code, 0);
        wait_until("it runs", || shown(name).contains("Running"));
    }
    let at = places(&site, &client);
    let job = rows(&at).into_iter().find(|row| row.method == "PUT" && row.path.contains("/jobs/"));
    let job = job.expect("a submit").body;

    let path = site.folder().join("ballast");
    fill_once(&path);
    let reserve = site.state().join("reserve");
    wait_until("the reserve is given up", || !reserve.exists());

    let mut refused = 0;
    while refused < 400 {
        let bad = client.call("PUT", &format!("{}/computes/bad", at.workspace), &json!({}));
        match bad.status {
            400 => refused += 1,
            // Stay below the rate limit.
            429 => std::thread::sleep(Duration::from_millis(100)),
            _ => panic!("{bad:?}"),
        }
    }
    let mut submits = 0;
    while submits < 200 {
        let said = client.call("PUT", &format!("{}/jobs/late{submits}", at.workspace), &job);
        if said.status == 429 {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        }
        assert_eq!((said.status, said.retry_after.is_some()), (503, true), "{submits}: {said:?}");
        assert!(said.text.contains("disk is full"), "{said:?}");
        submits += 1;
    }
    let cancelled =
        client.call("POST", &format!("{}/jobs/long/cancel", at.workspace), &Value::Null);
    assert!((200..300).contains(&cancelled.status), "{cancelled:?}");
    // Only then may the other end: a job that ends by itself before it is notified of the cancel is Completed.
    wait_until("the one is cancelled", || shown("long").contains("Canceled"));
    for work in works(&site) {
        // The folder of the job that was cancelled may be deleted at any time.
        let _ = fs::write(work.join("end"), "");
    }
    wait_until("the other ends", || shown("ends").contains("Completed"));

    free(&path);
    wait_until("there is space again", || {
        client.call("PUT", &format!("{}/jobs/after", at.workspace), &job).status < 300
    });
    let jobs = site.text(&["job", "list", "--query", "[].name", "-o", "tsv"]);
    assert!(!jobs.contains("late"), "a refused change was carried out later: {jobs}");
}

/// New work would use up what running jobs need to end.
#[test]
fn on_its_reserve_a_store_starts_no_job_that_waits() {
    let test = "full_writes::on_its_reserve_a_store_starts_no_job_that_waits";
    if !is_inside(test, Disk::Ext4) {
        return;
    }
    let site = started();
    let size = ["--size", "Standard_DS1_v2", "--max-instances", "1", "-d", "600"];
    site.text(&[&["compute", "create", "-n", "one"][..], &size].concat());
    let shown = |name: &str| site.text(&["job", "show", "-n", name]);
    for name in ["first", "second"] {
        let waits = "while [ ! -e end ]; do sleep 0.1; done";
        let command = if name == "first" { waits } else { "true" };
        let create = ["job", "create", "--compute", "one", "--command", command, "-n", name];
        assert_eq!(site.run(&create).code, 0);
    }
    wait_until("it runs", || shown("first").contains("Running"));

    let path = site.folder().join("ballast");
    fill_once(&path);
    let reserve = site.state().join("reserve");
    wait_until("the reserve is given up", || !reserve.exists());
    let status = site.text(&["status", "-o", "table"]);
    assert!(status.contains("disk is full") && status.contains("MiB"), "{status}");
    let why = site.text(&["why", "first", "-o", "table"]);
    assert!(why.contains("disk is full"), "the reason is shown for a running job as well: {why}");

    for work in works(&site) {
        fs::write(work.join("end"), "").expect("its folder exists");
    }
    wait_until("the running job ends", || shown("first").contains("Completed"));
    wait_until("the node has nothing to do", || {
        site.text(&["compute", "list-nodes", "-n", "one"]).contains("idle")
    });
    assert!(shown("second").contains("Queued"), "{}", shown("second"));
    let why = site.json(&["why", "second", "-o", "json"]);
    let first = &why["value"][0];
    assert_eq!(first["code"], "StoreShortOfSpace", "{why}");
    assert!(first["value"].as_u64() < first["needed"].as_u64(), "{why}");
    let cluster = site.json(&["why", "one", "--compute", "-o", "json"]);
    assert_eq!(cluster["value"][0]["code"], "StoreShortOfSpace", "{cluster}");

    free(&path);
    wait_until("it runs when there is space", || shown("second").contains("Completed"));
    let status = site.text(&["status", "-o", "table"]);
    assert!(!status.contains("disk is full"), "{status}");
}
