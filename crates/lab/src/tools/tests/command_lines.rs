//! Plans to command lines, and what is refused.

use super::*;
use crate::systems;

/// What the tool for a protocol is started with, a line for each program.
fn lines(text: &str, system: &str, protocol: Protocol) -> Vec<String> {
    let plan = plan(text);
    let (settings, _) = systems::levels(system, &plan);
    let destinations = &destinations(&plan, &settings, "1")["main"];
    let target = Target {
        address: "h:1",
        names: &destinations.names,
        settings: &destinations.settings,
    };
    let launches = Kind::of(protocol).unwrap().launches(&plan, &target).unwrap();
    launches
        .iter()
        .map(|launch| format!("{} {}", launch.command, launch.args.join(" ")))
        .collect()
}

fn perf_test(text: &str, system: &str) -> String {
    lines(&format!("{QUEUES}{text}"), system, Protocol::Amqp).remove(0)
}

#[test]
fn perf_test_confirms_and_acknowledges_as_far_as_was_asked() {
    let memory = "[system]\ndurability = \"memory\"\n";
    assert_eq!(
        perf_test(&format!("{memory}{CONFIRMS}"), "rabbitmq"),
        "perf --uri amqp://guest:guest@h:1 --id lab --predeclared --skip-binding-queues --exchange amq.default --queue \
         lab-1-main-0 --routing-key lab-1-main-0 --producers 1 --producer-channel-count 1 --consumers 1 \
         --consumer-channel-count 1 --size 100 --interval 1 --time 6 --confirm 500 --confirm-timeout 30 --qos 500 \
         --disable-connection-recovery --metrics-format default"
    );
    let persistent = perf_test(&format!("[system]\ndurability = \"sync\"\n{CONFIRMS}"), "stafett");
    assert!(persistent.contains(" --flag persistent "), "{persistent}");
    let carelessly = CONFIRMS.replace("window = 500", "delivery = \"at-most-once\"");
    let carelessly = carelessly.replace("prefetch = 500", "delivery = \"at-most-once\"");
    let carelessly = perf_test(&format!("{memory}{carelessly}"), "stafett");
    assert!(carelessly.contains(" --autoack "), "{carelessly}");
    assert!(
        !carelessly.contains("--confirm")
            && !carelessly.contains("--qos")
            && !carelessly.contains("persistent")
    );
}

#[test]
fn perf_test_takes_a_channel_for_every_queue_and_its_share_of_the_rate() {
    let fixed = "[roles.p]\ndoes = \"produce\"\nclients = 2\nrate = { fixed = 2000 }\n[roles.c]\ndoes = \"consume\"\nclients = 3";
    let text = QUEUES.replace("kind = \"queue\"", "kind = \"queue\"\ncount = 6");
    let line = lines(&format!("{text}{fixed}"), "stafett", Protocol::Amqp).remove(0);
    for part in [
        " --queue-pattern lab-1-main-%d --queue-pattern-from 0 --queue-pattern-to 5 ",
        " --producers 2 --producer-channel-count 6 --consumers 3 --consumer-channel-count 2 ",
        &format!(" --rate {} ", 2000.0 / 12.0),
        // 5 batches of 64 KiB without a confirm are 3276 messages, which six channels share.
        " --confirm 546 ",
        " --qos 1000 ",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    let topics = lines(&format!("{TOPICS}{SIMPLE}"), "rabbitmq", Protocol::Amqp).remove(0);
    assert!(
        topics.contains(" --queue-pattern lab-1-main-0-%d --queue-pattern-from 0 --queue-pattern-to 5 "),
        "{topics}"
    );
    assert!(topics.contains(" --time 5 "), "{topics}");
}

#[test]
fn perf_test_fans_out_through_an_exchange_to_a_queue_of_each_consumer() {
    let fan_out = "exchange = \"fanout\"\n[roles.p]\ndoes = \"produce\"\n[roles.c]\ndoes = \"consume\"\nfan_out = true\nclients = 10";
    let line = perf_test(fan_out, "rabbitmq");
    assert!(line.contains(" --exchange lab-1-main-0 --type fanout "), "{line}");
    assert!(
        line.contains(" --queue-pattern lab-1-main-0-c-%d --queue-pattern-from 0 --queue-pattern-to 9 "),
        "{line}"
    );
    assert!(
        line.contains(" --consumers 10 --consumer-channel-count 1 "),
        "{line}"
    );
}

#[test]
fn kafkas_tools_are_a_producer_and_a_consumer() {
    let closed = lines(&format!("{TOPICS}{SIMPLE}"), "kafka", Protocol::Kafka);
    assert_eq!(
        closed,
        [
            "run ProducerPerformance --bootstrap-server h:1 --topic lab-1-main-0 --record-size 100 --reporting-interval 1000 \
             --throughput -1 --num-records 1000000000000000 --command-property acks=all enable.idempotence=true \
             batch.size=65536 linger.ms=5 max.in.flight.requests.per.connection=5 compression.type=none client.id=producer-0",
            "run ConsumerPerformance --show-detailed-stats --bootstrap-server h:1 --topic lab-1-main-0 --group lab-1-main-0-c \
             --num-records 1000000000000000 --timeout 86400000 --reporting-interval 1000 --fetch-size 4194304 \
             --command-property fetch.max.bytes=16777216 --command-property fetch.max.wait.ms=500 --command-property \
             client.id=consumer-0",
        ]
    );
    let fixed = SIMPLE.replace(
        "\"produce\"",
        "\"produce\"\nrate = { fixed = 1000 }\ncompression = \"lz4\"\ndelivery = \"at-most-once\"",
    );
    let fixed = lines(&format!("{TOPICS}{fixed}"), "kafka", Protocol::Kafka).remove(0);
    assert!(
        fixed.contains(" --throughput 1000 --num-records 10000 --warmup-records 2000 "),
        "{fixed}"
    );
    assert!(
        fixed.contains(" acks=0 enable.idempotence=false ") && fixed.contains(" compression.type=lz4 "),
        "{fixed}"
    );
    let leader = SIMPLE.replace("\"produce\"", "\"produce\"\nacks = \"1\"");
    let leader = lines(&format!("{TOPICS}{leader}"), "kafka", Protocol::Kafka).remove(0);
    assert!(leader.contains(" acks=1 enable.idempotence=false "), "{leader}");
}

#[test]
fn what_perf_test_cannot_be_told_is_refused_by_its_name() {
    // A number of messages has no warm-up.
    let queues = QUEUES.replace("warmup = \"1s\"", "warmup = \"0s\"");
    let amqp = |text: &str| lacks(&plan(&format!("{queues}{text}")), Protocol::Amqp).unwrap_or_default();
    assert_eq!(amqp(CONFIRMS), "");
    for (text, word) in [
        ("[roles.r]\ndoes = \"relay\"\nclients = 1", "cannot `relay`"),
        (
            "[roles.c]\ndoes = \"consume\"",
            "needs a role that does `produce`",
        ),
        (
            "[roles.a]\ndoes = \"produce\"\n[roles.b]\ndoes = \"produce\"",
            "there are several",
        ),
        (
            "[roles.p]\ndoes = \"produce\"\nacks = \"1\"\n[roles.c]\ndoes = \"consume\"",
            "AMQP has no acks = \"1\"",
        ),
        (
            "[roles.p]\ndoes = \"produce\"\nsize = { uniform = [50, 500] }",
            "no distribution of sizes",
        ),
        (
            "[roles.p]\ndoes = \"produce\"\nsize = 11",
            "no messages below 12 bytes",
        ),
        (
            "[roles.p]\ndoes = \"produce\"\nrate = { poisson = 5 }",
            "`poisson`",
        ),
        (
            "[roles.p]\ndoes = \"produce\"\nrate = { adaptive = { first = 5, p99 = \"1ms\", every = \"1s\" } }",
            "`adaptive`",
        ),
        ("zipf = 1.0\n[roles.p]\ndoes = \"produce\"", "`zipf`"),
        ("[roles.p]\ndoes = \"produce\"\ntotal = 5", "`total`"),
        ("[roles.p]\ndoes = \"produce\"\nduplicates = 0.5", "`duplicates`"),
        (
            "[roles.p]\ndoes = \"produce\"\ncompression = \"lz4\"",
            "no compression",
        ),
        (
            "[roles.p]\ndoes = \"produce\"\ncontent = { file = \"x\" }",
            "`content = { file }`",
        ),
        (
            "[roles.p]\ndoes = \"produce\"\n[roles.c]\ndoes = \"consume\"\ncommit = \"1s\"",
            "`commit`",
        ),
        (
            "exchange = \"direct\"\n[roles.p]\ndoes = \"produce\"",
            "`exchange`",
        ),
        (
            "count = 5\n[roles.p]\ndoes = \"produce\"\n[roles.c]\ndoes = \"consume\"\nclients = 2",
            "evenly",
        ),
    ] {
        let refusal = amqp(text);
        assert!(
            refusal.starts_with("PerfTest ") || refusal.starts_with("AMQP "),
            "{text}: {refusal}"
        );
        assert!(refusal.contains(word), "{text}: {refusal}");
    }
}

#[test]
fn what_kafkas_tools_cannot_be_told_is_refused_by_its_name() {
    let kafka = |text: &str| lacks(&plan(&format!("{TOPICS}{text}")), Protocol::Kafka).unwrap_or_default();
    assert_eq!(kafka(SIMPLE), "");
    for (text, word) in [
        (CONFIRMS.to_owned(), "`window`"),
        (
            SIMPLE.replace("\"produce\"", "\"produce\"\nclients = 9"),
            "more than 4",
        ),
        (
            SIMPLE.replace("\"produce\"", "\"produce\"\nin_flight = 6"),
            "at most 5",
        ),
        (
            SIMPLE.replace("\"produce\"", "\"produce\"\ndelivery = \"exactly-once\""),
            "exactly-once",
        ),
    ] {
        assert!(kafka(&text).contains(word), "{text}: {}", kafka(&text));
    }
    assert!(
        lacks(&plan(&format!("{TOPICS}{SIMPLE}")), Protocol::Live)
            .unwrap()
            .contains("live topics")
    );
}
