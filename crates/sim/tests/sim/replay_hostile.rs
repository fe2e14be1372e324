//! Whatever bytes a trace file contains, the result is a trace or a message, never a panic; and a trace is read
//! correctly.

use muster_sim::replay::{Trace, TraceError};
use proptest::prelude::*;

const HEADER: &[u8] = b"submit_s,duration_s,nodes,gpus_per_node,user,group\n";

/// A message must not contain control characters, nor be long.
fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    match Trace::parse(bytes) {
        Ok(trace) => {
            prop_assert!(!trace.jobs().is_empty());
            prop_assert!(trace.jobs().is_sorted_by_key(|job| job.submit));
            for job in trace.jobs() {
                prop_assert!((1..=10_000).contains(&job.nodes));
                prop_assert!((job.user as usize) < trace.users().len());
            }
        }
        Err(why) => {
            let message = why.to_string();
            prop_assert!(!message.chars().any(char::is_control), "{message:?}");
            prop_assert!(message.len() < 500, "{message:?}");
            prop_assert!(
                message.contains("line ") || matches!(why, TraceError::Empty | TraceError::NoJobs),
                "{message}"
            );
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes)?;
    }

    #[test]
    fn any_bytes_after_the_header(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&[HEADER, &bytes].concat())?;
    }

    #[test]
    fn almost_good_rows(rows in prop::collection::vec(
        r#"([0-9]{0,22}|-1|[0-9]\.[0-9]{0,9}|"[0-9]"|nan|1e9|\t),([0-9]{1,3}|x),[0-9]{0,6},[0-9]?,["a-c,é\x1b]{0,4},[a-z"]{0,3}\r?"#,
        0..20,
    )) {
        check(&[HEADER, rows.join("\n").as_bytes()].concat())?;
    }

    #[test]
    fn good_rows_are_read_as_they_are(
        gaps in prop::collection::vec((0..1_000u64, 0..100_000u64, 1..=64u32, "[a-z,\" ]{0,6}"), 1..50)
    ) {
        let (mut text, mut at, mut wanted) = (String::from_utf8_lossy(HEADER).into_owned(), 0, Vec::new());
        for (gap, duration, nodes, user) in gaps {
            at += gap;
            let quoted = user.replace('"', "\"\"");
            text.push_str(&format!("{at},{duration}.25,{nodes},0,\"{quoted}\",\n"));
            wanted.push((at * 1_000_000, duration * 1_000_000 + 250_000, nodes, user));
        }
        let trace = Trace::parse(text.as_bytes()).expect("good rows");
        let read: Vec<_> = trace.jobs().iter().map(|job| {
            let user = trace.users()[job.user as usize].to_string();
            (job.submit.0, job.duration.0, job.nodes, user)
        }).collect();
        prop_assert_eq!(read, wanted);
    }
}
