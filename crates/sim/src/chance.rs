//! Randomness, all of it from one seed. Each concern has a stream of its own, so that one more draw in the network does
//! not change what users do.

use muster_core::time::Span;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

/// The concerns that draw. The number is part of the meaning of every seed: add new ones, but never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Workload = 1,
    Clients = 2,
    /// From agents to the server and back. These are two streams, because which side sends first depends on the order
    /// within an instant.
    Reports = 3,
    Answers = 4,
    Provider = 5,
    Kills = 6,
    Weather = 7,
    /// What goes wrong with calls to the provider.
    Calls = 8,
    Listings = 9,
    ClientAnswers = 10,
    /// Which of two servers a message reaches.
    Rivals = 11,
}

pub(crate) struct Chance(ChaCha8Rng);

impl Chance {
    pub(crate) fn new(seed: u64, stream: Stream) -> Chance {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(stream as u64);
        Chance(generator)
    }

    /// A stream for one thing, identified by its name: its draws do not depend on what happened before.
    pub(crate) fn of(seed: u64, thing: &str) -> Chance {
        let mut hash = Sha256::new();
        hash.update(seed.to_le_bytes());
        hash.update(thing.as_bytes());
        Chance(ChaCha8Rng::from_seed(hash.finalize().into()))
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // The bias is `limit` / 2^64, which is too small to matter here.
        let wide = u128::from(self.0.next_u64()) * u128::from(limit);
        u64::try_from(wide >> 64).expect("a product of two u64 shifted by 64 bits is a u64")
    }

    /// A number from `least` to `most`, both included.
    pub(crate) fn number(&mut self, least: u32, most: u32) -> u32 {
        let drawn = self.below(u64::from(most - least) + 1);
        least + u32::try_from(drawn).expect("not more than the difference of two u32")
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a usize")
    }

    /// A length of time from `least` to `most`, to the microsecond.
    pub(crate) fn span(&mut self, least: Span, most: Span) -> Span {
        Span(least.0 + self.below(most.0 - least.0 + 1))
    }

    pub(crate) fn permille(&mut self, chance: u64) -> bool {
        self.below(1_000) < chance
    }

    /// One of the choices, with a probability in proportion to its weight.
    pub(crate) fn weighted<T: Copy>(&mut self, choices: &[(u64, T)]) -> T {
        let total = choices.iter().map(|(weight, _)| weight).sum();
        let mut left = self.below(total);
        for (weight, choice) in choices {
            if left < *weight {
                return *choice;
            }
            left -= weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }
}

/// SHA-256 in hex.
pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
