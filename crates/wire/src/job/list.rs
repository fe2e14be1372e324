//! The parameters of a list of jobs.

use crate::error::ArmError;
use crate::json::unknown;
use crate::path::Query;

const KINDS: [&str; 8] =
    ["AutoML", "Command", "Sweep", "Pipeline", "Spark", "FineTuning", "Labeling", "Base"];

/// Whether `jobType` includes command jobs. There are no other types.
pub fn asks_for_commands(query: &Query) -> Result<bool, ArmError> {
    let Some(kind) = query.get("jobType").filter(|kind| !kind.is_empty()) else { return Ok(true) };
    if !KINDS.iter().any(|known| known.eq_ignore_ascii_case(kind)) {
        return Err(unknown("jobType", kind, &KINDS));
    }
    Ok(kind.eq_ignore_ascii_case("Command"))
}
