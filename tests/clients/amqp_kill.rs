//! The process is killed under load from a publisher that waits for confirms, and from a worker that
//! acknowledges: no confirmed message is lost, and no message settled long before returns; also in a stream,
//! and in a queue over it.

use crate::broker::{Broker, is_stafett};
use crate::kill::{kill, survives_at};
use crate::peer;

/// Maximum confirmed messages between two kills.
const CONFIRMED_MAX: u64 = 2_000;
/// Maximum acknowledged messages between two kills: enough of them for some seconds.
const SETTLED_MAX: u64 = 10_000;

/// Runs a script for load and one that checks the remains. `noun` is the unit that the first one counts,
/// `count_max` the maximum between two kills.
fn amqp_survives(noun: &str, scripts: [&str; 2], count_max: u64) {
    if is_stafett() && peer::python_with_amqp().is_some() {
        survives_at(Broker::amqp, "sync", noun, scripts, count_max, kill);
    }
}

#[test]
fn kills_lose_nothing_that_was_confirmed() {
    amqp_survives(
        "killed",
        ["amqp_kill_load.py", "amqp_kill_verify.py"],
        CONFIRMED_MAX,
    );
}

#[test]
fn kills_lose_nothing_of_a_stream_and_bring_back_nothing_that_a_queue_over_it_settled() {
    amqp_survives(
        "killed",
        ["amqp_kill_stream_load.py", "amqp_kill_stream_verify.py"],
        CONFIRMED_MAX,
    );
}

#[test]
fn kills_bring_nothing_back_that_was_settled_long_before() {
    amqp_survives(
        "worked",
        ["amqp_kill_work.py", "amqp_kill_worked.py"],
        SETTLED_MAX,
    );
}
