//! Whether a job matches the compute that it names: what it specifies about its nodes must be true there.

use super::shorten;
use crate::input::Refused;
use crate::model::{Cluster, JobIdentity, JobSpec, JobTier, Tier};
use crate::refusal::{JobField, JobRule};
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
    let rule = JobRule::OtherSize {
        size: shorten(size).into(),
        compute: cluster.name.clone(),
        has: (*cluster.spec.vm_size).into(),
    };
    Err(Refused::invalid(JobField::InstanceType, rule))
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
    let (tier, compute) = (format!("{tier:?}").into(), cluster.name.clone());
    Err(Refused::invalid(JobField::Tier, JobRule::OtherTier { tier, compute, has }))
}

/// An identity that the job names must be that of its compute: otherwise a program that requests tokens would get none,
/// or those of another identity.
fn check_identity(tx: &Transaction<'_>, cluster: &Cluster, spec: &JobSpec) -> Result<(), Refused> {
    let Some(JobIdentity::Managed { client, object, resource }) = spec.identity.as_deref() else {
        return Ok(());
    };
    let own = tx.world.directory().identity_of(cluster.id);
    let named = [
        (JobField::ClientId, client),
        (JobField::ObjectId, object),
        (JobField::ResourceId, resource),
    ];
    for (target, named) in named {
        let Some(named) = named.as_deref() else { continue };
        if own.is_some_and(|own| own.object_id.eq_ignore_ascii_case(named)) {
            continue;
        }
        let rule = JobRule::OtherIdentity {
            identity: shorten(named).into(),
            compute: cluster.name.clone(),
            has: own.map(|own| own.object_id.clone()),
        };
        return Err(Refused::invalid(target, rule));
    }
    Ok(())
}
