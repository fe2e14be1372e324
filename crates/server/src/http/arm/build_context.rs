//! An uploaded folder with a Dockerfile. Its files are read from the blob storage, up to the requested size.

use axum::body::to_bytes;
use muster_core::model::{DataLocation, Workspace};
use muster_core::storage::Span;
use muster_environments::dockerfile::{Files, TEXT_BYTES_MAX};
use muster_store::storage::{ContainerId, ListQuery};
use tokio::runtime::Handle;

use crate::app::App;
use crate::http::blob;

const TRY_AGAIN: &str = "its build context could not be read; try again";

pub struct BuildContext<'a> {
    app: &'a App,
    home: &'a Workspace,
    container: ContainerId,
    /// Without a trailing slash; empty for the whole container.
    folder: Box<str>,
}

impl BuildContext<'_> {
    pub fn open<'a>(
        app: &'a App,
        home: &'a Workspace,
        place: &DataLocation,
    ) -> Result<BuildContext<'a>, String> {
        let found = app.storage.readers.look_up(|reader| reader.container(&place.container));
        let found = found.map_err(|_| TRY_AGAIN.to_owned())?;
        let container = found.filter(|found| found.workspace == home.id);
        let container = container.ok_or("its build context no longer exists; create it again")?.id;
        Ok(BuildContext { app, home, container, folder: place.path.clone() })
    }

    /// The calling thread may block.
    pub fn dockerfile(&self, path: &str) -> Result<String, String> {
        let text = self.read(path, TEXT_BYTES_MAX)?.ok_or_else(|| {
            format!("there is no {path:?} in its build context; put it there, or give another path as dockerfile_path")
        })?;
        String::from_utf8(text).map_err(|_| {
            format!("{path:?} in its build context is not UTF-8 text; save it as such")
        })
    }

    fn name(&self, path: &str) -> String {
        match self.folder.is_empty() {
            true => path.to_owned(),
            false => format!("{}/{path}", self.folder),
        }
    }
}

impl Files for BuildContext<'_> {
    fn read(&self, path: &str, bytes_max: usize) -> Result<Option<Vec<u8>>, String> {
        let (name, failed) = (self.name(path), || TRY_AGAIN.to_owned());
        let storage = &self.app.storage;
        let found = storage.readers.look_up(|reader| reader.blob(self.container, &name));
        let Some(blob) = found.map_err(|_| failed())? else { return Ok(None) };
        if blob.bytes > bytes_max as u64 {
            return Err(format!(
                "{path:?} in its build context has {} bytes, but at most {bytes_max} are read; shorten it",
                blob.bytes
            ));
        }
        let found =
            storage.readers.look_up(|reader| reader.content(self.container, &name, Span::ALL));
        let Some(content) = found.map_err(|_| failed())? else { return Ok(None) };
        let body = blob::whole(self.app, self.home.id, content).into_body();
        let bytes = Handle::current().block_on(to_bytes(body, bytes_max));
        bytes.map(|bytes| Some(bytes.to_vec())).map_err(|_| failed())
    }

    fn has(&self, path: &str) -> Result<bool, String> {
        let name = self.name(path);
        let query =
            |prefix: &str| ListQuery { prefix: prefix.into(), limit: 1, ..ListQuery::default() };
        let found = self.app.storage.readers.look_up(|reader| {
            let is_file = reader.blob(self.container, &name)?.is_some();
            let below = query(&format!("{name}/"));
            Ok(is_file || !reader.list(self.container, &below)?.items.is_empty())
        });
        found.map_err(|_| TRY_AGAIN.to_owned())
    }
}
