//! Whether a job matches the compute that it names: what it specifies about its nodes must be true there.

use super::shorten;
use crate::input::Refused;
use crate::model::{Cluster, JobIdentity, JobSpec, JobTier, Tier};
use crate::step::Transaction;

/// Refuses a job that would silently run on another size, tier or identity than it specifies.
pub(super) fn check(
    tx: &Transaction<'_>,
    cluster: &Cluster,
    spec: &JobSpec,
) -> Result<(), Refused> {
    if !spec.is_serverless() {
        check_size(cluster, spec)?;
        check_tier(cluster, spec)?;
    }
    check_identity(tx, cluster, spec)
}

fn check_size(cluster: &Cluster, spec: &JobSpec) -> Result<(), Refused> {
    let Some(size) = spec.instance_type.as_deref() else { return Ok(()) };
    if size.eq_ignore_ascii_case(&cluster.spec.vm_size) {
        return Ok(());
    }
    Err(Refused::invalid(
        "resources.instanceType",
        format!(
            "instanceType is '{}', but nodes of compute '{}' are {}; leave instanceType out, name a compute of that \
             size, or leave the compute out to run the job serverless",
            shorten(size),
            cluster.name,
            cluster.spec.vm_size
        ),
    ))
}

fn check_tier(cluster: &Cluster, spec: &JobSpec) -> Result<(), Refused> {
    let Some(tier) = spec.job_tier.filter(|tier| tier.tier() != cluster.spec.tier) else {
        return Ok(());
    };
    // Azure's clients send this for jobs that specify no tier.
    if tier == JobTier::Null {
        return Ok(());
    }
    let has = match cluster.spec.tier {
        Tier::Dedicated => "dedicated",
        Tier::LowPriority => "low priority",
    };
    Err(Refused::invalid(
        "queueSettings.jobTier",
        format!(
            "jobTier is '{tier:?}', but compute '{}' is {has}; leave jobTier out, name a compute of that tier, or leave the \
             compute out to run the job serverless",
            cluster.name
        ),
    ))
}

/// An identity that the job names must be that of its compute: otherwise a program that requests tokens would get none,
/// or those of another identity.
fn check_identity(tx: &Transaction<'_>, cluster: &Cluster, spec: &JobSpec) -> Result<(), Refused> {
    let Some(JobIdentity::Managed { client, object, resource }) = spec.identity.as_deref() else {
        return Ok(());
    };
    let own = tx.world.directory().identity_of(cluster.id);
    let named = [("clientId", client), ("objectId", object), ("resourceId", resource)];
    for (target, named) in named {
        let Some(named) = named.as_deref() else { continue };
        if own.is_some_and(|own| own.object_id.eq_ignore_ascii_case(named)) {
            continue;
        }
        let has = match own {
            Some(own) => format!("its identity is {}", own.object_id),
            None => "it has no identity".to_owned(),
        };
        return Err(Refused::invalid(
            &format!("identity.{target}"),
            format!(
                "{target} is '{}', which is no identity of compute '{}' ({has}), so the job would get no token for it; \
                 leave {target} out to use the compute's system-assigned identity",
                shorten(named),
                cluster.name
            ),
        ));
    }
    Ok(())
}
