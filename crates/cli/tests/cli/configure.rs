//! Defaults: who may set them, which take precedence, and what is printed about where a command acts.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::{CLUSTER, Done, Site, done};

fn run_with(site: &Site, variables: &[(&str, &str)], arguments: &[&str]) -> Done {
    let mut command = site.command(arguments);
    command.envs(variables.iter().copied());
    done(command.output().expect("the binary runs"))
}

/// Where a command that changes something reports that it acts.
fn place(site: &Site, variables: &[(&str, &str)], flags: &[&str]) -> String {
    // There is no such job, but the command still reports where it looked.
    let cancel = [&["job", "cancel", "-n", "nothing"], flags].concat();
    let cancelled = run_with(site, variables, &cancel);
    assert_eq!(cancelled.code, 3, "{}", cancelled.stderr);
    cancelled.stderr.lines().next().expect("a line").to_owned()
}

#[test]
fn a_flag_goes_before_a_variable_and_a_variable_before_a_default() {
    let site = Site::start();
    let zeros = "00000000-0000-0000-0000-000000000000";
    assert_eq!(
        place(&site, &[], &[]),
        format!("in workspace 'default', resource group 'default', subscription '{zeros}'")
    );
    let set = site.run(&["configure", "-d", "group=filed", "workspace=w", "subscription=s"]);
    assert_eq!((set.code, set.stdout.len()), (0, 0), "{}", set.stderr);
    assert_eq!(
        place(&site, &[], &[]),
        "in workspace 'w', resource group 'filed', subscription 's'"
    );
    let azure = ("AZURE_DEFAULTS_GROUP", "azure");
    let instance = [("CI_RESOURCE_GROUP", "ci"), ("CI_WORKSPACE", "instance")];
    assert_eq!(
        place(&site, &instance, &[]),
        "in workspace 'instance', resource group 'ci', subscription 's'"
    );
    let both = [instance[0], azure];
    assert!(place(&site, &both, &[]).contains("group 'azure'"));
    let all = [instance[0], azure, ("MUSTER_RESOURCE_GROUP", "own")];
    assert!(place(&site, &all, &[]).contains("group 'own'"));
    assert!(place(&site, &all, &["-g", "flag"]).contains("group 'flag'"));

    let listed = run_with(&site, &[azure], &["configure", "--list-defaults", "-o", "tsv"]);
    let file = site.config().join("defaults.json");
    let wanted = format!(
        "group\tAZURE_DEFAULTS_GROUP\tazure\nworkspace\t{0}\tw\nsubscription\t{0}\ts\n",
        file.display()
    );
    assert_eq!(String::from_utf8(listed.stdout).expect("text"), wanted);

    // An empty value removes a default, and keeps the others.
    site.text(&["configure", "--defaults", "group=", "subscription="]);
    let left = std::fs::read_to_string(&file).expect("it exists");
    assert_eq!(left, "{\n  \"workspace\": \"w\"\n}\n");
    let mode = |path| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!((mode(file), mode(site.config())), (0o600, 0o700));
    let left = std::fs::read_dir(site.config()).expect("a folder").count();
    assert_eq!(left, 1, "no temporary file is left");
}

#[test]
fn whatever_changes_something_says_where() {
    let site = Site::start();
    let flags = ["-g", "lab", "-w", "vision", "--subscription", "s"];
    let place = "in workspace 'vision', resource group 'lab', subscription 's'\n";
    let changes: [&[&str]; 5] = [
        &["compute", "create", "-n", "cpu", "--max-instances", "0"],
        &["compute", "update", "-n", "cpu", "--tags", "a=b"],
        &["job", "create", "-n", "one", "--compute", "cpu", "--command", "true"],
        &["job", "cancel", "-n", "one"],
        &["compute", "delete", "-n", "cpu", "--yes"],
    ];
    for change in changes {
        let changed = site.run(&[change, &flags[..]].concat());
        assert_eq!(changed.code, 0, "{change:?}: {}", changed.stderr);
        assert!(changed.stderr.starts_with(place), "{change:?}: {}", changed.stderr);
        assert!(!String::from_utf8_lossy(&changed.stdout).contains(place), "{change:?}");
    }
    // A command that only reads prints nothing about it.
    let looked = site.run(&[&["compute", "list"], &flags[..]].concat());
    assert_eq!((looked.code, looked.stderr.as_str()), (0, ""));
}

#[test]
fn a_default_region_serves_where_one_is_needed() {
    let site = Site::start();
    let without = site.run(&["quota", "list"]);
    assert_eq!((without.code, without.stdout.len()), (2, 0));
    assert!(without.stderr.contains("muster configure --defaults location="), "{}", without.stderr);
    site.text(&["configure", "--defaults", "location=westus2"]);
    assert!(!site.json(&["quota", "list"]).as_array().expect("a list").is_empty());
    assert_eq!(site.json(&CLUSTER)["location"], "westus2");
    let update = ["quota", "update", "-n", "TotalDedicatedCores", "--limit", "8"];
    let updated = run_with(&site, &[("AZURE_DEFAULTS_LOCATION", "northeurope")], &update);
    assert_eq!(updated.code, 0, "{}", updated.stderr);
    assert!(
        updated.stderr.starts_with("in region 'northeurope', subscription '0"),
        "{}",
        updated.stderr
    );
}

#[test]
fn bad_defaults_are_refused_and_change_nothing() {
    let site = Site::empty();
    let none = site.run(&["configure", "--list-defaults", "-o", "table"]);
    assert_eq!((none.code, none.stdout.len()), (0, 0));
    assert_eq!(none.stderr, "no defaults are set\n");
    for (bad, wanted) in [
        (
            &["--defaults", "colour=red"][..],
            "the defaults are group, workspace, subscription, location",
        ),
        (&["--defaults", "group"], "such as group=my-group"),
        (&["--defaults", "group=.."], "dots alone are not a name"),
        (&["--defaults", "group=a", "workspace=b", "group=c"], "sets group twice"),
        (&[], "--defaults"),
        (&["--defaults", "group=a", "--list-defaults"], "cannot be used with"),
    ] {
        let refused = site.run(&[&["configure"], bad].concat());
        assert_eq!((refused.code, refused.stdout.len()), (2, 0), "{bad:?}");
        assert!(refused.stderr.contains(wanted), "{bad:?}: {}", refused.stderr);
    }
    assert!(!site.config().exists());
    std::fs::create_dir(site.config()).expect("a folder");
    for damaged in
        ["", "[]", "{\"group\": 1}", "{\"colour\": \"red\"}", "{\"group\": \"..\"}", "\u{0}"]
    {
        std::fs::write(site.config().join("defaults.json"), damaged).expect("written");
        for command in
            [&["compute", "list"][..], &["configure", "-d", "group=a"], &["configure", "-l"]]
        {
            let failed = site.run(command);
            assert_eq!((failed.code, failed.stdout.len()), (1, 0), "{damaged}");
            assert!(failed.stderr.contains("defaults.json cannot be used: "), "{}", failed.stderr);
            assert!(failed.stderr.contains("hint: correct the file"), "{}", failed.stderr);
        }
    }
}
