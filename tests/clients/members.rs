//! Groups of real clients whose members come and go, and brokers that are killed under them.

use crate::broker::{Broker, root};
use crate::{kill, peer};

/// Sessions and heartbeats short enough to wait for.
const SETTINGS: &[&str] = &[
    "groups.session_ms_min=1000",
    "groups.consumer_session_ms=3000",
    "groups.consumer_heartbeat_ms=300",
];

fn a_file_passes_through_members(protocol: &str) {
    let Some(python) = peer::python() else { return };
    let broker = Broker::start_with("os", SETTINGS);
    let script = root().join("tests/clients/python/members.py");
    let folder = broker.folder().join("members");
    std::fs::create_dir_all(&folder).unwrap();
    peer::run(
        peer::command(&python)
            .arg(script)
            .args([broker.kafka(), protocol])
            .arg(&folder),
    );
}

#[test]
fn a_file_passes_through_classic_members_that_come_leave_pause_and_are_killed() {
    a_file_passes_through_members("classic");
}

#[test]
fn a_file_passes_through_members_of_the_new_protocol_that_come_leave_pause_and_are_killed() {
    a_file_passes_through_members("consumer");
}

#[test]
fn kills_lose_no_acknowledged_commit() {
    kill::survives(
        "os",
        "commits",
        ["commits_load.py", "commits_verify.py"],
        200,
        kill::kill,
    );
}
