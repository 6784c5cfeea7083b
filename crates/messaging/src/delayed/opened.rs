//! An opened bucket: the due times of its messages are in memory.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use stafett_journal::{Journal, LogSlice, ReadFrom, ReadRequest};
use stafett_model::{BatchHeader, Epoch, Offset, StoredMessage, records};
use stafett_queue::OffsetSet;
use stafett_store::Clock;

use super::bucket::{Bucket, Minute};
use super::note::Note;

/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;
/// Bytes of a read of single messages.
const LOOK_BYTES: usize = 64 << 10;
/// Bound on the decompressed bytes of one batch.
const BATCH_BYTES_MAX: usize = 64 << 20;
/// Bound on the messages of one release.
const RELEASE_MAX: usize = 512;

#[derive(Debug)]
pub(super) struct Opened {
    pub(super) minute: Minute,
    pub(super) bucket: Arc<Bucket>,
    done: OffsetSet,
    read_to: u64,
    /// Due time of each message, in steady time, with its offset.
    due: BTreeSet<(i64, u64)>,
}

impl Opened {
    pub(super) fn new(minute: Minute, bucket: Arc<Bucket>) -> Self {
        Self {
            minute,
            done: bucket.take_done(),
            bucket,
            read_to: 0,
            due: BTreeSet::new(),
        }
    }

    /// Returns the end of the messages read so far.
    pub(super) fn read_to(&self) -> Offset {
        Offset(self.read_to)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Returns the due time of the next message.
    pub(super) fn next_ms(&self) -> Option<i64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// Forgets all due times, because the wall clock was set.
    pub(super) fn forget(&mut self) {
        self.due.clear();
        self.read_to = 0;
    }

    /// Reads the due times of new messages. False if the log could not be read.
    pub(super) async fn catch_up(&mut self, journal: &dyn Journal, clock: &Clock) -> bool {
        let log = self.bucket.log;
        while let Some(bounds) = journal.bounds(log)
            && self.read_to < bounds.end.0
        {
            let Some(run) = read(journal, log, self.read_to, READ_BYTES).await else {
                return false;
            };
            let next = run.next.0;
            let this_run = journal.epoch();
            each_message(run, self.read_to, |offset, message, stored_by| {
                if !self.done.contains(offset) {
                    // Without a note the target is unknown: the message is released at once, to nowhere.
                    let due_ms = Note::of(&message).map_or(i64::MIN, |note| {
                        let delay_ms = message.delay_ms().unwrap_or(0);
                        if stored_by == this_run {
                            // A message of this run waits for its whole delay, even if the clock is set.
                            clock
                                .arrival(message.arrived_ms(), true)
                                .saturating_add_unsigned(delay_ms)
                        } else {
                            clock.steady_ms(note.due_ms)
                        }
                    });
                    self.due.insert((due_ms, offset));
                }
            });
            if next <= self.read_to {
                return false;
            }
            self.read_to = next;
        }
        true
    }

    /// Returns the offsets of the messages that are due, in the order of their times.
    pub(super) fn due(&self, now_ms: i64) -> Vec<u64> {
        let due = self.due.iter().take_while(|(due_ms, _)| *due_ms <= now_ms);
        due.take(RELEASE_MAX).map(|(_, offset)| *offset).collect()
    }

    /// Reads messages by offset. `None` if the log could not be read; damaged messages are left out.
    pub(super) async fn messages(
        &self,
        journal: &dyn Journal,
        offsets: &[u64],
    ) -> Option<HashMap<u64, StoredMessage>> {
        let mut wanted: BTreeSet<u64> = offsets.iter().copied().collect();
        let mut found = HashMap::with_capacity(offsets.len());
        while let Some(first) = wanted.first().copied() {
            let run = read(journal, self.bucket.log, first, LOOK_BYTES).await?;
            each_message(run, first, |offset, message, _| {
                if wanted.remove(&offset) {
                    found.insert(offset, message);
                }
            });
            wanted.remove(&first);
        }
        Some(found)
    }

    /// Records the release of these offsets, the first ones in the order of their times.
    pub(super) fn released(&mut self, offsets: &[u64]) {
        for offset in offsets {
            self.due.pop_first();
            self.done.insert(*offset..offset + 1);
        }
    }
}

async fn read(
    journal: &dyn Journal,
    log: stafett_model::LogId,
    from: u64,
    bytes_max: usize,
) -> Option<LogSlice> {
    let request = ReadRequest {
        logs: vec![ReadFrom {
            log,
            offset: Offset(from),
            bytes_max,
        }],
        bytes_max,
        first_batch_whole: true,
    };
    journal.read(request).finish().await.ok()?.pop()?.ok()
}

/// Visits the messages from an offset on.
fn each_message(run: LogSlice, from: u64, mut visit: impl FnMut(u64, StoredMessage, Epoch)) {
    let mut bytes = whole(run.pieces);
    while let Ok(header) = BatchHeader::parse(&bytes) {
        if header.bytes == 0 || header.bytes > bytes.len() {
            return;
        }
        let stored_by = Epoch(u32::try_from(header.leader_epoch).unwrap_or(0));
        let batch = bytes.split_to(header.bytes);
        let Ok(mut records) = records(&batch, BATCH_BYTES_MAX) else {
            continue;
        };
        while let Some(Ok((offset, message))) = records.next_message() {
            if offset.0 >= from {
                visit(offset.0, message, stored_by);
            }
        }
    }
}

/// Joins the pieces of a read.
fn whole(mut pieces: Vec<Bytes>) -> Bytes {
    if let [only] = pieces.as_mut_slice() {
        return std::mem::take(only);
    }
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in pieces {
        whole.extend_from_slice(&piece);
    }
    whole.freeze()
}
