//! Consumers in groups: they share partitions, leave, and continue after the broker was stopped or killed.

use crate::broker::{Broker, external, root};
use crate::peer;

#[test]
fn a_group_goes_on_where_it_was_after_a_restart_and_a_kill() {
    let Some(python) = peer::python() else { return };
    let mut broker = Broker::start_at("os");
    let script = root().join("tests/clients/python/groups.py");
    let run = |broker: &Broker, part: &str| {
        peer::run(peer::command(&python).arg(&script).args([broker.kafka(), part]));
    };
    run(&broker, "share");
    broker.restart();
    run(&broker, "resume");
    if external().is_none() {
        broker.kill_and_restart();
    }
    run(&broker, "resume");
}
