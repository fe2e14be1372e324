//! Wrong keys: each waits for its refusal, and only so many wait at once.
//!
//! A right key is found right before anything here is asked, so nobody's guessing keeps anybody else out: not
//! from the same address, and not for the same client id. The price is that a guesser may learn "wrong" as
//! fast as connections allow; keys have 256 random bits, so there is nothing to find at any speed. What is
//! protected is the server: its tasks, its memory, its log.
//!
//! A place is held for the whole pause even when the guesser hangs up, so hanging up gains nothing. Memory is
//! bounded by the places: an address is known here only while it holds one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a wrong key waits for its refusal.
pub const PAUSE: Duration = Duration::from_secs(1);
/// Wrong keys that wait at once: from one address, and for one client id.
pub const WAITING_MAX: usize = 8;
/// In all.
pub const WAITING_IN_ALL_MAX: usize = 256;
/// Of a client id that somebody made up.
const NAME_CHARS_MAX: usize = 64;

#[derive(Clone, Default)]
pub struct Guesses(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    in_all: usize,
    by: BTreeMap<By, usize>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum By {
    Address(IpAddr),
    Client(Box<str>),
}

/// There is no place left to wait in.
#[derive(Debug, PartialEq, Eq)]
pub struct TooMany;

struct Permit {
    guesses: Guesses,
    by: Vec<By>,
}

impl Guesses {
    /// Waits, or says at once that too many wait.
    pub async fn pause(&self, address: IpAddr, client: Option<&str>) -> Result<(), TooMany> {
        let place = self.take(address, client)?;
        let held = tokio::spawn(async move {
            tokio::time::sleep(PAUSE).await;
            drop(place);
        });
        let _ = held.await;
        Ok(())
    }

    fn take(&self, address: IpAddr, client: Option<&str>) -> Result<Permit, TooMany> {
        let client = client.map(|name| name.chars().take(NAME_CHARS_MAX).collect::<String>());
        let client = client.map(|name| By::Client(name.to_ascii_lowercase().into()));
        let by: Vec<By> = [By::Address(network(address))].into_iter().chain(client).collect();
        let mut waiting = self.0.lock().expect("nobody panics with it");
        let is_full = |one: &By| waiting.by.get(one).is_some_and(|count| *count >= WAITING_MAX);
        if waiting.in_all >= WAITING_IN_ALL_MAX || by.iter().any(is_full) {
            return Err(TooMany);
        }
        waiting.in_all += 1;
        for one in &by {
            *waiting.by.entry(one.clone()).or_default() += 1;
            if waiting.by[one] == WAITING_MAX {
                tell(one);
            }
        }
        Ok(Permit { guesses: self.clone(), by })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut waiting = self.guesses.0.lock().expect("nobody panics with it");
        waiting.in_all -= 1;
        for one in &self.by {
            if let Some(count) = waiting.by.get_mut(one) {
                *count -= 1;
                if *count == 0 {
                    waiting.by.remove(one);
                }
            }
        }
    }
}

/// At most once for every `WAITING_MAX` guesses in a pause, whatever is sent.
fn tell(by: &By) {
    match by {
        By::Address(address) => {
            tracing::warn!(%address, "many wrong keys from one address at once");
        }
        By::Client(client) => tracing::warn!(?client, "many wrong secrets for one client at once"),
    }
}

/// Whoever has one IPv6 address has the 2^64 beside it.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn size(guesses: &Guesses) -> (usize, usize) {
        let waiting = guesses.0.lock().expect("nobody panics with it");
        (waiting.in_all, waiting.by.len())
    }

    #[test]
    fn one_address_and_one_client_have_so_many_places() {
        let guesses = Guesses::default();
        let mut places: Vec<Permit> =
            (0..WAITING_MAX).filter_map(|_| guesses.take(address(1), Some("A")).ok()).collect();
        assert_eq!(places.len(), WAITING_MAX);
        assert!(guesses.take(address(1), None).is_err());
        assert!(guesses.take(address(2), Some("a")).is_err());
        assert!(guesses.take(address(2), Some("b")).is_ok());
        places.pop();
        assert!(guesses.take(address(1), Some("b")).is_ok());
        drop(places);
        assert_eq!(size(&guesses), (0, 0));
    }

    #[test]
    fn nothing_is_kept_beyond_the_limit() {
        let guesses = Guesses::default();
        let long = "x".repeat(100_000);
        let places: Vec<_> = (0..2_000u32)
            .filter_map(|at| guesses.take(IpAddr::V4(at.into()), Some(&format!("{at}{long}"))).ok())
            .collect();
        assert_eq!(places.len(), WAITING_IN_ALL_MAX);
        assert_eq!(size(&guesses), (WAITING_IN_ALL_MAX, 2 * WAITING_IN_ALL_MAX));
        drop(places);
        assert_eq!(size(&guesses), (0, 0));
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let same = |one: &str, other: &str| {
            network(one.parse().expect("one")) == network(other.parse().expect("one"))
        };
        assert!(same("2001:db8::1", "2001:db8::ffff:1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
    }

    #[tokio::test]
    async fn a_place_is_held_for_the_whole_pause_though_the_guesser_left() {
        let guesses = Guesses::default();
        let hung_up = tokio::time::timeout(Duration::ZERO, guesses.pause(address(1), None)).await;
        assert!(hung_up.is_err());
        assert_eq!(size(&guesses), (1, 1));
        let started = std::time::Instant::now();
        assert_eq!(guesses.pause(address(1), None).await, Ok(()));
        assert!(started.elapsed() >= PAUSE);
        // The first began earlier, so it ended earlier.
        assert_eq!(size(&guesses), (0, 0));
    }
}
