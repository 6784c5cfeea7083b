//! `stafett topic`.

use super::cli::Cli;

pub(super) fn topics_are_created_listed_described_changed_and_deleted(cli: &Cli) {
    let created = cli.text(&[
        "topic",
        "create",
        "cli.topics.a",
        "cli.topics.b",
        "-p",
        "3",
        "--set",
        "retention.ms=7d",
    ]);
    assert_eq!(
        created,
        "topic cli.topics.a created with 3 partitions\ntopic cli.topics.b created with 3 partitions\n"
    );
    cli.produce(&["cli.topics.a"], b"one\ntwo\n");
    let listed = cli.json(&["topic", "list", "--pattern", "cli.topics.?"]);
    let row = |at: usize| {
        let row = &listed[at];
        (
            row["topic"].as_str().unwrap(),
            &row["partitions"],
            &row["records"],
        )
    };
    assert_eq!(row(0), ("cli.topics.a", &3.into(), &2.into()));
    assert_eq!(row(1), ("cli.topics.b", &3.into(), &0.into()));
    assert_eq!(listed.len(), 2);

    let described = &cli.json(&["topic", "describe", "cli.topics.a"])[0];
    assert_eq!(described["settings"]["retention.ms"], "604800000");
    let records: i64 = described["partitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["end"].as_i64().unwrap() - row["start"].as_i64().unwrap())
        .sum();
    assert_eq!(records, 2);

    let deleted = cli.text(&["topic", "delete", "--yes", "cli.topics.a", "cli.topics.b"]);
    assert_eq!(
        deleted,
        "topic cli.topics.a deleted\ntopic cli.topics.b deleted\n"
    );
}

pub(super) fn settings_change_while_the_topic_is_there(cli: &Cli) {
    cli.text(&["topic", "create", "cli.settings", "--set", "retention.ms=7d"]);
    let set = [
        "topic",
        "set",
        "cli.settings",
        "max.message.bytes=2MiB",
        "--unset",
        "retention.ms",
    ];
    assert_eq!(
        cli.text(&[&set[..], &["--dry-run"]].concat()),
        "cli.settings: max.message.bytes would be set to 2097152 (2MiB)\ncli.settings: retention.ms would be back at its default\n"
    );
    let before = &cli.json(&["topic", "describe", "cli.settings"])[0];
    assert_eq!(before["settings"]["retention.ms"], "604800000");
    cli.text(&set);
    let after = &cli.json(&["topic", "describe", "cli.settings"])[0];
    assert_eq!(after["settings"]["max.message.bytes"], "2097152");
    assert!(after["settings"].get("retention.ms").is_none());
    cli.text(&["topic", "set", "cli.settings", "--partitions", "7"]);
    let grown = &cli.json(&["topic", "list", "--pattern", "cli.settings"])[0];
    assert_eq!(grown["partitions"], 7);
    let fewer = cli.failure(&["topic", "set", "cli.settings", "--partitions", "2"]);
    assert!(fewer.contains("INVALID_PARTITIONS"), "{fewer}");
    let bad = cli.failure(&["topic", "set", "cli.settings", "retention.ms=soon"]);
    assert!(
        bad.contains("topic `cli.settings`: ") && bad.contains("soon"),
        "{bad}"
    );
}

pub(super) fn mistakes_are_named_with_what_to_do(cli: &Cli) {
    cli.text(&["topic", "create", "cli.orders", "-p", "2"]);
    let unknown = cli.failure(&["topic", "describe", "cli.ordres"]);
    assert_eq!(
        unknown,
        "stafett: topic `cli.ordres` does not exist; the nearest one is `cli.orders`; create it with: stafett topic \
         create cli.ordres"
    );
    for command in [
        &["topic", "set", "zzz", "retention.ms=1d"][..],
        &["topic", "delete", "--yes", "zzz"],
        &["produce", "zzz"],
        &["consume", "zzz"],
        &["consume", "zzz", "--group", "cli.g"],
        &["group", "reset", "cli.g", "--topic", "zzz", "--to", "earliest"],
    ] {
        let said = cli.failure(command);
        assert!(
            said.starts_with("stafett: topic `zzz` does not exist"),
            "{command:?}: {said}"
        );
    }
    let exists = cli.failure(&["topic", "create", "cli.orders"]);
    assert!(
        exists.contains("exists already; see it with: stafett topic describe cli.orders"),
        "{exists}"
    );
    assert_eq!(
        cli.text(&["topic", "create", "cli.orders", "--if-absent"]),
        "topic cli.orders exists\n"
    );
    let bad = cli.failure(&["topic", "create", "cli.bad", "--set", "no.such=1"]);
    assert!(
        bad.contains("topic `cli.bad`: ") && bad.contains("no.such"),
        "{bad}"
    );
    for command in [["consume", "cli.orders:1,7"], ["produce", "cli.orders"]] {
        let partition = if command[0] == "produce" {
            &["-p", "7"][..]
        } else {
            &[]
        };
        let said = cli.failure(&[&command[..], partition].concat());
        assert!(said.contains("has no partition 7; it has 2, from 0 on"), "{said}");
    }
    let unknown = cli.failure(&["group", "describe", "cli.nobody"]);
    assert!(unknown.contains("group `cli.nobody` does not exist"), "{unknown}");
    cli.text(&["topic", "delete", "--yes", "cli.orders"]);
}
