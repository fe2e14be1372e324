//! What agents and providers observed.

mod effect;
mod ended;
mod evict;
mod renewal;
mod report;
mod saved;

pub(crate) use effect::{on_deleted, on_effect_done};
pub(crate) use ended::on_ended;
pub(crate) use evict::on_evicted;
pub use renewal::renew_unchanged;
pub use report::desired_for;
pub(crate) use report::{bring_up_to_date, is_given_up, on_report};
pub(crate) use saved::on_tree;
