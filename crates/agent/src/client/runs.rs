//! The call that returns facts about an attempt, for the programs in it.

use muster_core::agent::RunFacts;
use muster_core::ids::Epoch;

use super::{CALL_TIMEOUT, CallError, Client, accepted, parse};

impl Client {
    pub(crate) async fn run_facts(&self, epoch: Epoch) -> Result<RunFacts, CallError> {
        let url = format!("{}/runs/{epoch}", self.base);
        parse(accepted(self.http.get(url).timeout(CALL_TIMEOUT).send().await?)?).await
    }
}
