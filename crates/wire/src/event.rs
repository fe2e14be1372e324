//! What happens in a workspace, as a stream of small documents (server-sent events). A document names what changed and
//! its status; the resource itself has the details.

use std::collections::BTreeMap;

use muster_core::Change;
use muster_core::ids::{ClusterId, JobId, WorkspaceId};
use muster_core::model::{Cluster, ClusterPhase, ComputeKind, Job};
use muster_core::time::Wall;
use serde::{Deserialize, Serialize};

use crate::compute::{node_state, state_of};
use crate::job::JobStatus;
use crate::timestamp;

/// The media type of the stream.
pub const MEDIA_TYPE: &str = "text/event-stream";
/// The name of the last event of a stream that the server ends.
pub const END: &str = "end";
const DELETED: &str = "Deleted";

/// What an event is about, which is also the name of the event. Clients ignore kinds that they do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    Workspace,
    Compute,
    Node,
    Job,
    #[serde(other)]
    Unknown,
}

impl EventKind {
    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::Workspace => "workspace",
            EventKind::Compute => "compute",
            EventKind::Node => "node",
            EventKind::Job => "job",
            EventKind::Unknown => "unknown",
        }
    }
}

/// The data of one event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventDocument {
    /// The number of the change, which is also the id of the event.
    pub revision: u64,
    pub time: String,
    pub kind: EventKind,
    pub name: String,
    /// The compute of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<String>,
    /// As the resource shows it, or `Deleted`.
    pub status: String,
}

/// The data of the last event, if the server ends the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndDocument {
    pub reason: EndReason,
    pub message: String,
    /// Where the log begins, if the client has to start from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EndReason {
    /// The client should follow again from its last event.
    Resume,
    /// The client reads more slowly than events happen, and should follow again from its last event.
    Slow,
    /// The next events were deleted: the client should read the current state, and follow from the floor or later.
    Pruned,
    /// The caller may no longer read the workspace, or the workspace was deleted.
    Forbidden,
    #[serde(other)]
    Unknown,
}

/// Finds the events of one workspace in the event log of all of them.
#[derive(Debug, Clone)]
pub struct Filter {
    workspace: WorkspaceId,
    /// Nodes name only the id of their cluster.
    clusters: BTreeMap<ClusterId, String>,
}

impl Filter {
    /// `clusters` are those that exist now. The log contains those that are created or deleted later.
    pub fn new<'a>(workspace: WorkspaceId, clusters: impl Iterator<Item = &'a Cluster>) -> Filter {
        let mut filter = Filter { workspace, clusters: BTreeMap::new() };
        clusters.for_each(|cluster| filter.note(cluster));
        filter
    }

    /// The document about an entry of the log; `None` if it is about another workspace, or of no interest to clients.
    /// `job` finds the current row of a job.
    pub fn document<E>(
        &mut self,
        revision: u64,
        wall: Wall,
        change: &Change,
        job: impl FnOnce(JobId) -> Result<Option<Job>, E>,
    ) -> Result<Option<EventDocument>, E> {
        let document = |kind, name: &str, status: &str| {
            let (time, name, status) =
                (timestamp::format(wall), name.to_owned(), status.to_owned());
            Some(EventDocument { revision, time, kind, name, compute: None, status })
        };
        let about_job =
            |job: &Job| document(EventKind::Job, &job.name, JobStatus::of(&job.state).as_str());
        Ok(match change {
            Change::WorkspaceChanged(workspace) if workspace.id == self.workspace => {
                document(EventKind::Workspace, &workspace.key.name, "Succeeded")
            }
            Change::WorkspaceGone(id) if *id == self.workspace => {
                document(EventKind::Workspace, "", DELETED)
            }
            Change::ClusterChanged { cluster, .. } if cluster.workspace == self.workspace => {
                self.note(cluster);
                let status = match cluster.phase {
                    ClusterPhase::Gone => DELETED,
                    phase => state_of(phase).as_str(),
                };
                match cluster.spec.kind {
                    ComputeKind::Serverless => None,
                    ComputeKind::Cluster | ComputeKind::Instance => {
                        document(EventKind::Compute, cluster.name.as_str(), status)
                    }
                }
            }
            Change::NodeChanged { node, .. } => match self.clusters.get(&node.cluster) {
                Some(cluster) => {
                    let status = node_state(node).map_or(DELETED, |state| state.as_str());
                    document(EventKind::Node, &node.name, status)
                        .map(|found| EventDocument { compute: Some(cluster.clone()), ..found })
                }
                None => None,
            },
            Change::JobSubmitted { job, .. }
            | Change::ChildCreated { job, .. }
            | Change::JobChanged { job, .. }
                if job.workspace == self.workspace =>
            {
                about_job(job)
            }
            Change::JobGone { workspace, name, .. } if *workspace == self.workspace => {
                document(EventKind::Job, name, DELETED)
            }
            Change::JobMetadataChanged { job: id, .. } => {
                self.row(job(*id)?).and_then(|job| about_job(&job))
            }
            // The attempt is ending.
            Change::MemberChanged(member) if member.verdict.is_some() => {
                self.row(job(member.job)?).and_then(|job| about_job(&job))
            }
            _ => None,
        })
    }

    fn row(&self, job: Option<Job>) -> Option<Job> {
        job.filter(|job| job.workspace == self.workspace)
    }

    fn note(&mut self, cluster: &Cluster) {
        if cluster.spec.kind != ComputeKind::Serverless {
            self.clusters.insert(cluster.id, cluster.name.as_str().to_owned());
        }
    }
}

/// Reads a stream of server-sent events piece by piece.
#[derive(Debug, Default)]
pub struct StreamReader {
    line: Vec<u8>,
    name: String,
    data: String,
    /// The last id, from which the client resumes.
    pub last_id: Option<u64>,
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    Happened(EventDocument),
    Ended(EndDocument),
}

/// Longer lines are not from a Muster server.
const LINE_BYTES_MAX: usize = 64 << 10;

impl StreamReader {
    /// The events that are complete with this piece; `None` if the stream cannot be read.
    pub fn take(&mut self, piece: &[u8]) -> Option<Vec<Received>> {
        let mut all = Vec::new();
        for byte in piece {
            match byte {
                b'\n' => {
                    let line = String::from_utf8(std::mem::take(&mut self.line)).ok()?;
                    all.extend(self.line(line.trim_end_matches('\r'))?);
                }
                _ if self.line.len() >= LINE_BYTES_MAX => return None,
                byte => self.line.push(*byte),
            }
        }
        Some(all)
    }

    /// `None` if the line cannot be read; an event if the line completes one that is known.
    fn line(&mut self, line: &str) -> Option<Option<Received>> {
        if line.is_empty() {
            let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
            return Some(match (name.as_str(), data.as_str()) {
                (_, "") => None,
                (END, data) => Some(Received::Ended(serde_json::from_str(data).ok()?)),
                (_, data) => Some(Received::Happened(serde_json::from_str(data).ok()?)),
            });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => self.data.push_str(value),
            "id" => self.last_id = value.parse().ok().or(self.last_id),
            // A comment, or a field that is not used.
            _ => {}
        }
        Some(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_read_in_pieces_of_any_size() {
        let text = "id: 7\nevent: job\ndata: {\"revision\":7,\"time\":\"2026-11-15T19:52:12Z\",\"kind\":\"job\",\
                    \"name\":\"größe\",\"status\":\"Running\"}\n\n: heartbeat\nid: 9\n\n\
                    event: end\ndata: {\"reason\":\"slow\",\"message\":\"m\"}\n\n";
        for size in [1, 2, 7, 1_000] {
            let mut reader = StreamReader::default();
            let pieces = text.as_bytes().chunks(size);
            let all: Vec<_> =
                pieces.flat_map(|piece| reader.take(piece).expect("readable")).collect();
            assert_eq!(reader.last_id, Some(9), "a heartbeat moves the position");
            let [Received::Happened(event), Received::Ended(end)] = &all[..] else {
                panic!("{all:?}")
            };
            assert_eq!((event.revision, &*event.name, &*event.status), (7, "größe", "Running"));
            assert_eq!((end.reason, end.floor), (EndReason::Slow, None));
        }
        assert_eq!(StreamReader::default().take(b"data: {\n\n"), None);
        assert_eq!(StreamReader::default().take(&[b'x'; LINE_BYTES_MAX + 1]), None);
    }

    #[test]
    fn kinds_and_reasons_of_later_versions_can_be_read() {
        let kind: EventKind = serde_json::from_str("\"experiment\"").expect("a kind");
        assert_eq!(kind, EventKind::Unknown);
        let reason: EndReason = serde_json::from_str("\"tired\"").expect("a reason");
        assert_eq!(reason, EndReason::Unknown);
    }
}
