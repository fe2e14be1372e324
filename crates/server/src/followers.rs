//! Those who follow the event log: how many there may be, and how long the server waits for a slow one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many streams one user may have open.
const PER_USER_MAX: usize = 32;
/// How many streams may be open in all.
const ALL_MAX: usize = 1_024;

#[derive(Debug, Clone, Copy)]
pub struct FollowerLimits {
    pub per_user: usize,
    pub all: usize,
    /// The time between two signs of life on a stream without events.
    pub heartbeat: Duration,
    /// How long a stream waits for a client that reads nothing.
    pub patience: Duration,
    /// After this time the client has to follow again, with a token that is valid then.
    pub lifetime: Duration,
}

impl Default for FollowerLimits {
    fn default() -> FollowerLimits {
        FollowerLimits {
            per_user: PER_USER_MAX,
            all: ALL_MAX,
            heartbeat: Duration::from_secs(15),
            patience: Duration::from_secs(10),
            lifetime: Duration::from_secs(15 * 60),
        }
    }
}

pub struct Followers {
    pub limits: FollowerLimits,
    /// The open streams of each user, by object id.
    open: Mutex<BTreeMap<Box<str>, usize>>,
}

/// The limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooMany {
    OfUser(usize),
    OfAll(usize),
}

/// One open stream.
pub struct Follower {
    followers: Arc<Followers>,
    user: Box<str>,
}

impl Followers {
    pub fn new(limits: FollowerLimits) -> Arc<Followers> {
        Arc::new(Followers { limits, open: Mutex::default() })
    }

    pub fn admit(self: &Arc<Self>, user: &str) -> Result<Follower, TooMany> {
        let mut open = self.lock();
        if open.get(user).is_some_and(|own| *own >= self.limits.per_user) {
            return Err(TooMany::OfUser(self.limits.per_user));
        }
        if open.values().sum::<usize>() >= self.limits.all {
            return Err(TooMany::OfAll(self.limits.all));
        }
        *open.entry(user.into()).or_default() += 1;
        Ok(Follower { followers: Arc::clone(self), user: user.into() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, usize>> {
        // Nothing in here panics halfway.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut open = self.followers.lock();
        if let Some(own) = open.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_and_all_together_have_a_limit() {
        let limits = FollowerLimits { per_user: 2, all: 3, ..FollowerLimits::default() };
        let followers = Followers::new(limits);
        let own: Vec<_> = (0..2).map(|_| followers.admit("a").ok()).collect();
        assert_eq!(followers.admit("a").err(), Some(TooMany::OfUser(2)));
        let other = followers.admit("b").ok();
        assert!(other.is_some());
        assert_eq!(followers.admit("b").err(), Some(TooMany::OfAll(3)));
        drop(own);
        assert!(followers.admit("b").is_ok());
        drop(other);
        assert!(followers.lock().is_empty(), "closed streams leave nothing behind");
    }
}
