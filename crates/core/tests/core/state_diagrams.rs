//! The lifecycles as diagrams in docs/concepts, drawn from the tables that the code uses. Set MUSTER_BLESS=1 to update
//! them after a change.

use std::fmt::Write;
use std::path::PathBuf;

use muster_core::model::{ClusterPhase, JobPhase, Lifecycle, NodePhase};

fn draw<P: Lifecycle>() -> String {
    let name = P::NAME;
    let mut page = String::new();
    let line = |page: &mut String, text: String| writeln!(page, "{text}").expect("to a string");
    line(&mut page, format!("# The lifecycle of a {name}\n"));
    line(
        &mut page,
        "Drawn from the table in `crates/core/src/model` by a test; do not edit.\n".into(),
    );
    line(&mut page, "```mermaid\nstateDiagram-v2".into());
    line(&mut page, format!("    [*] --> {:?}", P::INITIAL));
    for phase in P::PHASES {
        for event in P::EVENTS {
            if let Some(next) = phase.after(*event) {
                line(&mut page, format!("    {phase:?} --> {next:?}: {event:?}"));
            }
        }
        if P::EVENTS.iter().all(|event| phase.after(*event).is_none()) {
            line(&mut page, format!("    {phase:?} --> [*]"));
        }
    }
    line(&mut page, "```".into());
    page
}

#[allow(clippy::disallowed_methods)] // An environment variable may tell this test to write what it checks.
fn check<P: Lifecycle>() {
    let file = format!("../../docs/concepts/{}-states.md", P::NAME);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
    let drawn = draw::<P>();
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::write(&path, &drawn).expect("docs/concepts is writable");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, drawn, "{} is out of date: MUSTER_BLESS=1 cargo test", path.display());
}

#[test]
fn diagrams_show_the_tables() {
    check::<ClusterPhase>();
    check::<NodePhase>();
    check::<JobPhase>();
}

/// Every phase but the first can be reached, and from each live phase an end can be reached.
fn is_whole<P: Lifecycle>() {
    fn reach<P: Lifecycle>(from: P) -> Vec<P> {
        let mut seen = vec![from];
        let mut at = 0;
        while at < seen.len() {
            for event in P::EVENTS {
                if let Some(next) = seen[at].after(*event)
                    && !seen.contains(&next)
                {
                    seen.push(next);
                }
            }
            at += 1;
        }
        seen
    }
    let is_end = |phase: &P| P::EVENTS.iter().all(|event| phase.after(*event).is_none());
    let all = reach(P::INITIAL);
    for phase in P::PHASES {
        assert!(all.contains(phase), "{}: {phase:?} cannot be reached", P::NAME);
        assert!(reach(*phase).iter().any(is_end), "{}: {phase:?} never ends", P::NAME);
    }
}

#[test]
fn lifecycles_have_no_dead_ends() {
    is_whole::<ClusterPhase>();
    is_whole::<NodePhase>();
    is_whole::<JobPhase>();
}
