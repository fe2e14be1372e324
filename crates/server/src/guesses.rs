//! Delays the refusal of wrong keys, and limits how many wait at the same time.
//!
//! A correct key is recognized before this module is involved, so wrong guesses cannot lock out anyone else, neither
//! from the same address nor for the same client id. In return, wrong guesses are refused as fast as connections allow;
//! keys have 256 random bits, so they cannot be found at any speed. This protects the server itself: its tasks, its
//! memory and its log.
//!
//! A place is held for the whole pause even if the client disconnects, so disconnecting gains nothing. Memory is
//! bounded by the number of places: an address is remembered only while it holds one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long the refusal of a wrong key is delayed.
pub const PAUSE: Duration = Duration::from_secs(1);
/// How many wrong keys may wait at the same time, from one address and for one client id.
pub const WAITING_MAX: usize = 8;
/// How many wrong keys may wait at the same time in all.
pub const WAITING_IN_ALL_MAX: usize = 256;
/// How many characters of a client id are kept; the client chooses them.
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

/// Too many wrong keys are waiting already.
#[derive(Debug, PartialEq, Eq)]
pub struct TooMany;

struct Permit {
    guesses: Guesses,
    by: Vec<By>,
}

impl Guesses {
    /// Waits, or returns at once if too many are waiting.
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
        let mut waiting = self.0.lock().expect("no thread panics while it holds this lock");
        let is_full = |one: &By| waiting.by.get(one).is_some_and(|count| *count >= WAITING_MAX);
        if waiting.in_all >= WAITING_IN_ALL_MAX || by.iter().any(is_full) {
            return Err(TooMany);
        }
        waiting.in_all += 1;
        for one in &by {
            *waiting.by.entry(one.clone()).or_default() += 1;
            if waiting.by[one] == WAITING_MAX {
                log_flood(one);
            }
        }
        Ok(Permit { guesses: self.clone(), by })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut waiting = self.guesses.0.lock().expect("no thread panics while it holds this lock");
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

/// Logs at most once per `WAITING_MAX` guesses in a pause, whatever is sent.
fn log_flood(by: &By) {
    match by {
        By::Address(address) => {
            tracing::warn!(%address, "many wrong keys from one address at once");
        }
        By::Client(client) => tracing::warn!(?client, "many wrong secrets for one client at once"),
    }
}

/// Reduces an IPv6 address to its /64 network, because a client that has one address usually has all of them.
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
        let waiting = guesses.0.lock().expect("no thread panics while it holds this lock");
        (waiting.in_all, waiting.by.len())
    }

    #[test]
    fn places_are_limited_per_address_and_per_client() {
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
    async fn a_place_is_held_for_the_whole_pause_although_the_client_disconnected() {
        let guesses = Guesses::default();
        let hung_up = tokio::time::timeout(Duration::ZERO, guesses.pause(address(1), None)).await;
        assert!(hung_up.is_err());
        assert_eq!(size(&guesses), (1, 1));
        let started = std::time::Instant::now();
        assert_eq!(guesses.pause(address(1), None).await, Ok(()));
        assert!(started.elapsed() >= PAUSE);
        // The first guess started earlier, so its place was released earlier.
        assert_eq!(size(&guesses), (0, 0));
    }
}
