//! The messages to the operator of a joined host when the host agent starts.

use std::path::Path;

use muster_environments::store::missing_uv;
use muster_sandbox::protocol::Enforcement;

pub fn enforcement(enforcement: &Enforcement) -> String {
    let there = "nodes here are sandboxes, each with its own network, processes and files";
    match &enforcement.missing[..] {
        [] => format!("{there}, users and limits"),
        missing => format!("{there}; not enforced: {}", missing.join(", ")),
    }
}

/// Lists what jobs on this host will lack, with the remedies.
pub fn lacking(uv: Option<&Path>, enforcement: &Enforcement, may_go_out: bool) -> Vec<String> {
    missing_uv(uv).into_iter().chain(enforcement.no_internet(may_go_out)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joined_host_reports_what_jobs_will_lack_with_the_remedy() {
        let enforcement = Enforcement {
            missing: Vec::new(),
            why_no_internet: Some("slirp4netns is not installed: apt install slirp4netns".into()),
            nodes: "/nodes".into(),
        };
        let said = lacking(Some(Path::new("/no/such/uv")), &enforcement, true);
        let [uv, internet] = <[String; 2]>::try_from(said).unwrap();
        assert!(uv.contains("/no/such/uv") && uv.contains("pip install uv"), "{uv}");
        assert!(internet.contains("apt install slirp4netns"), "{internet}");
        // Any existing program will do here.
        let there = Some(Path::new("/bin/sh"));
        assert_eq!(lacking(there, &enforcement, false), [""; 0], "egress is false");
        let whole = Enforcement { why_no_internet: None, ..enforcement };
        assert_eq!(lacking(there, &whole, true), [""; 0]);
    }
}
