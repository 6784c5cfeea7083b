//! Live topics, with the `websockets` client for Python: each test is a script of `python/` that contains the
//! expectations.

use std::path::Path;

use crate::broker::{Broker, is_stafett, root};
use crate::peer;

/// Returns a Python with the scripts' packages, if there is one and the broker has live topics.
fn python() -> Option<std::path::PathBuf> {
    is_stafett().then(peer::python).flatten()
}

fn run(python: &Path, script: &str, broker: &Broker, more: &[&str]) {
    let script = root().join("tests/clients/python").join(script);
    peer::run(peer::command(python).arg(script).arg(broker.http()).args(more));
}

fn passes(script: &str, settings: &'static [&'static str]) {
    let Some(python) = python() else { return };
    run(&python, script, &Broker::start_with("sync", settings), &[]);
}

#[test]
fn a_client_listens_subscribes_publishes_and_gets_its_broadcast() {
    passes("live_protocol.py", &[]);
}

#[test]
fn commands_are_pipelined_lists_are_paged_and_bytes_pass() {
    passes("live_extensions.py", &[]);
}

#[test]
fn what_is_wrong_is_named_and_the_connection_goes_on() {
    passes(
        "live_bad_input.py",
        &["live.subscriptions_max=1000", "live.message_bytes_max=64KiB"],
    );
}

#[test]
fn what_the_rude_and_the_odd_send_harms_nobody() {
    passes(
        "live_hostile.py",
        &["live.idle_timeout_ms=4s", "live.message_bytes_max=64KiB"],
    );
}

#[test]
fn duplicates_are_filtered_where_a_rule_says_so_and_nowhere_else() {
    passes(
        "live_duplicates.py",
        &["live.duplicates=songs/=1h news/=1h,field:title"],
    );
}

#[test]
fn a_slow_reader_loses_what_its_policy_says_and_is_told() {
    passes("live_slow.py", &[]);
}

#[test]
fn messages_are_published_with_post_and_read_as_server_sent_events() {
    passes("live_http.py", &[]);
}

#[test]
fn topics_with_a_log_are_caught_up_with_and_shared_with_kafka_clients() {
    let Some(python) = python() else { return };
    let mut broker = Broker::start_with("sync", &["live.logs=charts/=charts,2"]);
    let kafka = broker.kafka().to_owned();
    run(&python, "live_logs.py", &broker, &["first", &kafka]);
    broker.restart();
    run(&python, "live_logs.py", &broker, &["again", &kafka]);
}

#[test]
fn the_example_page_shows_songs_as_they_start() {
    let (Some(python), Some(chromium)) = (python(), peer::chromium()) else {
        return;
    };
    let broker = Broker::start_with("sync", &["live.duplicates==1h"]);
    let pictures = root().join("target/clients/live-pictures");
    std::fs::create_dir_all(&pictures).unwrap();
    let more = [chromium.to_str().unwrap(), pictures.to_str().unwrap()];
    run(&python, "live_browser.py", &broker, &more);
}

#[test]
fn subscriptions_outlive_a_restart_and_a_crash() {
    let Some(python) = python() else { return };
    let mut broker = Broker::start();
    run(&python, "live_restart.py", &broker, &["subscribe"]);
    broker.restart();
    run(&python, "live_restart.py", &broker, &["verify"]);
    broker.kill_and_restart();
    run(&python, "live_restart.py", &broker, &["verify"]);
}
