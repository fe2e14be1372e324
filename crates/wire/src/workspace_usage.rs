//! How much of its limits a workspace has used, in the form of Azure's lists of usages.

use serde::{Deserialize, Serialize};

use crate::quota::{UsageName, wire_limit};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceUsage {
    /// `Bytes` or `Count`.
    pub unit: String,
    pub current_value: u64,
    /// -1 if there is no limit, or if the row is a part of another one.
    pub limit: i64,
    pub name: UsageName,
}

/// Everything that is limited per workspace, and the caller's own limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspaceFigures {
    pub stored_bytes: u64,
    /// `None` if there is no limit.
    pub stored_bytes_max: Option<u64>,
    pub blob_bytes: u64,
    pub uncommitted_bytes: u64,
    pub log_bytes: u64,
    pub queued_jobs: u32,
    pub queued_jobs_max: Option<u32>,
    /// The caller's waiting jobs in all workspaces.
    pub own_queued_jobs: u32,
    pub own_queued_jobs_max: Option<u32>,
}

impl WorkspaceFigures {
    pub fn rows(&self) -> Vec<WorkspaceUsage> {
        let known = [self.blob_bytes, self.uncommitted_bytes, self.log_bytes];
        let other = known.iter().fold(self.stored_bytes, |left, part| left.saturating_sub(*part));
        let bytes = |name, localized, value, limit| row("Bytes", name, localized, value, limit);
        let jobs = |name, localized, value: u32, limit: Option<u32>| {
            row("Count", name, localized, value.into(), limit.map(u64::from))
        };
        vec![
            bytes("StoredBytes", "Stored bytes", self.stored_bytes, self.stored_bytes_max),
            bytes(
                "BlobBytes",
                "of these, blobs (including the holes of sparse blobs)",
                self.blob_bytes,
                None,
            ),
            bytes(
                "UncommittedBlockBytes",
                "of these, uncommitted blocks of unfinished uploads",
                self.uncommitted_bytes,
                None,
            ),
            bytes("LogBytes", "of these, job logs", self.log_bytes, None),
            bytes(
                "OtherBytes",
                "of these, other job files, and files that will be deleted",
                other,
                None,
            ),
            jobs("QueuedJobs", "Waiting jobs", self.queued_jobs, self.queued_jobs_max),
            jobs(
                "OwnQueuedJobs",
                "Your waiting jobs in all workspaces",
                self.own_queued_jobs,
                self.own_queued_jobs_max,
            ),
        ]
    }
}

fn row(
    unit: &str,
    value: &str,
    localized: &str,
    current: u64,
    limit: Option<u64>,
) -> WorkspaceUsage {
    WorkspaceUsage {
        unit: unit.to_owned(),
        current_value: current,
        limit: wire_limit(limit),
        name: UsageName { value: value.to_owned(), localized_value: Some(localized.to_owned()) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_blob_nor_block_nor_log_is_the_rest() {
        let figures = WorkspaceFigures {
            stored_bytes: 100,
            stored_bytes_max: Some(1_000),
            blob_bytes: 60,
            uncommitted_bytes: 5,
            log_bytes: 10,
            queued_jobs: 3,
            queued_jobs_max: None,
            own_queued_jobs: 2,
            own_queued_jobs_max: Some(7),
        };
        let shown = |figures: WorkspaceFigures| -> Vec<_> {
            let rows = figures.rows().into_iter();
            rows.map(|row| (row.name.value, row.current_value, row.limit)).collect()
        };
        let expected = [
            ("StoredBytes", 100, 1_000),
            ("BlobBytes", 60, -1),
            ("UncommittedBlockBytes", 5, -1),
            ("LogBytes", 10, -1),
            ("OtherBytes", 25, -1),
            ("QueuedJobs", 3, -1),
            ("OwnQueuedJobs", 2, 7),
        ];
        let expected = expected.map(|(name, used, limit)| (name.to_owned(), used, limit));
        assert_eq!(shown(figures), expected);
        // Holes of blobs take no space, so the length of the blobs may exceed the stored bytes.
        let sparse = WorkspaceFigures { blob_bytes: 1_000, ..figures };
        assert_eq!(shown(sparse)[4], ("OtherBytes".to_owned(), 0, -1));
    }
}
