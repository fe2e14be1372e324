//! What those who follow the same workspace share: its newest events, which are read from the log once for all of them.
//!
//! There is no task that reads. The first follower that is woken by a commit reads on, and the others find the events
//! here. A follower that has fallen further behind reads the log by itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use axum::body::Bytes;
use muster_core::Change;
use muster_core::ids::WorkspaceId;
use muster_core::time::Wall;
use muster_store::{Reader, Revision, StoreError};
use muster_wire::event::Filter;

use crate::readers::Readers;

/// How many events of a workspace are kept in memory, of some 200 bytes each.
const KEPT: usize = 2_048;
/// How many entries of the log are read at once.
pub const PAGE: usize = 512;

/// The feeds of all workspaces that are followed.
#[derive(Default)]
pub struct Feeds {
    open: Mutex<BTreeMap<WorkspaceId, Weak<Feed>>>,
}

/// The newest events of one workspace.
pub struct Feed {
    tail: tokio::sync::Mutex<Tail>,
}

struct Tail {
    filter: Filter,
    /// Oldest first.
    events: VecDeque<Event>,
    /// All events after this revision are in `events`, up to `last`.
    floor: Revision,
    last: Revision,
    /// The number of the newest commit whose entries are certainly included.
    commit: u64,
    /// How often the log was read.
    #[cfg(test)]
    reads: usize,
}

/// An event as it is sent.
#[derive(Debug, Clone)]
pub struct Event {
    pub revision: Revision,
    pub text: Bytes,
}

/// Some of the events after a revision, oldest first.
pub struct Page {
    pub events: Vec<Event>,
    /// The log was read up to here.
    pub last: Revision,
    /// There may be more.
    pub is_full: bool,
}

pub enum Next {
    Page(Page),
    /// The follower has to read the log by itself, with this filter.
    Behind(Filter),
}

impl Feeds {
    /// The feed of a workspace. If there is none yet, it begins after this revision; the filter must be from the same
    /// time.
    pub fn join(&self, workspace: WorkspaceId, last: Revision, filter: Filter) -> Arc<Feed> {
        // Nothing in here panics halfway.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(feed) = open.get(&workspace).and_then(Weak::upgrade) {
            return feed;
        }
        open.retain(|_, feed| feed.strong_count() > 0);
        let feed = Arc::new(Feed::new(last, filter));
        open.insert(workspace, Arc::downgrade(&feed));
        feed
    }
}

impl Feed {
    fn new(last: Revision, filter: Filter) -> Feed {
        let tail = Tail {
            filter,
            events: VecDeque::new(),
            floor: last,
            last,
            commit: 0,
            #[cfg(test)]
            reads: 0,
        };
        Feed { tail: tokio::sync::Mutex::new(tail) }
    }

    /// The events after a revision, including those of this commit.
    pub async fn after(
        &self,
        readers: &Readers<dyn Reader>,
        after: Revision,
        commit: u64,
    ) -> Result<Next, StoreError> {
        let mut tail = self.tail.lock().await;
        if after < tail.floor {
            return Ok(Next::Behind(tail.filter.clone()));
        }
        let is_full = tail.commit < commit && tail.read_on(readers, commit).await?;
        if after < tail.floor {
            return Ok(Next::Behind(tail.filter.clone()));
        }
        let known = tail.events.partition_point(|event| event.revision <= after);
        let events = tail.events.range(known..).cloned().collect();
        Ok(Next::Page(Page { events, last: tail.last.max(after), is_full }))
    }

    #[cfg(test)]
    pub async fn reads(&self) -> usize {
        self.tail.lock().await.reads
    }
}

impl Tail {
    /// Reads the next page of the log. Returns whether there may be more.
    async fn read_on(
        &mut self,
        readers: &Readers<dyn Reader>,
        commit: u64,
    ) -> Result<bool, StoreError> {
        let (last, filter) = (self.last, self.filter.clone());
        let (page, filter) = readers.read(move |reader| read_page(reader, last, filter)).await?;
        #[cfg(test)]
        {
            self.reads += 1;
        }
        self.filter = filter;
        let is_full = page.is_full;
        self.add(page);
        if !is_full {
            self.commit = commit;
        }
        Ok(is_full)
    }

    fn add(&mut self, page: Page) {
        self.last = page.last;
        self.events.extend(page.events);
        while self.events.len() > KEPT {
            self.floor = self.events.pop_front().map_or(self.floor, |event| event.revision);
        }
    }
}

/// Reads the next page of the log for one workspace.
pub fn read_page(
    reader: &mut dyn Reader,
    after: Revision,
    mut filter: Filter,
) -> Result<(Page, Filter), StoreError> {
    let entries = reader.events(after, PAGE)?;
    let mut events = Vec::new();
    for entry in &entries {
        let Ok(change) = serde_json::from_str::<Change>(&entry.change) else {
            tracing::error!(revision = entry.revision.0, "cannot read an entry of the event log");
            continue;
        };
        let (revision, wall) = (entry.revision, Wall(entry.wall_us));
        let found = filter.document(revision.0, wall, &change, |id| reader.job_by_id(id))?;
        events.extend(found.map(|document| {
            let (kind, data) = (document.kind.as_str(), serde_json::to_string(&document));
            let data = data.expect("documents are plain data");
            let text = format!("event: {kind}\nid: {}\ndata: {data}\n\n", revision.0);
            Event { revision, text: text.into() }
        }));
    }
    let last = entries.last().map_or(after, |entry| entry.revision);
    Ok((Page { events, last, is_full: entries.len() == PAGE }, filter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_follower_behind_the_kept_events_reads_by_itself() {
        let filter = Filter::new(WorkspaceId(1), [].into_iter());
        let feed = Feed::new(Revision(10), filter);
        let event = |revision| Event { revision: Revision(revision), text: Bytes::new() };
        let events: Vec<Event> = (11..=10 + 2 * KEPT as u64).map(event).collect();
        let newest = events.last().map_or(Revision(0), |event| event.revision);
        let page = Page { events, last: newest, is_full: false };
        feed.tail.lock().await.add(page);
        let readers = Readers::new("/nowhere".into(), |_| unreachable!("nothing is read"));
        let next = async |after| feed.after(&readers, Revision(after), 0).await.expect("no read");
        let floor = newest.0 - KEPT as u64;
        assert!(matches!(next(floor - 1).await, Next::Behind(_)));
        for (after, expected) in [(floor, KEPT), (newest.0 - 1, 1), (newest.0, 0)] {
            let Next::Page(page) = next(after).await else { panic!("{after} is behind") };
            assert_eq!((page.events.len(), page.last), (expected, newest));
        }
    }
}
