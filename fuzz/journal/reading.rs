//! Opens a damaged journal and does with it what programs do.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{
    Append, DiskJournal, Journal, Metrics, Outcome, ReadError, ReadFrom, ReadRequest, Refusal, StateItem,
    TimeQuery, Visibility,
};
use stafett_model::{BatchBuilder, BatchHeader, Codec, LogId, Offset, Record};

use crate::image::{COUNTERS, Image, settings};

/// Bytes of one read.
const READ_BYTES: usize = 4 << 10;
/// Reads of one log whose end is unknown.
const READS_MAX: usize = 200;

type Written = BTreeMap<LogId, BTreeMap<u64, Bytes>>;

/// Opens the journal and reads it, rewrites it, appends to it, and, if `again`, opens and reads it once more.
/// If `held`, what is read has to be what was written.
pub fn exercise(image: &Image, disk: &SimulatedDisk, again: bool, held: bool) {
    let Ok(journal) = DiskJournal::open_on(disk.storage(), settings(), Metrics::new()) else {
        return;
    };
    let mut written = image.written.clone();
    let logs: Vec<LogId> = written.keys().copied().collect();
    if held {
        check_state(image, &journal);
    }
    read_all(&journal, &written, held);
    for log in &logs {
        append(&journal, *log, &mut written);
    }
    journal.scrub();
    journal.checkpoint();
    if again {
        journal.rewrite();
        journal.enforce_retention();
        journal.pump();
        read_all(&journal, &written, held);
        drop(journal);
        disk.kill();
        match DiskJournal::open_on(disk.storage(), settings(), Metrics::new()) {
            Ok(journal) => {
                assert!(!held || journal.report().clean, "it was closed");
                read_all(&journal, &written, held);
            }
            Err(error) => assert!(!held, "what opened once does not open again: {error}"),
        }
    }
}

/// State may be lost, but no older one than the checkpoint's comes back, and no log that was deleted.
fn check_state(image: &Image, journal: &DiskJournal) {
    for log in &image.deleted {
        assert_eq!(journal.bounds(*log), None, "{log} was deleted");
    }
    let mut values = BTreeMap::new();
    let mut visit = |item: StateItem<'_>| {
        if let StateItem::Value { key, value } = item {
            let value = u64::from_le_bytes(value.try_into().expect("a value that was put"));
            values.insert(Bytes::copy_from_slice(key), value);
        }
    };
    journal
        .load_state(COUNTERS, &mut visit)
        .expect("the checkpoint is sound");
    for (key, (covered, latest)) in &image.counters {
        let value = values.remove(key).unwrap_or(0);
        assert!(
            (*covered..=*latest).contains(&value),
            "{key:?} is {value}, and was {covered} in the checkpoint and {latest} at last"
        );
    }
    assert!(values.is_empty(), "nobody put {values:?}");
}

fn read_all(journal: &DiskJournal, written: &Written, held: bool) {
    for (log, batches) in written {
        read_log(journal, *log, batches, held);
        for query in [
            TimeQuery::Latest,
            TimeQuery::AtOrAfter(1_100),
            TimeQuery::AtOrAfter(0),
        ] {
            let found = journal.find_time(*log, query).wait();
            if let Ok(Ok(Some(batch))) = found
                && held
            {
                check(batches, &batch, *log);
            }
        }
    }
}

/// Reads a log from its start on, over what cannot be read.
fn read_log(journal: &DiskJournal, log: LogId, batches: &BTreeMap<u64, Bytes>, held: bool) {
    let Some(bounds) = journal.bounds(log) else { return };
    let mut offset = bounds.start.0;
    for _ in 0..READS_MAX {
        if offset >= bounds.end.0 {
            return;
        }
        let skip = batches
            .range(offset.saturating_add(1)..)
            .next()
            .map_or(bounds.end.0, |(base, _)| *base);
        offset = match read_at(journal, log, offset) {
            Ok(read) if read.is_empty() => skip,
            Ok(read) => {
                let mut next = 0;
                for batch in read {
                    if !held {
                        next = skip;
                        continue;
                    }
                    let offsets = check(batches, &batch, log);
                    assert!(offsets.start >= next, "batches come in order");
                    next = offsets.end;
                }
                assert!(next > offset, "a read gets further");
                next
            }
            Err(ReadError::Damaged { to, .. }) => to.0.max(skip.min(offset.saturating_add(1))),
            Err(_) => skip,
        };
    }
}

/// A batch that was read has to be what was written there.
fn check(batches: &BTreeMap<u64, Bytes>, batch: &Bytes, log: LogId) -> Range<u64> {
    let header = BatchHeader::verify(batch).expect("a sound batch");
    let base = u64::try_from(header.base_offset).expect("offsets count from 0");
    assert_eq!(
        Some(batch),
        batches.get(&base),
        "{log} gives out at {base} what was not written there"
    );
    base..base + header.span()
}

/// The batches of one read.
pub fn read_at(journal: &DiskJournal, log: LogId, offset: u64) -> Result<Vec<Bytes>, ReadError> {
    let logs = vec![ReadFrom {
        log,
        offset: Offset(offset),
        bytes_max: READ_BYTES,
        visibility: Visibility::Stored,
    }];
    let request = ReadRequest {
        logs,
        bytes_max: READ_BYTES,
        first_batch_whole: true,
    };
    let run = journal
        .read(request)
        .wait()
        .expect("it was not dropped")
        .remove(0)?;
    let mut bytes = Bytes::from(run.pieces.concat());
    assert_eq!(bytes.len(), run.bytes);
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        // A sealed frame may claim anything, for example a codec that does not exist.
        let Ok(header) = BatchHeader::verify(&bytes) else {
            batches.push(bytes);
            break;
        };
        batches.push(bytes.split_to(header.bytes));
    }
    Ok(batches)
}

/// Appends to a log, if there is one that takes appends, and reads that back.
fn append(journal: &DiskJournal, log: LogId, written: &mut Written) {
    if journal.bounds(log).is_none() {
        return;
    }
    let mut builder = BatchBuilder::new(Codec::None);
    let record = Record {
        key: None,
        value: Some(b"behind the damage"),
        headers: &[],
        timestamp: 9_000,
    };
    builder.push(&record).expect("a sound record");
    let batch = builder.finish().expect("a sound batch");
    let ticket = journal.append(vec![Append::batch(log, batch)]);
    journal.pump();
    match ticket.wait().as_slice() {
        [Outcome::Committed(placed)] => {
            let base = placed[0].base.0;
            let read = read_at(journal, log, base).expect("what is stored can be read");
            assert!(!read.is_empty(), "what is stored can be read");
            written.entry(log).or_default().insert(base, read[0].clone());
        }
        [Outcome::Refused(Refusal::Fenced { .. } | Refusal::OffsetsExhausted(_))] => {}
        other => panic!("an append ended as {other:?}"),
    }
}
