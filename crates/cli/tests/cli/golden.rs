//! What people see: tables and errors, stored as files. `MUSTER_GOLDEN=write` writes them again.

use muster_core::refusal::Field;

use crate::support::{CLUSTER, Site};

/// The commands run in this order against one server; the output of each is in the file of its name.
const SEEN: [(&str, &[&str]); 53] = [
    ("compute-list-empty", &["compute", "list", "-o", "table"]),
    ("compute-create", &CLUSTER),
    ("compute-show-table", &["compute", "show", "-n", "cpu", "-o", "table"]),
    ("compute-show-yaml", &["compute", "show", "-n", "cpu", "-o", "yaml"]),
    ("compute-list-nodes", &["compute", "list-nodes", "-n", "cpu", "-o", "table"]),
    ("compute-missing", &["compute", "show", "-n", "cpus"]),
    ("compute-bad-size", &["compute", "create", "-n", "big", "--size", "Standard_DS3_v3"]),
    ("compute-bad-name", &["compute", "create", "-n", "1-cpu"]),
    ("compute-bad-flag", &["compute", "create", "-n", "x", "--max-instance", "3"]),
    (
        "instance-dry-run",
        &["compute", "create", "-n", "mine", "-t", "ComputeInstance", "--dry-run", "-o", "table"],
    ),
    (
        "instance-refused",
        &["compute", "create", "-n", "mine", "-t", "ComputeInstance", "--max-instances", "2"],
    ),
    ("compute-too-large", &["compute", "create", "-n", "big", "--max-instances", "50000"]),
    (
        "compute-min-above-max",
        &["compute", "create", "-n", "odd", "--min-instances", "7", "--max-instances", "3"],
    ),
    ("compute-min-above-default", &["compute", "create", "-n", "odd", "--min-instances", "7"]),
    (
        "compute-fixed",
        &["compute", "create", "-n", "cpu", "--size", "Standard_DS3_v2", "--tier", "low_priority"],
    ),
    ("compute-set-too-large", &["compute", "update", "-n", "cpu", "--set", "max_instances=50000"]),
    ("workspace-missing", &["workspace", "show", "-n", "defaults"]),
    ("compute-start", &["compute", "start", "-n", "cpu"]),
    ("compute-attach", &["compute", "attach", "-n", "vm"]),
    ("compute-delete-asks", &["compute", "delete", "-n", "cpu"]),
    (
        "compute-dry-run",
        &["compute", "update", "-n", "cpu", "--max-instances", "3", "--dry-run", "-o", "table"],
    ),
    ("compute-watch", &["compute", "watch", "cpu", "--count", "1"]),
    ("workspace-list", &["workspace", "list", "-o", "table"]),
    ("workspace-list-keys", &["workspace", "list-keys", "-n", "default"]),
    ("resource-list", &["resource", "list", "-o", "table"]),
    ("resource-bad-id", &["resource", "show", "--ids", "cpu"]),
    ("job-list-empty", &["job", "list", "-o", "table"]),
    ("job-bad-compute", &["job", "create", "--compute", "cpus", "--command", "true", "-n", "j"]),
    (
        "job-too-large",
        &["job", "create", "--compute", "cpu", "--command", "true", "--instance-count", "9"],
    ),
    (
        "job-too-long",
        &["job", "create", "--compute", "cpu", "--command", "true", "--timeout", "999999999"],
    ),
    ("environment-list-empty", &["environment", "list", "-o", "table"]),
    (
        "environment-create",
        &["environment", "create", "-n", "torch", "--image", "python:3.11", "-o", "table"],
    ),
    ("environment-missing", &["environment", "show", "-n", "torhc"]),
    ("environment-other", &["environment", "create", "-n", "torch", "-v", "1", "--image", "other"]),
    (
        "environment-of-registry",
        &[
            "environment",
            "show",
            "-n",
            "azureml://registries/azureml/environments/sklearn-1.5/labels/latest",
            "-o",
            "table",
        ],
    ),
    (
        "data-create",
        &["data", "create", "-n", "iris", "-p", "https://example.com/iris.csv", "-o", "table"],
    ),
    ("data-list", &["data", "list", "-o", "table"]),
    ("model-bad-label", &["model", "show", "-n", "m", "--label", "newest"]),
    ("user-create", &["user", "create", "-n", "ada", "-o", "table"]),
    ("user-list", &["user", "list", "-o", "table"]),
    ("role-list", &["role", "assignment", "list", "-o", "table"]),
    ("group-create", &["group", "create", "-n", "lab", "-l", "eastus", "--tags", "team=blue"]),
    ("group-list", &["group", "list", "-o", "table"]),
    ("group-delete-asks", &["group", "delete", "-n", "default"]),
    ("group-dry-run", &["group", "update", "-n", "lab", "--tags", "", "--dry-run", "-o", "table"]),
    ("lock-create", &["lock", "create", "-n", "keep", "-t", "CanNotDelete", "-g", "lab"]),
    ("lock-list", &["lock", "list", "-o", "table"]),
    ("lock-refuses", &["group", "delete", "-n", "lab", "--yes"]),
    ("activity-log-list", &["monitor", "activity-log", "list", "--max-events", "3", "-o", "table"]),
    ("activity-log-verify", &["monitor", "activity-log", "verify", "-o", "table"]),
    ("cost-empty", &["cost"]),
    ("quota-show", &["quota", "show", "-n", "TotalDedicatedCores", "-l", "eastus", "-o", "table"]),
    ("quota-missing", &["quota", "show", "-n", "TotalDedicatedCore", "-l", "eastus"]),
];

/// Ids, keys, times and ports differ from run to run, and so do the widths of columns.
fn masked(text: &str) -> String {
    let masked: String = text.lines().map(|line| format!("{}\n", masked_line(line))).collect();
    if !masked.contains('<') {
        return masked;
    }
    let narrow = |line: &str| match line.starts_with("---") {
        true => line.split_whitespace().map(|_| "---").collect::<Vec<_>>().join(" "),
        false => {
            let indent = line.len() - line.trim_start().len();
            let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("{}{words}", &line[..indent])
        }
    };
    masked.lines().map(|line| format!("{}\n", narrow(line))).collect()
}

fn masked_line(line: &str) -> String {
    const URL: &str = "https://localhost:";
    let is_id = |word: &str| {
        let is_hex = word.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        word.len() == 36 && is_hex && !word.starts_with("00000000")
    };
    let is_digest =
        |word: &str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_time = |word: &str| word.len() >= 20 && word.starts_with("20") && word.ends_with('Z');
    let mask = |word: &str| {
        let bare = word.trim_matches(['"', ',']);
        match word.split_once(URL) {
            Some((before, rest)) => {
                let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                format!("{before}{URL}<port>{rest}")
            }
            None if is_id(bare) => word.replace(bare, "<id>"),
            None if is_digest(bare) => word.replace(bare, "<digest>"),
            None if is_time(bare) => word.replace(bare, "<time>"),
            None => word.to_owned(),
        }
    };
    match line.strip_prefix("key: ") {
        Some(_) => "key: <key>".to_owned(),
        None => line.split(' ').map(mask).collect::<Vec<_>>().join(" "),
    }
}

/// The names that Azure's clients use for fields of clusters and jobs, in an error or a note. Users of `muster` know these
/// fields by other names.
fn names_of_azure(seen: &str) -> Vec<&'static str> {
    let (_, talk) = seen.split_once("--- talk").expect("written above");
    let words: Vec<&str> = talk.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let names = Field::all().map(muster_wire::spelling::name);
    let camel = names.filter(|name| name.contains(|c: char| c.is_ascii_uppercase()));
    camel.filter(|name| words.contains(name)).collect()
}

#[test]
fn an_error_with_a_name_of_azure_is_found() {
    assert_eq!(names_of_azure("--- talk\nerror: maxNodeCount is 5"), ["maxNodeCount"]);
    assert!(names_of_azure("maxNodeCount\n--- talk\nerror: --max-instances is 5").is_empty());
}

#[test]
fn tables_and_errors_are_as_they_were() {
    let site = Site::start();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/golden/seen");
    let writes = std::env::var_os("MUSTER_GOLDEN").is_some();
    let state = site.state().display().to_string();
    let mut differ = Vec::new();
    for (name, command) in SEEN {
        let done = site.run(command);
        let stdout = String::from_utf8(done.stdout).expect("text");
        let seen = format!(
            "$ muster {}\n{}--- talk, exit code {}\n{}",
            command.join(" "),
            masked(&stdout),
            done.code,
            masked(&done.stderr.replace(&state, "<state>"))
        );
        let azures = names_of_azure(&seen);
        assert!(azures.is_empty(), "{name} names {azures:?}:\n{seen}");
        let file = folder.join(format!("{name}.txt"));
        if writes {
            std::fs::write(&file, &seen).expect("a writable folder");
        }
        let before = std::fs::read_to_string(&file).unwrap_or_default();
        if seen != before {
            differ.push(format!("{name}: was\n{before}\nis\n{seen}"));
        }
    }
    assert!(
        differ.is_empty(),
        "if this is intended, set MUSTER_GOLDEN=write\n{}",
        differ.join("\n")
    );
}
