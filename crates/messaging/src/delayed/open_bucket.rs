//! An opened bucket: the due times of its messages are in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use stafett_journal::{Append, Change, Frame, Journal, Outcome, Precondition, StateWait, Watch};
use stafett_model::{Offset, StoredMessage};
use stafett_queue::OffsetSet;
use stafett_store::Clock;
use stafett_topics::{SkipReason, Skipped, Tail, TailItem};

use super::Delayed;
use super::bucket::{Bucket, Minute, frame};
use super::header::DelayHeader;

/// Time from the opening of a bucket to the beginning of its minute.
const AHEAD_MS: i64 = 5_000;
/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;
/// Bytes of a read of single messages.
const LOOK_BYTES: usize = 64 << 10;
/// Bound on the messages of one release.
const RELEASE_MAX: usize = 512;

#[derive(Debug)]
pub(crate) struct OpenBucket {
    pub(crate) minute: Minute,
    pub(crate) bucket: Arc<Bucket>,
    done: OffsetSet,
    /// Reader of the messages that are not in `due` yet.
    tail: Tail,
    /// Due time of each message, in steady time, with its offset.
    due: BTreeSet<(i64, u64)>,
}

impl OpenBucket {
    pub(crate) fn new(minute: Minute, bucket: Arc<Bucket>) -> Self {
        Self {
            minute,
            done: bucket.take_done(),
            tail: Tail::new(bucket.log, Offset::ZERO, READ_BYTES, Arc::default()),
            bucket,
            due: BTreeSet::new(),
        }
    }

    /// Returns the end of the messages read so far.
    pub(crate) fn read_to(&self) -> Offset {
        self.tail.next_offset()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Returns the due time of the next message.
    pub(crate) fn next_ms(&self) -> Option<i64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// Forgets all due times, because the wall clock was set.
    pub(crate) fn forget(&mut self) {
        self.due.clear();
        self.tail.seek(Offset::ZERO);
    }

    /// Reads the due times of new messages. False if the log could not be read.
    pub(crate) async fn catch_up(&mut self, journal: &dyn Journal, clock: &Clock) -> bool {
        let log = self.bucket.log;
        while let Some(bounds) = journal.bounds(log)
            && self.tail.next_offset() < bounds.end
        {
            if self.tail.read(journal).await.is_err() {
                return false;
            }
            let this_run = journal.epoch();
            while let Some(item) = self.tail.item() {
                let (offset, message, stored_by) = match item {
                    TailItem::Message(offset, message, stored_by) => (offset.0, message, stored_by),
                    TailItem::Skipped(Skipped { from, to, why }) => {
                        if why != SkipReason::Gap {
                            tracing::error!("delayed messages are lost: {log} from {from} to {to}: {why:?}");
                        }
                        continue;
                    }
                };
                if !self.done.contains(offset) {
                    // Without a note the target is unknown: the message is released at once, to nowhere.
                    let due_ms = DelayHeader::of(&message).map_or(i64::MIN, |note| {
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
            }
        }
        true
    }

    /// Returns the offsets of the messages that are due, in the order of their times.
    pub(crate) fn due(&self, now_ms: i64) -> Vec<u64> {
        let due = self.due.iter().take_while(|(due_ms, _)| *due_ms <= now_ms);
        due.take(RELEASE_MAX).map(|(_, offset)| *offset).collect()
    }

    /// Reads messages by offset. `None` if the log could not be read; messages that are lost are left out.
    pub(crate) async fn messages(
        &self,
        journal: &dyn Journal,
        offsets: &[u64],
    ) -> Option<HashMap<u64, StoredMessage>> {
        let log = self.bucket.log;
        let mut wanted: Vec<u64> = offsets.to_vec();
        wanted.sort_unstable();
        let mut found = HashMap::with_capacity(offsets.len());
        let mut tail = Tail::new(log, Offset::ZERO, LOOK_BYTES, Arc::default());
        for offset in wanted {
            if let Some(message) = tail.message_at(journal, Offset(offset)).await.ok()? {
                found.insert(offset, message);
            } else {
                tracing::error!("a delayed message is lost: {log} has none at {offset}");
            }
        }
        Some(found)
    }

    /// Records the release of these offsets, the first ones in the order of their times.
    pub(crate) fn released(&mut self, offsets: &[u64]) {
        for offset in offsets {
            self.due.pop_first();
            self.done.insert(*offset..offset + 1);
        }
    }
}

impl Delayed {
    /// Opens the buckets whose minute begins soon.
    pub(crate) fn open_buckets(&self, opened: &mut BTreeMap<Minute, OpenBucket>, watch: &Watch) {
        let soon = self.clock.now_ms().saturating_add(AHEAD_MS);
        let mut last = None;
        while let Some((minute, bucket)) = self.first_bucket(last) {
            if self.clock.earliest_ms(minute.start_ms()) > soon {
                return;
            }
            opened.entry(minute).or_insert_with(|| {
                self.journal.watch_log(watch, bucket.log, 0);
                OpenBucket::new(minute, bucket)
            });
            last = Some(minute);
        }
    }

    /// Returns the next time at which there is something to do, if nothing changes.
    pub(crate) fn next_time(&self, opened: &BTreeMap<Minute, OpenBucket>) -> Option<tokio::time::Instant> {
        let due = opened.values().filter_map(OpenBucket::next_ms).min();
        let over = opened
            .values()
            .map(|bucket| self.clock.steady_ms(bucket.minute.end_ms()));
        let over = over.filter(|end| *end > self.clock.now_ms()).min();
        let last = opened.keys().next_back().copied();
        let opens = self
            .first_bucket(last)
            .map(|(minute, _)| self.clock.earliest_ms(minute.start_ms()) - AHEAD_MS);
        let next = [due, over, opens].into_iter().flatten().min()?;
        Some(self.clock.instant(next))
    }

    /// Deletes empty buckets whose minute is over.
    pub(crate) async fn delete_empty(&self, opened: &mut BTreeMap<Minute, OpenBucket>) {
        let now_ms = self.clock.wall_ms();
        let over = opened
            .values()
            .filter(|bucket| bucket.is_empty() && bucket.minute.end_ms() <= now_ms);
        let minutes: Vec<Minute> = over.map(|bucket| bucket.minute).collect();
        for minute in minutes {
            let Some(bucket) = opened.get(&minute) else {
                continue;
            };
            {
                let mut buckets = self.lock();
                // A further reference is held by a publisher that is about to stage a message.
                if Arc::strong_count(&bucket.bucket) > 2 {
                    continue;
                }
                buckets.remove(&minute);
            }
            let (log, offset) = (bucket.bucket.log, bucket.read_to());
            let frames = [
                Frame::DeleteLogs { first: log, count: 1 },
                frame(minute, Change::Delete),
            ];
            let append = Append {
                // Messages that are staged and not visible yet keep the bucket.
                require: [Precondition::NextOffset { log, offset }].into_iter().collect(),
                ..Append::state(frames, StateWait::Written)
            };
            if let Some(Outcome::Refused(_)) = self.journal.append(vec![append]).await.pop() {
                self.lock()
                    .entry(minute)
                    .or_insert_with(|| Arc::clone(&bucket.bucket));
            } else {
                opened.remove(&minute);
            }
        }
    }
}
