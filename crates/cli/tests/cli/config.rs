//! The configuration of a server: where a value comes from, and the messages about bad ones.

use crate::support::{Done, Site, done};

const PRINT: [&str; 2] = ["serve", "--print-config"];

fn with(site: &Site, arguments: &[&str], variables: &[(&str, &str)]) -> Done {
    let mut command = site.command(&[&PRINT, arguments].concat());
    command.envs(variables.iter().copied());
    done(command.output().expect("the binary runs"))
}

fn printed(site: &Site, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let done = with(site, arguments, variables);
    assert_eq!(done.code, 0, "{}", done.stderr);
    String::from_utf8(done.stdout).expect("text")
}

/// The line of a key, and the comment before it.
fn entry(text: &str, key: &str) -> (String, String) {
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.starts_with(&format!("{key} = ")));
    let at = at.unwrap_or_else(|| panic!("no {key} in {text}"));
    (lines[at].to_owned(), lines[at - 1].to_owned())
}

#[test]
fn flags_win_over_variables_over_the_file_over_defaults() {
    let site = Site::empty();
    std::fs::create_dir_all(site.state()).expect("a folder");
    let file = site.state().join("muster.toml");
    let check = |arguments: &[&str], variables: &[(&str, &str)], seconds: u32, from: &str| {
        let (line, comment) = entry(&printed(&site, arguments, variables), "drain-seconds");
        assert_eq!(line, format!("drain-seconds = {seconds}"));
        assert!(comment.ends_with(&format!("{from}.")), "{comment}");
    };
    let variable = [("MUSTER_DRAIN_SECONDS", "7")];
    check(&[], &[], 10, "the default");
    std::fs::write(&file, "# mine\ndrain-seconds = 5\n").expect("written");
    check(&[], &[], 5, "muster.toml, line 2");
    check(&[], &variable, 7, "the variable MUSTER_DRAIN_SECONDS");
    check(&["--drain-seconds", "9"], &variable, 9, "the flag --drain-seconds");
    // An empty variable counts as unset, and a switch in the file can be turned off again.
    check(&[], &[("MUSTER_DRAIN_SECONDS", "")], 5, "muster.toml, line 2");
    std::fs::write(&file, "trusted-users = true\n").expect("written");
    let taken_back = printed(&site, &["--trusted-users=false"], &[]);
    assert_eq!(entry(&taken_back, "trusted-users").0, "trusted-users = false");
}

#[test]
fn what_is_printed_is_a_file_with_the_same_values() {
    let site = Site::empty();
    let odd = "we\"ird\\pri'ces.json";
    let first = printed(&site, &["--prices", odd, "--listen", "[::1]:9", "--drain-seconds=3"], &[]);
    let copy = site.folder().join("copy.toml");
    std::fs::write(&copy, &first).expect("written");
    let copy_path = copy.to_str().expect("text");
    let again = printed(&site, &["--config", copy_path], &[]);
    let values = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with("# ")).map(str::to_owned).collect()
    };
    assert!(again.contains("copy.toml, line"), "{again}");
    assert_eq!(values(&again), values(&first));
    let named = printed(&site, &[], &[("MUSTER_CONFIG", copy_path)]);
    assert_eq!(named, again);
    for line in ["listen = \"[::1]:9\"", "files-port = 10", "log-level = \"info\""] {
        assert!(again.lines().any(|known| known == line), "{line} is not in {again}");
    }
}

#[test]
fn what_cannot_be_is_refused_where_it_is_written() {
    let site = Site::empty();
    let file = site.folder().join("bad.toml");
    std::fs::write(&file, "drain_seconds = 5\n").expect("written");
    let path = file.to_str().expect("text");
    for (arguments, variables, words) in [
        (
            &["--config", path][..],
            &[][..],
            "bad.toml:1: unknown key 'drain_seconds'; did you mean drain-seconds?",
        ),
        (&["--config", "/nowhere/x.toml"], &[], "/nowhere/x.toml does not exist"),
        (&["--listen", "7443"], &[], "--listen is '7443'; give an address and a port"),
        (&[], &[("MUSTER_LISTEN", "here")], "MUSTER_LISTEN is 'here'; give an address and a port"),
        (&["--drain-seconds", "3601"], &[], "from 0 to 3600"),
        (&["--listen", "0.0.0.0:1"], &[], "--trusted-users"),
    ] {
        let refused = with(&site, arguments, variables);
        assert_eq!(refused.code, 2, "{arguments:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(words), "{arguments:?}: {}", refused.stderr);
        assert!(refused.stdout.is_empty());
    }
    assert!(!site.state().exists(), "nothing was started");
}

#[test]
fn help_and_the_reference_know_every_key() {
    let site = Site::empty();
    let text = printed(&site, &[], &[]);
    let help = site.text(&["serve", "--help"]);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");
    let page = std::fs::read_to_string(page).expect("the page exists");
    let mut keys = Vec::new();
    for line in text.lines().filter(|line| line.contains(" = ")) {
        let key = line.trim_start_matches("# ").split(" = ").next().expect("a key");
        assert!(help.contains(&format!("--{key}")), "{key} is not in the help");
        assert!(page.contains(&format!("| `{key}` | `MUSTER_")), "{key} is not in {page}");
        keys.push(key);
    }
    assert!(keys.len() >= 5, "{keys:?}");
    let rows = page.lines().filter(|line| line.contains("` | `MUSTER_")).count();
    assert_eq!(rows, keys.len(), "the page has keys that do not exist");
}
