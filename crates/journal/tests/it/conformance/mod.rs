//! Conformance suite for providers of the [`Journal`] trait, run on each of them.
//!
//! A test is a function that gets a [`Bench`] with a journal. `on_provider!` makes a test of each for one
//! provider, which is a function of [`Bench`]; `each_case!` passes the list to another macro. Other crates
//! include this folder for the providers that they add.
//!
//! [`Journal`]: stafett_journal::Journal

pub mod appends;
pub mod bench;
pub mod closing;
pub mod fan_out;
pub mod logs;
pub mod model;
pub mod owners;
pub mod producers;
pub mod reads;
pub mod requests;
pub mod state;
pub mod threads;
pub mod time;
pub mod transactions;
pub mod watch;

/// Calls a macro with arguments of its own and the list of all cases, by module.
macro_rules! each_case {
    ($then:ident! $($argument:ident),*) => {
        $then! {
            $($argument,)*
            appends:
                batches_get_the_offsets_behind_each_other,
                appends_of_one_call_have_outcomes_of_their_own,
                an_append_of_several_batches_is_stored_together,
                an_append_with_one_bad_frame_is_refused_as_a_whole,
                every_level_is_acknowledged_and_can_be_read,
                an_append_may_lower_the_level_of_its_logs_and_keeps_its_place,
                a_lowered_append_sent_again_is_the_one_that_is_there,
                a_ticket_that_nobody_keeps_changes_nothing,
                a_next_offset_that_holds_lets_an_append_in_and_one_that_does_not_keeps_it_out,
                of_two_that_require_the_same_offset_one_gets_it,
                an_append_of_nothing_is_committed,
                appends_behind_a_large_one_keep_their_order;
            reads:
                a_read_returns_the_whole_batch_that_holds_the_offset,
                a_read_takes_as_many_batches_as_fit,
                the_first_batch_is_whole_however_large_it_is_if_so_wanted,
                bytes_are_shared_by_the_logs_of_a_read,
                a_read_at_the_end_is_empty_and_beyond_it_is_refused,
                an_unknown_log_is_named_and_the_others_are_read,
                batches_carry_their_place_and_the_epoch_of_their_start,
                large_batches_come_back_as_they_went_in,
                large_batches_come_back_to_every_log_that_gets_them;
            fan_out:
                one_batch_goes_to_several_logs,
                a_part_of_a_batch_takes_as_many_offsets_as_it_has_records,
                parts_of_compressed_batches_can_be_read,
                a_log_may_be_a_target_twice,
                a_missing_target_keeps_the_batch_out_of_all;
            producers:
                a_batch_sent_again_gets_the_offset_it_had,
                a_gap_in_the_numbers_is_refused,
                an_old_epoch_is_refused_and_a_new_one_starts_at_zero,
                producers_are_known_per_log,
                producers_are_remembered_by_the_next_start;
            transactions:
                committed_reads_end_at_the_first_open_transaction,
                aborted_transactions_are_named_until_they_are_truncated,
                an_open_transaction_is_known_to_the_next_start,
                a_marker_with_a_later_epoch_fences_the_producer_and_its_sequences_begin_anew,
                a_batch_that_needs_others_of_its_producer_is_refused_without_them;
            requests:
                an_append_sent_again_under_its_id_is_the_one_that_is_there,
                an_id_is_known_to_the_next_start,
                what_was_refused_can_be_tried_again_under_its_id,
                an_id_counts_before_what_is_required,
                of_many_at_once_under_one_id_one_is_stored;
            owners:
                a_later_owner_keeps_earlier_ones_out,
                a_log_is_claimed_without_appending_to_it,
                owners_are_of_one_log_each,
                an_append_without_an_owner_is_not_asked_for_one;
            logs:
                ids_are_given_out_once,
                a_truncated_log_starts_where_it_was_cut,
                truncation_never_goes_back_or_beyond_the_end,
                a_deleted_log_is_gone_and_its_id_with_it,
                a_changed_level_holds_from_then_on,
                what_is_asked_of_unknown_logs_is_refused,
                logs_come_back_as_they_were;
            state:
                state_is_what_was_put_and_added_since,
                deleted_state_is_gone,
                spaces_do_not_mix,
                state_and_batches_are_stored_together,
                deltas_outlive_many_starts;
            time:
                the_first_batch_at_or_after_a_time_is_found,
                the_latest_is_the_first_of_the_latest,
                times_before_the_start_of_a_log_are_not_found;
            watch:
                growth_is_told_once_with_its_bytes,
                a_watch_hears_of_each_log_by_its_token,
                a_part_of_a_watch_reports_to_it_until_it_is_dropped,
                an_unknown_log_cannot_be_watched;
            closing:
                a_closed_journal_refuses_appends_and_can_be_closed_again,
                what_was_staged_before_closing_is_there,
                what_is_appended_while_it_closes_is_there_if_it_was_acknowledged,
                epochs_rise_with_every_start;
            model:
                anything_in_any_order_is_what_a_naive_model_says;
            threads:
                what_many_threads_append_is_there_in_order_and_once;
        }
    };
}

/// Makes a test of each case for a provider.
macro_rules! on_provider {
    ($provider:ident) => {
        each_case!(on_provider! $provider);
    };
    ($provider:ident, $($module:ident: $($name:ident),* $(,)?;)*) => {
        mod $provider {
            $(mod $module {
                $(#[test]
                fn $name() {
                    crate::conformance::$module::$name(&mut crate::conformance::bench::Bench::$provider());
                })*
            })*
        }
    };
}
