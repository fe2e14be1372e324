//! What a test does on a machine that lacks something it needs.
//!
//! Such a test shows nothing, and must not look as if it did. When root runs `make test`, it sets [`REQUIRE_ALL`]: then
//! a test that lacks something fails. The exceptions are listed in [`Optional`]; their tests print what is missing.

/// If this variable is set and not empty, everything that tests need must be present.
pub const REQUIRE_ALL: &str = "MUSTER_TEST_REQUIRE_ALL";

/// What a kernel or a machine may lack although everything else is required. `.config/nextest.toml` shows the output of
/// the tests that need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Optional {
    /// A kernel with CONFIG_QFMT_V2 or CONFIG_XFS_QUOTA, and a temporary folder on a file system mounted with
    /// `prjquota`.
    ProjectQuotas,
    /// The first version of cgroups, which newer systems do not mount.
    CgroupsV1,
    /// An address of the machine other than loopback.
    OwnAddress,
}

/// For a test that ends early because something is missing: prints that, or fails if everything is required.
#[track_caller]
pub fn skip_or_fail(missing: &str) {
    eprintln!("skipped: {missing}");
    let is_required = std::env::var_os(REQUIRE_ALL).is_some_and(|value| !value.is_empty());
    assert!(!is_required, "{missing}; {REQUIRE_ALL} is set, so this must not be missing");
}

/// For a test that ends early because of something that may be missing anywhere: prints that.
pub fn skip(lacks: Optional, missing: &str) {
    eprintln!("skipped ({lacks:?}): {missing}");
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// This is not a test by itself: the next test runs it.
    #[test]
    fn one_that_lacks_something() {
        if std::env::var_os("MUSTER_TESTING_INSIDE").is_some() {
            skip(Optional::ProjectQuotas, "no quotas here");
            skip_or_fail("no disk here");
        }
    }

    #[test]
    fn a_missing_prerequisite_fails_only_where_it_is_required() {
        for (value, passes) in [(None, true), (Some(""), true), (Some("1"), false)] {
            let mut again = Command::new(std::env::current_exe().unwrap());
            again.args(["--exact", "tests::one_that_lacks_something", "--nocapture"]);
            again.env("MUSTER_TESTING_INSIDE", "1").env_remove(REQUIRE_ALL);
            again.envs(value.map(|value| (REQUIRE_ALL, value)));
            let output = again.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), passes, "{value:?}: {said}");
            assert!(said.contains("skipped (ProjectQuotas): no quotas here"), "{said}");
            assert!(said.contains("no disk here"), "{said}");
        }
    }
}
