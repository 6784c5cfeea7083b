//! Task of a reader: reads as its outbox and its credit permit, and otherwise waits.

use std::sync::{Arc, Weak};
use std::time::Duration;

use stafett_journal::Watch;
use stafett_model::{Offset, StoredMessage};
use stafett_queue::DeliveryId;
use stafett_topics::{ReadEnd, SkipReason, Tail, TailItem};

use super::Readers;
use super::partition_cursors::{PartitionCursor, PartitionCursors};
use super::reader::Reader;
use stafett_delivery::Delivery;
use stafett_delivery::{Source, Waiter};

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;
/// Messages passed over before other tasks get their turns.
const TURN_MESSAGES: usize = 256;
/// Pause of a stalled reader, whose log could not be read.
const STALLED: Duration = Duration::from_secs(1);

/// Result of a step.
enum ReadStep {
    /// There may be more messages.
    Moved,
    /// The partition has no more messages for now.
    AtEnd,
    /// There is no credit or no room: the reader is woken when there is.
    Blocked,
    /// The partition cannot be read now.
    Stalled,
    /// The topic is deleted.
    Gone,
}

struct ReaderTask {
    readers: Arc<Readers>,
    reader: Arc<Reader>,
    places: PartitionCursors,
    watch: Watch,
    /// Reader of the partition whose turn it is.
    tail: Option<Tail>,
    pending: Vec<Delivery>,
    pending_bytes: usize,
    /// Messages of this turn, and their bytes.
    given: (u64, u64),
    /// Number of skipped messages that are not in the metrics yet.
    passed_over: u64,
}

/// Runs until the reader, its topic or the process ends.
pub(super) async fn run(readers: Arc<Readers>, reader: Arc<Reader>, mut places: PartitionCursors) {
    let (stop, ended) = (readers.stop.clone(), reader.ended.clone());
    let watch = readers.journal.watch();
    for place in &places.list {
        readers.journal.watch_log(&watch, place.log, place.partition);
    }
    let reading = async move {
        places.find(&*readers.journal).await;
        let mut run = ReaderTask {
            tail: None,
            readers,
            reader,
            places,
            watch,
            pending: Vec::new(),
            pending_bytes: 0,
            given: (0, 0),
            passed_over: 0,
        };
        run.go_on().await;
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = ended.cancelled() => {}
        () = reading => {}
    }
}

impl ReaderTask {
    async fn go_on(&mut self) {
        loop {
            self.follow();
            let step = self.deliver().await;
            self.flush();
            match step {
                ReadStep::Gone => return self.reader.on_gone(),
                ReadStep::Stalled => tokio::time::sleep(STALLED).await,
                ReadStep::Moved => tokio::task::yield_now().await,
                ReadStep::AtEnd | ReadStep::Blocked => tokio::select! {
                    () = self.watch.grown() => {}
                    () = self.reader.wake.notified() => {}
                },
            }
        }
    }

    /// Adds the partitions of a topic that has grown.
    fn follow(&mut self) {
        if let Some(topic) = self.reader.take_grown() {
            let journal = &self.readers.journal;
            for place in self.places.follow(&**journal, &topic) {
                journal.watch_log(&self.watch, place.log, place.partition);
            }
        }
    }

    /// Gives each partition one turn.
    async fn deliver(&mut self) -> ReadStep {
        let mut came = ReadStep::AtEnd;
        for _ in 0..self.places.list.len() {
            match self.take_turn().await {
                ReadStep::AtEnd => {}
                ReadStep::Moved => came = ReadStep::Moved,
                step @ (ReadStep::Blocked | ReadStep::Stalled | ReadStep::Gone) => return step,
            }
            self.tail = None;
            self.places.pass_turn();
        }
        came
    }

    /// Delivers messages of the current partition.
    async fn take_turn(&mut self) -> ReadStep {
        let Some(place) = self.places.current().copied() else {
            return ReadStep::AtEnd;
        };
        let kept = &self.readers.kept;
        let mut tail = self
            .tail
            .take()
            .unwrap_or_else(|| Tail::new(place.log, Offset(place.next), READ_BYTES, Arc::clone(kept)));
        let step = self.deliver_read(place, &mut tail).await;
        if let Some(place) = self.places.current() {
            place.next = tail.next_offset().0;
        }
        self.tail = Some(tail);
        let (records, bytes) = std::mem::take(&mut self.given);
        self.readers.topics.traffic().count_out(place.log, records, bytes);
        step
    }

    /// Delivers read-ahead messages; reads first if there are none.
    async fn deliver_read(&mut self, place: PartitionCursor, tail: &mut Tail) -> ReadStep {
        let mut has_read = false;
        let mut passed_over = 0_usize;
        loop {
            match tail.item() {
                Some(TailItem::Message(_, message, _)) if !self.reader.wants(&message) => {
                    self.passed_over += 1;
                    passed_over += 1;
                    if passed_over.is_multiple_of(TURN_MESSAGES) {
                        tokio::task::yield_now().await;
                    }
                }
                Some(TailItem::Message(at, message, stored_by)) => {
                    if !self.has_room() {
                        tail.put_back(at, message, stored_by);
                        return ReadStep::Blocked;
                    }
                    self.give(place.partition, at.0, message);
                }
                Some(TailItem::Skipped(skipped)) => {
                    if skipped.why == SkipReason::Damaged {
                        let (log, from, to) = (place.log, skipped.from, skipped.to);
                        tracing::error!("a reader passes over {log} from {from} to {to}: it is damaged");
                    }
                }
                None if has_read => return ReadStep::Moved,
                None => match tail.read(&*self.readers.journal).await {
                    Ok(()) => {}
                    Err(ReadEnd::AtEnd) => return ReadStep::AtEnd,
                    Err(ReadEnd::NoSuchLog) => return ReadStep::Gone,
                    Err(error @ (ReadEnd::Failed(_) | ReadEnd::Stopped)) => {
                        tracing::warn!(%error, "a reader waits");
                        return ReadStep::Stalled;
                    }
                },
            }
            has_read = true;
        }
    }

    /// Returns true if one more message can be delivered; takes its credit.
    fn has_room(&mut self) -> bool {
        while !self.reader.outbox.has_room(self.pending_bytes) {
            self.flush();
            let reader: Weak<Reader> = Arc::downgrade(&self.reader);
            if self.reader.outbox.wait(Waiter::Reader(reader)) {
                return false;
            }
        }
        self.reader.take_credit()
    }

    fn give(&mut self, partition: u32, offset: u64, message: StoredMessage) {
        let delivery = Delivery {
            id: DeliveryId {
                lane: partition,
                offset,
            },
            message,
            redelivered: false,
            delivery_count: 0,
        };
        let bytes = delivery.bytes();
        self.given.0 += 1;
        self.given.1 += bytes as u64;
        self.pending_bytes += bytes;
        self.pending.push(delivery);
    }

    /// Moves the pending deliveries to the outbox.
    fn flush(&mut self) {
        let metrics = &self.readers.metrics;
        metrics.delivered.inc_by(self.pending.len() as u64);
        metrics.passed_over.inc_by(std::mem::take(&mut self.passed_over));
        let bytes = std::mem::take(&mut self.pending_bytes);
        let Reader { token, outbox, .. } = &*self.reader;
        let source = || Source::Reader(Arc::<Reader>::clone(&self.reader));
        outbox.put(*token, source, &mut self.pending, bytes);
    }
}
