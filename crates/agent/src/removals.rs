//! Removes what ended attempts left on a node, in the background. The next attempt waits for it, so that it does not
//! start with a disk that is still full.

use tokio::sync::watch;

/// The number of removals in progress.
#[derive(Debug)]
pub(crate) struct Removals {
    under_way: watch::Sender<usize>,
}

impl Default for Removals {
    fn default() -> Removals {
        Removals { under_way: watch::Sender::new(0) }
    }
}

/// One removal. It is over when this is dropped, even if the removal panicked.
struct UnderWay(watch::Sender<usize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl Removals {
    /// Runs on a separate thread: millions of files take minutes, and the node continues to report meanwhile.
    pub(crate) fn start(&self, remove: impl FnOnce() + Send + 'static) {
        self.under_way.send_modify(|count| *count += 1);
        let under_way = UnderWay(self.under_way.clone());
        tokio::task::spawn_blocking(move || {
            let _under_way = under_way;
            remove();
        });
    }

    /// Resolves when nothing is being removed.
    pub(crate) async fn done(&self) {
        let mut under_way = self.under_way.subscribe();
        // This fails only without a sender, and we have one.
        let _ = under_way.wait_for(|count| *count == 0).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn they_are_done_when_the_last_one_is() {
        let removals = Removals::default();
        removals.done().await;
        let (finish, finished) = mpsc::channel::<()>();
        removals.start(move || finished.recv().unwrap());
        removals.start(|| {});
        let early = tokio::time::timeout(Duration::from_millis(50), removals.done()).await;
        assert!(early.is_err(), "one is still in progress");
        finish.send(()).unwrap();
        removals.done().await;
    }
}
