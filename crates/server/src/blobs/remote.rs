//! Bytes in an object store (S3, Azure Blob Storage or Google Cloud Storage), as objects with the names that local
//! files would have.
//!
//! Apart from reading, these functions block: their callers run on threads that may wait.

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

/// The size of one request; larger files are sent in parts of this size.
const PART_BYTES: usize = 8 << 20;
/// How many parts of one file are sent at the same time.
const PARTS_AT_ONCE: usize = 4;
/// How many bytes are requested at once when a file is read sequentially.
const AHEAD_BYTES: u64 = 4 << 20;
/// How many file lists are cached. A client that requests one file of a list usually requests the next soon.
const TEXTS_MAX: usize = 8;
/// Limits retries, so that clients of this server do not wait for minutes.
const RETRY_TIME: Duration = Duration::from_secs(20);

pub struct Remote {
    store: Arc<dyn ObjectStore>,
    /// The common prefix of all names: empty, or ending with a slash.
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

    /// The whole text of a file list.
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

    /// Returns when the object store has confirmed the whole file. An existing object of this name has the same bytes.
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
            // This thread may block, so the disk can be read here.
            match file.take(PART_BYTES as u64).read_to_end(&mut piece) {
                Ok(0) => break Ok(()),
                Ok(_) => parts.put(piece.into()),
                Err(error) => break Err(BlobError::Io(error)),
            }
        };
        match sent {
            Ok(()) => parts.finish().await.map(drop).map_err(failed),
            Err(error) => {
                // Parts that are never assembled would still be billed.
                let _ = parts.abort().await;
                Err(error)
            }
        }
    }

    /// Returns how many bytes were freed; `None` if the file is too young or could not be deleted.
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
        // Requests from before the start are unknown, so every file counts as requested at that time.
        let is_old = SystemTime::from(meta.last_modified) < before && self.opened_at < before;
        let is_gone = is_old && (is_rehearsal || wait(self.store.delete(&name)).is_ok());
        is_gone.then_some(meta.size)
    }

    /// The number of bytes that the files of a workspace take.
    pub fn measure(&self, workspace: WorkspaceId) -> Result<u64, BlobError> {
        let prefix = Name::from(format!("{}{workspace}", self.prefix));
        let mut objects = self.store.list(Some(&prefix));
        let mut bytes = 0;
        while let Some(meta) = wait(objects.try_next()).map_err(failed)? {
            bytes += meta.size;
        }
        Ok(bytes)
    }

    /// Calls `look` for every file, in no particular order.
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
            // Objects with other names do not belong to Muster.
            let &[workspace, _, digest] = &words[..] else { continue };
            if let (Ok(workspace), Ok(digest)) = (workspace.parse(), digest.parse()) {
                look(workspace, digest)?;
            }
        }
        Ok(())
    }
}

/// An object that is read sequentially.
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
        _ => return Err(bad("it does not start with s3://, az:// or gs://".to_owned())),
    };
    let prefix = match prefix.as_ref() {
        "" => String::new(),
        prefix => format!("{prefix}/"),
    };
    let store = store.map_err(|why| bad(why.to_string()))?;
    Ok(Remote { store, prefix, texts: Mutex::default(), opened_at: SystemTime::now() })
}

/// Waits for a future. The calling thread belongs to the runtime and may block.
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
