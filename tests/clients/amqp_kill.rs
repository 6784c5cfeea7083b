//! The process is killed under load from a publisher that waits for confirms, and from a worker that acknowledges: nothing
//! that was confirmed is lost, and nothing that was settled long before comes back; also in a stream, and in a queue over it.

use crate::broker::{Broker, is_stafett};
use crate::kill::{kill, survives_at};
use crate::peer;

/// Confirmed messages between two kills, at most.
const CONFIRMED_MAX: u64 = 2_000;
/// Acknowledged messages between two kills, at most: enough of them for some seconds.
const SETTLED_MAX: u64 = 10_000;

#[test]
fn kills_lose_nothing_that_was_confirmed() {
    if !is_stafett() || peer::python_with_amqp().is_none() {
        return;
    }
    survives_at(
        Broker::amqp,
        "sync",
        "killed",
        ["amqp_kill_load.py", "amqp_kill_verify.py"],
        CONFIRMED_MAX,
        kill,
    );
}

#[test]
fn kills_lose_nothing_of_a_stream_and_bring_back_nothing_that_a_queue_over_it_settled() {
    if !is_stafett() || peer::python_with_amqp().is_none() {
        return;
    }
    survives_at(
        Broker::amqp,
        "sync",
        "killed",
        ["amqp_kill_stream_load.py", "amqp_kill_stream_verify.py"],
        CONFIRMED_MAX,
        kill,
    );
}

#[test]
fn kills_bring_nothing_back_that_was_settled_long_before() {
    if !is_stafett() || peer::python_with_amqp().is_none() {
        return;
    }
    survives_at(
        Broker::amqp,
        "sync",
        "worked",
        ["amqp_kill_work.py", "amqp_kill_worked.py"],
        SETTLED_MAX,
        kill,
    );
}
