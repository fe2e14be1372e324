//! What a list of jobs is asked for.

use crate::error::ArmError;
use crate::json::shorten;
use crate::path::Query;

const KINDS: [&str; 8] =
    ["AutoML", "Command", "Sweep", "Pipeline", "Spark", "FineTuning", "Labeling", "Base"];

/// Whether `jobType` leaves commands in the list. There are no others.
pub fn asks_for_commands(query: &Query) -> Result<bool, ArmError> {
    let Some(kind) = query.get("jobType").filter(|kind| !kind.is_empty()) else { return Ok(true) };
    if !KINDS.iter().any(|known| known.eq_ignore_ascii_case(kind)) {
        let message = format!("jobType is '{}'; give one of {}", shorten(kind), KINDS.join(", "));
        return Err(ArmError::invalid_property("jobType", message));
    }
    Ok(kind.eq_ignore_ascii_case("Command"))
}
