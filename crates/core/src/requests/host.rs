//! Asking for tickets, joining with one, and taking hosts out of service. Whether the caller may ask is
//! decided before this.

use std::sync::Arc;

use super::shorten;
use crate::change::Change;
use crate::hosts::HostChange;
use crate::ids::WorkspaceId;
use crate::input::{HostRequest, InputResult, NewHost, Refused, Reply};
use crate::limits;
use crate::model::{
    Capacity, ClusterSpec, Host, HostName, HostState, JoinTicket, KeyDigest, Scope,
};
use crate::step::Transaction;
use crate::time::Span;

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
            "expiresIn",
            format!(
                "a ticket that is good for {} seconds is not possible; give it 1 to {}",
                good_for.0 / 1_000_000,
                limits::TICKET_LIFETIME_MAX.0 / 1_000_000
            ),
        ));
    }
    if let Some(name) = host {
        check_free(tx, name)?;
    }
    let now = tx.now.wall;
    let is_over = |ticket: &&JoinTicket| ticket.expires_at <= now;
    let over: Vec<KeyDigest> =
        tx.world.hosts().tickets().filter(is_over).map(|ticket| ticket.digest).collect();
    for digest in over {
        emit(tx, HostChange::TicketGone(digest));
    }
    if tx.world.hosts().tickets().len() >= limits::TICKETS_MAX {
        return Err(Refused::too_many(
            "tickets",
            format!(
                "there are {} tickets that nobody has used yet, the most allowed; use them, or wait until they \
                 expire",
                limits::TICKETS_MAX
            ),
        ));
    }
    let ticket = JoinTicket {
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
        // It has joined already, and did not hear so.
        return Ok(Reply::Host(Arc::clone(host)));
    }
    let ticket = hosts.ticket(&new.ticket).filter(|ticket| tx.now.wall < ticket.expires_at);
    let Some(ticket) = ticket.cloned() else {
        return Err(Refused::not_found(
            "ticket",
            "this ticket is not known: it was used already, has expired, or is mistyped; `muster host token` \
             gives another",
        ));
    };
    if let Some(name) = ticket.host.as_ref().filter(|name| **name != new.name) {
        return Err(Refused::invalid(
            "name",
            format!(
                "the ticket is for host '{name}', not for '{}'; join under that name",
                new.name
            ),
        ));
    }
    check_free(tx, &new.name)?;
    if tx.world.hosts().hosts().len() >= limits::HOSTS_MAX {
        return Err(Refused::too_many(
            "name",
            format!("there are {} hosts, the most allowed; remove some", limits::HOSTS_MAX),
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

/// A host said what it has. The server's own machine is known from its first word on.
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

/// A host has not said anything for a while. Its next word changes that.
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
            format!("host '{name}' is being removed; it can join again when it is gone"),
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
            "'local' is the server's own machine and cannot be removed; `muster host drain local` empties it",
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
            format!(
                "host '{name}' has {nodes} nodes; drain it first (`muster host drain {name}`), or give up what \
                 runs there with --force"
            ),
        ));
    }
    // From here on it is a stranger, and nothing that its nodes say renews their leases.
    put(tx, Arc::new(Host { state: HostState::Removing, key: None, ..(*host).clone() }));
    Ok(Reply::Noted)
}

/// A cluster of GPUs where no machine has any is a slip, and better said at once than by nodes that never come. Other
/// sizes may wait for a machine that joins later.
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
        "vmSize",
        format!(
            "a node of '{}' has {} GPUs, and no host that takes nodes of '{}' has more than {most}; choose a size \
             without GPUs, or join a machine that has them (`muster host token`)",
            spec.vm_size,
            node.gpus,
            shorten(name)
        ),
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
        format!("there is no host '{name}'; `muster host list` shows which there are"),
    )
}

fn check_free(tx: &Transaction<'_>, name: &HostName) -> Result<(), Refused> {
    if !name.is_local() && tx.world.hosts().host(name).is_none() {
        return Ok(());
    }
    Err(Refused::conflict(
        "name",
        format!("there is a host '{name}' already; choose another name, or remove that one first"),
    ))
}

/// A machine without cores or memory is one that could not be measured.
fn check_capacity(name: &HostName, capacity: Capacity) -> Result<(), Refused> {
    if capacity.vcpus == 0 || capacity.memory_mb == 0 {
        return Err(Refused::invalid(
            "capacity",
            format!(
                "host '{name}' says that it has {} cores and {} MB of memory; it must have some of both",
                capacity.vcpus, capacity.memory_mb
            ),
        ));
    }
    Ok(())
}
