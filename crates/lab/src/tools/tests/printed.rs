//! Lines that the real tools printed.

use super::near;
use crate::tools::launch::{Heard, Reader};
use crate::tools::told::Interval;
use crate::tools::{kafka_perf, perf_test};

/// What a line tells of both sides.
fn both(reader: &mut Reader, line: &str) -> (Option<Interval>, Option<Interval>) {
    match reader.on_line(line) {
        Ok(Heard::Interval(both)) => (both.sent, both.received),
        other => panic!("{line}: {other:?}"),
    }
}

/// Lines of `PerfTest` 2.22.1.
#[test]
fn what_perf_test_prints_is_understood() {
    let mut reader = Reader::PerfTest(perf_test::Lines::default());
    let first = "id: lab, time 1.004 s, sent: 1731 msg/s, confirmed: 1731 msg/s, nacked: 0 msg/s, received: 1329 msg/s, \
                 min/median/75th/95th/99th consumer latency: 20752/190769/302134/316363/320785 µs, confirm latency: \
                 2569/41085/124252/251221/253709 µs";
    let (Some(sent), Some(received)) = both(&mut reader, first) else {
        panic!("it has both sides");
    };
    near(sent.until_s, 1.004);
    near(sent.acknowledged, 1731.0 * 1.004);
    near(received.received, 1329.0 * 1.004);
    near(received.quantiles.unwrap().p99, 320_785.0);
    near(sent.quantiles.unwrap().min, 2569.0);
    let alone = "id: lab, time 5.021 s, sent: 44313 msg/s, confirmed: 44313 msg/s, nacked: 0 msg/s, \
                 min/median/75th/95th/99th confirm latency: 12/2938/5705/13565/67849 µs";
    let (Some(sent), None) = both(&mut reader, alone) else {
        panic!("nobody receives");
    };
    near(sent.seconds, 4.017);
    let ends = reader.on_line("test stopped (Reached time limit)");
    assert_eq!(ends, Ok(Heard::Ends("Reached time limit".to_owned())));
}

/// Lines of Kafka 4.3.1.
#[test]
fn what_kafkas_producer_prints_is_understood() {
    let mut producer = Reader::KafkaProducer(kafka_perf::ProducerLines::default());
    let first =
        "1 records sent, 0.6 records/sec (0.00 MB/sec), 1763.0 ms avg latency, 1763.0 ms max latency.";
    let second =
        "23375 records sent, 23375.0 records/sec (2.23 MB/sec), 68.9 ms avg latency, 177.0 ms max latency.";
    assert!(both(&mut producer, first).1.is_none());
    let sent = both(&mut producer, second).0.unwrap();
    near(sent.seconds, 1.0);
    near(sent.acknowledged, 23_375.0);
    near(sent.max_us.unwrap(), 177_000.0);
    near(sent.until_s, 1.0 / 0.6 + 1.0);
    for other in [
        "Warmup first 4000 records. Steady state results will print after the complete test summary.",
        "In steady state.",
        "12000 records sent, 1988.400994 records/sec (0.19 MB/sec), 13.60 ms avg latency, 1548.00 ms max latency, 6 ms 50th, \
         51 ms 95th, 117 ms 99th, 142 ms 99.9th.",
    ] {
        assert_eq!(producer.on_line(other), Ok(Heard::Nothing), "{other}");
    }
    let steady = "8000 steady state records sent, 1978.728667 records/sec (0.19 MB/sec), 5.40 ms avg latency, 38.00 ms max \
                  latency, 5 ms 50th, 13 ms 95th, 20 ms 99th, 36 ms 99.9th.";
    let Ok(Heard::Whole(whole)) = producer.on_line(steady) else {
        panic!("it tells all of it");
    };
    assert_eq!(whole[3].0, "acknowledged_p99_us");
    near(whole[3].1, 20_000.0);
}

#[test]
fn what_kafkas_consumer_prints_is_understood() {
    let mut consumer = Reader::KafkaConsumer(kafka_perf::ConsumerLines::default());
    for (line, seconds, count) in [
        (
            "2026-11-22 06:34:30:468, 0, 0.0001, 0.0001, 1, 0.6739, 1356, 128, 0.0007, 7.8125",
            1.484,
            1.0,
        ),
        (
            "2026-11-22 06:34:31:483, 0, 2.1517, 2.1198, 22562, 22227.5862, 0, 1015, 2.1198, 22227.5862",
            1.015,
            22_561.0,
        ),
    ] {
        let received = both(&mut consumer, line).1.unwrap();
        near(received.seconds, seconds);
        near(received.received, count);
    }
}

#[test]
fn other_lines_are_passed_over() {
    let mut reader = Reader::PerfTest(perf_test::Lines::default());
    for line in [
        "",
        "id: lab, starting producer #0, channel #0",
        "id: lab, sending rate avg: 9571 msg/s",
        "id: lab, consumer latency min/median/75th/95th/99th 2199/60688/136659/466314/626789 µs",
    ] {
        assert_eq!(reader.on_line(line), Ok(Heard::Nothing), "{line}");
    }
}
