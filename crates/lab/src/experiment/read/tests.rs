use std::collections::BTreeMap;

use super::*;
use crate::experiment::{Rate, Size};

const GOOD: &str = r#"question = "how fast?"
systems = ["stafett", "kafka"]

[run]
duration = "20s"
warmup = "0s"
[topics.main]
partitions = 6

[roles.producers]
does = "produce"
size = 100
total = 1000

[roles.consumers]
does = "consume"

[grid]
"system.durability" = ["os", "sync"]
"roles.producers.size" = [100, "1KiB"]
'system.kafka.set."num.io.threads"' = [8]

[small]
"run.repetitions" = 1
'grid."roles.producers.batch"' = ["1KiB"]
"#;

fn source(text: &str) -> Source {
    Source::new("x.toml", text)
}

fn error(text: &str) -> String {
    source(text).experiment().unwrap_err().to_string()
}

fn values(pairs: &[(&str, serde_json::Value)]) -> BTreeMap<String, serde_json::Value> {
    pairs
        .iter()
        .map(|(path, value)| ((*path).to_owned(), value.clone()))
        .collect()
}

#[test]
fn what_the_clients_of_users_do_not_take_names_its_line() {
    let client = GOOD
        .replace("[topics.main]", "driver = \"client\"\n\n[topics.main]")
        .replace("\"roles.producers.batch\"", "roles.producers.batch");
    let fast = client.replace("total = 1000", "in_flight = 6");
    assert!(
        error(&fast).contains("x.toml:15: librdkafka has at most 5 requests"),
        "{}",
        error(&fast)
    );
    let unanswered = fast.replace("size = 100\n", "size = 100\ndelivery = \"at-most-once\"\n");
    source(&unanswered).experiment().unwrap();
    let queues = fast
        .replace("partitions = 6", "kind = \"queue\"")
        .replace("\"kafka\"", "\"rabbitmq\"");
    source(&queues).experiment().unwrap();
    let timed = client.replace("total = 1000", "transaction = \"1s\"");
    assert!(
        error(&timed).contains("x.toml:15: transactions"),
        "{}",
        error(&timed)
    );
    let exactly = timed.replace("size = 100\n", "size = 100\ndelivery = \"exactly-once\"\n");
    source(&exactly).experiment().unwrap();
}

#[test]
fn values_of_the_grid_are_put_where_their_paths_say() {
    let good = source(&GOOD.replace(
        r#"'grid."roles.producers.batch"'"#,
        r#""grid.roles.producers.batch""#,
    ));
    let experiment = good.experiment().unwrap();
    assert_eq!(experiment.grid.len(), 3);
    let chosen = values(&[
        ("system.durability", "sync".into()),
        ("roles.producers.size", "1KiB".into()),
        (r#"system.kafka.set."num.io.threads""#, 8.into()),
    ]);
    let plan = good.plan(1.0, &chosen).unwrap();
    assert_eq!(plan.system.durability, "sync");
    assert_eq!(plan.system.kafka.set["num.io.threads"], 8);
    assert_eq!(
        plan.roles["producers"].size,
        Size::Fixed(crate::experiment::ByteCount(1024))
    );
    assert_eq!(plan.roles["producers"].rate, Rate::Closed);
    assert_eq!(plan.run.repetitions, 3);
    assert_eq!(plan.roles["producers"].total, Some(1000));

    let mut small = chosen;
    small.insert("roles.producers.batch".to_owned(), "1KiB".into());
    let plan = good.plan(0.1, &small).unwrap();
    assert_eq!(plan.run.repetitions, 1);
    assert_eq!(plan.run.duration.0, std::time::Duration::from_secs(2));
    assert_eq!(
        plan.run.settle.0,
        std::time::Duration::from_secs(2),
        "of 10 s, and not 1"
    );
    assert_eq!(plan.roles["producers"].total, Some(100));
    assert_eq!(plan.roles["producers"].batch.0, 1024);
}

#[test]
fn what_is_unknown_is_named_with_its_line() {
    for (from, to, expected) in [
        (
            "partitions = 6",
            "partition = 6",
            "x.toml:8: unknown field `partition`",
        ),
        ("size = 100", "size = \"big\"", "x.toml:12: expected bytes"),
        ("duration = \"20s\"", "duration = 20", "x.toml:5: invalid type"),
        (
            "\"stafett\", \"kafka\"",
            "\"stafet\"",
            "x.toml:2: `stafet` is no system",
        ),
        ("[100, \"1KiB\"]", "[100, \"1Kib\"]", "x.toml:20: expected bytes"),
        (
            "\"roles.producers.size\"",
            "\"roles.producer.size\"",
            "x.toml:20: missing field `does`",
        ),
        (
            "[\"os\", \"sync\"]",
            "[\"os\", \"fsync\"]",
            "x.toml:19: unknown durability \"fsync\"",
        ),
        (
            "[\"os\", \"sync\"]",
            "\"os\"",
            "invalid type: string \"os\", expected a sequence",
        ),
        (
            "[\"os\", \"sync\"]",
            "[]",
            "x.toml:19: `system.durability` has no values",
        ),
        (
            "\"system.durability\"",
            "\"question\"",
            "x.toml:19: `question` cannot be varied",
        ),
        ("question = ", "question ", "x.toml:1: "),
    ] {
        let text = GOOD.replace(from, to);
        assert_ne!(text, GOOD, "{from}");
        let said = error(&text);
        assert!(said.contains(expected), "{to}: {said}");
    }
}

#[test]
fn contradictions_are_named_with_their_line() {
    for (from, to, expected) in [
        (
            "does = \"consume\"",
            "does = \"consume\"\nrate = { fixed = 5 }",
            "x.toml:17: a role that does `consume` has no rate",
        ),
        (
            "total = 1000",
            "window = 5\nrate = { fixed = 5 }",
            "x.toml:13: `window` is for a closed loop",
        ),
        (
            "total = 1000",
            "topics = \"others\"",
            "x.toml:13: there is no [topics.others]",
        ),
        ("total = 1000", "after = \"producers\"", "x.toml:13: "),
        (
            "warmup = \"0s\"",
            "",
            "x.toml:13: some or all of the 1000 messages would be sent in the warm-up",
        ),
        (
            "does = \"consume\"",
            "does = \"relay\"\ntotal = 5",
            "x.toml:17: a role that does `relay` never ends",
        ),
        (
            "does = \"consume\"",
            "does = \"request\"\nduplicates = 0.1",
            "x.toml:17: a role that does `request` sends nothing twice",
        ),
        (
            "total = 1000",
            "kill = { after = \"1s\", every = \"1s\", away = \"1s\" }",
            "x.toml:13: a role that does `produce` is not cut off",
        ),
        (
            "total = 1000",
            "acks = \"0\"",
            "x.toml:13: of a role that sends, acks = \"0\" goes with",
        ),
        (
            "total = 1000",
            "delivery = \"at-most-once\"\nacks = \"1\"",
            "x.toml:14: of a role that sends",
        ),
        (
            "does = \"consume\"",
            "does = \"consume\"\nacks = \"all\"",
            "x.toml:17: of a role that sends",
        ),
        ("total = 1000", "acks = \"2\"", "x.toml:13: "),
        ("partitions = 6", "partitions = 0", "x.toml:8: "),
        ("total = 1000", "duplicates = 1.5", "x.toml:13: "),
        ("duration = \"20s\"", "duration = \"0s\"", "x.toml:5: "),
        ("duration = \"20s\"", "design = \"factorial\"", "has 1 value"),
    ] {
        let text = GOOD.replace(from, to);
        assert_ne!(text, GOOD, "{from}");
        let said = error(&text);
        assert!(said.contains(expected), "{to}: {said}");
    }
}

#[test]
fn a_figure_that_no_role_can_give_names_its_line() {
    let relays = "question = \"?\"\nsystems = [\"stafett\"]\n\n[roles.relays]\ndoes = \"relay\"\nclients = 2\n\n\
                  [topics.main]\ncount = 2\n\n[[figures]]\ntitle = \"Out\"\nkind = \"bars\"\nx = \"system\"\n\
                  y = [\"consume_rate\"]\n\n[[figures]]\ntitle = \"In\"\nkind = \"bars\"\nx = \"system\"\n\
                  y = [\"delivery_p50_us\"]\n";
    source(relays).experiment().unwrap();
    for (name, needed) in [
        (
            "produce_rate",
            "takes a role that does `produce`, and there is none",
        ),
        ("acknowledged_p50_us", "takes a role that does `produce`"),
        ("round_trip_p99_us", "takes a role that does `request`"),
        ("unsubscribe_s", "takes a role with `leave`"),
        ("poll_p99_us", "takes a role with `poll`"),
        ("sustainable_rate", "takes a role with an adaptive rate"),
        ("drain_s", "begins `after` another one"),
        ("lost", "takes a role that does `consume`"),
        ("memory_per_connection_kib", "a role that is `idle`"),
        ("filtered", "topics with a `filter`"),
    ] {
        let said = error(&relays.replace("delivery_p50_us", name));
        assert!(said.starts_with("x.toml:21: figure \"In\": "), "{said}");
        assert!(said.contains(name) && said.contains(needed), "{said}");
    }
    let over_time = relays.replace(
        "kind = \"bars\"\nx = \"system\"\ny = [\"delivery_p50_us\"]",
        "kind = \"time\"\ny = [\"backlog\"]",
    );
    assert!(
        error(&over_time).starts_with("x.toml:20: "),
        "{}",
        error(&over_time)
    );
    let by_percentile = over_time
        .replace("\"time\"", "\"latency\"")
        .replace("backlog", "acknowledged");
    assert!(
        error(&by_percentile).contains("`acknowledged` takes"),
        "{}",
        error(&by_percentile)
    );
    // What the grid makes of a role counts, too.
    let varied = relays.replace("delivery_p50_us", "round_trip_p50_us")
        + "\n[grid]\n\"roles.relays.does\" = [\"relay\", \"request\"]\n";
    source(&varied).experiment().unwrap();
}

#[test]
fn what_is_wrong_with_a_figure_names_its_own_line() {
    let figures = "question = \"?\"\nsystems = [\"stafett\"]\n[roles.p]\ndoes = \"produce\"\n\
                   [[figures]]\ntitle = \"A\"\nkind = \"bars\"\nx = \"system\"\ny = [\"produce_rate\"]\n\
                   [[figures]]\ntitle = \"B\"\nkind = \"bars\"\nx = \"system\"\ny = [\"produce_rate\"]\n";
    let (first, second) = figures.split_at(figures.rfind("[[").unwrap());
    for (from, to, line) in [
        ("x = \"system\"", "x = \"roles.p.size\"", 13),
        ("produce_rate", "speed", 14),
        ("x = \"system\"\n", "", 12),
        ("kind = \"bars\"", "kind = \"effects\"", 12),
    ] {
        let said = error(&format!("{first}{}", second.replace(from, to)));
        assert!(
            said.starts_with(&format!("x.toml:{line}: figure \"B\"")),
            "{said}"
        );
    }
}
