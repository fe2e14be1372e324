//! One parser under libFuzzer: `MUSTER_FUZZ=path muster-fuzz FOLDER…`. scripts/fuzz runs them all.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use muster_fuzz::{TARGETS, Target};

static CHOSEN: OnceLock<&Target> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let target = CHOSEN.get_or_init(|| {
        let name = std::env::var("MUSTER_FUZZ").unwrap_or_default();
        let known = TARGETS.iter().find(|target| target.name == name);
        known.unwrap_or_else(|| panic!("MUSTER_FUZZ is {name:?}; give one of {}", names()))
    });
    (target.run)(data);
});

fn names() -> String {
    TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(" ")
}
