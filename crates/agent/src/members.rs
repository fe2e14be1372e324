//! The variables of a member of a job on several nodes: which other members there are, and how to reach them. The names
//! are those that frameworks and Azure's own programs look for.

use std::ffi::OsString;

use muster_core::agent::{Assignment, master_port};

/// Returns nothing for a job of one node, because many programs take the mere presence of these variables as a sign of
/// a distributed job.
pub(crate) fn variables(assignment: &Assignment) -> Vec<(String, OsString)> {
    let Some(master) = assignment.addresses.first() else { return Vec::new() };
    let port = master_port(assignment.epoch);
    let all = |separator| assignment.addresses.join(separator);
    let variables = [
        ("MASTER_ADDR", master.to_string()),
        ("MASTER_PORT", port.to_string()),
        // One process per node; launchers that start more on each node multiply this.
        ("WORLD_SIZE", assignment.nodes.to_string()),
        ("RANK", assignment.rank.to_string()),
        ("LOCAL_RANK", "0".to_owned()),
        ("AZ_BATCH_MASTER_NODE", format!("{master}:{port}")),
        ("AZ_BATCHAI_MPI_MASTER_NODE", master.to_string()),
        ("AZ_BATCH_NODE_LIST", all(";")),
        ("AZ_BATCH_HOST_LIST", all(",")),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.into())).into()
}

#[cfg(test)]
mod tests {
    use muster_core::ids::Epoch;
    use muster_core::model::SpecHash;

    use super::*;

    fn assignment(addresses: &[&str]) -> Assignment {
        Assignment {
            epoch: Epoch(10_007),
            job_name: "gang".into(),
            attempt: 1,
            spec: SpecHash::made_up("hash"),
            rank: 1,
            nodes: 2,
            go: false,
            share: None,
            addresses: addresses.iter().map(|address| (*address).into()).collect(),
            evict: None,
            task: None,
            followers: Vec::new(),
            is_recalled: false,
        }
    }

    #[test]
    fn every_member_knows_all_members_and_where_they_meet() {
        let variables = variables(&assignment(&["10.0.0.4", "10.0.0.5"]));
        let text: Vec<String> = variables
            .iter()
            .map(|(name, value)| format!("{name}={}", value.to_string_lossy()))
            .collect();
        assert_eq!(
            text.join(" "),
            "MASTER_ADDR=10.0.0.4 MASTER_PORT=20007 WORLD_SIZE=2 RANK=1 LOCAL_RANK=0 \
             AZ_BATCH_MASTER_NODE=10.0.0.4:20007 AZ_BATCHAI_MPI_MASTER_NODE=10.0.0.4 \
             AZ_BATCH_NODE_LIST=10.0.0.4;10.0.0.5 AZ_BATCH_HOST_LIST=10.0.0.4,10.0.0.5"
        );
    }

    #[test]
    fn a_job_of_one_node_does_not_look_distributed() {
        assert_eq!(variables(&assignment(&[])), []);
    }
}
