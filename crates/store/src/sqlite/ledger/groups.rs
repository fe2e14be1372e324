//! Finds the group of a line, once per job, principal and set of tags, so that a line itself costs only a look-up.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;
use serde::Deserialize;

use crate::StoreError;
use crate::sqlite::doc;
use crate::sqlite::fault::Doing;

/// The number of a group, in the order in which groups are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group(pub(super) usize);

pub(super) struct Groups<'a> {
    connection: &'a Connection,
    path: &'a Path,
    numbers: BTreeMap<Box<str>, Group>,
    principals: BTreeMap<u64, Group>,
    /// Jobs without the tag are stored as such.
    jobs: BTreeMap<u64, Option<Group>>,
    /// Sweeps submit the same specification many times.
    specs: BTreeMap<u64, Option<Group>>,
    /// By the text of all tags; there are only as many as the clusters have had.
    tags: BTreeMap<Box<str>, Group>,
}

type Tags = BTreeMap<Box<str>, Box<str>>;

impl<'a> Groups<'a> {
    /// For time that served no principal, or without the tag.
    pub(super) const UNGROUPED: Group = Group(0);

    pub(super) fn new(connection: &'a Connection, path: &'a Path) -> Groups<'a> {
        Groups {
            connection,
            path,
            numbers: BTreeMap::new(),
            principals: BTreeMap::new(),
            jobs: BTreeMap::new(),
            specs: BTreeMap::new(),
            tags: BTreeMap::new(),
        }
    }

    pub(super) fn named(&mut self, name: &str) -> Group {
        if let Some(known) = self.numbers.get(name) {
            return *known;
        }
        let number = Group(self.numbers.len() + 1);
        self.numbers.insert(name.into(), number);
        number
    }

    pub(super) fn of_principal(&mut self, principal: u64) -> Result<Group, StoreError> {
        #[derive(Deserialize)]
        struct Named {
            name: Box<str>,
        }
        if let Some(known) = self.principals.get(&principal) {
            return Ok(*known);
        }
        let sql = "SELECT doc FROM principals WHERE id = ?1";
        let found: Option<Named> = doc::one(self.connection, self.path, sql, (principal,))?;
        let group = found.map_or(Self::UNGROUPED, |found| self.named(&found.name));
        self.principals.insert(principal, group);
        Ok(group)
    }

    pub(super) fn of_tag(
        &mut self,
        key: &str,
        job: Option<u64>,
        cluster_tags: Option<&str>,
    ) -> Result<Group, StoreError> {
        if let Some(job) = job
            && let Some(group) = self.of_job(key, job)?
        {
            return Ok(group);
        }
        let Some(text) = cluster_tags else { return Ok(Self::UNGROUPED) };
        if let Some(known) = self.tags.get(text) {
            return Ok(*known);
        }
        let tags: Tags = serde_json::from_str(text).map_err(|why| doc::damaged(self.path, &why))?;
        let group = tags.get(key).map_or(Self::UNGROUPED, |value| self.named(value));
        self.tags.insert(text.into(), group);
        Ok(group)
    }

    fn of_job(&mut self, key: &str, job: u64) -> Result<Option<Group>, StoreError> {
        if let Some(known) = self.jobs.get(&job) {
            return Ok(*known);
        }
        // The job's current tags, those that it was submitted with, or those that it had when it was deleted.
        let sql =
            "SELECT s.number, j.metadata ->> '$.tags' FROM jobs j JOIN specs s ON s.hash = j.spec
                   WHERE j.id = ?1 UNION ALL SELECT NULL, tags FROM gone_job_tags WHERE job = ?1";
        let (mut spec, mut own): (Option<u64>, Option<Box<str>>) = (None, None);
        doc::each(self.connection, self.path, sql, (job,), |row| {
            spec = row.get(0).doing("reading the ledger", self.path)?;
            own = row.get(1).doing("reading the ledger", self.path)?;
            Ok(())
        })?;
        let group = match (own, spec) {
            (Some(tags), _) => {
                let tags: Tags =
                    serde_json::from_str(&tags).map_err(|why| doc::damaged(self.path, &why))?;
                tags.get(key).map(|value| self.named(value))
            }
            (None, Some(spec)) => self.of_spec(key, spec)?,
            (None, None) => None,
        };
        self.jobs.insert(job, group);
        Ok(group)
    }

    fn of_spec(&mut self, key: &str, spec: u64) -> Result<Option<Group>, StoreError> {
        #[derive(Deserialize)]
        struct Tagged {
            tags: Tags,
        }
        if let Some(known) = self.specs.get(&spec) {
            return Ok(*known);
        }
        let sql = "SELECT doc FROM specs WHERE number = ?1";
        let found: Option<Tagged> = doc::one(self.connection, self.path, sql, (spec,))?;
        let value = found.and_then(|mut found| found.tags.remove(key));
        let group = value.map(|value| self.named(&value));
        self.specs.insert(spec, group);
        Ok(group)
    }

    /// Every group and its name, sorted by name.
    pub(super) fn into_sorted_names(self) -> impl Iterator<Item = (Group, Option<Box<str>>)> {
        let named = self.numbers.into_iter().map(|(name, group)| (group, Some(name)));
        std::iter::once((Self::UNGROUPED, None)).chain(named)
    }
}
