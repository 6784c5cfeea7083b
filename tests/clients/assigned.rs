//! Groups of the consumer protocol: members of real clients come, leave, and survive a restart.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;

use crate::broker::{Broker, external, lines_of, root};
use crate::peer;

#[test]
fn members_share_read_once_and_keep_their_places_over_a_restart() {
    let Some(python) = peer::python() else { return };
    if external().is_some() {
        peer::skip(
            "a broker that runs elsewhere cannot be restarted",
            "unset STAFETT_TEST_KAFKA_ADDR",
        );
        return;
    }
    let mut broker = Broker::start();
    let log = broker.folder().join("members.log");
    let mut members = peer::command(&python)
        .arg(root().join("tests/clients/python/assigned_groups.py"))
        .arg(broker.kafka())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut goes_on = members.stdin.take().unwrap();
    let mut said = Vec::new();
    for line in lines_of(members.stdout.take().unwrap()) {
        if line == "restart" {
            broker.restart();
            goes_on.write_all(b"\n").unwrap();
        }
        said.push(line);
    }
    let status = members.wait().unwrap();
    let mut text = String::new();
    File::open(&log).unwrap().read_to_string(&mut text).unwrap();
    assert!(status.success(), "{status}\n{text}");
    assert_eq!(said, ["restart", "done"]);
}

#[test]
fn a_running_group_moves_between_the_protocols_as_its_members_are_replaced() {
    let Some(python) = peer::python() else { return };
    let broker = Broker::start();
    for strategy in ["cooperative-sticky", "range"] {
        let script = root().join("tests/clients/python/moving_groups.py");
        peer::run(
            peer::command(&python)
                .arg(script)
                .args([broker.kafka(), strategy]),
        );
    }
}
