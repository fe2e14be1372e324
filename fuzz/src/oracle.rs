//! What every refusal promises.

use muster_wire::ArmError;
use muster_wire::error::ErrorBody;

/// A message names the limit, the value and the remedy; a longer one would not be read.
const MESSAGE_BYTES_MAX: usize = 2_000;
const TARGET_BYTES_MAX: usize = 1_000;

/// The error is a 4xx with a short and clear message, and reads back as it was written.
pub fn refusal(error: &ArmError) {
    assert!((400..500).contains(&error.status), "{}: {error}", error.status);
    words(&error.body.error.message);
    if let Some(target) = error.target() {
        assert!(target.len() < TARGET_BYTES_MAX, "a target of {} bytes", target.len());
        plain(target);
    }
    let sent = muster_wire::to_json(&error.sent_in_parts());
    let read: ErrorBody = muster_wire::from_json(sent.as_bytes()).expect("our own JSON");
    assert_eq!(read, *error.body);
    let mut read: ErrorBody =
        muster_wire::from_json(error.to_json().as_bytes()).expect("our own JSON");
    assert_eq!(read.error.parts, [], "only clients that ask for parts get them");
    read.error.parts.clone_from(&error.body.error.parts);
    assert_eq!(read, *error.body);
}

/// The message is not empty, not too long, and contains nothing that a terminal or a log would interpret.
pub fn words(message: &str) {
    assert!(!message.is_empty(), "a refusal without a message");
    assert!(message.len() < MESSAGE_BYTES_MAX, "a message of {} bytes: {message}", message.len());
    plain(message);
}

fn plain(text: &str) {
    assert!(!text.chars().any(char::is_control), "a control character in {text:?}");
}

/// What was read and written again may be a few times as long as the input, but not more.
pub fn grown(from: &[u8], to: &str) {
    let limit = 2_000 + 8 * from.len();
    assert!(to.len() <= limit, "{} bytes became {}", from.len(), to.len());
}
