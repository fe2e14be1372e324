//! The rules that requests can break, and the message of each.

use super::{ClusterProperty, JobField, Target, Words, words};
use crate::model::{ClusterName, Power, QuotaName};
use crate::why::Remedy;

/// The rule that a request breaks, with the given value and the limit. Most messages begin with the field at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// A rule whose message does not depend on how the field is called.
    Said(Words),
    TooLong {
        bytes: usize,
        max: usize,
    },
    Empty {
        advice: &'static str,
    },
    OutOfRange {
        value: u64,
        min: u64,
        max: u64,
    },
    QuotaTooSmall(Box<QuotaTooSmall>),
    Cluster(ClusterRule),
    Job(JobRule),
}

/// The rules for properties of clusters and instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterRule {
    /// All values of the request that cannot be changed after creation.
    Fixed(Vec<FixedValue>),
    TooManyNodes {
        nodes: u32,
        max: u32,
    },
    MinimumAboveMaximum {
        min: u32,
        max: u32,
    },
    IdleTooLong {
        seconds: u64,
        max: u64,
    },
    /// The operating system is not Linux.
    NotLinux,
    NotAUserName {
        name: Box<str>,
    },
    /// An instance is always one node, so it cannot have this property.
    NotForInstances,
    InstanceNeverEvicted,
    /// A cluster cannot be started, stopped or restarted as an instance can.
    NotAnInstance {
        cluster: ClusterName,
        power: Power,
    },
}

/// The rules for fields of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobRule {
    HasNulByte,
    NoNodes,
    /// More nodes than any cluster may have.
    TooManyNodes {
        nodes: u32,
        max: u32,
    },
    LargerThanCompute {
        nodes: u32,
        compute: ClusterName,
        max: u32,
    },
    LargerThanServerless {
        nodes: u32,
        max: u32,
    },
    NodesForWorkers {
        workers: u32,
        parameter_servers: u32,
        nodes: u32,
    },
    OtherSize {
        size: Box<str>,
        compute: ClusterName,
        has: Box<str>,
    },
    OtherTier {
        tier: Box<str>,
        compute: ClusterName,
        has: &'static str,
    },
    /// `has` is the identity of the compute.
    OtherIdentity {
        identity: Box<str>,
        compute: ClusterName,
        has: Option<Box<str>>,
    },
    TimeoutOutOfRange {
        seconds: u64,
        max: u64,
    },
    ArchivedBeforeSubmit,
    /// The name is that of another job.
    Taken {
        name: Box<str>,
    },
}

/// A request to change a value that cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedValue {
    pub property: ClusterProperty,
    pub old: Box<str>,
    pub new: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaTooSmall {
    pub nodes: u32,
    pub vcpus_per_node: u32,
    pub quota: QuotaName,
    pub location: Box<str>,
    pub limit: u64,
    /// What clusters have reserved, if that counts.
    pub reserved: Option<u64>,
    pub needed: u64,
    /// What to do other than raise the limit.
    pub advice: Words,
}

impl Rule {
    pub(super) fn words(&self, target: &Target) -> Words {
        match self {
            Rule::Said(words) => words.clone(),
            Rule::TooLong { bytes, max } => words![
                target,
                format!(" has {bytes} bytes; at most {max} are allowed, so shorten it")
            ],
            Rule::Empty { advice } => words![target, format!(" is empty; {advice}")],
            Rule::OutOfRange { value, min, max } => {
                words![target, format!(" is {value}; give {min} to {max}")]
            }
            Rule::QuotaTooSmall(short) => short.words(),
            Rule::Cluster(rule) => rule.words(target),
            Rule::Job(rule) => rule.words(target),
        }
    }
}

impl ClusterRule {
    fn words(&self, target: &Target) -> Words {
        match self {
            ClusterRule::Fixed(values) => fixed(values),
            ClusterRule::TooManyNodes { nodes, max } => words![
                target,
                format!(" is {nodes}; a cluster has at most {max} nodes, so lower it")
            ],
            ClusterRule::MinimumAboveMaximum { min, max } => words![
                target,
                format!(" is {min}, more than "),
                ClusterProperty::NodesMax,
                format!(", which is {max}; lower one or raise the other"),
            ],
            ClusterRule::IdleTooLong { seconds, max } => words![
                target,
                format!(" is {seconds} s; at most {max} s are allowed, so shorten it")
            ],
            ClusterRule::NotLinux => {
                words![target, " 'Windows' is not supported: nodes run Linux; use 'Linux'"]
            }
            ClusterRule::NotAUserName { name } => words![
                target,
                format!(
                    " {name:?} is not a valid Linux user name; use 1 to 32 letters, digits, '_' or '-', starting \
                     with a lower-case letter"
                ),
            ],
            ClusterRule::NotForInstances => words![
                target,
                " is given, but an instance is always one node; leave it out, or create a cluster (AmlCompute)"
            ],
            ClusterRule::InstanceNeverEvicted => words![
                target,
                " is 'LowPriority', but an instance is never evicted; use 'Dedicated', or create a cluster \
                 (AmlCompute)"
            ],
            ClusterRule::NotAnInstance { cluster, power } => not_an_instance(cluster, *power),
        }
    }
}

impl JobRule {
    fn words(&self, target: &Target) -> Words {
        const OR_SERVERLESS: &str = "or leave the compute out to run the job serverless";
        match self {
            JobRule::HasNulByte => words![target, " contains a NUL byte; remove it"],
            JobRule::NoNodes => words![target, " is 0; a job needs at least 1"],
            JobRule::TooManyNodes { nodes, max } => words![
                target,
                format!(" is {nodes}; no cluster has more than {max} nodes, so lower it")
            ],
            JobRule::LargerThanCompute { nodes, compute, max } => words![
                target,
                format!(" is {nodes}, but compute '{compute}' has at most {max} nodes; "),
                "lower it, or raise the maximum: ",
                Remedy::SetMaximum { cluster: compute.clone(), nodes_max: *nodes },
            ],
            JobRule::LargerThanServerless { nodes, max } => words![
                target,
                format!(" is {nodes}, but a serverless job has at most {max} nodes; "),
                "lower it, or create a compute with more and name that",
            ],
            JobRule::NodesForWorkers { workers, parameter_servers, nodes } => words![
                format!(
                    "there are {workers} workers and {parameter_servers} parameter servers on "
                ),
                format!("{nodes} nodes, and each has a node of its own; set "),
                JobField::Nodes,
                " to their sum",
            ],
            JobRule::OtherSize { size, compute, has } => words![
                target,
                format!(" is '{size}', but nodes of compute '{compute}' are {has}; leave "),
                target,
                format!(" out, name a compute of that size, {OR_SERVERLESS}"),
            ],
            JobRule::OtherTier { tier, compute, has } => words![
                target,
                format!(" is '{tier}', but compute '{compute}' is {has}; leave "),
                target,
                format!(" out, name a compute of that tier, {OR_SERVERLESS}"),
            ],
            JobRule::OtherIdentity { identity, compute, has } => {
                let has = has.as_deref().map(|has| format!("its identity is {has}"));
                let has = has.as_deref().unwrap_or("it has no identity");
                words![
                    target,
                    format!(
                        " is '{identity}', which is no identity of compute '{compute}' ({has}), "
                    ),
                    "so the job would get no token for it; leave ",
                    target,
                    " out to use the compute's system-assigned identity",
                ]
            }
            JobRule::TimeoutOutOfRange { seconds, max } => {
                words![target, format!(" is {seconds} s; give 1 to {max} s, or leave it out")]
            }
            JobRule::ArchivedBeforeSubmit => words![
                target,
                " is true, but the job does not exist yet; submit it first, then archive it"
            ],
            JobRule::Taken { name } => words![
                format!("a job named '{name}' already exists and runs something else; only "),
                JobField::DisplayName,
                ", description, tags, properties and ",
                JobField::IsArchived,
                " of a job can be changed, so choose another name",
            ],
        }
    }
}

impl QuotaTooSmall {
    fn words(&self) -> Words {
        let QuotaTooSmall { nodes, vcpus_per_node, quota, location, limit, needed, .. } = self;
        let reserved = match self.reserved {
            Some(reserved) => format!(", {reserved} are reserved, {needed} would be needed"),
            None => String::new(),
        };
        let what = format!(
            "{nodes} nodes of {vcpus_per_node} vCPUs do not fit into the quota {quota} of region '{location}': its \
             limit is {limit} vCPUs{reserved}; "
        );
        let raise =
            Remedy::SetQuota { location: location.clone(), name: quota.clone(), limit: *needed };
        words![what].then(self.advice.clone()).then(words![", or raise the limit: ", raise])
    }
}

/// Names every such value, so that the request can be corrected at once.
fn fixed(values: &[FixedValue]) -> Words {
    let each = values.iter().map(|FixedValue { property, old, new }| {
        words![
            *property,
            format!(" cannot be changed after creation: it is '{old}', not '{new}'; ")
        ]
    });
    let all = each.reduce(Words::then).unwrap_or_default();
    all.then(words!["leave it out, or delete the cluster and create it again"])
}

fn not_an_instance(cluster: &ClusterName, power: Power) -> Words {
    use ClusterProperty::{IdleTime, NodesMax, NodesMin};
    let is = |action: &str| {
        format!("{action} is not possible: '{cluster}' is a cluster (AmlCompute), and")
    };
    match power {
        Power::Start => words![
            is("start"),
            " it starts nodes by itself as soon as jobs wait; submit a job, or raise ",
            NodesMin,
            " to keep nodes running",
        ],
        Power::Stop => words![
            is("stop"),
            " it deletes nodes by itself when they have been idle for ",
            IdleTime,
            "; set ",
            NodesMin,
            " to 0, and ",
            NodesMax,
            " to 0 to run nothing at all",
        ],
        Power::Restart => words![
            is("restart"),
            " its nodes are created and deleted as jobs need them; set ",
            NodesMin,
            " and ",
            NodesMax,
            " to 0, wait until the nodes are deleted, and set them back",
        ],
    }
}

impl From<Words> for Rule {
    fn from(words: Words) -> Rule {
        Rule::Said(words)
    }
}

impl From<String> for Rule {
    fn from(text: String) -> Rule {
        Rule::Said(words![text])
    }
}

impl From<&str> for Rule {
    fn from(text: &str) -> Rule {
        Rule::Said(words![text])
    }
}

impl From<ClusterRule> for Rule {
    fn from(rule: ClusterRule) -> Rule {
        Rule::Cluster(rule)
    }
}

impl From<JobRule> for Rule {
    fn from(rule: JobRule) -> Rule {
        Rule::Job(rule)
    }
}

impl From<QuotaTooSmall> for Rule {
    fn from(short: QuotaTooSmall) -> Rule {
        Rule::QuotaTooSmall(Box::new(short))
    }
}
