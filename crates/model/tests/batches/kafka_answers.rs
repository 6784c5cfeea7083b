//! The same bytes, once to a Kafka broker and once to the check here; see `tests/data/README.md`.

use bytes::Bytes;
use stafett_model::{ProduceLimits, sole_batch};

const ANSWERS: &str = include_str!("../data/kafka-answers.tsv");

/// Batches that Kafka stores and the check here refuses; the table in the module `validate` lists the
/// reasons.
const REFUSED_HERE_ALONE: [&str; 7] = [
    "append time bit",
    "producer id without epoch",
    "producer id -2",
    "offset deltas 0 2 1",
    "offset deltas 0 0 0",
    "key length -2",
    "a byte behind the batch",
];

fn unhex(text: &str) -> Bytes {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn bytes_are_taken_and_refused_as_by_kafka_but_for_the_differences_named() {
    let limits = ProduceLimits {
        deep: true,
        ..ProduceLimits::default()
    };
    let mut cases = 0;
    for line in ANSWERS.lines() {
        let [name, answer, hex] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let expected = answer == "0" && !REFUSED_HERE_ALONE.contains(&name);
        let checked = sole_batch(&unhex(hex), &limits);
        assert_eq!(checked.is_ok(), expected, "{name}: {checked:?}");
        assert!(
            answer == "0" || !REFUSED_HERE_ALONE.contains(&name),
            "{name} is no difference"
        );
        cases += 1;
    }
    assert!(cases > 60, "{cases} cases");
}
