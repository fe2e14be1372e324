//! What agents and providers saw.

mod effect;
mod report;

pub(crate) use effect::on_effect_done;
pub use report::desired_for;
pub(crate) use report::{bring_up_to_date, on_report};
