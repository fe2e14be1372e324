//! The messages from and to hosts that join.

use std::fmt::{Debug, Display};

use muster_providers::joined::JoinToken;
use muster_providers::joined::protocol::{
    JoinRequest, NODES_MAX, SyncAnswer, SyncRequest, TROUBLE_MAX, VERSION,
};
use serde::Serialize;

/// What is accepted reads back as the same; everything else is refused with a clear message.
fn promises<T: Serialize + PartialEq + Debug, E: Display + Debug>(
    data: &[u8],
    parse: fn(&[u8]) -> Result<T, E>,
) -> Option<T> {
    match parse(data) {
        Ok(read) => {
            let again = serde_json::to_vec(&read).expect("plain data");
            assert_eq!(parse(&again).expect("our own JSON"), read);
            Some(read)
        }
        Err(refusal) => {
            let words = refusal.to_string();
            assert!(!words.is_empty() && !words.contains(char::is_control), "{words:?}");
            None
        }
    }
}

fn is_good(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '.', '\0'])
}

/// These messages arrive before the host is authenticated.
pub fn join(data: &[u8]) {
    if let Some(request) = promises(data, JoinRequest::parse) {
        assert_eq!(request.version, VERSION);
        assert!(!format!("{request:?}").contains(&format!("\"{}\"", request.secret)), "a secret");
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(token) = text.parse::<JoinToken>()
    {
        assert_eq!(token.to_string(), text.trim());
    }
}

/// No name in it is a path, and no message is too long for a log.
pub fn report(data: &[u8]) {
    let Some(request) = promises(data, SyncRequest::parse) else { return };
    assert!(request.report.nodes.len() <= NODES_MAX);
    for node in &request.report.nodes {
        assert!(is_good(&node.name), "{:?} is not a path", node.name);
        let trouble = node.trouble.as_deref().unwrap_or_default();
        assert!(trouble.chars().count() <= TROUBLE_MAX && !trouble.contains(char::is_control));
    }
}

pub fn wanted(data: &[u8]) {
    let Some(answer) = promises(data, SyncAnswer::parse) else { return };
    assert!(answer.nodes.iter().all(|node| is_good(&node.name) && !node.secret.is_empty()));
}
