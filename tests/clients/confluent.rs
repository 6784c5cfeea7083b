//! confluent-kafka for Python (librdkafka): each test is a script of `python/` that contains the
//! expectations.

use crate::broker::{Broker, is_stafett, root};
use crate::commands::cli::Cli;
use crate::java::tool;
use crate::peer;

fn passes(script: &str) {
    let Some(python) = peer::python() else { return };
    let broker = Broker::start();
    let script = root().join("tests/clients/python").join(script);
    peer::run(peer::command(&python).arg(script).arg(broker.kafka()));
}

#[test]
fn idempotent_batches_of_every_codec_come_back_with_keys_headers_and_timestamps() {
    passes("codecs.py");
}

#[test]
fn offsets_are_found_by_position_and_by_time() {
    passes("offsets.py");
}

#[test]
fn a_fetch_may_begin_inside_a_batch_and_not_outside_the_log() {
    passes("positions.py");
}

#[test]
fn topics_are_created_described_and_deleted() {
    passes("topics.py");
}

#[test]
fn topics_grow_settings_change_and_records_are_deleted() {
    passes("admin.py");
}

#[test]
fn only_a_producer_makes_a_missing_topic() {
    passes("auto_create.py");
}

#[test]
fn fifty_partitions_each_keep_their_order() {
    passes("partitions.py");
}

#[test]
fn large_messages_pass_up_to_the_limit_and_are_refused_above_it() {
    passes("large.py");
}

#[test]
fn a_topic_carries_its_durability() {
    if is_stafett() {
        passes("durability.py");
    }
}

#[test]
fn consume_prints_committed_records_unless_all_are_wanted() {
    let Some(python) = peer::python() else { return };
    let broker = Broker::start();
    let cli = Cli::of(&broker);
    cli.text(&["topic", "create", "moves", "-p", "1"]);
    let script = root().join("tests/clients/python/transactions.py");
    let mut load = peer::command(&python);
    peer::run(load.arg(script).args([broker.kafka(), "moves"]));
    // It ends before the first record of the open transaction.
    assert_eq!(cli.text(&["consume", "moves"]), "committed\nplain\n");
    assert_eq!(
        cli.text(&["consume", "moves", "--from", "-1"]),
        "plain\n",
        "the last before that"
    );
    let all = "committed\naborted\nplain\nopen\nbehind\n";
    assert_eq!(cli.text(&["consume", "moves", "--uncommitted"]), all);
    assert_eq!(
        cli.text(&["consume", "moves", "--group", "readers"]),
        "committed\nplain\n"
    );
}

#[test]
fn an_open_transaction_is_shown_with_the_records_that_wait_for_it_and_can_be_aborted() {
    let Some(python) = peer::python() else { return };
    let broker = Broker::start();
    let cli = Cli::of(&broker);
    cli.text(&["topic", "create", "moves", "-p", "1"]);
    let script = root().join("tests/clients/python/transactions.py");
    let mut load = peer::command(&python);
    peer::run(load.arg(script).args([broker.kafka(), "moves"]));
    let open = cli.json(&["transaction", "list", "--open"]);
    assert_eq!((open.len(), &open[0]["id"]), (1, &"left".into()), "{open:?}");
    let partitions = &open[0]["partitions"];
    assert_eq!(
        (&partitions[0]["topic"], &partitions[0]["waiting"]),
        (&"moves".into(), &2.into()),
        "{open:?}"
    );
    let Some(_) = tool("TransactionsCommand") else {
        return;
    };
    let kafka = |arguments: &str| {
        let mut command = tool("TransactionsCommand").unwrap();
        let server = ["--bootstrap-server", broker.kafka()];
        peer::run_text(command.args(server).args(arguments.split(' ')))
    };
    let listed = kafka("list");
    assert!(listed.contains("ended") && listed.contains("left"), "{listed}");
    let described = kafka("describe --transactional-id left");
    assert!(
        described.contains("Ongoing") && described.contains("moves-0"),
        "{described}"
    );
    let producers = kafka("describe-producers --topic moves --partition 0");
    let first = producers.lines().find_map(|line| {
        // The last column is the first offset of an open transaction.
        line.split_whitespace().last()?.parse::<u64>().ok()
    });
    let first = first.unwrap_or_else(|| panic!("{producers}"));
    kafka(&format!(
        "abort --topic moves --partition 0 --start-offset {first}"
    ));
    assert_eq!(cli.text(&["consume", "moves"]), "committed\nplain\nbehind\n");
    assert!(cli.json(&["transaction", "list", "--open"]).is_empty());
}

#[test]
fn batches_that_are_refused_under_overload_are_sent_again_in_order_and_once() {
    if !is_stafett() {
        return;
    }
    let Some(python) = peer::python() else { return };
    // One request may wait for the disk at a time: the others are refused, however long they waited.
    let settings = &["kafka.overload=shed", "shed.requests_max=1"];
    let broker = Broker::start_with("sync", settings);
    let script = root().join("tests/clients/python/shed.py");
    peer::run(
        peer::command(&python)
            .arg(script)
            .arg(broker.kafka())
            .arg(broker.http()),
    );
}
