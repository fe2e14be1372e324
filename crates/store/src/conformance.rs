//! What every store must do, whatever it is built on. Each check gets a fresh, empty database.
//!
//! A backend's test file calls `muster_store::conformance!(a_fresh_database)` and gets one test per check.

mod arrays;
mod assets;
mod claims;
mod commits;
mod events;
mod governance;
mod hosts;
mod job_life;
mod ledger;
mod listings;
mod retention;
mod series;
mod stage;
mod storage;
mod stories;
mod trees;

pub use arrays::*;
pub use assets::*;
pub use claims::*;
pub use commits::*;
pub use events::*;
pub use governance::*;
pub use hosts::*;
pub use job_life::*;
pub use ledger::*;
pub use listings::*;
pub use retention::*;
pub use series::*;
pub use stage::{Chance, Stage};
pub use storage::*;
pub use stories::*;
pub use trees::*;

use crate::{Reader, Store};

/// A database that is empty at first, and the handles on it.
pub trait Database: Sync {
    /// A new handle, such as another or a restarted process would have.
    fn store(&self) -> Box<dyn Store>;
    fn reader(&self) -> Box<dyn Reader>;
}

/// One test per check, each on the database that the given function creates.
#[macro_export]
macro_rules! conformance {
    ($fresh:path) => {
        $crate::conformance!($fresh:
            a_cluster_is_created_and_deleted,
            a_lost_node_puts_its_job_back,
            any_history_reads_back_as_it_was_written,
            batches_do_not_change_the_log,
            a_later_claim_fences_the_earlier,
            an_epoch_is_never_given_out_twice,
            without_a_claim_nothing_is_written,
            an_impossible_epoch_is_refused,
            a_refused_batch_leaves_nothing,
            an_empty_batch_writes_nothing,
            the_log_has_every_change_in_order,
            time_and_sequence_only_grow,
            readers_see_whole_commits,
            old_operations_are_forgotten_a_few_at_a_time,
            the_event_log_is_bounded_by_number,
            the_event_log_is_bounded_by_age_and_has_no_gap,
            a_shorter_log_changes_neither_rows_nor_the_world,
            jobs_are_found_by_any_spelling,
            jobs_are_listed_newest_first,
            job_metadata_reads_back_and_lists_follow_it,
            a_deleted_job_leaves_nothing_but_its_ledger_lines,
            jobs_are_removed_after_their_time_and_the_ledger_is_not,
            a_live_job_and_a_task_are_no_ended_jobs,
            referenced_jobs_are_known,
            the_size_of_every_content_is_known,
            the_activity_log_can_be_verified_after_its_beginning_was_deleted,
            clusters_are_listed_by_name,
            workspaces_are_separate,
            unknown_ids_find_nothing,
            a_specification_is_found_by_its_hash,
            groups_and_locks_read_back,
            hosts_and_join_tokens_read_back,
            deployments_read_back_and_the_oldest_are_deleted,
            a_deleted_workspace_leaves_only_its_ledger,
            the_activity_log_is_a_chain,
            the_ledger_adds_up_exactly,
            the_ledger_outlives_its_cluster,
            the_ledger_is_grouped_by_anything,
            trees_of_jobs_read_back,
            the_tasks_of_an_array_read_back,
            the_cost_of_an_array_is_that_of_its_tasks,
            an_array_is_deleted_with_its_tasks,
            datastores_read_back_and_are_deleted_with_their_workspace,
            assets_read_back_and_are_never_changed,
            assets_are_listed_by_when_they_were_made,
            asset_names_have_a_latest_and_a_next_version,
            assets_are_deleted_one_by_one_by_name_and_with_their_workspace,
            code_is_found_by_its_hash,
            references_to_uploads_are_known,
            evicted_nodes_are_counted_separately,
        );
    };
    ($fresh:path: $($check:ident),+ $(,)?) => {
        $(
            #[test]
            fn $check() {
                $crate::conformance::$check(&$fresh());
            }
        )+
    };
}

/// The same for the rows of the blob storage.
#[macro_export]
macro_rules! storage_conformance {
    ($fresh:path) => {
        $crate::conformance!($fresh:
            blobs_read_back_and_are_replaced,
            conditions_are_decided_where_the_change_is,
            blocks_wait_and_are_put_together,
            a_list_of_other_blocks_is_refused,
            lists_are_walks_along_the_names,
            a_part_needs_only_its_files,
            unreferenced_files_are_listed_and_settled,
            blocks_of_a_refused_upload_are_dropped_and_what_is_stored_is_counted,
            a_container_is_its_workspaces_own,
            tags_are_never_used_again,
            every_batch_has_a_revision,
            the_time_of_the_last_write_to_a_container_is_known,
            a_folder_is_published_whole_or_not_at_all,
        );
    };
}

/// The same for time series.
#[macro_export]
macro_rules! series_conformance {
    ($fresh:path) => {
        $crate::conformance!($fresh:
            samples_become_minutes_and_coarser_points,
            a_gap_has_no_points_and_ends_the_interval_before_it,
            a_minute_that_is_added_again_is_replaced,
            points_are_kept_for_their_time,
            nodes_have_series_of_their_own,
            a_deleted_cluster_leaves_nothing,
            only_so_many_nodes_are_recorded,
            the_oldest_points_of_nodes_make_room,
        );
    };
}
