//! Promise 9: the same seed produces the same event log, byte for byte, however inputs are batched.

use muster_sim::{Scenario, Summary, run};

fn simulate(seed: u64, batch: usize) -> Summary {
    let scenario = Scenario { batch, ..Scenario::new(seed, 20) };
    run(&scenario).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn the_same_seed_gives_the_same_log() {
    for seed in 1..=2 {
        assert_eq!(simulate(seed, 16), simulate(seed, 16));
    }
}

#[test]
fn the_log_does_not_depend_on_the_batch() {
    for seed in 3..=6 {
        let (single, large) = (simulate(seed, 1), simulate(seed, 64));
        assert!(large.steps < single.steps, "seed {seed}: nothing shared a step");
        let large = Summary { scenario: single.scenario.clone(), steps: single.steps, ..large };
        assert_eq!(large, single);
    }
}

#[test]
fn seeds_differ() {
    assert_ne!(simulate(7, 16).digest, simulate(8, 16).digest);
}
