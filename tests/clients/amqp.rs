//! RabbitMQ's clients: pika, aio-pika, kombu and Celery in the scripts `python/amqp_*.py`, which contain the
//! expectations; and RabbitMQ's own `PerfTest`, which uses the Java client.

use crate::broker::{Broker, is_stafett, root};
use crate::peer;

fn passes(script: &str) {
    if !is_stafett() {
        return;
    }
    let Some(python) = peer::python_with_amqp() else {
        return;
    };
    let broker = Broker::start();
    let script = root().join("tests/clients/python").join(script);
    peer::run(
        peer::command(&python)
            .arg(script)
            .arg(broker.amqp())
            .arg(broker.kafka()),
    );
}

#[test]
fn pika_declares_publishes_gets_consumes_and_settles() {
    passes("amqp_basics.py");
}

#[test]
fn the_patterns_of_the_seven_tutorials_work() {
    passes("amqp_tutorials.py");
}

#[test]
fn pika_finds_what_rabbitmq_adds_to_the_protocol() {
    passes("amqp_extensions.py");
}

#[test]
fn pika_shares_messages_out_by_a_hash_and_holds_them_back() {
    passes("amqp_plugins.py");
}

#[test]
fn pika_finds_quorum_queues_as_they_are() {
    passes("amqp_quorum.py");
}

#[test]
fn who_is_not_heard_is_given_up_and_who_is_stays() {
    passes("amqp_heartbeats.py");
}

#[test]
fn aio_pika_confirms_returns_and_iterates() {
    passes("amqp_aio.py");
}

#[test]
fn kombu_has_simple_queues_priorities_and_exchanges_of_exchanges() {
    passes("amqp_kombu.py");
}

#[test]
fn celery_retries_joins_waits_and_survives_a_killed_worker() {
    passes("amqp_celery.py");
}

#[test]
fn what_one_protocol_publishes_the_other_reads() {
    passes("amqp_conversions.py");
}

#[test]
fn pika_reads_streams_from_where_it_wants() {
    passes("amqp_streams.py");
}

#[test]
fn pika_consumes_by_filters() {
    if is_stafett() {
        passes("amqp_filters.py");
    }
}

#[test]
fn pika_settles_the_records_of_a_topic_one_by_one() {
    passes("amqp_topic_queues.py");
}

#[test]
fn a_client_that_never_reads_slows_nobody_and_fills_no_memory() {
    passes("amqp_never_reads.py");
}

#[test]
fn a_disk_that_runs_full_blocks_publishers_until_there_is_space() {
    if !is_stafett() {
        return;
    }
    let Some(python) = peer::python_with_amqp() else {
        return;
    };
    let settings = &["journal.segment_bytes=1MiB", "journal.disk_free_bytes_min=16MiB"];
    let Some(broker) = Broker::start_on_small_disk(64, settings) else {
        peer::skip(
            "no small disk can be mounted",
            "allow user namespaces: unshare -rm",
        );
        return;
    };
    let script = root().join("tests/clients/python/amqp_full_disk.py");
    println!(
        "{}",
        peer::run_text(peer::command(&python).arg(script).arg(broker.amqp()))
    );
}

#[test]
fn channels_and_connections_that_come_and_go_leave_nothing_behind() {
    if !is_stafett() {
        return;
    }
    let Some(python) = peer::python_with_amqp() else {
        return;
    };
    let broker = Broker::start_at("os");
    let script = root().join("tests/clients/python/amqp_churn.py");
    let pid = broker.pid().unwrap().to_string();
    let said = peer::run_text(peer::command(&python).arg(script).args([
        broker.amqp(),
        broker.http(),
        &pid,
        "10000",
        "1000",
    ]));
    println!("{said}");
}

#[test]
fn perf_test_confirms_and_acknowledges_all_it_sends() {
    if !is_stafett() {
        return;
    }
    let Some(perf) = peer::perf_test() else { return };
    let broker = Broker::start();
    let uri = format!("amqp://guest:guest@{}", broker.amqp());
    for flags in [
        ["--confirm", "100", "--qos", "100", "--flag", "persistent"],
        ["--confirm", "1", "--qos", "10", "--flag", "mandatory"],
    ] {
        let said = peer::run_text(
            peer::command(&perf)
                .args([
                    "perf",
                    "--uri",
                    &uri,
                    "--producers",
                    "2",
                    "--consumers",
                    "1",
                    "--queue",
                    "perf",
                ])
                .args(["--pmessages", "500", "--cmessages", "1000", "--size", "100"])
                .args(flags),
        );
        assert!(said.contains("test stopped"), "{said}");
    }
}

#[test]
fn two_consumers_of_perf_test_read_all_of_a_stream_each() {
    if !is_stafett() {
        return;
    }
    let Some(perf) = peer::perf_test() else { return };
    let broker = Broker::start();
    let uri = format!("amqp://guest:guest@{}", broker.amqp());
    let said = peer::run_text(
        peer::command(&perf)
            .args(["perf", "--uri", &uri, "--stream-queue", "--queue", "perf.stream"])
            .args([
                "--stream-consumer-offset",
                "first",
                "--qos",
                "50",
                "--confirm",
                "100",
            ])
            .args(["--producers", "1", "--consumers", "2", "--size", "100"])
            .args(["--pmessages", "1000", "--cmessages", "1000"]),
    );
    assert!(said.contains("Consumer reached message limit [2]"), "{said}");
}

/// Cases and RabbitMQ's answers; where ours differs on purpose, it is listed with the reason.
const TABLE: &str = "tests/clients/odd/amqp.tsv";

#[test]
fn odd_bytes_are_answered_as_rabbitmq_answers_them() {
    if !is_stafett() {
        return;
    }
    let Some(python) = peer::python_with_amqp() else {
        return;
    };
    let broker = Broker::start();
    let script = root().join("tests/clients/python/amqp_odd.py");
    let said = peer::run_text(peer::command(&python).arg(script).arg(broker.amqp()));
    let table = std::fs::read_to_string(root().join(TABLE)).unwrap();
    let mut wrong = Vec::new();
    let mut said = said.lines();
    for row in table.lines().skip(1) {
        let mut columns = row.split('\t');
        let name = columns.next().unwrap();
        let theirs = columns.next().unwrap();
        let expected = columns.next().unwrap_or(theirs);
        let found = said.next().and_then(|line| line.split_once('\t'));
        if found != Some((name, expected)) {
            wrong.push(format!("{name}\n  expected {expected}\n  found    {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(said.next(), None, "every case stands in the table");
}
