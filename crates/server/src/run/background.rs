//! Tasks that run for as long as the server does.

use tokio::task::JoinSet;

#[derive(Debug, Default)]
pub struct Background {
    tasks: JoinSet<()>,
}

impl Background {
    pub fn start(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Stops all tasks, and returns when none of them runs any more.
    pub async fn end(mut self) {
        self.tasks.shutdown().await;
    }
}
