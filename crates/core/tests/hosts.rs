//! Hosts: how they join, what they take, and how they leave.

mod support;

use muster_core::model::{Capacity, HostName, HostState, KeyDigest, Scope};
use muster_core::time::Span;
use muster_core::{Answer, HostRequest, Input, NewHost, RefusalKind, Reply};
use support::Stage;

fn host(name: &str) -> HostName {
    HostName::new(name).expect("a name")
}

fn ask(stage: &mut Stage, request: HostRequest) -> Answer {
    stage.say(Input::ChangeHosts(Box::new(request)))
}

fn issue(stage: &mut Stage, word: &str, name: Option<&str>) -> Answer {
    let request = HostRequest::IssueTicket {
        digest: KeyDigest::made_up(word),
        intent: Scope::Everything,
        host: name.map(host),
        good_for: Span::seconds(600),
    };
    ask(stage, request)
}

fn join(stage: &mut Stage, ticket: &str, name: &str, key: &str) -> Answer {
    let capacity = Capacity { gpus: 0, vcpus: 8, memory_mb: 32 * 1024 };
    let (ticket, key) = (KeyDigest::made_up(ticket), KeyDigest::made_up(key));
    ask(stage, HostRequest::Join(NewHost { ticket, name: host(name), capacity, key }))
}

fn refusal(answer: Answer) -> RefusalKind {
    answer.expect_err("it should be refused").kind
}

#[test]
fn a_ticket_is_good_once_and_only_its_user_may_ask_again() {
    let mut stage = Stage::new();
    issue(&mut stage, "t", None).expect("issued");
    let first = join(&mut stage, "t", "box", "k").expect("joined");
    // The answer was lost.
    assert_eq!(join(&mut stage, "t", "box", "k").expect("joined already"), first);
    assert_eq!(refusal(join(&mut stage, "t", "box", "other")), RefusalKind::NotFound);
    assert_eq!(refusal(join(&mut stage, "t", "other", "k")), RefusalKind::NotFound);
    issue(&mut stage, "u", None).expect("issued");
    assert_eq!(refusal(join(&mut stage, "u", "BOX", "k")), RefusalKind::Conflict);
    assert_eq!(refusal(join(&mut stage, "u", "local", "k")), RefusalKind::Conflict);
    // A refusal leaves the ticket good.
    join(&mut stage, "u", "box-2", "k2").expect("joined");
    let names: Vec<&str> = stage.world.hosts().hosts().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["box", "box-2"]);
}

#[test]
fn tickets_expire_and_may_be_for_one_name() {
    let mut stage = Stage::new();
    issue(&mut stage, "t", Some("box")).expect("issued");
    assert_eq!(refusal(join(&mut stage, "t", "other", "k")), RefusalKind::Invalid);
    stage.pass_s(600);
    assert_eq!(refusal(join(&mut stage, "t", "box", "k")), RefusalKind::NotFound);
    // The next one sweeps up those that are over.
    issue(&mut stage, "u", Some("box")).expect("issued");
    assert_eq!(stage.world.hosts().tickets().len(), 1);
    join(&mut stage, "u", "box", "k").expect("joined");
    assert_eq!(refusal(issue(&mut stage, "v", Some("box"))), RefusalKind::Conflict);
}

#[test]
fn what_a_host_has_may_change_and_strangers_have_nothing() {
    let mut stage = Stage::new();
    let capacity = Capacity { gpus: 0, vcpus: 4, memory_mb: 8192 };
    let local = HostRequest::Seen { name: HostName::local(), capacity };
    ask(&mut stage, local.clone()).expect("the server's own machine");
    let changes = stage.log.len();
    ask(&mut stage, local).expect("again");
    assert_eq!(stage.log.len(), changes, "nothing new");
    let stranger = HostRequest::Seen { name: host("box"), capacity };
    assert_eq!(refusal(ask(&mut stage, stranger)), RefusalKind::NotFound);
    let nothing = HostRequest::Seen { name: HostName::local(), capacity: Capacity::default() };
    assert_eq!(refusal(ask(&mut stage, nothing)), RefusalKind::Invalid);
    let remove = HostRequest::Remove { name: HostName::local(), is_forced: true };
    assert_eq!(refusal(ask(&mut stage, remove)), RefusalKind::Invalid);
    let state = HostState::Cordoned;
    let cordon = HostRequest::SetState { name: HostName::local(), state };
    let Ok(Reply::Host(found)) = ask(&mut stage, cordon) else { panic!("it can be cordoned") };
    assert_eq!(found.state, HostState::Cordoned);
}
