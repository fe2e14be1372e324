//! Hosts and join tokens.

use muster_core::model::{Capacity, HostName, HostState, KeyDigest, Scope};
use muster_core::time::Span;
use muster_core::{HostRequest, Input, NewHost};

use super::{Database, Stage};

pub fn hosts_and_join_tokens_read_back(database: &dyn Database) {
    let mut stage = Stage::new(database);
    // The stage compares World with the rows after every input.
    let mut ask = |request| {
        stage.say(Input::ChangeHosts(Box::new(request))).expect("the request is accepted")
    };
    let capacity = Capacity { gpus: 1, vcpus: 16, memory_mb: 65_536 };
    let name = HostName::new("gpu-box").expect("a name");
    for word in ["first", "second"] {
        ask(HostRequest::IssueTicket {
            digest: KeyDigest::made_up(word),
            intent: Scope::group("s", "g"),
            host: None,
            good_for: Span::seconds(60),
        });
    }
    let (ticket, key) = (KeyDigest::made_up("first"), KeyDigest::made_up("key"));
    ask(HostRequest::Join(NewHost { ticket, name: name.clone(), capacity, key }));
    ask(HostRequest::Seen { name: HostName::local(), capacity });
    ask(HostRequest::SetState { name: name.clone(), state: HostState::Cordoned });
    let rows = database.store().load().expect("rows can be read");
    let [joined, local] = rows.hosts.as_slice() else { panic!("two hosts: {:?}", rows.hosts) };
    assert_eq!((&joined.name, joined.state, joined.key), (&name, HostState::Cordoned, Some(key)));
    assert!(local.name.is_local() && local.key.is_none());
    let [left] = rows.tickets.as_slice() else { panic!("one ticket: {:?}", rows.tickets) };
    assert_eq!(left.digest, KeyDigest::made_up("second"));
    ask(HostRequest::Remove { name, is_forced: false });
    assert_eq!(database.store().load().expect("rows can be read").hosts.len(), 1);
}
