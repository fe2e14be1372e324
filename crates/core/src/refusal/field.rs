//! The fields of requests that refusals name. Each dialect spells them in a table of its own.

pub use crate::cluster_properties::ClusterProperty;

/// A field of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    Cluster(ClusterProperty),
    Job(JobField),
    /// Two parts of [`ClusterProperty::Admin`].
    AdminUserName,
    AdminSshKey,
    FriendlyName,
    ManagedNetwork,
    AssetDescription,
    AssetProperties,
    ResourceGroup,
    /// The user that a role is assigned to.
    RolePrincipal,
    RoleDefinition,
    /// How long a join token is valid.
    TokenLifetime,
}

macro_rules! job_fields {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The fields of a job that refusals name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum JobField { $($(#[$doc])* $name,)* }

        impl JobField {
            pub const ALL: &[JobField] = &[$(JobField::$name,)*];
        }
    };
}

job_fields! {
    Command,
    Compute,
    Nodes,
    /// The VM size of a job without a compute.
    InstanceType,
    Tier,
    Timeout,
    DisplayName,
    ExperimentName,
    Description,
    IsArchived,
    EnvironmentVariables,
    /// Muster's own: the folder with which a job continues after an eviction.
    Checkpoint,
    ShareVcpus,
    ShareMemory,
    ShareGpus,
    /// Processes per node.
    Processes,
    Workers,
    ClientId,
    ObjectId,
    ResourceId,
    Inputs,
    Outputs,
    Services,
    Properties,
}

impl Field {
    pub fn all() -> impl Iterator<Item = Field> {
        let others = [
            Field::AdminUserName,
            Field::AdminSshKey,
            Field::FriendlyName,
            Field::ManagedNetwork,
            Field::AssetDescription,
            Field::AssetProperties,
            Field::ResourceGroup,
            Field::RolePrincipal,
            Field::RoleDefinition,
            Field::TokenLifetime,
        ];
        let clusters = ClusterProperty::ALL.iter().copied().map(Field::Cluster);
        clusters.chain(JobField::ALL.iter().copied().map(Field::Job)).chain(others)
    }
}

impl From<ClusterProperty> for Field {
    fn from(property: ClusterProperty) -> Field {
        Field::Cluster(property)
    }
}

impl From<JobField> for Field {
    fn from(field: JobField) -> Field {
        Field::Job(field)
    }
}
