//! The broker is killed and comes back while the commands are at work.

use std::io::Write as _;

use super::cli::Cli;
use crate::broker::{Broker, external};
use crate::peer;

#[test]
fn produce_and_consume_go_on_when_the_broker_was_killed_and_comes_back() {
    if external().is_some() {
        return peer::skip("the broker is not ours to kill", "unset STAFETT_TEST_KAFKA_ADDR");
    }
    let mut broker = Broker::start();
    let cli = Cli::of(&broker);
    cli.text(&["topic", "create", "cli.kill", "-p", "1"]);
    let follower = cli.start(&["consume", "cli.kill", "--follow", "--from", "earliest"]);
    let mut producer = cli.start_produce(&["cli.kill", "--quiet"]);
    let mut input = producer.input.take().unwrap();
    let mut next = 0;
    let mut feed = |count: u32| {
        let lines: Vec<_> = (next..next + count)
            .map(|number| format!("line {number}\n"))
            .collect();
        next += count;
        input.write_all(lines.concat().as_bytes()).unwrap();
    };
    let mut seen = 0;
    let mut await_lines = |until: u32| {
        while seen < until {
            assert_eq!(follower.lines.recv().unwrap(), format!("line {seen}"));
            seen += 1;
        }
    };
    feed(1000);
    await_lines(1000);
    for round in 1..4 {
        // These are on their way, or not yet read, when the broker dies.
        feed(1000);
        broker.kill_and_restart();
        feed(10);
        await_lines(1000 + round * 1010);
    }
    drop(input);
    producer.success();
    follower.interrupt();
    assert_eq!(
        cli.json(&["topic", "list", "--pattern", "cli.kill"])[0]["records"],
        4030
    );
}
