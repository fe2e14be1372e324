//! What every handler can reach.

use std::sync::Arc;

use muster_core::catalogue::Catalogue;
use tokio::sync::watch;

use crate::Workspaces;
use crate::blobs::Blobs;
use crate::guesses::Guesses;
use crate::http::Offer;
use crate::live::Live;
use crate::logs::Logs;
use crate::readers::Readers;
use crate::refusals::Refusals;
use crate::tokens::{Audiences, Keyring};
use crate::writer::Handle;

pub struct App {
    /// `https://HOST:PORT`, from configuration: never from a request.
    pub base_url: String,
    /// The same for the second listener, where files are.
    pub files_url: String,
    /// True once the server is asked to end: nobody waits for news any more.
    pub stopping: watch::Receiver<bool>,
    pub location: Box<str>,
    pub workspaces: Workspaces,
    pub catalogue: Arc<Catalogue>,
    /// Whether this machine takes more nodes than it has room for.
    pub over_commit: bool,
    pub keyring: Arc<Keyring>,
    pub audiences: Audiences,
    pub guesses: Guesses,
    pub writer: Handle,
    pub readers: Readers,
    pub live: Arc<Live>,
    pub logs: Arc<Logs>,
    pub blobs: Arc<Blobs>,
    pub refusals: Refusals,
    pub offer: Offer,
}
