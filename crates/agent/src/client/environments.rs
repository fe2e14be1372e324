//! The call about a job's Python environment.

use std::time::Duration;

use muster_core::agent::EnvironmentAnswer;
use muster_core::ids::Epoch;

use super::{CALL_TIMEOUT, CallError, Client, accepted, parse};

/// How long the server may hold the request.
const HELD_MAX: Duration = Duration::from_secs(20);

impl Client {
    /// Returns the state of this attempt's environment. The server waits a while for it to be ready.
    pub(crate) async fn environment(&self, epoch: Epoch) -> Result<EnvironmentAnswer, CallError> {
        let url = format!("{}/environments/{epoch}", self.base);
        let response = self.http.get(url).timeout(HELD_MAX + CALL_TIMEOUT).send().await?;
        parse(accepted(response)?).await
    }
}
