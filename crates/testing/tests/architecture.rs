//! Enforces the invariants that ARCHITECTURE.md states as "what is absent" and that no lint can check.
//!
//! Each test reads the manifests or the sources of the workspace. If one fails, either the code is in the wrong crate or
//! the design has changed; in the second case, change ARCHITECTURE.md together with the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/").to_owned()
}

/// The names under `[dependencies]` of every crate.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let folders = fs::read_dir(crates()).expect("crates/ can be listed");
    let mut all = BTreeMap::new();
    for folder in folders {
        let folder = folder.expect("an entry").path();
        let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
        let lines = lines.take_while(|line| !line.starts_with('['));
        let names = lines.filter_map(|line| {
            let name: String = line
                .chars()
                .take_while(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
                .collect();
            (!name.is_empty()).then_some(name)
        });
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        all.insert(name, names.collect());
    }
    assert!(all.len() > 10, "the crates were not found");
    all
}

/// Every line of the crate's sources that is neither a comment nor in a file of tests, with where it is.
fn code_lines(krate: &str) -> Vec<(String, String)> {
    let mut folders = vec![crates().join(krate).join("src")];
    let mut lines = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("sources can be listed") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(crates()).expect("below crates/").display().to_string();
            if !name.ends_with(".rs") || name.contains("tests") {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source file");
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            lines.extend(code.map(|line| (name.clone(), line.to_owned())));
        }
    }
    assert!(!lines.is_empty(), "{krate} has no sources");
    lines
}

/// The files of a crate that have one of these strings in their code.
fn files_with(krate: &str, needles: &[&str]) -> BTreeSet<String> {
    let lines = code_lines(krate).into_iter();
    let found = lines.filter(|(_, line)| needles.iter().any(|needle| line.contains(needle)));
    found.map(|(file, _)| file).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn core_depends_on_nothing_that_could_do_io() {
    assert_eq!(dependencies()["core"], set(&["serde", "thiserror"]));
}

/// Names in Rust are never in lower camel case, so such a word is a name of Azure's in a text.
#[test]
fn core_spells_neither_azures_properties_nor_commands() {
    // A unit, a part of every resource id, a key of data, and families of VM sizes.
    let known = ["vCPUs", "resourceGroups", "logDir"];
    let is_azures = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.contains(|c: char| c.is_ascii_uppercase())
            && !word.contains('_')
            && !known.contains(word)
            && !word.ends_with("Family")
    };
    let found: Vec<String> = code_lines("core")
        .into_iter()
        .filter_map(|(file, line)| {
            let names_command = line.contains("`muster ") || line.contains(": muster ");
            let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let is_found = names_command || words.find(is_azures).is_some();
            is_found.then(|| format!("{file}: {}", line.trim()))
        })
        .collect();
    assert_eq!(found, [""; 0], "use a field or a remedy of core/src/refusal.rs instead");
}

#[test]
fn only_the_store_knows_sql() {
    let all = dependencies();
    let with_sql = all.iter().filter(|(_, names)| names.contains("rusqlite"));
    let with_sql: BTreeSet<String> = with_sql.map(|(name, _)| name.clone()).collect();
    assert_eq!(with_sql, set(&["store"]));
}

#[test]
fn the_inner_crates_know_neither_http_nor_async() {
    let all = dependencies();
    for krate in ["core", "store", "wire", "sim"] {
        for library in ["axum", "hyper", "reqwest", "tokio", "futures-util"] {
            assert!(!all[krate].contains(library), "{krate} depends on {library}");
        }
    }
}

/// The server side works with types. Only `wire`, which converts them, and the command line, which prints and edits
/// documents of any shape, handle JSON values.
#[test]
fn untyped_json_stays_in_wire_and_the_command_line() {
    let needles = ["serde_json::Value", "serde_json::Map", "serde_json::json", "json!("];
    for krate in dependencies().keys().filter(|name| !matches!(&***name, "wire" | "cli")) {
        assert_eq!(files_with(krate, &needles), set(&[]), "{krate}");
    }
}

#[test]
fn only_the_writer_changes_the_world() {
    let needles = ["Controller::new", "controller.step", "controller.commit"];
    assert_eq!(files_with("server", &needles), set(&["server/src/writer.rs"]));
}

/// Otherwise the simulator would test a loop that the server does not run. A replay of a trace has no store.
#[test]
fn the_server_and_the_simulator_share_one_controller() {
    let calls = ["muster_core::step", "step(&mut", "step(world", ".commit(&"];
    assert_eq!(files_with("server", &calls), set(&[]));
    assert_eq!(files_with("sim", &calls), set(&["sim/src/replay/driver.rs"]));
}

/// Both ends use the types of `core::agent`, and those of `providers::joined::protocol` for host agents.
#[test]
fn the_messages_of_agents_are_defined_once() {
    let ends = [
        "agent/src/client",
        "server/src/http/agent",
        "host-agent/src/client",
        "server/src/http/host",
    ];
    let mut found = BTreeSet::new();
    for krate in ["agent", "server", "host-agent"] {
        let lines = code_lines(krate).into_iter();
        let lines = lines.filter(|(_, line)| line.contains("derive(") && line.contains("erialize"));
        found.extend(lines.map(|(file, _)| file));
    }
    found.retain(|file| ends.iter().any(|end| file.starts_with(end)));
    assert_eq!(found, set(&[]));
}

#[test]
fn a_workspace_on_first_use_is_created_in_one_place() {
    let created = files_with("server", &["Input::workspace("]);
    assert_eq!(created, set(&["server/src/http/arm/first_use.rs"]));
}

/// What is decided gets its time from `clock.rs`. The others compare it with the ages of files and certificates, or write
/// it into the manifest of a backup.
#[test]
fn the_server_reads_the_wall_clock_in_one_place() {
    let of_ages =
        ["backup.rs", "blobs", "certificates.rs", "pki", "secured.rs", "storage/garbage.rs"];
    let is_about_ages = |file: &str| {
        let file = file.strip_prefix("server/src/").expect("a file of the server");
        of_ages.iter().any(|start| file.starts_with(start))
    };
    let mut found = files_with("server", &["SystemTime::now", "Timestamp::now"]);
    found.retain(|file| !is_about_ages(file));
    assert_eq!(found, set(&["server/src/clock.rs"]));
}

#[test]
fn the_simulator_never_looks_at_a_real_clock() {
    let needles = ["SystemTime::now", "Instant::now", "Timestamp::now", "thread::sleep"];
    let found = files_with("sim", &needles);
    let found: Vec<_> = found.iter().filter(|file| !file.contains("/bin/")).collect();
    assert_eq!(found, Vec::<&String>::new());
}

/// A file is written as `` `core/src/why.rs` ``, relative to `crates/` or to the repository, and may be followed by names
/// that are in it, as in `` (`Reason`, `remedy`) ``.
#[test]
fn the_map_names_what_exists() {
    let repository = crates().parent().expect("the repository").to_owned();
    let page = fs::read_to_string(repository.join("ARCHITECTURE.md")).expect("the page");
    let mut missing = Vec::new();
    let mut count = 0;
    for (start, _) in page.match_indices('`') {
        let Some((path, after)) = page[start + 1..].split_once('`') else { continue };
        let is_path = path.contains('/') && !path.contains([' ', '\n']);
        let is_file = [".rs", ".py", ".toml"].iter().any(|ending| path.ends_with(ending));
        if !is_path || !(is_file || path.ends_with('/')) {
            continue;
        }
        count += 1;
        let mut places = [crates().join(path), repository.join(path)].into_iter();
        let Some(found) = places.find(|place| place.exists()) else {
            missing.push(path.to_owned());
            continue;
        };
        let names = after.strip_prefix(" (").and_then(|rest| rest.split_once(')'));
        let (Some((names, _)), true) = (names, is_file) else { continue };
        let text = fs::read_to_string(&found).expect("a source file");
        let names = names.split('`').skip(1).step_by(2);
        let unknown = names.filter(|name| !name.contains('/') && !text.contains(name));
        missing.extend(unknown.map(|name| format!("{name} in {path}")));
    }
    assert!(count > 100, "only {count} files were found on the page");
    assert_eq!(missing, Vec::<String>::new());
}

/// A new state or event must be decided for each pair, so that the compiler shows every table that it belongs into.
#[test]
fn lifecycles_have_no_wildcards() {
    for lifecycle in ["cluster", "job", "node"] {
        let path = crates().join(format!("core/src/model/{lifecycle}.rs"));
        let text = fs::read_to_string(path).expect("a source file");
        assert!(text.contains("fn after(self, event: "), "{lifecycle} has no table");
        assert!(!text.contains("_ =>"), "the table of {lifecycle} has a wildcard");
    }
}
