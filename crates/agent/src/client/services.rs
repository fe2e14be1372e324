//! The calls about services of a job: how they are, and the connections that people want to them.

use std::time::Duration;

use muster_core::agent::{SERVICE_PROTOCOL, ServiceCalls, ServicesReport};
use muster_core::ids::Epoch;
use reqwest::header::{CONNECTION, UPGRADE};
use reqwest::{StatusCode, Upgraded};

use super::{CALL_TIMEOUT, CallError, Client, accepted, parse};

/// How long the server may hold the question who wants to be connected.
const HELD_MAX: Duration = Duration::from_secs(20);

impl Client {
    /// Says how the services are, and waits a while for somebody who wants one of them.
    pub(crate) async fn services(
        &self,
        epoch: Epoch,
        report: &ServicesReport,
    ) -> Result<ServiceCalls, CallError> {
        let url = format!("{}/services/{epoch}", self.base);
        let call = self.http.post(url).timeout(HELD_MAX + CALL_TIMEOUT).json(report);
        parse(accepted(call.send().await?)?).await
    }

    /// A new connection that whoever made this call speaks on.
    pub(crate) async fn take_service_call(
        &self,
        epoch: Epoch,
        call: u64,
    ) -> Result<Upgraded, CallError> {
        let url = format!("{}/services/{epoch}/{call}", self.base);
        let request = self.http.get(url);
        let request = request.header(CONNECTION, "upgrade").header(UPGRADE, SERVICE_PROTOCOL);
        let response = tokio::time::timeout(CALL_TIMEOUT, request.send()).await;
        let response = response.map_err(|_| CallError::Superseded)??;
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => Ok(response.upgrade().await?),
            _ => Err(accepted(response).err().unwrap_or(CallError::Superseded)),
        }
    }

    /// Nobody can be connected, and why.
    pub(crate) async fn refuse_service_call(
        &self,
        epoch: Epoch,
        call: u64,
        why: String,
    ) -> Result<(), CallError> {
        let url = format!("{}/services/{epoch}/{call}", self.base);
        let call = self.http.delete(url).timeout(CALL_TIMEOUT).body(why);
        accepted(call.send().await?).map(drop)
    }

    /// Where the server is, and so where a node leads to it.
    pub(crate) fn server_port(&self) -> Option<u16> {
        let rest = self.base.strip_prefix("https://")?;
        let authority = rest.split('/').next()?;
        authority.rsplit_once(':')?.1.parse().ok()
    }
}
