//! Gathering and flush triggers, as scripts over a clock of numbers.

use stafett_sinks::convert::{Converter, OnUnknown};
use stafett_sinks::definition::Definition;
use stafett_sinks::gather::{Cause, FlushRules, Gather};

use crate::suite::{place, record};

fn definition() -> Definition {
    let text = "[sink.s]\nfrom = \"t\"\nto = \"files\"\npath = \"x\"\nformat = \"csv\"\non_unknown = \"refuse\"\n\
         [sink.s.columns]\nn = { type = \"bigint\", null = false }\n";
    Definition::parse(text).unwrap().remove(0)
}

fn gather(records: usize, bytes: usize, begun: Option<u64>) -> (Gather, Converter) {
    let definition = definition();
    let rules = FlushRules {
        records,
        bytes,
        every_ms: 100,
    };
    let converter = Converter::new(definition.columns, definition.steps, OnUnknown::Refuse);
    (Gather::new(place(0), rules, 1, 10, begun, 0), converter)
}

fn number(offset: u64) -> stafett_model::StoredRecord {
    record(offset, "{\"n\":1}")
}

#[test]
fn a_batch_is_due_when_it_is_full_or_its_time_has_come() {
    let (mut gather, mut converter) = gather(2, 1 << 20, None);
    assert_eq!(gather.due(1000), None, "nothing is gathered");
    assert!(gather.push(&number(10), &mut converter));
    assert_eq!(gather.due(99), None);
    assert_eq!(gather.due(100), Some(Cause::Time));
    assert!(gather.push(&number(11), &mut converter));
    assert_eq!(gather.due(0), Some(Cause::Full));
    let batch = gather.take(Cause::Full, 70);
    assert_eq!((batch.from, batch.next, batch.rows.len()), (10, 12, 2));
    // The flush has set the clock back.
    assert!(gather.push(&number(12), &mut converter));
    assert_eq!(gather.due(169), None);
    assert_eq!(gather.due(170), Some(Cause::Time));
}

#[test]
fn bytes_are_a_trigger_too() {
    let (mut gather, mut converter) = gather(1000, 1, None);
    assert!(gather.push(&number(10), &mut converter));
    assert_eq!(gather.due(0), Some(Cause::Bytes));
    assert!(gather.is_full());
}

#[test]
fn records_before_the_position_are_passed_over_and_gaps_count() {
    let (mut gather, mut converter) = gather(10, 1 << 20, None);
    assert!(gather.push(&number(9), &mut converter));
    assert!(gather.is_empty());
    gather.pass(15);
    assert_eq!(
        gather.due(100),
        Some(Cause::Time),
        "control batches move the position as well"
    );
    let batch = gather.take(Cause::Time, 100);
    assert_eq!((batch.from, batch.next, batch.records), (10, 15, 0));
}

#[test]
fn a_batch_that_was_begun_has_the_same_bounds_again() {
    let (mut gather, mut converter) = gather(2, 1 << 20, Some(13));
    for offset in 10..13 {
        assert!(gather.push(&number(offset), &mut converter));
        assert_eq!(
            gather.due(1000),
            (offset == 12).then_some(Cause::Begun),
            "{offset}"
        );
    }
    assert!(!gather.push(&number(13), &mut converter));
    let batch = gather.take(Cause::Begun, 0);
    assert_eq!((batch.from, batch.next, batch.rows.len()), (10, 13, 3));
    assert!(gather.push(&number(13), &mut converter));
}

#[test]
fn a_batch_that_was_begun_is_whole_or_not_written_at_the_end() {
    let (mut gather, mut converter) = gather(2, 1 << 20, Some(13));
    assert_eq!(gather.due_at_end(0), None);
    for (offset, due) in [(10, None), (11, None), (12, Some(Cause::Begun))] {
        assert!(gather.push(&number(offset), &mut converter));
        assert_eq!(gather.due_at_end(1000), due, "{offset}");
    }
    gather.take(Cause::Begun, 0);
    assert_eq!(gather.due_at_end(0), None);
    assert!(gather.push(&number(13), &mut converter));
    assert_eq!(gather.due_at_end(0), Some(Cause::Stop));
}

#[test]
fn hostile_records_are_poison_with_a_reason() {
    let deep = format!("{{\"n\":{}1{}}}", "[".repeat(1000), "]".repeat(1000));
    let large = format!("{{\"n\":\"{}\"}}", "x".repeat(10 << 20));
    let (mut gather, mut converter) = gather(100, 1 << 30, None);
    let cases = [
        ("", "not_json"),
        ("not JSON", "not_json"),
        ("[1]", "not_json"),
        ("{\"n\":NaN}", "not_json"),
        ("{}", "null"),
        ("{\"n\":null}", "null"),
        ("{\"n\":\"1\"}", "type"),
        ("{\"n\":1,\"x\":1}", "unknown_field"),
        (&deep, "type"),
        (&large, "type"),
    ];
    for (offset, (value, _)) in (10..).zip(&cases) {
        assert!(gather.push(&record(offset, value), &mut converter));
    }
    let mut invalid = number(20);
    invalid.value = Some(bytes::Bytes::from_static(b"{\"n\":\"\xff\"}"));
    assert!(gather.push(&invalid, &mut converter));
    let batch = gather.take(Cause::Stop, 0);
    let found: Vec<_> = batch.poison.iter().map(|poison| poison.reason.class).collect();
    let mut expected: Vec<_> = cases.iter().map(|(_, class)| *class).collect();
    expected.push("not_json");
    assert_eq!(found, expected);
    assert!(batch.rows.is_empty());
    assert!(
        batch.poison.iter().all(|poison| poison.reason.text.len() < 200),
        "{:?}",
        batch.poison
    );
}

#[test]
fn a_file_may_hold_endpoints_as_well() {
    let text = "[ingest.log]\npath = \"/event/log\"\ntopic = \"t\"\n\
         [sink.s]\nfrom = \"t\"\nto = \"files\"\npath = \"x\"\n";
    assert_eq!(Definition::parse(text).unwrap().len(), 1);
}
