//! How long to wait before the next attempt of a call: twice as long each time, up to a limit.

use std::time::Duration;

#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { first, longest, next: first }
    }

    pub(crate) fn grow(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(self.longest);
        delay
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_the_limit_and_starts_again() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let delays: Vec<_> = (0..4).map(|_| backoff.grow().as_millis()).collect();
        assert_eq!(delays, [100, 200, 350, 350]);
        backoff.reset();
        assert_eq!(backoff.grow().as_millis(), 100);
    }
}
