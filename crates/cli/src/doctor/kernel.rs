//! The kernel: its version, and what its settings allow ordinary users.

use muster_server::Isolation;

use super::finding::{Finding, State};

/// The first version that can make a mount and everything below it read-only.
const OLDEST: (u32, u32) = (5, 12);

pub struct Kernel {
    pub release: String,
    pub is_root: bool,
    /// A setting of older Debian kernels; `None` if it does not exist.
    pub userns_clone: Option<u64>,
    pub userns_max: Option<u64>,
    /// A setting of Ubuntu's kernels.
    pub apparmor_restricts: Option<u64>,
}

pub fn look() -> Kernel {
    let setting = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
        text.trim().parse().ok()
    };
    Kernel {
        release: rustix::system::uname().release().to_string_lossy().into_owned(),
        is_root: rustix::process::geteuid().is_root(),
        userns_clone: setting("kernel/unprivileged_userns_clone"),
        userns_max: setting("user/max_user_namespaces"),
        apparmor_restricts: setting("kernel/apparmor_restrict_unprivileged_userns"),
    }
}

pub fn check(kernel: &Kernel, isolation: Isolation) -> Vec<Finding> {
    vec![version(kernel, isolation), user_namespaces(kernel, isolation)]
}

fn version(kernel: &Kernel, isolation: Isolation) -> Finding {
    const ID: &str = "kernel";
    const MEANING: &str = "sandboxed nodes need Linux 5.12 or newer";
    let release = format!("Linux {}", kernel.release);
    match version_of(&kernel.release) {
        Some(version) if version >= OLDEST => Finding::ok(ID, release, MEANING),
        Some(_) => Finding::new(ID, State::of_missing_sandbox(isolation), release, MEANING)
            .fix("apt install linux-image-amd64, from Debian 12 or newer, and reboot"),
        None => Finding::note(ID, format!("{release}: unknown version"), MEANING),
    }
}

/// `6.1.0-18-amd64` → 6.1.
fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn user_namespaces(kernel: &Kernel, isolation: Isolation) -> Finding {
    const ID: &str = "user-namespaces";
    const MEANING: &str = "a server that is not root creates its nodes in a user namespace, and every node has its own";
    let blocked = [
        ("user.max_user_namespaces", kernel.userns_max, 0, "65536", true),
        ("kernel.unprivileged_userns_clone", kernel.userns_clone, 0, "1", false),
        ("kernel.apparmor_restrict_unprivileged_userns", kernel.apparmor_restricts, 1, "0", false),
    ];
    let blocked = blocked.iter().find(|(_, found, bad, ..)| *found == Some(*bad));
    let Some((name, _, bad, good, is_for_root)) = blocked else {
        return Finding::ok(ID, "no setting restricts them", MEANING);
    };
    let found = format!("{name} is {bad}");
    let state = State::of_missing_sandbox(isolation);
    match kernel.is_root && !is_for_root {
        true => Finding::note(ID, format!("{found}; root is not affected"), MEANING),
        false => Finding::new(ID, state, found, MEANING).fix(format!(
            "sysctl -w {name}={good}; to keep it, add {name}={good} to /etc/sysctl.d/60-muster.conf"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Kernel {
        Kernel {
            release: "6.1.0-18-amd64".to_owned(),
            is_root: false,
            userns_clone: Some(1),
            userns_max: Some(95_000),
            apparmor_restricts: Some(0),
        }
    }

    fn states(kernel: &Kernel, isolation: Isolation) -> Vec<State> {
        check(kernel, isolation).iter().map(|finding| finding.state).collect()
    }

    #[test]
    fn an_old_kernel_is_reported() {
        assert_eq!(states(&good(), Isolation::Sandbox), [State::Ok, State::Ok]);
        for (release, state) in [
            ("5.12.0", State::Ok),
            ("5.11.22-generic", State::Warning),
            ("4.19.0-26-amd64", State::Warning),
            ("of our own", State::Note),
        ] {
            let kernel = Kernel { release: release.to_owned(), ..good() };
            let finding = version(&kernel, Isolation::Auto);
            assert_eq!(finding.state, state, "{finding:?}");
            assert_eq!(finding.fix.is_some(), state == State::Warning);
        }
        let old = Kernel { release: "5.10.0".to_owned(), ..good() };
        assert_eq!(states(&old, Isolation::Sandbox)[0], State::Failure);
        assert_eq!(states(&old, Isolation::None)[0], State::Note);
    }

    #[test]
    fn every_restricting_setting_is_reported_with_a_remedy() {
        for (kernel, fix, is_for_root) in [
            (Kernel { userns_clone: Some(0), ..good() }, "unprivileged_userns_clone=1", false),
            (Kernel { userns_max: Some(0), ..good() }, "user.max_user_namespaces=65536", true),
            (Kernel { apparmor_restricts: Some(1), ..good() }, "unprivileged_userns=0", false),
        ] {
            let finding = user_namespaces(&kernel, Isolation::Auto);
            assert_eq!(finding.state, State::Warning);
            assert!(finding.fix.as_ref().is_some_and(|it| it.contains(fix)), "{finding:?}");
            let root = user_namespaces(&Kernel { is_root: true, ..kernel }, Isolation::Auto);
            assert_eq!(root.state == State::Note, !is_for_root, "{root:?}");
        }
        let silent =
            Kernel { userns_clone: None, userns_max: None, apparmor_restricts: None, ..good() };
        assert_eq!(user_namespaces(&silent, Isolation::Sandbox).state, State::Ok);
    }
}
