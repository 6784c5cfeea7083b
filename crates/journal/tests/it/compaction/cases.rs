//! Single cases: producers, readers, lags, shares, retention, searches by time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stafett_journal::{Compaction, Journal, LogSpec, Retention, TimeQuery, Visibility};
use stafett_model::{
    BatchBuilder, BatchHeader, Codec, LogId, Offset, ProducerId, Record, TransactionEnd, end_marker,
    offset_for_timestamp,
};

use super::bench::{BEGIN_MS, Bench, KEPT_MS, KeyValue, Model, batch, eager, pair, tombstone};
use crate::support;

const MAP_BYTES: usize = 1 << 20;

fn put(bench: &Bench, log: LogId, records: &[KeyValue]) -> Offset {
    bench
        .put(log, batch(Codec::None, records, bench.now_ms(), None))
        .base
}

fn offsets(bench: &Bench, log: LogId) -> Vec<u64> {
    bench.read(log).iter().map(|record| record.offset.0).collect()
}

fn headers(bench: &Bench, log: LogId) -> Vec<BatchHeader> {
    let run = support::read(&*bench.journal, log, 0, 1 << 20).unwrap();
    let batches = support::batches(&run);
    batches
        .iter()
        .map(|batch| BatchHeader::parse(batch).unwrap())
        .collect()
}

#[test]
fn a_producer_goes_on_where_it_was_though_its_records_are_gone() {
    let bench = Bench::new(MAP_BYTES);
    let log = bench.compacted(eager());
    let sent = |sequence| {
        batch(
            Codec::Gzip,
            &[pair("a", "1"), pair("b", "1")],
            BEGIN_MS,
            Some((9, sequence)),
        )
    };
    for sequence in [0, 2, 4] {
        bench.put(log, sent(sequence));
    }
    put(&bench, log, &[pair("a", "2"), pair("b", "2")]);
    let bench = bench.settle();
    assert_eq!(offsets(&bench, log), [6, 7]);
    let kept: Vec<_> = headers(&bench, log)
        .iter()
        .map(|it| (it.base_sequence, it.record_count))
        .collect();
    assert_eq!(
        kept,
        [(4, 0), (-1, 2)],
        "the last batch of the producer is left without records"
    );
    let bench = bench.restart(true);
    let again = bench.put(log, sent(4));
    assert!(again.duplicate && again.base == Offset(4));
    assert_eq!(bench.put(log, sent(6)).base, Offset(8));
    let bench = bench.settle();
    assert_eq!(offsets(&bench, log), [8, 9]);
    assert!(bench.put(log, sent(6)).duplicate);
}

#[test]
fn aborted_transactions_are_forgotten_once_their_records_are_compacted_away() {
    let bench = Bench::new(MAP_BYTES);
    let log = bench.compacted(eager());
    let aborted = |bench: &Bench| {
        let run = support::read_as(&*bench.journal, log, (0, 1 << 20), Visibility::Committed).unwrap();
        let firsts = run.aborted.iter().map(|aborted| aborted.first.0);
        firsts.collect::<Vec<_>>()
    };
    let begin = |bench: &Bench, sequence| {
        let mut batch = BatchBuilder::new(Codec::None)
            .producer(ProducerId(9), 0, sequence)
            .transactional();
        let record = Record {
            key: Some(b"a"),
            value: Some(b"aborted"),
            headers: &[],
            timestamp: BEGIN_MS,
        };
        batch.push(&record).unwrap();
        bench.put(log, batch.finish().unwrap());
    };
    let abort = || end_marker(ProducerId(9), 0, TransactionEnd::Abort, BEGIN_MS);
    for sequence in 0..3 {
        begin(&bench, sequence);
        bench.put(log, abort());
    }
    put(&bench, log, &[pair("b", "1")]);
    begin(&bench, 3);
    assert_eq!(aborted(&bench), [0, 2, 4]);
    let mut bench = bench.settle();
    assert_eq!(aborted(&bench), [], "their records are gone");
    bench.put(log, abort());
    assert_eq!(aborted(&bench), [7]);
    // A kill before the next checkpoint would bring the others back until the next pass.
    for is_killed in [false, true] {
        bench = bench.restart(is_killed);
        assert_eq!(aborted(&bench), [7]);
    }
}

#[test]
fn a_log_whose_keys_are_all_deleted_is_read_to_its_end() {
    let bench = Bench::new(MAP_BYTES);
    let log = bench.compacted(eager());
    put(&bench, log, &[pair("a", "1"), pair("b", "1")]);
    put(&bench, log, &[tombstone("a"), tombstone("b")]);
    let bench = bench.settle();
    assert_eq!(offsets(&bench, log), [2, 3], "tombstones stay at first");
    bench.advance(KEPT_MS - 1);
    let bench = bench.settle();
    assert_eq!(offsets(&bench, log), [2, 3]);
    bench.advance(1);
    let bench = bench.settle();
    assert!(offsets(&bench, log).is_empty());
    let bounds = bench.journal.bounds(log).unwrap();
    assert_eq!((bounds.start, bounds.end), (Offset(0), Offset(4)));
    assert_eq!(put(&bench, log, &[pair("a", "3")]), Offset(4));
    assert_eq!(offsets(&bench, log), [4]);
}

#[test]
fn records_without_a_key_go() {
    let bench = Bench::new(MAP_BYTES);
    let log = bench.compacted(eager());
    put(
        &bench,
        log,
        &[(None, Some("x".into())), pair("a", "1"), (None, None)],
    );
    assert_eq!(offsets(&bench.settle(), log), [1]);
}

#[test]
fn young_records_wait() {
    let bench = Bench::new(MAP_BYTES);
    let log = bench.compacted(Compaction {
        lag_min: Duration::from_secs(5),
        ..eager()
    });
    for _ in 0..3 {
        put(&bench, log, &[pair("a", "1")]);
        bench.advance(2000);
    }
    let bench = bench.settle();
    assert_eq!(offsets(&bench, log), [0, 1, 2], "only the first is old enough");
    bench.advance(2000);
    let bench = bench.settle();
    assert_eq!(offsets(&bench, log), [1, 2], "the second is as well");
    bench.advance(2000);
    assert_eq!(offsets(&bench.settle(), log), [2]);
}

#[test]
fn little_that_is_dirty_waits_until_it_is_old() {
    let bench = Bench::new(MAP_BYTES);
    let log = bench.compacted(Compaction {
        dirty_share_min: 500_000,
        lag_max: Some(Duration::from_mins(1)),
        ..eager()
    });
    for key in 0..20 {
        put(&bench, log, &[pair(&key.to_string(), "1")]);
    }
    let bench = bench.settle();
    put(&bench, log, &[pair("0", "2")]);
    bench.advance(60_000);
    let bench = bench.settle();
    assert_eq!(offsets(&bench, log).len(), 21, "a twentieth is dirty");
    assert_eq!(bench.metric("journal_compaction_dirty_percent"), 4);
    bench.advance(1);
    let bench = bench.settle();
    assert_eq!(offsets(&bench, log), (1..=20).collect::<Vec<_>>());
    assert_eq!(bench.metric("journal_compaction_dirty_percent"), 0);
}

#[test]
fn retention_frees_what_compaction_left() {
    let bench = Bench::new(MAP_BYTES);
    let age = Some(Duration::from_hours(1));
    let log = bench.create(LogSpec {
        retention: Retention { age, bytes: None },
        compaction: Some(eager()),
        ..LogSpec::default()
    });
    put(&bench, log, &[pair("a", "1"), pair("b", "1")]);
    put(&bench, log, &[pair("a", "2")]);
    let bench = bench.settle();
    assert_eq!(offsets(&bench, log), [1, 2]);
    bench.journal.enforce_retention();
    assert_eq!(offsets(&bench, log), [1, 2]);
    bench.advance(3_600_010);
    bench.journal.enforce_retention();
    bench.journal.pump();
    assert_eq!(bench.journal.bounds(log).unwrap().start, Offset(3));
    assert!(offsets(&bench.restart(false), log).is_empty());
}

#[test]
fn a_search_by_time_finds_the_records_that_are_left() {
    let bench = Bench::new(MAP_BYTES);
    let log = bench.compacted(eager());
    for key in ["a", "b", "a", "c"] {
        put(&bench, log, &[pair(key, "1"), pair("same", "1")]);
        bench.advance(100);
    }
    let bench = bench.settle();
    assert_eq!(offsets(&bench, log), [2, 4, 6, 7]);
    for (after, wanted) in [
        (0, Some(2)),
        (100, Some(2)),
        (101, Some(4)),
        (201, Some(6)),
        (301, Some(7)),
        (302, None),
    ] {
        let time = BEGIN_MS + after;
        let found = bench
            .journal
            .find_time(log, TimeQuery::AtOrAfter(time))
            .wait()
            .unwrap()
            .unwrap();
        let at = found.and_then(|batch| offset_for_timestamp(&batch, time, Offset(0), 1 << 20).unwrap());
        assert_eq!(at.map(|(offset, _)| offset.0), wanted, "{after}");
    }
}

#[test]
fn logs_without_compaction_keep_every_record() {
    let bench = Bench::new(MAP_BYTES);
    let log = bench.create(LogSpec::default());
    for _ in 0..3 {
        put(&bench, log, &[pair("a", "1")]);
    }
    assert_eq!(offsets(&bench.settle(), log), [0, 1, 2]);
}

/// Readers see the newest record of each key at any time while segments are replaced.
#[test]
fn readers_are_not_disturbed() {
    let bench = Bench::new(24 * 20);
    let log = bench.compacted(eager());
    let mut model = Model::default();
    for round in 0..300_u64 {
        let records = [
            pair(&(round % 37).to_string(), &"v".repeat(200)),
            pair("same", "1"),
        ];
        model.append(put(&bench, log, &records), &records, BEGIN_MS);
    }
    let bench = bench.restart(false);
    bench.journal.checkpoint();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                model.check(&bench.read(log), BEGIN_MS);
            }
        });
        bench.journal.rewrite();
        is_over.store(true, Ordering::Relaxed);
    });
    model.check_settled(&bench.settle().read(log), BEGIN_MS);
}

/// Compaction rewrites an arrival segment between others, which are merged later.
#[test]
fn a_log_stays_in_order_when_segments_around_a_compacted_one_are_merged() {
    let bench = Bench::new(MAP_BYTES);
    let (log, plain) = (bench.compacted(eager()), bench.create(LogSpec::default()));
    let mut values = Vec::new();
    let mut fill = |bench: &Bench, count: usize| {
        for _ in 0..count {
            let value = format!("{} {}", values.len(), "p".repeat(1000));
            bench.put(plain, support::batch(&[&value]));
            values.push(value);
        }
        support::listed(values.iter().map(String::as_str))
    };
    fill(&bench, 22);
    let bench = bench.restart(false);
    put(&bench, log, &[pair("a", "1"), pair("a", "2")]);
    fill(&bench, 5);
    let bench = bench.settle();
    assert_eq!(offsets(&bench, log), [1]);
    let arrivals = |bench: &Bench| {
        bench
            .disk
            .names()
            .iter()
            .filter(|it| it.starts_with("arrival"))
            .count()
    };
    let before = arrivals(&bench);
    assert!(before > 3, "the segments before it are left alone");
    let expected = fill(&bench, 22);
    let bench = bench.settle();
    let read = support::read_all(&*bench.journal, plain, 3000).unwrap();
    assert!(read == expected, "the records are read in their order");
}

/// Each pass reads all of a log, but writes only the segments that lose something.
#[test]
fn segments_without_older_records_of_a_key_are_not_written_again() {
    let bench = Bench::new(MAP_BYTES);
    let log = bench.compacted(eager());
    let value = "v".repeat(500);
    for key in 0..60 {
        put(&bench, log, &[pair(&key.to_string(), &value)]);
    }
    let bench = bench.settle();
    let names = |bench: &Bench| {
        let mut names = bench.disk.names();
        names.retain(|name| name.starts_with("sorted"));
        names
    };
    let before = names(&bench);
    assert!(before.len() > 3, "{before:?}");
    put(&bench, log, &[pair("60", &value)]);
    let bench = bench.settle();
    // The last one is small, and put together with the new one.
    let (after, full) = (names(&bench), &before[..before.len() - 2]);
    assert!(
        full.iter().all(|name| after.contains(name)),
        "{before:?} {after:?}"
    );
    put(&bench, log, &[pair("0", &value)]);
    let bench = bench.settle();
    let after = names(&bench);
    let gone = full.iter().filter(|name| !after.contains(name)).count();
    assert_eq!(gone, 2, "one segment and its sidecar: {before:?} {after:?}");
    assert_eq!(offsets(&bench, log), (1..62).collect::<Vec<_>>());
}

/// The keys of a hundred maps: each pass takes the next of them, and each key's newest record stays.
#[test]
fn many_more_keys_than_the_map_holds_take_as_many_passes() {
    const KEYS: u64 = 2000;
    let bench = Bench::new(24 * 25);
    let log = bench.compacted(eager());
    for first in (0..2 * KEYS).step_by(50) {
        let records: Vec<_> = (first..first + 50)
            .map(|number| pair(&(number % KEYS).to_string(), "1"))
            .collect();
        put(&bench, log, &records);
    }
    let bench = bench.settle();
    let passes = bench.metric("journal_compactions_total");
    assert!((100..=220).contains(&passes), "{passes} passes of 20 keys each");
    assert_eq!(offsets(&bench, log), (KEYS..2 * KEYS).collect::<Vec<_>>());
}
