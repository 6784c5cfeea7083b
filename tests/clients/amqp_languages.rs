//! RabbitMQ clients of other languages: amqplib (Node), amqp091-go and lapin (Rust). Each is used by a
//! program that contains the expectations: confirms, returns, prefetch, requeueing, dead letters,
//! cancellation, properties and headers of every type, large bodies; and a kill of the broker, after which it
//! continues.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::broker::{Broker, is_stafett, lines_of};
use crate::peer;

/// Runs a program against a broker that is killed and restarted when the program asks for it.
fn passes(program: impl FnOnce() -> Option<Command>) {
    if !is_stafett() {
        return;
    }
    let Some(mut command) = program() else { return };
    let mut broker = Broker::start();
    let log = broker.folder().join("client.log");
    let mut client = command
        .arg(broker.amqp())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    let mut kills = 0;
    // They end with the client, which has a time limit.
    for line in lines_of(client.stdout.take().unwrap()) {
        assert_eq!(line, "kill");
        broker.kill_and_restart();
        input.write_all(b"killed\n").unwrap();
        kills += 1;
    }
    let status = client.wait().unwrap();
    let said = std::fs::read_to_string(log).unwrap();
    assert!(status.success(), "{command:?} ended with {status}\n{said}");
    assert_eq!(kills, 1);
}

#[test]
fn amqplib_confirms_settles_and_outlives_a_kill() {
    passes(peer::amqplib);
}

#[test]
fn amqp091_go_confirms_settles_and_outlives_a_kill() {
    passes(peer::amqp091_go);
}

#[test]
fn lapin_confirms_settles_and_outlives_a_kill() {
    passes(peer::lapin);
}
