//! `stafett group`, and `stafett consume --group`.

use std::collections::BTreeSet;

use super::cli::Cli;
use crate::{java, peer};

fn numbers(count: u32) -> String {
    let numbers: Vec<_> = (0..count).map(|number| number.to_string()).collect();
    numbers.join("\n") + "\n"
}

pub(super) fn a_group_goes_on_where_it_was_and_can_be_moved(cli: &Cli) {
    cli.text(&["topic", "create", "cli.work", "-p", "1"]);
    cli.produce(&["cli.work"], numbers(100).as_bytes());
    let read = |arguments: &[&str]| cli.text(&[&["consume", "cli.work", "-g", "cli.g1"], arguments].concat());
    assert_eq!(read(&["--max", "40"]), numbers(40));
    let lag = || {
        let rows = cli.json(&["group", "lag", "cli.g1"]);
        assert_eq!(rows.len(), 1);
        (
            rows[0]["committed"].as_i64().unwrap(),
            rows[0]["lag"].as_i64().unwrap(),
        )
    };
    assert_eq!(lag(), (40, 60));
    assert_eq!(read(&[]).lines().next(), Some("40"));
    assert_eq!(lag(), (100, 0));
    assert_eq!(read(&[]), "");

    let reset = |arguments: &[&str]| {
        let rows = cli.json(&[&["group", "reset", "cli.g1"], arguments].concat());
        (
            rows[0]["before"].as_i64().unwrap(),
            rows[0]["offset"].as_i64().unwrap(),
        )
    };
    assert_eq!(reset(&["--to", "earliest", "--dry-run"]), (100, 0));
    assert_eq!(lag(), (100, 0));
    assert_eq!(reset(&["--to", "-5"]), (100, 95));
    assert_eq!(read(&[]), "95\n96\n97\n98\n99\n");
    assert_eq!(reset(&["--by", "-10"]), (100, 90));
    assert_eq!(reset(&["--to", "1000", "--topic", "cli.work:0"]), (90, 100));
    assert_eq!(reset(&["--to", "2h ago"]), (100, 0));
    assert_eq!(reset(&["--to", "latest"]), (0, 100));

    let listed = cli.json(&["group", "list", "--pattern", "cli.g1"]);
    assert_eq!(
        (&listed[0]["state"], &listed[0]["type"]),
        (&"Empty".into(), &"classic".into())
    );
    assert_eq!(
        cli.text(&["group", "delete", "--yes", "cli.g1"]),
        "group cli.g1 deleted\n"
    );
    assert!(cli.json(&["group", "list", "--pattern", "cli.g1"]).is_empty());
    let gone = cli.failure(&["group", "lag", "cli.g1"]);
    assert!(gone.contains("group `cli.g1` does not exist"), "{gone}");
}

pub(super) fn members_share_partitions_and_keep_others_from_moving_offsets(cli: &Cli) {
    cli.text(&["topic", "create", "cli.shared", "-p", "4"]);
    let follow = [
        "consume",
        "cli.shared",
        "-g",
        "cli.g2",
        "--follow",
        "--format",
        "%p\\n",
        "--from",
        "earliest",
    ];
    let (one, two) = (cli.start(&follow), cli.start(&follow));
    // Records to every partition, repeatedly, until both members have received some: then both have joined.
    let mut seen: [BTreeSet<String>; 2] = Default::default();
    while seen.iter().any(BTreeSet::is_empty) {
        for partition in ["0", "1", "2", "3"] {
            cli.produce(&["cli.shared", "-p", partition], b"x");
        }
        for (member, seen) in [&one, &two].into_iter().zip(&mut seen) {
            seen.extend(member.lines.try_iter());
        }
    }
    let group = &cli.json(&["group", "describe", "cli.g2"])[0];
    let members = group["members"].as_array().unwrap();
    assert_eq!(members.len(), 2, "{group}");
    let given: Vec<_> = members
        .iter()
        .map(|member| member["assignment"][0]["partitions"].as_array().unwrap().len())
        .collect();
    assert_eq!(given, [2, 2], "{group}");

    let active = cli.failure(&["group", "reset", "cli.g2", "--to", "earliest"]);
    assert!(
        active.contains("has 2 members") && active.contains("stop them first"),
        "{active}"
    );
    let active = cli.failure(&["group", "delete", "--yes", "cli.g2"]);
    assert!(active.contains("has members"), "{active}");

    one.interrupt();
    two.interrupt();
    // Both have left and committed what they printed.
    let group = &cli.json(&["group", "describe", "cli.g2"])[0];
    assert_eq!(group["state"], "Empty");
    assert_eq!(cli.json(&["group", "lag", "cli.g2"]).len(), 4);
    cli.text(&["group", "delete", "--yes", "cli.g2"]);
}

/// One member does not answer, so the group cannot assign partitions: another one that is interrupted leaves
/// all the same.
pub(super) fn a_member_that_waits_for_the_others_can_be_interrupted(cli: &Cli) {
    cli.text(&["topic", "create", "cli.waiting", "-p", "1"]);
    cli.produce(&["cli.waiting"], b"x");
    let follow = [
        "consume",
        "cli.waiting",
        "-g",
        "cli.g3",
        "--follow",
        "--from",
        "earliest",
    ];
    let one = cli.start(&follow);
    assert_eq!(one.lines.recv().unwrap(), "x");
    one.pause();
    let two = cli.start(&follow);
    let describe = || cli.json(&["group", "describe", "cli.g3"])[0].clone();
    while describe()["members"].as_array().unwrap().len() < 2 {}
    assert_ne!(describe()["state"], "Stable");
    two.interrupt();
    assert_eq!(describe()["members"].as_array().unwrap().len(), 1);
    one.resume();
    one.interrupt();
}

/// Members of Kafka's own consumer, in the protocol of KIP-848, which is described by another request.
pub(super) fn a_group_of_the_newer_protocol_is_described_and_moved(cli: &Cli) {
    let Some(mut consumer) = java::tool("org.apache.kafka.tools.consumer.ConsoleConsumer") else {
        return;
    };
    cli.text(&["topic", "create", "cli.newer", "-p", "1"]);
    cli.produce(&["cli.newer"], numbers(10).as_bytes());
    let read = peer::run_text(
        consumer
            .args([
                "--bootstrap-server",
                cli.server(),
                "--topic",
                "cli.newer",
                "--group",
                "cli.g3",
            ])
            .args([
                "--command-property",
                "group.protocol=consumer",
                "--from-beginning",
            ])
            .args(["--max-messages", "10", "--timeout-ms", "60000"]),
    );
    assert_eq!(read, numbers(10));
    let group = &cli.json(&["group", "describe", "cli.g3"])[0];
    assert_eq!(
        (&group["type"], &group["state"]),
        (&"consumer".into(), &"Empty".into())
    );
    assert_eq!(cli.json(&["group", "lag", "cli.g3"])[0]["lag"], 0);
    let moved = cli.json(&["group", "reset", "cli.g3", "--to", "-3"]);
    assert_eq!(
        (&moved[0]["before"], &moved[0]["offset"]),
        (&10.into(), &7.into())
    );
    assert_eq!(cli.text(&["consume", "cli.newer", "-g", "cli.g3"]), "7\n8\n9\n");
    cli.text(&["group", "delete", "--yes", "cli.g3"]);
}
