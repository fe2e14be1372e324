//! What Azure's clients read of every rule.

use muster_core::model::{ClusterName, Power, QuotaName};
use muster_core::refusal::{
    ClusterProperty, ClusterRule, FixedValue, JobRule, QuotaTooSmall, Rule,
};
use muster_core::{RefusalKind, Refused};

use super::*;
use crate::ArmError;

fn refused(target: impl Into<Target>, rule: impl Into<Rule>) -> Refused {
    Refused::invalid(target, rule)
}

fn pool() -> ClusterName {
    ClusterName::new("pool").unwrap()
}

fn fixed(property: ClusterProperty, old: &str, new: &str) -> FixedValue {
    FixedValue { property, old: old.into(), new: new.into() }
}

/// The refusal, its target and its message.
type Case = (Refused, &'static str, &'static str);

fn of_clusters() -> Vec<Case> {
    use ClusterProperty as P;
    let power = |power| refused(P::Kind, ClusterRule::NotAnInstance { cluster: pool(), power });
    let changes = vec![fixed(P::VmSize, "A", "B"), fixed(P::Tier, "Dedicated", "LowPriority")];
    vec![
        (
            refused(P::NodesMax, ClusterRule::TooManyNodes { nodes: 10_001, max: 10_000 }),
            "maxNodeCount",
            "maxNodeCount is 10001; a cluster has at most 10000 nodes, so lower it",
        ),
        (
            refused(P::NodesMin, ClusterRule::MinimumAboveMaximum { min: 7, max: 3 }),
            "minNodeCount",
            "minNodeCount is 7, more than maxNodeCount, which is 3; lower one or raise the other",
        ),
        (
            refused(P::IdleTime, ClusterRule::IdleTooLong { seconds: 9, max: 8 }),
            "nodeIdleTimeBeforeScaleDown",
            "nodeIdleTimeBeforeScaleDown is 9 s; at most 8 s are allowed, so shorten it",
        ),
        (
            refused(P::VmSize, ClusterRule::Fixed(changes)),
            "vmSize",
            "vmSize cannot be changed after creation: it is 'A', not 'B'; vmPriority cannot be changed after creation: \
             it is 'Dedicated', not 'LowPriority'; leave it out, or delete the cluster and create it again",
        ),
        (
            refused(P::OsType, ClusterRule::NotLinux),
            "osType",
            "osType 'Windows' is not supported: nodes run Linux; use 'Linux'",
        ),
        (
            refused(Field::AdminUserName, ClusterRule::NotAUserName { name: "A b".into() }),
            "adminUserName",
            "adminUserName \"A b\" is not a valid Linux user name; use 1 to 32 letters, digits, '_' or '-', starting \
             with a lower-case letter",
        ),
        (
            refused(P::ScaleUp, ClusterRule::NotForInstances),
            "scaleUp",
            "scaleUp is given, but an instance is always one node; leave it out, or create a cluster (AmlCompute)",
        ),
        (
            refused(P::Tier, ClusterRule::InstanceNeverEvicted),
            "vmPriority",
            "vmPriority is 'LowPriority', but an instance is never evicted; use 'Dedicated', or create a cluster \
             (AmlCompute)",
        ),
        (
            power(Power::Start),
            "computeType",
            "start is not possible: 'pool' is a cluster (AmlCompute), and it starts nodes by itself as soon as jobs \
             wait; submit a job, or raise minNodeCount to keep nodes running",
        ),
        (
            power(Power::Stop),
            "computeType",
            "stop is not possible: 'pool' is a cluster (AmlCompute), and it deletes nodes by itself when they have been \
             idle for nodeIdleTimeBeforeScaleDown; set minNodeCount to 0, and maxNodeCount to 0 to run nothing at all",
        ),
        (
            power(Power::Restart),
            "computeType",
            "restart is not possible: 'pool' is a cluster (AmlCompute), and its nodes are created and deleted as jobs \
             need them; set minNodeCount and maxNodeCount to 0, wait until the nodes are deleted, and set them back",
        ),
    ]
}

fn of_jobs() -> Vec<Case> {
    use JobField as J;
    let identity = |has: Option<&str>| JobRule::OtherIdentity {
        identity: "x".into(),
        compute: pool(),
        has: has.map(Box::from),
    };
    vec![
        (
            refused(J::Command, JobRule::HasNulByte),
            "command",
            "command contains a NUL byte; remove it",
        ),
        (
            refused(J::Nodes, JobRule::NoNodes),
            "resources.instanceCount",
            "instanceCount is 0; a job needs at least 1",
        ),
        (
            refused(J::Nodes, JobRule::TooManyNodes { nodes: 10_001, max: 10_000 }),
            "resources.instanceCount",
            "instanceCount is 10001; no cluster has more than 10000 nodes, so lower it",
        ),
        (
            refused(J::Nodes, JobRule::LargerThanCompute { nodes: 3, compute: pool(), max: 2 }),
            "resources.instanceCount",
            "instanceCount is 3, but compute 'pool' has at most 2 nodes; lower it, or raise the maximum: muster compute \
             update --name pool --max-instances 3",
        ),
        (
            refused(J::Nodes, JobRule::LargerThanServerless { nodes: 33, max: 32 }),
            "resources.instanceCount",
            "instanceCount is 33, but a serverless job has at most 32 nodes; lower it, or create a compute with more \
             and name that",
        ),
        (
            refused(
                J::Workers,
                JobRule::NodesForWorkers { workers: 1, parameter_servers: 1, nodes: 3 },
            ),
            "distribution.workerCount",
            "there are 1 workers and 1 parameter servers on 3 nodes, and each has a node of its own; set instanceCount \
             to their sum",
        ),
        (
            refused(
                J::InstanceType,
                JobRule::OtherSize { size: "A".into(), compute: pool(), has: "B".into() },
            ),
            "resources.instanceType",
            "instanceType is 'A', but nodes of compute 'pool' are B; leave instanceType out, name a compute of that \
             size, or leave the compute out to run the job serverless",
        ),
        (
            refused(
                J::Tier,
                JobRule::OtherTier { tier: "Spot".into(), compute: pool(), has: "dedicated" },
            ),
            "queueSettings.jobTier",
            "jobTier is 'Spot', but compute 'pool' is dedicated; leave jobTier out, name a compute of that tier, or \
             leave the compute out to run the job serverless",
        ),
        (
            refused(J::ClientId, identity(None)),
            "identity.clientId",
            "clientId is 'x', which is no identity of compute 'pool' (it has no identity), so the job would get no \
             token for it; leave clientId out to use the compute's system-assigned identity",
        ),
        (
            refused(J::ResourceId, identity(Some("y"))),
            "identity.resourceId",
            "resourceId is 'x', which is no identity of compute 'pool' (its identity is y), so the job would get no \
             token for it; leave resourceId out to use the compute's system-assigned identity",
        ),
        (
            refused(J::Timeout, JobRule::TimeoutOutOfRange { seconds: 0, max: 9 }),
            "limits.timeout",
            "timeout is 0 s; give 1 to 9 s, or leave it out",
        ),
        (
            refused(J::IsArchived, JobRule::ArchivedBeforeSubmit),
            "isArchived",
            "isArchived is true, but the job does not exist yet; submit it first, then archive it",
        ),
        (
            refused("name", JobRule::Taken { name: "j".into() }),
            "name",
            "a job named 'j' already exists and runs something else; only displayName, description, tags, properties \
             and isArchived of a job can be changed, so choose another name",
        ),
    ]
}

fn of_all() -> Vec<Case> {
    let quota = |reserved, advice| QuotaTooSmall {
        nodes: 3,
        vcpus_per_node: 4,
        quota: QuotaName::Region,
        location: "eastus".into(),
        limit: 8,
        reserved,
        needed: 12,
        advice,
    };
    let lower = |field: Field| [Part::from("lower "), field.into()].into_iter().collect();
    vec![
        (
            refused(Field::FriendlyName, Rule::TooLong { bytes: 9, max: 8 }),
            "friendlyName",
            "friendlyName has 9 bytes; at most 8 are allowed, so shorten it",
        ),
        (
            refused(Field::AssetDescription, Rule::TooLong { bytes: 9, max: 8 }),
            "properties.description",
            "properties.description has 9 bytes; at most 8 are allowed, so shorten it",
        ),
        (
            refused("notes", Rule::TooLong { bytes: 9, max: 8 }),
            "notes",
            "notes has 9 bytes; at most 8 are allowed, so shorten it",
        ),
        (
            refused(JobField::Command, Rule::Empty { advice: "say what to run" }),
            "command",
            "command is empty; say what to run",
        ),
        (
            refused(JobField::Processes, Rule::OutOfRange { value: 0, min: 1, max: 64 }),
            "distribution.processCountPerInstance",
            "processCountPerInstance is 0; give 1 to 64",
        ),
        (
            refused(
                ClusterProperty::NodesMax,
                quota(Some(4), lower(ClusterProperty::NodesMax.into())),
            ),
            "maxNodeCount",
            "3 nodes of 4 vCPUs do not fit into the quota TotalDedicatedCores of region 'eastus': its limit is 8 vCPUs, \
             4 are reserved, 12 would be needed; lower maxNodeCount, or raise the limit: muster quota update --location \
             eastus --name 'TotalDedicatedCores' --limit 12",
        ),
        (
            refused(JobField::Nodes, quota(None, lower(JobField::Nodes.into()))),
            "resources.instanceCount",
            "3 nodes of 4 vCPUs do not fit into the quota TotalDedicatedCores of region 'eastus': its limit is 8 vCPUs; \
             lower instanceCount, or raise the limit: muster quota update --location eastus --name \
             'TotalDedicatedCores' --limit 12",
        ),
        (
            refused(
                Target::Below(JobField::Services.into(), "web.port".into()),
                "the port is taken",
            ),
            "services.web.port",
            "the port is taken",
        ),
    ]
}

#[test]
fn azures_clients_read_their_own_names() {
    for (refused, target, message) in [of_clusters(), of_jobs(), of_all()].concat() {
        assert_eq!(refused.kind, RefusalKind::Invalid);
        let error = ArmError::from(&refused);
        assert_eq!(error.target(), Some(target));
        assert_eq!(error.body.error.message, message);
        assert!(!error.to_json().contains("parts"), "{}", error.to_json());
    }
}

#[test]
fn the_parts_are_the_message_with_the_place_of_each_field() {
    let rule = ClusterRule::MinimumAboveMaximum { min: 7, max: 3 };
    let error = ArmError::from(refused(ClusterProperty::NodesMin, rule));
    let sent = crate::to_json(&error.sent_in_parts());
    let parts = concat!(
        r#""parts":[{"field":"scaleSettings.minNodeCount"}," is 7, more than ","#,
        r#"{"field":"scaleSettings.maxNodeCount"},", which is 3; lower one or raise the other"]"#
    );
    assert!(sent.contains(parts), "{sent}");
    let read: crate::error::ErrorBody = crate::from_json(sent.as_bytes()).unwrap();
    assert_eq!(read, *error.body);
    let plain = ArmError::from(refused("name", "it is taken"));
    assert_eq!(crate::to_json(&plain.sent_in_parts()), plain.to_json(), "it names no field");
}

#[test]
fn every_field_is_found_at_its_place() {
    for field in Field::all() {
        let (found, below) = field_at(place(field)).unwrap();
        assert_eq!((bare(place(found)), below), (bare(place(field)), String::new()));
    }
    let at = |path: &str| field_at(path).map(|(field, below)| (place(field), below));
    let max = "scaleSettings.maxNodeCount";
    assert_eq!(at("properties.properties.scaleSettings.maxNodeCount"), Some((max, String::new())));
    assert_eq!(at("properties.subnet.id"), Some(("subnet", "id".into())));
    assert_eq!(at("properties.inputs.command.uri"), Some(("inputs", "command.uri".into())));
    assert_eq!(at("properties.descriptions"), None);
}

#[test]
fn every_remedy_is_a_command() {
    let cluster = pool();
    let remedies = [
        Remedy::SetMaximum { cluster: cluster.clone(), nodes_max: 1 },
        Remedy::TryAgain { cluster: cluster.clone() },
        Remedy::JoinHost,
        Remedy::CheckServer,
        Remedy::Wait { cluster },
        Remedy::List(Listing::Users),
    ];
    for remedy in remedies {
        assert!(command(&remedy).starts_with("muster "), "{remedy:?}");
    }
}

#[test]
fn what_a_job_waits_for_ends_with_the_command_that_helps() {
    let reason = Reason::MaximumTooLow { cluster: pool(), nodes_max: 0, needed: 1 };
    let waits = crate::job::Waits::of(&[reason]).expect("there is a reason");
    let command = "raise the maximum: muster compute update --name pool --max-instances 1";
    assert!(waits.words.ends_with(command), "{}", waits.words);
}
