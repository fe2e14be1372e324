//! Whether each part of a node's sandbox works on this machine.

use muster_sandbox::probe::{Probe, Tried};
use muster_server::Isolation;

use super::finding::{Finding, State};

const UNPRIVILEGED: &str = "see user-namespaces; in a container: --security-opt seccomp=unconfined and \
                            --security-opt apparmor=unconfined, or --privileged";
const CONTAINER: &str =
    "in a container: --cap-add SYS_ADMIN --security-opt seccomp=unconfined, or --privileged";
const NETWORK: &str =
    "modprobe veth bridge; in a container also: --cap-add NET_ADMIN, or --privileged";

pub fn check(probe: &Probe, isolation: Isolation) -> Vec<Finding> {
    let missing = State::of_missing_sandbox(isolation);
    let part = |id, tried: &Tried, meaning, fix: &str| match tried {
        Ok(()) => Finding::ok(id, "works", meaning),
        Err(why) => Finding::new(id, missing, why, meaning).fix(fix),
    };
    let (users, processes) = (&probe.users, &probe.processes);
    vec![
        part(
            "namespace-user",
            users,
            "without it, users of a node would be users of the machine",
            UNPRIVILEGED,
        ),
        part(
            "namespace-pid",
            processes,
            "without it, a node would see all processes of the machine",
            CONTAINER,
        ),
        part(
            "namespace-mount",
            &probe.mounts,
            "without it, a node would see all files of the machine",
            CONTAINER,
        ),
        part(
            "namespace-net",
            &probe.network,
            "without it, nodes would share addresses and ports",
            CONTAINER,
        ),
        part(
            "namespace-ipc",
            &probe.ipc,
            "without it, nodes would share memory and semaphores",
            CONTAINER,
        ),
        part(
            "namespace-uts",
            &probe.host_name,
            "without it, all nodes would have the same host name",
            CONTAINER,
        ),
        part(
            "read-only-mounts",
            &probe.protected_mounts,
            "without it, nodes could change programs that are mounted into them",
            "Linux 5.12 or newer; in a container: --security-opt seccomp=unconfined",
        ),
        seccomp(probe, isolation),
        helper(&probe.node, missing),
    ]
}

/// No other part of the sandbox depends on it, but a sandboxed job does not start without a filter.
fn seccomp(probe: &Probe, isolation: Isolation) -> Finding {
    const ID: &str = "seccomp";
    const MEANING: &str = "blocks system calls that sandboxed jobs do not need; without it, sandboxed jobs do not start";
    let state = match isolation {
        Isolation::None => State::Note,
        Isolation::Auto if probe.node.is_err() => State::Warning,
        Isolation::Auto | Isolation::Sandbox => State::Failure,
    };
    match &probe.seccomp {
        Ok(()) => Finding::ok(ID, "works", MEANING),
        Err(why) => Finding::new(ID, state, why, MEANING).fix(
            "use a kernel with CONFIG_SECCOMP_FILTER=y, as Debian's have, or set isolation = \"none\"",
        ),
    }
}

fn helper(tried: &Tried, missing: State) -> Finding {
    const ID: &str = "helper";
    let why = match tried {
        Ok(()) => {
            let found = "created and removed a complete test node";
            return Finding::ok(ID, found, "nodes run in a sandbox");
        }
        Err(why) => why,
    };
    let meaning = match missing {
        State::Failure => "isolation is sandbox, so the server does not start",
        _ => "nodes are plain processes of the server's user, without limits or a sandbox",
    };
    // The error message tells which step failed.
    let fix = if why.contains("/proc") {
        "in a container: --security-opt unmask=ALL (podman) or systempaths=unconfined (docker)"
    } else if why.contains("network") || why.contains("cable") || why.contains("bridge") {
        NETWORK
    } else {
        UNPRIVILEGED
    };
    Finding::new(ID, missing, why, meaning).fix(fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Probe {
        let fine = || Ok(());
        Probe {
            users: fine(),
            processes: fine(),
            mounts: fine(),
            network: fine(),
            ipc: fine(),
            host_name: fine(),
            protected_mounts: fine(),
            seccomp: fine(),
            node: fine(),
        }
    }

    fn bad(probe: &Probe, isolation: Isolation) -> Vec<(&'static str, State)> {
        let findings = check(probe, isolation);
        for finding in &findings {
            assert_eq!(finding.fix.is_some(), finding.state != State::Ok, "{finding:?}");
        }
        let bad = findings.iter().filter(|finding| finding.state != State::Ok);
        bad.map(|finding| (finding.id, finding.state)).collect()
    }

    #[test]
    fn every_missing_part_is_reported_by_its_name() {
        assert_eq!(bad(&good(), Isolation::Sandbox), []);
        let no = || Err("Operation not permitted (os error 1)".to_owned());
        for (probe, id) in [
            (Probe { users: no(), ..good() }, "namespace-user"),
            (Probe { processes: no(), ..good() }, "namespace-pid"),
            (Probe { mounts: no(), ..good() }, "namespace-mount"),
            (Probe { network: no(), ..good() }, "namespace-net"),
            (Probe { ipc: no(), ..good() }, "namespace-ipc"),
            (Probe { host_name: no(), ..good() }, "namespace-uts"),
            (Probe { protected_mounts: no(), ..good() }, "read-only-mounts"),
            (Probe { node: no(), ..good() }, "helper"),
        ] {
            assert_eq!(bad(&probe, Isolation::Sandbox), [(id, State::Failure)]);
            assert_eq!(bad(&probe, Isolation::Auto), [(id, State::Warning)]);
            assert_eq!(bad(&probe, Isolation::None), [(id, State::Note)]);
        }
        let open = Probe { seccomp: no(), ..good() };
        for (isolation, state) in [
            (Isolation::Sandbox, State::Failure),
            (Isolation::Auto, State::Failure),
            (Isolation::None, State::Note),
        ] {
            assert_eq!(bad(&open, isolation), [("seccomp", state)]);
        }
        // Jobs on nodes without a sandbox have no filter.
        let plain = [("seccomp", State::Warning), ("helper", State::Warning)];
        assert_eq!(bad(&Probe { node: no(), ..open }, Isolation::Auto), plain);
    }

    #[test]
    fn what_a_helper_lacks_decides_what_to_do() {
        for (why, words) in [
            ("cannot mount /proc; inside a container it has to be unmasked: EPERM", "unmask=ALL"),
            (
                "cannot connect the node's network: cannot create the bridge b0",
                "modprobe veth bridge",
            ),
            ("cannot create a user namespace: EPERM", "see user-namespaces"),
        ] {
            let finding = helper(&Err(why.to_owned()), State::Warning);
            assert!(finding.fix.as_ref().is_some_and(|fix| fix.contains(words)), "{finding:?}");
            assert!(finding.meaning.contains("plain processes"));
        }
        let strict = helper(&Err("no".to_owned()), State::Failure);
        assert!(strict.meaning.contains("does not start"));
    }
}
