//! Asking for tickets, joining with one, and taking hosts out of service. Whether the caller may ask is
//! decided before this.

use std::sync::Arc;

use super::shorten;
use crate::change::Change;
use crate::hosts::HostChange;
use crate::ids::WorkspaceId;
use crate::input::{Answer, HostRequest, NewHost, Refused, Reply};
use crate::limits;
use crate::model::{
    Capacity, ClusterSpec, Host, HostName, HostState, JoinTicket, KeyDigest, Scope,
};
use crate::step::Turn;
use crate::time::Span;

pub(crate) fn change(turn: &mut Turn<'_>, request: &HostRequest) -> Answer {
    match request {
        HostRequest::IssueTicket { digest, intent, host, good_for } => {
            issue(turn, *digest, intent, host.as_ref(), *good_for)
        }
        HostRequest::Join(new) => join(turn, new),
        HostRequest::Seen { name, capacity } => seen(turn, name, *capacity),
        HostRequest::Silent { name } => silent(turn, name),
        HostRequest::SetState { name, state } => set_state(turn, name, *state),
        HostRequest::Remove { name, is_forced } => remove(turn, name, *is_forced),
    }
}

fn issue(
    turn: &mut Turn<'_>,
    digest: KeyDigest,
    intent: &Scope,
    host: Option<&HostName>,
    good_for: Span,
) -> Answer {
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
        check_free(turn, name)?;
    }
    let now = turn.now.wall;
    let is_over = |ticket: &&JoinTicket| ticket.expires_at <= now;
    let over: Vec<KeyDigest> =
        turn.world.hosts().tickets().filter(is_over).map(|ticket| ticket.digest).collect();
    for digest in over {
        emit(turn, HostChange::TicketGone(digest));
    }
    if turn.world.hosts().tickets().len() >= limits::TICKETS_MAX {
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
    emit(turn, HostChange::Ticket(ticket.clone()));
    Ok(Reply::Ticket(ticket))
}

fn join(turn: &mut Turn<'_>, new: &NewHost) -> Answer {
    check_capacity(&new.name, new.capacity)?;
    let hosts = turn.world.hosts();
    if let Some(host) = hosts.host(&new.name)
        && host.ticket == Some(new.ticket)
        && host.key == Some(new.key)
    {
        // It has joined already, and did not hear so.
        return Ok(Reply::Host(Arc::clone(host)));
    }
    let ticket = hosts.ticket(&new.ticket).filter(|ticket| turn.now.wall < ticket.expires_at);
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
    check_free(turn, &new.name)?;
    if turn.world.hosts().hosts().len() >= limits::HOSTS_MAX {
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
        joined_at: turn.now.wall,
        is_silent: false,
        environments: Vec::new(),
    });
    emit(turn, HostChange::TicketGone(new.ticket));
    put(turn, Arc::clone(&host));
    Ok(Reply::Host(host))
}

/// A host said what it has. The server's own machine is known from its first word on.
fn seen(turn: &mut Turn<'_>, name: &HostName, capacity: Capacity) -> Answer {
    check_capacity(name, capacity)?;
    let host = match turn.world.hosts().host(name) {
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
            joined_at: turn.now.wall,
            is_silent: false,
            environments: Vec::new(),
        },
        None => return Err(unknown(name)),
    };
    let host = Arc::new(host);
    put(turn, Arc::clone(&host));
    Ok(Reply::Host(host))
}

/// A host has not said anything for a while. Its next word changes that.
fn silent(turn: &mut Turn<'_>, name: &HostName) -> Answer {
    let host = find(turn, name)?;
    if host.is_silent || name.is_local() {
        return Ok(Reply::Host(Arc::clone(host)));
    }
    let host = Arc::new(Host { is_silent: true, ..(**host).clone() });
    put(turn, Arc::clone(&host));
    Ok(Reply::Host(host))
}

fn set_state(turn: &mut Turn<'_>, name: &HostName, state: HostState) -> Answer {
    let host = find(turn, name)?;
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
    put(turn, Arc::clone(&host));
    Ok(Reply::Host(host))
}

fn remove(turn: &mut Turn<'_>, name: &HostName, is_forced: bool) -> Answer {
    let host = Arc::clone(find(turn, name)?);
    if name.is_local() {
        return Err(Refused::invalid(
            "name",
            "'local' is the server's own machine and cannot be removed; `muster host drain local` empties it",
        ));
    }
    let nodes = turn.world.housed(name).map_or(0, |housed| housed.nodes.len());
    if nodes == 0 {
        emit(turn, HostChange::HostGone(name.clone()));
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
    put(turn, Arc::new(Host { state: HostState::Removing, key: None, ..(*host).clone() }));
    Ok(Reply::Noted)
}

/// A cluster of GPUs where no machine has any is a slip, and better said at once than by nodes that never come. Other
/// sizes may wait for a machine that joins later.
pub(super) fn check_gpus(
    turn: &Turn<'_>,
    workspace: WorkspaceId,
    name: &str,
    spec: &ClusterSpec,
    node: Capacity,
) -> Result<(), Refused> {
    let world = &*turn.world;
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

fn put(turn: &mut Turn<'_>, host: Arc<Host>) {
    emit(turn, HostChange::Host(host));
}

fn emit(turn: &mut Turn<'_>, change: HostChange) {
    turn.emit(Change::HostsChanged(change));
}

fn find<'t>(turn: &'t Turn<'_>, name: &HostName) -> Result<&'t Arc<Host>, Refused> {
    turn.world.hosts().host(name).ok_or_else(|| unknown(name))
}

fn unknown(name: &HostName) -> Refused {
    let name = shorten(name.as_str());
    Refused::not_found(
        "name",
        format!("there is no host '{name}'; `muster host list` shows which there are"),
    )
}

fn check_free(turn: &Turn<'_>, name: &HostName) -> Result<(), Refused> {
    if !name.is_local() && turn.world.hosts().host(name).is_none() {
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
