//! Transactions of producers.

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_journal::{
    AbortedTransaction, Append, BatchFrame, Frame, Journal, LogSlice, OpenTransaction, Outcome, Precondition,
    ReadFrom, ReadRequest, Refusal, Selection, Target, Visibility,
};
use stafett_model::{
    BatchBuilder, Codec, Durability, LogId, Offset, ProducerId, Record, TransactionEnd, end_marker,
};

use super::bench::Bench;
use crate::support::{append, create_logs, placed, put};

const ONE: ProducerId = ProducerId(11);
const TWO: ProducerId = ProducerId(22);

fn send(journal: &dyn Journal, log: LogId, producer: ProducerId, epoch: i16, sequence: i32) -> Outcome {
    let batch = BatchBuilder::new(Codec::None)
        .producer(producer, epoch, sequence)
        .transactional();
    append(journal, Append::batch(log, filled(batch)))
}

fn filled(mut batch: BatchBuilder) -> Bytes {
    let record = Record {
        key: None,
        value: Some(b"x"),
        headers: &[],
        timestamp: 5,
    };
    batch.push(&record).unwrap();
    batch.finish().unwrap()
}

pub fn a_batch_that_needs_others_of_its_producer_is_refused_without_them(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create_logs(journal, 1, Durability::Sync);
    let required = |first| {
        let batch = BatchBuilder::new(Codec::None).producer(ONE, 0, first);
        let body = filled(batch.transactional());
        let required = Precondition::HasBatchesOf {
            log,
            producer: ONE,
            first,
        };
        let require = SmallVec::from_iter([required]);
        append(
            journal,
            Append {
                require,
                ..Append::batch(log, body)
            },
        )
    };
    let refusal = Refusal::OutOfSequence {
        log,
        producer: ONE,
        given: 5,
        expected: 0,
    };
    assert_eq!(required(5), Outcome::Refused(refusal));
    assert_eq!(placed(send(journal, log, ONE, 0, 0)).base, Offset(0));
    assert_eq!(placed(required(1)).base, Offset(1));
}

fn end(
    journal: &dyn Journal,
    logs: &[LogId],
    producer: ProducerId,
    epoch: i16,
    end: TransactionEnd,
) -> Outcome {
    let targets = logs.iter().map(|log| Target {
        log: *log,
        records: Selection::All,
    });
    let marker = BatchFrame {
        body: end_marker(producer, epoch, end, 5),
        targets: targets.collect(),
    };
    let marker = Append {
        frames: SmallVec::from_iter([Frame::Batch(marker)]),
        ..Append::default()
    };
    append(journal, marker)
}

fn committed(journal: &dyn Journal, log: LogId, from: u64) -> LogSlice {
    let logs = vec![ReadFrom {
        log,
        offset: Offset(from),
        bytes_max: 1 << 20,
        visibility: Visibility::Committed,
    }];
    let request = ReadRequest {
        logs,
        bytes_max: 1 << 20,
        first_batch_whole: true,
    };
    journal.read(request).wait().unwrap().remove(0).unwrap()
}

fn stable(journal: &dyn Journal, log: LogId) -> u64 {
    journal.bounds(log).unwrap().stable.0
}

fn two_logs(journal: &dyn Journal) -> [LogId; 2] {
    let first = create_logs(journal, 2, Durability::Sync);
    [first, LogId(first.0 + 1)]
}

fn aborted(producer: ProducerId, first: u64, last: u64) -> AbortedTransaction {
    AbortedTransaction {
        producer,
        first: Offset(first),
        last: Offset(last),
    }
}

pub fn committed_reads_end_at_the_first_open_transaction(bench: &mut Bench) {
    let logs = two_logs(bench.journal());
    let journal = bench.journal();
    put(journal, logs[0], crate::support::batch(&["plain"]));
    for sequence in 0..3 {
        placed(send(journal, logs[0], ONE, 0, sequence));
    }
    placed(send(journal, logs[1], ONE, 0, 0));
    put(journal, logs[0], crate::support::batch(&["behind it"]));
    assert_eq!((stable(journal, logs[0]), stable(journal, logs[1])), (1, 0));
    assert_eq!(committed(journal, logs[0], 0).next, Offset(1));
    assert_eq!(
        committed(journal, logs[0], 1).next,
        Offset(1),
        "nothing to read yet"
    );
    let open = |log| OpenTransaction {
        log,
        producer: ONE,
        epoch: 0,
        first: Offset(stable(journal, log)),
    };
    assert_eq!(journal.open_transactions(), logs.map(open));
    let Outcome::Committed(places) = end(journal, &logs, ONE, 0, TransactionEnd::Commit) else {
        panic!("it is stored");
    };
    let bases: Vec<u64> = places.iter().map(|place| place.base.0).collect();
    assert_eq!(bases, [5, 1], "one batch, and an offset in each log");
    assert_eq!((stable(journal, logs[0]), stable(journal, logs[1])), (6, 2));
    let read = committed(journal, logs[0], 1);
    assert_eq!((read.next, read.aborted), (Offset(6), vec![]));
    assert_eq!(journal.open_transactions(), []);
}

pub fn aborted_transactions_are_named_until_they_are_truncated(bench: &mut Bench) {
    let [log, _] = two_logs(bench.journal());
    let journal = bench.journal();
    for (producer, sequence) in [(ONE, 0), (TWO, 0), (ONE, 1)] {
        placed(send(journal, log, producer, 0, sequence));
    }
    end(journal, &[log], ONE, 0, TransactionEnd::Abort);
    assert_eq!(stable(journal, log), 1, "the other one is still open");
    end(journal, &[log], TWO, 0, TransactionEnd::Commit);
    placed(send(journal, log, TWO, 0, 1));
    end(journal, &[log], TWO, 0, TransactionEnd::Abort);
    let both = [aborted(ONE, 0, 3), aborted(TWO, 5, 6)];
    assert_eq!(committed(journal, log, 0).aborted, both);
    assert_eq!(committed(journal, log, 4).aborted, both[1..]);
    bench.reopen();
    let journal = bench.journal();
    assert_eq!(committed(journal, log, 0).aborted, both);
    crate::support::control(
        journal,
        [Frame::Truncate {
            log,
            before: Offset(4),
        }],
    );
    assert_eq!(committed(journal, log, 4).aborted, both[1..]);
    bench.reopen();
    assert_eq!(committed(bench.journal(), log, 4).aborted, both[1..]);
}

pub fn an_open_transaction_is_known_to_the_next_start(bench: &mut Bench) {
    let [log, other] = two_logs(bench.journal());
    placed(send(bench.journal(), log, ONE, 7, 0));
    placed(send(bench.journal(), other, ONE, 7, 0));
    end(bench.journal(), &[other], ONE, 7, TransactionEnd::Commit);
    let open = OpenTransaction {
        log,
        producer: ONE,
        epoch: 7,
        first: Offset(0),
    };
    for _ in 0..2 {
        bench.reopen();
        assert_eq!(bench.journal().open_transactions(), [open]);
        assert_eq!(stable(bench.journal(), log), 0);
    }
    end(bench.journal(), &[log], ONE, 7, TransactionEnd::Commit);
    bench.reopen();
    assert_eq!(bench.journal().open_transactions(), []);
    assert_eq!(stable(bench.journal(), log), 2);
}

pub fn a_marker_with_a_later_epoch_fences_the_producer_and_its_sequences_begin_anew(bench: &mut Bench) {
    let [log, _] = two_logs(bench.journal());
    let journal = bench.journal();
    placed(send(journal, log, ONE, 3, 0));
    let stale = |current| {
        Outcome::Refused(Refusal::StaleProducer {
            log,
            producer: ONE,
            given: 2,
            current,
        })
    };
    assert_eq!(end(journal, &[log], ONE, 2, TransactionEnd::Abort), stale(3));
    assert_eq!(stable(journal, log), 0);
    end(journal, &[log], ONE, 4, TransactionEnd::Abort);
    assert_eq!(send(journal, log, ONE, 2, 1), stale(4));
    bench.reopen();
    let journal = bench.journal();
    assert_eq!(send(journal, log, ONE, 2, 1), stale(4));
    placed(send(journal, log, ONE, 4, 0));
    assert_eq!(stable(journal, log), 2);
}
