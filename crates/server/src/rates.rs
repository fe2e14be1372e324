//! Limits how many requests per second one user may send, and one workspace may receive, with token buckets that fill
//! at that rate. A caller that finds its bucket empty learns when to try again. Requests for files have their own
//! buckets, because a client that uploads a folder sends thousands of small ones.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_core::ids::WorkspaceId;
use muster_core::model::WorkspaceKey;

/// A bucket holds the requests of this many seconds, so that a caller may send a burst after a pause.
const BURST_S: u32 = 10;
/// The minimum number of buckets at which full ones, which need not be kept, are removed. This happens when there are
/// twice as many as remained the last time.
const KEPT_MIN: usize = 1_024;

/// Requests per second; `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimits {
    pub per_user: Option<u32>,
    pub per_workspace: Option<u32>,
    /// For its blobs, files and logs.
    pub files_per_workspace: Option<u32>,
}

/// The limit that was exceeded, and when there is room for the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFast {
    pub per_second: u32,
    pub wait: Duration,
}

impl TooFast {
    pub fn wait_s(&self) -> u64 {
        (self.wait.as_secs_f64().ceil() as u64).max(1)
    }

    /// The message for the caller, with the limit and the setting that raises it.
    pub fn words(&self, lane: &str, setting: &str) -> String {
        format!(
            "more than {} requests per second, the most that {lane}; send fewer, and try again in {} s, or have the \
             operator raise {setting}",
            self.per_second,
            self.wait_s()
        )
    }

    /// The same for the files of a workspace.
    pub fn files_words(&self) -> String {
        let lane = "one workspace may get for its blobs, files and logs";
        self.words(lane, "workspace-file-requests-per-second")
    }
}

pub struct Rates {
    users: Buckets<Box<str>>,
    workspaces: Buckets<WorkspaceKey>,
    files: Buckets<WorkspaceId>,
}

impl Rates {
    pub fn new(limits: RateLimits) -> Rates {
        Rates {
            users: Buckets::new(limits.per_user),
            workspaces: Buckets::new(limits.per_workspace),
            files: Buckets::new(limits.files_per_workspace),
        }
    }

    /// Counts a request of a user.
    pub fn of_user(&self, object_id: &str) -> Result<(), TooFast> {
        self.users.take(|| object_id.into(), Instant::now())
    }

    /// Counts a request for a workspace.
    pub fn of_workspace(&self, key: &WorkspaceKey) -> Result<(), TooFast> {
        self.workspaces.take(|| key.folded(), Instant::now())
    }

    /// Counts a request for the blobs, files or logs of a workspace.
    pub fn of_files(&self, workspace: WorkspaceId) -> Result<(), TooFast> {
        self.files.take(|| workspace, Instant::now())
    }
}

struct Buckets<K> {
    per_second: Option<u32>,
    inner: Mutex<Inner<K>>,
}

struct Inner<K> {
    buckets: BTreeMap<K, Bucket>,
    /// How many buckets there may be before full ones are removed.
    kept_max: usize,
}

struct Bucket {
    left: f64,
    at: Instant,
}

impl<K: Ord> Buckets<K> {
    fn new(per_second: Option<u32>) -> Buckets<K> {
        let inner = Inner { buckets: BTreeMap::new(), kept_max: KEPT_MIN };
        Buckets { per_second, inner: Mutex::new(inner) }
    }

    fn take(&self, key: impl FnOnce() -> K, now: Instant) -> Result<(), TooFast> {
        let Some(per_second) = self.per_second else { return Ok(()) };
        let (rate, most) = (f64::from(per_second), f64::from(per_second) * f64::from(BURST_S));
        let filled = |bucket: &Bucket| {
            let since = now.saturating_duration_since(bucket.at).as_secs_f64();
            (bucket.left + since * rate).min(most)
        };
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.buckets.len() >= inner.kept_max {
            inner.buckets.retain(|_, bucket| filled(bucket) < most);
            inner.kept_max = (inner.buckets.len() * 2).max(KEPT_MIN);
        }
        let bucket = inner.buckets.entry(key()).or_insert(Bucket { left: most, at: now });
        let left = filled(bucket);
        *bucket = Bucket { left, at: now };
        if left < 1.0 {
            let wait = Duration::from_secs_f64((1.0 - left) / rate);
            return Err(TooFast { per_second, wait });
        }
        bucket.left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_sends_too_much_learns_when_to_try_again() {
        let (buckets, now) = (Buckets::new(Some(2)), Instant::now());
        let take = |who: &'static str, after: u64| {
            buckets.take(|| who, now + Duration::from_millis(after))
        };
        for _ in 0..2 * BURST_S {
            assert_eq!(take("noisy", 0), Ok(()));
        }
        let refused = take("noisy", 0).unwrap_err();
        assert_eq!(refused, TooFast { per_second: 2, wait: Duration::from_millis(500) });
        assert_eq!(take("quiet", 0), Ok(()), "other callers are not affected");
        assert!(take("noisy", 400).is_err(), "a refused request costs nothing and gains nothing");
        assert_eq!(take("noisy", 501), Ok(()));
        assert!(take("noisy", 502).is_err());
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let buckets = Buckets::new(None);
        assert_eq!(buckets.take(|| "x", Instant::now()), Ok(()));
        assert!(buckets.inner.lock().unwrap().buckets.is_empty());
    }

    #[test]
    fn quiet_callers_are_forgotten() {
        let (buckets, now) = (Buckets::new(Some(1)), Instant::now());
        for number in 0..KEPT_MIN {
            buckets.take(|| number, now).unwrap();
        }
        let later = now + Duration::from_secs(5);
        buckets.take(|| KEPT_MIN, later).unwrap();
        assert_eq!(buckets.inner.lock().unwrap().buckets.len(), 1);
    }
}
