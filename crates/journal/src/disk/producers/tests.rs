//! Sequences, epochs, checkpoint rows and bounds of producers.

use super::*;

fn batch(epoch: i16, first: i32, records: i32) -> SequencedBatch {
    SequencedBatch {
        producer: ProducerId(9),
        epoch,
        first,
        last: sequence_after(first, records - 1),
        is_transactional: false,
    }
}

#[test]
fn a_batch_sent_again_is_a_duplicate_and_a_gap_is_out_of_sequence() {
    let mut producers = Producers::default();
    for n in 0..7 {
        assert_eq!(producers.judge(batch(0, n * 10, 10)), SequenceCheck::Next);
        producers.note(
            batch(0, n * 10, 10),
            Offset(100 + u64::from(n.cast_unsigned()) * 10),
            Moment::default(),
        );
    }
    assert_eq!(
        producers.judge(batch(0, 60, 10)),
        SequenceCheck::Duplicate { base: Offset(160) }
    );
    assert_eq!(
        producers.judge(batch(0, 20, 10)),
        SequenceCheck::Duplicate { base: Offset(120) }
    );
    assert_eq!(
        producers.judge(batch(0, 10, 10)),
        SequenceCheck::OutOfSequence {
            given: 10,
            expected: 70
        }
    );
    assert_eq!(
        producers.judge(batch(0, 80, 1)),
        SequenceCheck::OutOfSequence {
            given: 80,
            expected: 70
        }
    );
}

#[test]
fn a_new_epoch_starts_at_zero_and_fences_the_old_one() {
    let mut producers = Producers::default();
    producers.note(batch(3, 5, 1), Offset(0), Moment::default());
    assert_eq!(
        producers.judge(batch(2, 6, 1)),
        SequenceCheck::Stale { given: 2, current: 3 }
    );
    assert_eq!(
        producers.judge(batch(4, 6, 1)),
        SequenceCheck::OutOfSequence {
            given: 6,
            expected: 0
        }
    );
    assert_eq!(producers.judge(batch(4, 0, 1)), SequenceCheck::Next);
}

#[test]
fn an_unknown_producer_may_start_anywhere() {
    assert_eq!(Producers::default().judge(batch(0, 77, 1)), SequenceCheck::Next);
}

#[test]
fn sequences_wrap_to_zero() {
    let mut producers = Producers::default();
    producers.note(batch(0, i32::MAX - 1, 2), Offset(0), Moment::default());
    assert_eq!(producers.judge(batch(0, 0, 1)), SequenceCheck::Next);
}

fn sent_by(id: i64, sequence: i32) -> SequencedBatch {
    SequencedBatch {
        producer: ProducerId(id),
        ..batch(1, sequence, 1)
    }
}

fn at(running: i64) -> Moment {
    Moment { clock: 5, running }
}

/// Returns the contents of a checkpoint after these changes.
fn store(rows: &mut std::collections::BTreeMap<i64, Vec<u8>>, producers: &mut Producers) {
    for (id, row) in producers.take_changed() {
        match row {
            Some(row) => drop(rows.insert(id, row)),
            None => drop(rows.remove(&id)),
        }
    }
}

fn load(rows: &std::collections::BTreeMap<i64, Vec<u8>>) -> Producers {
    let mut producers = Producers::default();
    for (id, row) in rows {
        assert!(producers.restore(*id, row));
    }
    producers
}

#[test]
fn they_read_back_as_written_and_replay_changes_nothing() {
    let (mut producers, mut rows) = (Producers::default(), <_>::default());
    for id in [4, 1, 9] {
        for n in 0..3 {
            producers.note(sent_by(id, n), Offset(n.cast_unsigned().into()), at(7));
        }
    }
    store(&mut rows, &mut producers);
    let mut read = load(&rows);
    assert_eq!(read, producers);
    read.note(sent_by(4, 1), Offset(1), at(8));
    assert_eq!(read, producers);
    for row in rows.values() {
        for end in 0..row.len() {
            assert!(!Producers::default().restore(1, &row[..end]), "cut at {end}");
        }
    }
}

#[test]
fn a_checkpoint_stores_those_alone_that_changed() {
    let (mut producers, mut rows) = (Producers::default(), <_>::default());
    for id in 0..100 {
        producers.note(sent_by(id, 0), Offset(id.cast_unsigned()), at(id));
    }
    store(&mut rows, &mut producers);
    producers.note(sent_by(50, 1), Offset(100), at(100));
    producers.note(sent_by(50, 2), Offset(101), at(100));
    let changed = producers.take_changed();
    assert_eq!(changed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [50]);
    producers.change_all();
    producers.forget_before(90);
    store(&mut rows, &mut producers);
    assert_eq!(
        rows.keys().copied().collect::<Vec<_>>(),
        [50, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99]
    );
    assert_eq!(load(&rows), producers);
    producers.forget_before(101);
    assert!(!producers.is_empty(), "they have to be deleted");
    store(&mut rows, &mut producers);
    assert!(rows.is_empty() && producers.is_empty());
}

#[test]
fn of_too_many_those_are_forgotten_that_sent_nothing_for_longest() {
    let mut producers = Producers::default();
    let many = i64::try_from(PRODUCERS_MAX).unwrap();
    for n in 0..2 * many {
        producers.note(sent_by(n, 0), Offset(2 * n.cast_unsigned()), at(1));
        // A producer that continues.
        let sequence = i32::try_from(n).unwrap();
        producers.note(sent_by(-1, sequence), Offset(2 * n.cast_unsigned() + 1), at(1));
        assert!(producers.known.len() <= PRODUCERS_MAX);
    }
    let ids: Vec<i64> = producers.known.iter().map(|producer| producer.id).collect();
    assert!(ids.len() >= PRODUCERS_MAX - FORGOTTEN_AT_ONCE);
    let newest = 2 * many - i64::try_from(ids.len() - 1).unwrap()..2 * many;
    assert_eq!(ids, std::iter::once(-1).chain(newest).collect::<Vec<_>>());
}

#[test]
fn rows_of_earlier_programs_are_read_and_stored_anew() {
    let mut row = 1_u32.to_le_bytes().to_vec();
    for part in [
        &9_i64.to_le_bytes()[..],
        &3_i16.to_le_bytes(),
        &77_i64.to_le_bytes(),
        &[1],
    ] {
        row.extend_from_slice(part);
    }
    for part in [
        &4_i32.to_le_bytes()[..],
        &6_i32.to_le_bytes(),
        &100_u64.to_le_bytes(),
    ] {
        row.extend_from_slice(part);
    }
    let mut producers = Producers::decode(&mut Reader(&row)).unwrap();
    let expected = ProducerStatus {
        id: ProducerId(9),
        epoch: 3,
        sequence: 6,
        at: 77,
        open: None,
    };
    assert_eq!(producers.seen(), [expected]);
    let mut rows = <_>::default();
    store(&mut rows, &mut producers);
    assert_eq!(load(&rows), producers);
}
