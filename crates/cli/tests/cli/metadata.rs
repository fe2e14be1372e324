//! The metadata service of a cloud's machines, at 169.254.169.254: no job reaches it, even on a node with internet
//! access.
//!
//! The test runs in a network of its own, which has that address, and another one that nodes with internet access can
//! reach.

use std::net::{TcpListener, TcpStream};
use std::process::Command;

use crate::support::sandbox::{cluster, ran};
use crate::support::{Site, run_apart};

/// Set for the run that is alone in its namespaces.
const INSIDE: &str = "MUSTER_METADATA_INSIDE";
const METADATA: &str = "169.254.169.254";
/// An address for documentation, which is never in use.
const OUTSIDE: &str = "198.51.100.7";

#[test]
fn no_job_asks_a_cloud_about_its_machine() {
    if !rustix::process::geteuid().is_root() {
        return muster_testing::skip_or_fail(
            "not root: only root can make a network with that address",
        );
    }
    if Command::new("slirp4netns").arg("--version").output().is_err() {
        return muster_testing::skip_or_fail("no slirp4netns, so nodes have no internet access");
    }
    if std::env::var_os(INSIDE).is_none() {
        let setup = format!(
            "ip link set lo up; ip addr add {METADATA}/32 dev lo; ip addr add {OUTSIDE}/32 dev lo"
        );
        let test = "metadata::no_job_asks_a_cloud_about_its_machine";
        return run_apart(test, &setup, INSIDE);
    }
    let doors = [METADATA, OUTSIDE].map(|address| TcpListener::bind((address, 80)));
    let _doors = doors.map(|door| door.expect("the port is free"));
    for address in [METADATA, OUTSIDE] {
        TcpStream::connect((address, 80)).expect("the machine itself can reach it");
    }
    let call = |address: &str| {
        format!("timeout 5 bash -c 'exec 3<>/dev/tcp/{address}/80' 2>/dev/null && echo {address}; ")
    };
    let calls = format!("{}{}true", call(METADATA), call(OUTSIDE));
    let mut site = Site::empty();
    site.start_with(&["--isolation", "sandbox", "--egress=true"]);
    cluster(&site, "cpu", &[]);
    assert_eq!(ran(&site, "cpu", "call", &calls).trim(), OUTSIDE);
}
