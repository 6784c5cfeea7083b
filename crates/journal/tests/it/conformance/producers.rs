//! Idempotent producers.

use stafett_journal::{Append, Journal, Outcome, PlacedBatch, Refusal};
use stafett_model::{Durability, LogId, Offset, ProducerId};

use super::bench::Bench;
use crate::support::{append, create, listed, numbered, placed, read_all};

fn send(journal: &dyn Journal, log: LogId, value: &str, epoch: i16, sequence: i32) -> Outcome {
    append(
        journal,
        Append::batch(log, numbered(&[value], 9, epoch, sequence)),
    )
}

pub fn a_batch_sent_again_gets_the_offset_it_had(bench: &mut Bench) {
    for level in [Durability::Memory, Durability::Os, Durability::Sync] {
        let journal = bench.journal();
        let log = create(journal, level);
        for n in 0..5_i32 {
            let base = Offset(u64::from(n.cast_unsigned()));
            assert_eq!(placed(send(journal, log, &n.to_string(), 0, n)).base, base);
        }
        for n in 0..5_i32 {
            let base = Offset(u64::from(n.cast_unsigned()));
            let duplicate = PlacedBatch {
                log,
                base,
                duplicate: true,
            };
            assert_eq!(placed(send(journal, log, &n.to_string(), 0, n)), duplicate);
        }
        bench.wait_until_visible(log, 5);
        assert_eq!(
            read_all(journal, log, 1000).unwrap(),
            listed(["0", "1", "2", "3", "4"])
        );
    }
}

pub fn a_gap_in_the_numbers_is_refused(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create(journal, Durability::Sync);
    placed(send(journal, log, "a", 0, 0));
    let refusal = Refusal::OutOfSequence {
        log,
        producer: ProducerId(9),
        given: 2,
        expected: 1,
    };
    assert_eq!(send(journal, log, "c", 0, 2), Outcome::Refused(refusal));
    assert_eq!(placed(send(journal, log, "b", 0, 1)).base, Offset(1));
    assert_eq!(read_all(journal, log, 1000).unwrap(), listed(["a", "b"]));
}

pub fn an_old_epoch_is_refused_and_a_new_one_starts_at_zero(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create(journal, Durability::Sync);
    placed(send(journal, log, "a", 3, 0));
    let producer = ProducerId(9);
    let stale = Refusal::StaleProducer {
        log,
        producer,
        given: 2,
        current: 3,
    };
    assert_eq!(send(journal, log, "no", 2, 1), Outcome::Refused(stale));
    let wrong = Refusal::OutOfSequence {
        log,
        producer,
        given: 1,
        expected: 0,
    };
    assert_eq!(send(journal, log, "no", 4, 1), Outcome::Refused(wrong));
    placed(send(journal, log, "b", 4, 0));
    let stale = Refusal::StaleProducer {
        log,
        producer,
        given: 3,
        current: 4,
    };
    assert_eq!(send(journal, log, "a", 3, 0), Outcome::Refused(stale));
    assert_eq!(read_all(journal, log, 1000).unwrap(), listed(["a", "b"]));
}

pub fn producers_are_known_per_log(bench: &mut Bench) {
    let journal = bench.journal();
    let (one, two) = (
        create(journal, Durability::Sync),
        create(journal, Durability::Sync),
    );
    placed(send(journal, one, "a", 0, 0));
    assert!(!placed(send(journal, two, "a", 0, 0)).duplicate);
    assert!(placed(send(journal, one, "a", 0, 0)).duplicate);
}

pub fn producers_are_remembered_by_the_next_start(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Sync);
    for n in 0..8 {
        placed(send(bench.journal(), log, &n.to_string(), 1, n));
    }
    for _ in 0..3 {
        bench.reopen();
        let duplicate = PlacedBatch {
            log,
            base: Offset(7),
            duplicate: true,
        };
        assert_eq!(placed(send(bench.journal(), log, "7", 1, 7)), duplicate);
        let outcome = send(bench.journal(), log, "9", 1, 9);
        assert!(
            matches!(outcome, Outcome::Refused(Refusal::OutOfSequence { .. })),
            "{outcome:?}"
        );
    }
    assert_eq!(placed(send(bench.journal(), log, "8", 1, 8)).base, Offset(8));
    assert_eq!(read_all(bench.journal(), log, 1000).unwrap().len(), 9);
}
