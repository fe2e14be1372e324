//! What every handler can reach.

use std::sync::Arc;

use muster_core::catalogue::Catalogue;

use crate::Workspaces;
use crate::guesses::Guesses;
use crate::live::Live;
use crate::logs::Logs;
use crate::readers::Readers;
use crate::refusals::Refusals;
use crate::tokens::{Audiences, Keyring};
use crate::writer::Handle;

pub struct App {
    /// `https://HOST:PORT`, from configuration: never from a request.
    pub base_url: String,
    pub location: Box<str>,
    pub workspaces: Workspaces,
    pub catalogue: Arc<Catalogue>,
    pub keyring: Arc<Keyring>,
    pub audiences: Audiences,
    pub guesses: Guesses,
    pub writer: Handle,
    pub readers: Readers,
    pub live: Arc<Live>,
    pub logs: Arc<Logs>,
    pub refusals: Refusals,
}
