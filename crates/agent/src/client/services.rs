//! The calls about services of a job: their states, and the connections that people request.

use std::time::Duration;

use muster_core::agent::{SERVICE_PROTOCOL, ServiceCalls, ServicesReport};
use muster_core::ids::Epoch;
use reqwest::header::{CONNECTION, UPGRADE};
use reqwest::{StatusCode, Upgraded};

use super::{CALL_TIMEOUT, CallError, Client, accepted, parse};

/// How long the server may hold the request for new connections.
const HELD_MAX: Duration = Duration::from_secs(20);

impl Client {
    /// Reports the states of the services, and waits a while for a client that wants to connect to one of them.
    pub(crate) async fn services(
        &self,
        epoch: Epoch,
        report: &ServicesReport,
    ) -> Result<ServiceCalls, CallError> {
        let url = format!("{}/services/{epoch}", self.base);
        let call = self.http.post(url).timeout(HELD_MAX + CALL_TIMEOUT).json(report);
        parse(accepted(call.send().await?)?).await
    }

    /// Opens the connection over which this client communicates.
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

    /// Reports that the client cannot be connected, and why.
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

    /// The port of the server, which is also the port of the relay on the node.
    pub(crate) fn server_port(&self) -> Option<u16> {
        let rest = self.base.strip_prefix("https://")?;
        let authority = rest.split('/').next()?;
        authority.rsplit_once(':')?.1.parse().ok()
    }
}
