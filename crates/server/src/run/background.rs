//! Tasks that run for as long as the server does.

use tokio::task::JoinHandle;

#[derive(Debug, Default)]
pub struct Background {
    tasks: Vec<JoinHandle<()>>,
}

impl Background {
    pub fn start(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(tokio::spawn(task));
    }

    /// Stops all tasks, in the order in which they were started.
    pub fn end(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
