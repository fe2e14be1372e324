//! Requests for join tokens, joining with one, and taking hosts out of service. Whether the caller is allowed to make
//! them is checked before.

use std::sync::Arc;

use super::shorten;
use crate::change::Change;
use crate::hosts::HostChange;
use crate::ids::WorkspaceId;
use crate::input::{HostRequest, InputResult, NewHost, Refused, Reply};
use crate::limits;
use crate::model::{
    Capacity, ClusterSpec, Host, HostName, HostState, JoinTokenRecord, KeyDigest, Scope,
};
use crate::refusal::{ClusterProperty, Field, words};
use crate::step::Transaction;
use crate::time::Span;
use crate::why::{Listing, Remedy};

pub(crate) fn change(tx: &mut Transaction<'_>, request: &HostRequest) -> InputResult {
    match request {
        HostRequest::IssueTicket { digest, intent, host, good_for } => {
            issue(tx, *digest, intent, host.as_ref(), *good_for)
        }
        HostRequest::Join(new) => join(tx, new),
        HostRequest::Seen { name, capacity } => seen(tx, name, *capacity),
        HostRequest::Silent { name } => silent(tx, name),
        HostRequest::SetState { name, state } => set_state(tx, name, *state),
        HostRequest::Remove { name, is_forced } => remove(tx, name, *is_forced),
    }
}

fn issue(
    tx: &mut Transaction<'_>,
    digest: KeyDigest,
    intent: &Scope,
    host: Option<&HostName>,
    good_for: Span,
) -> InputResult {
    if good_for == Span::ZERO || good_for > limits::TICKET_LIFETIME_MAX {
        return Err(Refused::invalid(
            Field::TokenLifetime,
            format!(
                "a join token cannot be valid for {} seconds; give 1 to {}",
                good_for.0 / 1_000_000,
                limits::TICKET_LIFETIME_MAX.0 / 1_000_000
            ),
        ));
    }
    if let Some(name) = host {
        check_free(tx, name)?;
    }
    let now = tx.now.wall;
    let is_over = |ticket: &&JoinTokenRecord| ticket.expires_at <= now;
    let over: Vec<KeyDigest> =
        tx.world.hosts().tickets().filter(is_over).map(|ticket| ticket.digest).collect();
    for digest in over {
        emit(tx, HostChange::TicketGone(digest));
    }
    if tx.world.hosts().tickets().len() >= limits::TICKETS_MAX {
        return Err(Refused::too_many(
            "tickets",
            format!(
                "there are {} unused join tokens, which is the maximum; use them, or wait until they expire",
                limits::TICKETS_MAX
            ),
        ));
    }
    let ticket = JoinTokenRecord {
        digest,
        intent: intent.clone(),
        host: host.cloned(),
        issued_at: now,
        expires_at: now + good_for,
    };
    emit(tx, HostChange::Ticket(ticket.clone()));
    Ok(Reply::Ticket(ticket))
}

fn join(tx: &mut Transaction<'_>, new: &NewHost) -> InputResult {
    check_capacity(&new.name, new.capacity)?;
    let hosts = tx.world.hosts();
    if let Some(host) = hosts.host(&new.name)
        && host.ticket == Some(new.ticket)
        && host.key == Some(new.key)
    {
        // It has already joined, but did not receive the answer.
        return Ok(Reply::Host(Arc::clone(host)));
    }
    let ticket = hosts.ticket(&new.ticket).filter(|ticket| tx.now.wall < ticket.expires_at);
    let Some(ticket) = ticket.cloned() else {
        return Err(Refused::not_found(
            "ticket",
            words![
                "this token is invalid, expired or already used; `",
                Remedy::JoinHost,
                "` creates another"
            ],
        ));
    };
    if let Some(name) = ticket.host.as_ref().filter(|name| **name != new.name) {
        return Err(Refused::invalid(
            "name",
            format!("the token is for host '{name}', not for '{}'; join under that name", new.name),
        ));
    }
    check_free(tx, &new.name)?;
    if tx.world.hosts().hosts().len() >= limits::HOSTS_MAX {
        return Err(Refused::too_many(
            "name",
            format!("there are {} hosts, which is the maximum; remove some", limits::HOSTS_MAX),
        ));
    }
    let host = Arc::new(Host {
        name: new.name.clone(),
        capacity: new.capacity,
        intent: ticket.intent,
        state: HostState::Open,
        key: Some(new.key),
        ticket: Some(new.ticket),
        joined_at: tx.now.wall,
        is_silent: false,
        environments: Vec::new(),
    });
    emit(tx, HostChange::TicketGone(new.ticket));
    put(tx, Arc::clone(&host));
    Ok(Reply::Host(host))
}

/// A host reported its capacity. The server's own host is added with its first report.
fn seen(tx: &mut Transaction<'_>, name: &HostName, capacity: Capacity) -> InputResult {
    check_capacity(name, capacity)?;
    let host = match tx.world.hosts().host(name) {
        Some(host) if host.capacity == capacity && !host.is_silent => {
            return Ok(Reply::Host(Arc::clone(host)));
        }
        Some(host) => Host { capacity, is_silent: false, ..(**host).clone() },
        None if name.is_local() => Host {
            name: name.clone(),
            capacity,
            intent: Scope::Everything,
            state: HostState::Open,
            key: None,
            ticket: None,
            joined_at: tx.now.wall,
            is_silent: false,
            environments: Vec::new(),
        },
        None => return Err(unknown(name)),
    };
    let host = Arc::new(host);
    put(tx, Arc::clone(&host));
    Ok(Reply::Host(host))
}

/// A host has not reported for a while. Its next report changes that.
fn silent(tx: &mut Transaction<'_>, name: &HostName) -> InputResult {
    let host = find(tx, name)?;
    if host.is_silent || name.is_local() {
        return Ok(Reply::Host(Arc::clone(host)));
    }
    let host = Arc::new(Host { is_silent: true, ..(**host).clone() });
    put(tx, Arc::clone(&host));
    Ok(Reply::Host(host))
}

fn set_state(tx: &mut Transaction<'_>, name: &HostName, state: HostState) -> InputResult {
    let host = find(tx, name)?;
    if host.state == HostState::Removing {
        return Err(Refused::conflict(
            "name",
            format!("host '{name}' is being removed; it can join again once that is done"),
        ));
    }
    if host.state == state {
        return Ok(Reply::Host(Arc::clone(host)));
    }
    let host = Arc::new(Host { state, ..(**host).clone() });
    put(tx, Arc::clone(&host));
    Ok(Reply::Host(host))
}

fn remove(tx: &mut Transaction<'_>, name: &HostName, is_forced: bool) -> InputResult {
    let host = Arc::clone(find(tx, name)?);
    if name.is_local() {
        return Err(Refused::invalid(
            "name",
            words![
                "'local' is the server's own host and cannot be removed; `",
                Remedy::DrainHost { host: name.clone() },
                "` empties it"
            ],
        ));
    }
    let nodes = tx.world.host_nodes(name).map_or(0, |host_nodes| host_nodes.nodes.len());
    if nodes == 0 {
        emit(tx, HostChange::HostGone(name.clone()));
        return Ok(Reply::Noted);
    }
    if !is_forced {
        return Err(Refused::conflict(
            "name",
            words![
                format!("host '{name}' has {nodes} nodes; drain it first (`"),
                Remedy::DrainHost { host: name.clone() },
                "`), or give up its jobs with --force"
            ],
        ));
    }
    // From now on its key is unknown, and reports of its nodes do not renew their leases.
    put(tx, Arc::new(Host { state: HostState::Removing, key: None, ..(*host).clone() }));
    Ok(Reply::Noted)
}

/// Refuses a cluster with GPUs if no host has any. That is a mistake, and better reported at once than by nodes that
/// are never created. Other sizes may wait for a host that joins later.
pub(super) fn check_gpus(
    tx: &Transaction<'_>,
    workspace: WorkspaceId,
    name: &str,
    spec: &ClusterSpec,
    node: Capacity,
) -> Result<(), Refused> {
    let world = &*tx.world;
    if node.gpus == 0 || world.settings.over_commit {
        return Ok(());
    }
    let home = world.workspace_by_id(workspace).expect("looked up by the caller");
    let place = Scope::compute(&home.key, name);
    let takers: Vec<&Arc<Host>> = world.hosts().takers(&place).collect();
    if takers.iter().any(|host| node.gpus <= host.capacity.gpus) {
        return Ok(());
    }
    let most = takers.iter().map(|host| host.capacity.gpus).max().unwrap_or(0);
    Err(Refused::invalid(
        ClusterProperty::VmSize,
        words![
            format!(
                "a node of '{}' needs {} GPUs, but no host for nodes of '{}' has more than {most}; choose a size \
                 without GPUs, or join a host that has them (`",
                spec.vm_size,
                node.gpus,
                shorten(name)
            ),
            Remedy::JoinHost,
            "`)"
        ],
    ))
}

fn put(tx: &mut Transaction<'_>, host: Arc<Host>) {
    emit(tx, HostChange::Host(host));
}

fn emit(tx: &mut Transaction<'_>, change: HostChange) {
    tx.emit(Change::HostsChanged(change));
}

fn find<'t>(tx: &'t Transaction<'_>, name: &HostName) -> Result<&'t Arc<Host>, Refused> {
    tx.world.hosts().host(name).ok_or_else(|| unknown(name))
}

fn unknown(name: &HostName) -> Refused {
    let name = shorten(name.as_str());
    Refused::not_found(
        "name",
        words![
            format!("there is no host '{name}'; `"),
            Remedy::List(Listing::Hosts),
            "` shows all hosts"
        ],
    )
}

fn check_free(tx: &Transaction<'_>, name: &HostName) -> Result<(), Refused> {
    if !name.is_local() && tx.world.hosts().host(name).is_none() {
        return Ok(());
    }
    Err(Refused::conflict(
        "name",
        format!("a host '{name}' already exists; choose another name, or remove that one first"),
    ))
}

/// A host that reports no cores or no memory could not be measured.
fn check_capacity(name: &HostName, capacity: Capacity) -> Result<(), Refused> {
    if capacity.vcpus == 0 || capacity.memory_mb == 0 {
        return Err(Refused::invalid(
            "capacity",
            format!(
                "host '{name}' reports {} cores and {} MB of memory; both must be above 0",
                capacity.vcpus, capacity.memory_mb
            ),
        ));
    }
    Ok(())
}
