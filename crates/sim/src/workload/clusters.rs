//! The clusters that the simulated users share.

use muster_core::ClusterPatch;
use muster_core::model::Tier;
use muster_core::time::Span;

use super::Act;
use crate::chance::Chance;

pub(super) const WORKSPACES: [&str; 3] = ["vision", "speech", "operations"];

#[derive(Debug)]
pub(super) struct ClusterPlan {
    pub(super) workspace: usize,
    pub(super) name: &'static str,
    pub(super) vm_size: &'static str,
    pub(super) tier: Tier,
    pub(super) nodes_min: u32,
    pub(super) nodes_max: u32,
    pub(super) idle_time: Span,
    /// Its share of the jobs.
    pub(super) share: u64,
    /// Whether it is deleted and created again under the same name from time to time.
    pub(super) is_recreated: bool,
}

const ORDINARY: ClusterPlan = ClusterPlan {
    workspace: 0,
    name: "cpu-small",
    vm_size: "STANDARD_DS3_V2",
    tier: Tier::Dedicated,
    nodes_min: 0,
    nodes_max: 4,
    idle_time: Span::seconds(120),
    share: 4,
    is_recreated: false,
};

/// One cluster of each kind that decisions treat differently.
pub(super) static CLUSTERS: [ClusterPlan; 5] = [
    ORDINARY,
    ClusterPlan {
        name: "gpu-spot",
        vm_size: "Standard_NC4as_T4_v3",
        tier: Tier::LowPriority,
        nodes_max: 6,
        idle_time: Span::seconds(300),
        share: 3,
        ..ORDINARY
    },
    ClusterPlan {
        workspace: 1,
        name: "warm-pool",
        nodes_min: 1,
        nodes_max: 5,
        idle_time: Span::seconds(600),
        share: 3,
        ..ORDINARY
    },
    ClusterPlan {
        workspace: 2,
        name: "no-rest",
        nodes_max: 8,
        idle_time: Span::ZERO,
        share: 2,
        is_recreated: true,
        ..ORDINARY
    },
    ClusterPlan {
        workspace: 2,
        name: "scratch",
        nodes_max: 3,
        idle_time: Span::seconds(60),
        share: 2,
        is_recreated: true,
        ..ORDINARY
    },
];

pub(super) fn draw(chance: &mut Chance) -> &'static ClusterPlan {
    let choices = CLUSTERS.each_ref().map(|cluster| (cluster.share, cluster));
    chance.weighted(&choices)
}

impl ClusterPlan {
    pub(super) fn put(&self) -> Act {
        self.change(ClusterPatch {
            vm_size: Some(self.vm_size.into()),
            tier: Some(self.tier),
            idle_time: Some(self.idle_time),
            ..self.limits()
        })
    }

    pub(super) fn limits(&self) -> ClusterPatch {
        ClusterPatch {
            nodes_min: Some(self.nodes_min),
            nodes_max: Some(self.nodes_max),
            ..ClusterPatch::default()
        }
    }

    pub(super) fn change(&self, wanted: ClusterPatch) -> Act {
        let name = self.name.to_owned();
        Act::PutCluster { workspace: self.workspace, name, wanted: Box::new(wanted) }
    }

    pub(super) fn delete(&self) -> Act {
        Act::DeleteCluster { workspace: self.workspace, name: self.name.to_owned() }
    }
}
