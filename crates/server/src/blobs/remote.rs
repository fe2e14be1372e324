//! Bytes that are kept elsewhere: in S3, Azure's blob storage or Google's, as objects with the names that files would have.
//!
//! Nothing here is async to its callers but reading: they are on threads that may wait.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use futures_util::TryStreamExt as _;
use muster_core::ids::WorkspaceId;
use muster_core::model::BlobId;
use muster_trees::MANIFEST_BYTES_MAX;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path as Name;
use object_store::{
    BackoffConfig, Error, ObjectStore, ObjectStoreExt as _, ObjectStoreScheme, RetryConfig,
    WriteMultipart,
};
use tokio::runtime::Handle;

use super::gate::Key;
use super::location::{self, OpenError};
use super::{BlobError, Content};

/// Sent in one request; what is larger goes in parts of this size.
const PART_BYTES: usize = 8 << 20;
/// Parts of one file that are on their way at once.
const PARTS_AT_ONCE: usize = 4;
/// Asked for at once when a file is read from its beginning to its end.
const AHEAD_BYTES: u64 = 4 << 20;
/// Lists of files that are kept in memory: whoever asks for a file of one asks for the next soon.
const TEXTS_MAX: usize = 8;
/// Whoever waits for an answer of ours does not wait for minutes.
const RETRY_TIME: Duration = Duration::from_secs(20);

pub struct Remote {
    store: Arc<dyn ObjectStore>,
    /// What all names begin with; empty, or with a slash at its end.
    prefix: String,
    texts: Mutex<VecDeque<(Key, Arc<Vec<u8>>)>>,
    opened_at: SystemTime,
}

impl Remote {
    pub fn open(root: &Path, elsewhere: Option<&str>) -> Result<Option<Remote>, OpenError> {
        let remote = elsewhere.map(connect).transpose()?;
        location::claim(root, elsewhere)?;
        Ok(remote)
    }

    fn name(&self, workspace: WorkspaceId, digest: &BlobId) -> Name {
        let digest = digest.to_string();
        Name::from(format!("{}{workspace}/{}/{digest}", self.prefix, &digest[..2]))
    }

    pub fn size(&self, workspace: WorkspaceId, digest: &BlobId) -> Result<Option<u64>, BlobError> {
        let name = self.name(workspace, digest);
        found(wait(self.store.head(&name))).map(|meta| meta.map(|meta| meta.size))
    }

    pub fn content(
        &self,
        workspace: WorkspaceId,
        digest: &BlobId,
    ) -> Result<Option<Content>, BlobError> {
        let Some(bytes) = self.size(workspace, digest)? else { return Ok(None) };
        let (store, name) = (self.store.clone(), self.name(workspace, digest));
        let object = Object { store, name, bytes, ahead: Bytes::new(), ahead_at: 0 };
        Ok(Some(Content::of_object(object, bytes)))
    }

    /// All of a file that is a list of files.
    pub fn text(
        &self,
        workspace: WorkspaceId,
        digest: &BlobId,
    ) -> Result<Option<Vec<u8>>, BlobError> {
        let key = (workspace, *digest);
        let kept = |texts: &VecDeque<(Key, Arc<Vec<u8>>)>| {
            texts.iter().find(|(other, _)| *other == key).map(|(_, text)| text.clone())
        };
        if let Some(text) = kept(&self.texts()) {
            return Ok(Some(text.to_vec()));
        }
        let Some(bytes) = self.size(workspace, digest)? else { return Ok(None) };
        let name = self.name(workspace, digest);
        let wanted = 0..bytes.min(MANIFEST_BYTES_MAX as u64 + 1);
        let text = match bytes {
            0 => Some(Bytes::new()),
            _ => found(wait(self.store.get_range(&name, wanted)))?,
        };
        let Some(text) = text else { return Ok(None) };
        let mut texts = self.texts();
        texts.truncate(TEXTS_MAX - 1);
        texts.push_front((key, Arc::new(text.to_vec())));
        Ok(Some(text.to_vec()))
    }

    fn texts(&self) -> std::sync::MutexGuard<'_, VecDeque<(Key, Arc<Vec<u8>>)>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the other side has said that it keeps all of it. What it has under this name is the same.
    pub fn put(
        &self,
        workspace: WorkspaceId,
        digest: &BlobId,
        file: &mut File,
        bytes: u64,
    ) -> Result<(), BlobError> {
        if self.size(workspace, digest)? == Some(bytes) {
            return Ok(());
        }
        let name = self.name(workspace, digest);
        file.rewind().map_err(BlobError::Io)?;
        if bytes <= PART_BYTES as u64 {
            let mut all = Vec::with_capacity(usize::try_from(bytes).unwrap_or(PART_BYTES));
            file.read_to_end(&mut all).map_err(BlobError::Io)?;
            return wait(self.store.put(&name, all.into())).map(drop).map_err(failed);
        }
        wait(self.put_in_parts(&name, file))
    }

    async fn put_in_parts(&self, name: &Name, file: &mut File) -> Result<(), BlobError> {
        let upload = self.store.put_multipart(name).await.map_err(failed)?;
        let mut parts = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        let sent = loop {
            if let Err(error) = parts.wait_for_capacity(PARTS_AT_ONCE).await {
                break Err(failed(error));
            }
            let mut piece = Vec::with_capacity(PART_BYTES);
            // On a thread that may wait, so the disk may be waited for here.
            match file.take(PART_BYTES as u64).read_to_end(&mut piece) {
                Ok(0) => break Ok(()),
                Ok(_) => parts.put(piece.into()),
                Err(error) => break Err(BlobError::Io(error)),
            }
        };
        match sent {
            Ok(()) => parts.finish().await.map(drop).map_err(failed),
            Err(error) => {
                // What nobody puts together costs somebody money.
                let _ = parts.abort().await;
                Err(error)
            }
        }
    }

    /// How many bytes went; `None` if it is too young, or did not go.
    pub fn remove_old(
        &self,
        (workspace, digest): &Key,
        before: SystemTime,
        is_rehearsal: bool,
    ) -> Option<u64> {
        let name = self.name(*workspace, digest);
        let meta = match found(wait(self.store.head(&name))) {
            Ok(Some(meta)) => meta,
            Ok(None) => return Some(0),
            Err(_) => return None,
        };
        // Who asked for what before we started is not known, so all of it counts as asked for then.
        let is_old = SystemTime::from(meta.last_modified) < before && self.opened_at < before;
        let is_gone = is_old && (is_rehearsal || wait(self.store.delete(&name)).is_ok());
        is_gone.then_some(meta.size)
    }

    /// How many bytes the files of a workspace have.
    pub fn measure(&self, workspace: WorkspaceId) -> Result<u64, BlobError> {
        let prefix = Name::from(format!("{}{workspace}", self.prefix));
        let mut objects = self.store.list(Some(&prefix));
        let mut bytes = 0;
        while let Some(meta) = wait(objects.try_next()).map_err(failed)? {
            bytes += meta.size;
        }
        Ok(bytes)
    }

    /// Every file, in no order.
    pub fn each(
        &self,
        mut look: impl FnMut(WorkspaceId, BlobId) -> Result<(), BlobError>,
    ) -> Result<(), BlobError> {
        let prefix = (!self.prefix.is_empty()).then(|| Name::from(self.prefix.as_str()));
        let mut objects = self.store.list(prefix.as_ref());
        while let Some(meta) = wait(objects.try_next()).map_err(failed)? {
            let name = meta.location.as_ref();
            let Some(rest) = name.strip_prefix(&self.prefix) else { continue };
            let words: Vec<&str> = rest.split('/').collect();
            // What is not ours is left alone.
            let &[workspace, _, digest] = &words[..] else { continue };
            if let (Ok(workspace), Ok(digest)) = (workspace.parse(), digest.parse()) {
                look(workspace, digest)?;
            }
        }
        Ok(())
    }
}

/// A file elsewhere that is read from one end to the other.
pub struct Object {
    store: Arc<dyn ObjectStore>,
    name: Name,
    bytes: u64,
    ahead: Bytes,
    ahead_at: u64,
}

impl Object {
    pub async fn read(&mut self, at: u64, limit: usize) -> io::Result<Bytes> {
        let is_there = at >= self.ahead_at && at < self.ahead_at + self.ahead.len() as u64;
        if !is_there {
            let to = self.bytes.min(at + AHEAD_BYTES.max(limit as u64));
            let read = self.store.get_range(&self.name, at..to).await;
            (self.ahead, self.ahead_at) = (read.map_err(io::Error::other)?, at);
        }
        let from = usize::try_from(at - self.ahead_at).map_err(io::Error::other)?;
        let to = self.ahead.len().min(from + limit);
        Ok(self.ahead.slice(from..to))
    }
}

fn connect(address: &str) -> Result<Remote, OpenError> {
    let bad = |why: String| OpenError::Address { address: address.to_owned(), why };
    let url = url::Url::parse(address).map_err(|why| bad(why.to_string()))?;
    let (scheme, prefix) = ObjectStoreScheme::parse(&url).map_err(|why| bad(why.to_string()))?;
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 4,
        retry_timeout: RETRY_TIME,
    };
    let store: Result<Arc<dyn ObjectStore>, Error> = match scheme {
        ObjectStoreScheme::AmazonS3 => AmazonS3Builder::from_env()
            .with_url(address)
            .with_retry(retry)
            .build()
            .map(|store| Arc::new(store) as _),
        ObjectStoreScheme::MicrosoftAzure => MicrosoftAzureBuilder::from_env()
            .with_url(address)
            .with_retry(retry)
            .build()
            .map(|store| Arc::new(store) as _),
        ObjectStoreScheme::GoogleCloudStorage => GoogleCloudStorageBuilder::from_env()
            .with_url(address)
            .with_retry(retry)
            .build()
            .map(|store| Arc::new(store) as _),
        _ => return Err(bad("it is none of s3://, az:// and gs://".to_owned())),
    };
    let prefix = match prefix.as_ref() {
        "" => String::new(),
        prefix => format!("{prefix}/"),
    };
    let store = store.map_err(|why| bad(why.to_string()))?;
    Ok(Remote { store, prefix, texts: Mutex::default(), opened_at: SystemTime::now() })
}

/// On a thread of the runtime's that may wait.
fn wait<T>(asked: impl Future<Output = T>) -> T {
    Handle::current().block_on(asked)
}

fn failed(error: Error) -> BlobError {
    BlobError::Io(io::Error::other(error))
}

fn found<T>(answer: Result<T, Error>) -> Result<Option<T>, BlobError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}
