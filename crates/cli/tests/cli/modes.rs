//! A state directory belongs to `muster up` or to `muster serve`, and cannot be switched.

use std::fs;

use crate::support::{Site, ends, signal};

/// Stops the server properly.
fn stop(site: &mut Site) {
    let mut server = site.take_server();
    signal("-TERM", &server);
    assert!(ends(&mut server));
    assert!(server.wait().expect("a child of ours").success());
}

fn refused(site: &Site, how: &str) -> String {
    let done = site.run(&[how, "--listen", "127.0.0.1:0"]);
    assert_eq!(done.code, 2, "{}", done.stderr);
    done.stderr
}

#[test]
fn the_other_command_refuses_it_unless_it_is_told_to_change_it() {
    let mut site = Site::empty();
    site.start_as("serve");
    stop(&mut site);
    let said = refused(&site, "up");
    let again = format!("start it with: muster serve --state-dir {}", site.state().display());
    assert!(said.contains(&again) && said.contains("--change-mode"), "{said}");
    // Nothing was changed: the directory still belongs to the same command.
    site.start_as("serve");
    // A command that finds no server names the command that starts it.
    let mut server = site.take_server();
    server.kill().expect("it runs");
    server.wait().expect("it was killed");
    let lost = site.run(&["compute", "list"]);
    assert!(lost.stderr.contains("muster serve --state-dir"), "{}", lost.stderr);
    let status = site.run(&["status"]);
    assert!(status.stderr.contains("start one: muster serve"), "{}", status.stderr);
    site.start_with(&["--change-mode"]);
    stop(&mut site);
    assert!(refused(&site, "serve").contains("muster up --state-dir"));
}

#[test]
fn a_directory_of_before_belongs_to_whichever_opens_it_first() {
    let mut site = Site::empty();
    site.up();
    stop(&mut site);
    fs::remove_file(site.state().join("mode")).expect("the mode is recorded there");
    site.start_as("serve");
    stop(&mut site);
    assert!(refused(&site, "up").contains("muster serve"));
}

#[test]
fn names_are_unique_within_a_workspace_with_up_and_within_a_region_with_serve() {
    let create = |site: &Site, workspace: &str| {
        let place = ["-g", "lab", "-w", workspace, "--subscription", "s"];
        let create = ["compute", "create", "-n", "cpu-cluster", "--max-instances", "0"];
        site.run(&[&create[..], &place[..]].concat())
    };
    let drop_all = |site: &Site| {
        for workspace in ["one", "two"] {
            let place = ["-g", "lab", "-w", workspace, "--subscription", "s"];
            site.run(&[&["compute", "delete", "--yes", "-n", "cpu-cluster"], &place[..]].concat());
        }
    };
    let site = Site::start();
    for workspace in ["one", "two"] {
        let done = create(&site, workspace);
        assert_eq!(done.code, 0, "{workspace}: {}", done.stderr);
    }
    drop_all(&site);
    let mut many = Site::empty();
    many.start_as("serve");
    for workspace in ["one", "two"] {
        let place = ["-g", "lab", "-n", workspace, "--subscription", "s", "-l", "eastus"];
        many.text(&[&["workspace", "create"], &place[..]].concat());
    }
    assert_eq!(create(&many, "one").code, 0);
    let taken = create(&many, "two");
    assert_eq!(taken.code, 2, "{}", taken.stderr);
    assert!(taken.stderr.contains("is taken in region 'eastus'"), "{}", taken.stderr);
    drop_all(&many);
}

#[test]
fn a_region_of_ones_own_is_configured() {
    let mut site = Site::empty();
    site.start_with(&["--regions", "on-prem"]);
    let create = |region| {
        let command = ["compute", "create", "-n", "cpu", "--max-instances", "0", "-l", region];
        site.run(&command)
    };
    let slip = create("onprem");
    assert_eq!(slip.code, 2, "{}", slip.stderr);
    assert!(slip.stderr.contains("did you mean 'on-prem'?"), "{}", slip.stderr);
    let made = create("on-prem");
    assert_eq!(made.code, 0, "{}", made.stderr);
    let quota = site.run(&["quota", "list", "-l", "nowhere"]);
    assert!(quota.stderr.contains("the region 'nowhere' is not known"), "{}", quota.stderr);
}
