//! The Debian package and the archive: what is in them, and that an administrator can install, use and remove them.

use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Creates both from the binary that the tests use.
fn build(folder: &Path) {
    let mut command = Command::new(format!("{ROOT}/scripts/package"));
    command.args(["--fast", env!("CARGO_BIN_EXE_muster")]).arg(folder);
    let output = command.output().expect("the script runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "scripts/package failed: {said}");
}

/// The output of the script. The test fails if one of its commands does.
fn shell(script: &str, folder: &Path) -> String {
    let mut command = Command::new("bash");
    let output = command.args(["-euo", "pipefail", "-c", script]).current_dir(folder).output();
    let output = output.expect("bash is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

/// The program of the archive runs where it was unpacked, and its files are those of the package.
fn check_archive(packages: &Path, folder: &Path) {
    shell("sha256sum --check --strict SHA256SUMS", packages);
    std::fs::create_dir(folder).expect("ours");
    shell(&format!("tar -xzf {}/*.tar.gz --strip-components=1", packages.display()), folder);
    let version = shell("bin/muster --version", folder);
    assert_eq!(version.trim(), concat!("muster ", env!("CARGO_PKG_VERSION")));
    let listed = "find . -type f | sed 's|^./||' | sort";
    let mut unpacked: Vec<String> = shell(listed, folder).lines().map(str::to_owned).collect();
    let own = ["README.md", "share/doc/muster/LICENSE"];
    unpacked.retain(|path| !own.contains(&&**path));
    let listed = "dpkg-deb --fsys-tarfile muster_*.deb | tar -t | grep -v '/$' | sed -E 's|^./(usr/)?||' | sort";
    let mut packaged: Vec<String> = shell(listed, packages).lines().map(str::to_owned).collect();
    let debian = ["copyright", "changelog.Debian.gz", "lintian/overrides/muster"];
    packaged.retain(|path| !debian.iter().any(|ending| path.ends_with(ending)));
    assert_eq!(unpacked, packaged);
    let missing: Vec<&str> = [
        "share/man/man1/muster.1.gz",
        "share/man/man1/muster-job-create.1.gz",
        "share/bash-completion/completions/muster",
        "share/zsh/vendor-completions/_muster",
        "share/fish/vendor_completions.d/muster.fish",
        "lib/systemd/system/muster-agent.service",
    ]
    .into_iter()
    .filter(|path| !unpacked.iter().any(|found| found == path))
    .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Takes about 20 s, because a machine boots and `dpkg` works on it four times.
#[test]
fn the_package_is_installed_used_upgraded_and_removed() {
    for (program, package) in
        [("dpkg-shlibdeps", "dpkg-dev"), ("systemd-nspawn", "systemd-container")]
    {
        if Command::new(program).arg("--version").output().is_err() {
            return muster_testing::skip_or_fail(&format!("{program}: apt-get install {package}"));
        }
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let packages = folder.path().join("packages");
    build(&packages);
    check_archive(&packages, &folder.path().join("unpacked"));
    if !rustix::process::geteuid().is_root() {
        return muster_testing::skip_or_fail("not root: only root can boot a machine");
    }
    let mut machine = Command::new("unshare");
    machine
        .args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"])
        .args(["--mount-proc", "bash"])
        .arg(format!("{ROOT}/crates/cli/tests/cli/package/machine.sh"))
        .arg(folder.path());
    let output = machine.output().expect("unshare is installed");
    let log = std::fs::read_to_string(folder.path().join("written/package-test.log"));
    let log = log.unwrap_or_else(|why| format!("the machine did not boot: {why}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && log.ends_with("== done\n"), "{said}\n{log}");
}
