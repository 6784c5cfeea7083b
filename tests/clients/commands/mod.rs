//! The daily commands against the real binary, and against Apache Kafka if it is installed. Tests their
//! effect, not the look of their tables (see `crates/server/tests/it/commands.rs`).

pub(crate) mod cli;
mod groups;
mod kill;
mod records;
mod sql;
mod topics;

use crate::broker::Broker;
use crate::peer;
use cli::Cli;

/// Tests that must pass on every Kafka broker.
const EVERYWHERE: &[fn(&Cli)] = &[
    topics::topics_are_created_listed_described_changed_and_deleted,
    topics::settings_change_while_the_topic_is_there,
    topics::mistakes_are_named_with_what_to_do,
    records::a_file_comes_back_byte_for_byte_with_every_codec,
    records::keys_headers_and_nulls_come_back_as_json_and_go_in_again,
    records::reading_begins_and_stops_where_it_is_told_to,
    records::lines_that_cannot_be_sent_are_named,
    groups::a_group_goes_on_where_it_was_and_can_be_moved,
    groups::members_share_partitions_and_keep_others_from_moving_offsets,
    groups::a_member_that_waits_for_the_others_can_be_interrupted,
    groups::a_group_of_the_newer_protocol_is_described_and_moved,
];

#[test]
fn the_commands_work_against_apache_kafka() {
    let Some(launcher) = peer::kafka_tools() else {
        return;
    };
    let broker = Broker::start_kafka(launcher);
    for scenario in EVERYWHERE {
        scenario(&Cli::of(&broker));
    }
}

macro_rules! on_stafett {
    ($($module:ident::$name:ident)*) => {$(
        #[test]
        fn $name() {
            $module::$name(&Cli::of(&Broker::start_at("os")));
        }
    )*};
}

on_stafett! {
    topics::topics_are_created_listed_described_changed_and_deleted
    topics::settings_change_while_the_topic_is_there
    topics::mistakes_are_named_with_what_to_do
    records::a_file_comes_back_byte_for_byte_with_every_codec
    records::keys_headers_and_nulls_come_back_as_json_and_go_in_again
    records::reading_begins_and_stops_where_it_is_told_to
    records::lines_that_cannot_be_sent_are_named
    groups::a_group_goes_on_where_it_was_and_can_be_moved
    groups::members_share_partitions_and_keep_others_from_moving_offsets
    groups::a_member_that_waits_for_the_others_can_be_interrupted
    groups::a_group_of_the_newer_protocol_is_described_and_moved
    sql::topics_and_files_are_asked_by_sql
}
