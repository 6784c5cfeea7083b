//! Task of a reader: reads as its outbox and its credit permit, and otherwise waits.

use std::sync::Arc;
use std::time::Duration;

use stafett_journal::{ReadError, ReadFrom, ReadRequest, Watch};
use stafett_model::{Offset, StoredMessage};
use stafett_queue::DeliveryId;
use stafett_topics::{Cursor, Look};

use super::Readers;
use super::place::Places;
use super::reader::Reader;
use crate::queues::Delivery;
use crate::queues::{Source, Waiter};

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;
/// Pause of a stalled reader, whose log could not be read.
const STALLED: Duration = Duration::from_secs(1);

/// Result of a step.
enum Step {
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

struct Run {
    readers: Arc<Readers>,
    reader: Arc<Reader>,
    places: Places,
    watch: Watch,
    /// Read-ahead of the partition whose turn it is.
    cursor: Cursor,
    pending: Vec<Delivery>,
    pending_bytes: usize,
    /// Number of skipped messages that are not in the metrics yet.
    passed_over: u64,
}

/// Runs until the reader, its topic or the process ends.
pub(super) async fn run(readers: Arc<Readers>, reader: Arc<Reader>, mut places: Places) {
    let (stop, ended) = (readers.stop.clone(), reader.ended.clone());
    let watch = readers.journal.watch();
    for place in &places.list {
        readers.journal.watch_log(&watch, place.log, place.partition);
    }
    let reading = async move {
        places.find(&*readers.journal).await;
        let mut run = Run {
            cursor: Cursor::new(Arc::clone(&readers.kept)),
            readers,
            reader,
            places,
            watch,
            pending: Vec::new(),
            pending_bytes: 0,
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

impl Run {
    async fn go_on(&mut self) {
        loop {
            self.follow();
            let step = self.deliver().await;
            self.flush();
            match step {
                Step::Gone => return self.reader.on_gone(),
                Step::Stalled => tokio::time::sleep(STALLED).await,
                Step::Moved => tokio::task::yield_now().await,
                Step::AtEnd | Step::Blocked => tokio::select! {
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
    async fn deliver(&mut self) -> Step {
        let mut came = Step::AtEnd;
        for _ in 0..self.places.list.len() {
            match self.deliver_read().await {
                Step::AtEnd => {}
                Step::Moved => came = Step::Moved,
                step @ (Step::Blocked | Step::Stalled | Step::Gone) => return step,
            }
            self.cursor.clear();
            self.places.pass_turn();
        }
        came
    }

    /// Delivers read-ahead messages of the current partition; reads first if there are none.
    async fn deliver_read(&mut self) -> Step {
        let mut has_read = false;
        loop {
            let Some(place) = self.places.current() else {
                return Step::AtEnd;
            };
            let (at, partition) = (place.next, place.partition);
            match self.cursor.look(at) {
                Look::Message(message, _) if !self.reader.wants(&message) => {
                    self.passed_over += 1;
                    self.move_to(at + 1);
                    has_read = true;
                }
                Look::Message(message, epoch) => {
                    if !self.has_room() {
                        self.cursor.put_back(at, message, epoch);
                        return Step::Blocked;
                    }
                    self.give(partition, at, message);
                    self.move_to(at + 1);
                    has_read = true;
                }
                Look::Hole(to) => {
                    self.move_to(to);
                    has_read = true;
                }
                Look::Unread if has_read => return Step::Moved,
                Look::Unread => match self.read().await {
                    Step::Moved => {}
                    step @ (Step::AtEnd | Step::Blocked | Step::Stalled | Step::Gone) => return step,
                },
            }
        }
    }

    fn move_to(&mut self, offset: u64) {
        if let Some(place) = self.places.current() {
            place.next = place.next.max(offset);
        }
    }

    /// Returns true if one more message can be delivered; takes its credit.
    fn has_room(&mut self) -> bool {
        while !self.reader.outbox.has_room(self.pending_bytes) {
            self.flush();
            if self
                .reader
                .outbox
                .wait(Waiter::Reader(Arc::downgrade(&self.reader)))
            {
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
        self.pending_bytes += delivery.bytes();
        self.pending.push(delivery);
    }

    /// Moves the pending deliveries to the outbox.
    fn flush(&mut self) {
        let metrics = &self.readers.metrics;
        metrics.delivered.inc_by(self.pending.len() as u64);
        metrics.passed_over.inc_by(std::mem::take(&mut self.passed_over));
        let bytes = std::mem::take(&mut self.pending_bytes);
        let Reader { token, outbox, .. } = &*self.reader;
        let source = || Source::Reader(Arc::clone(&self.reader));
        outbox.put(*token, source, &mut self.pending, bytes);
    }

    /// Reads the current partition.
    async fn read(&mut self) -> Step {
        let Some(place) = self.places.current() else {
            return Step::AtEnd;
        };
        let (log, at) = (place.log, place.next);
        let request = ReadRequest {
            logs: vec![ReadFrom {
                log,
                offset: Offset(at),
                bytes_max: READ_BYTES,
            }],
            bytes_max: READ_BYTES,
            first_batch_whole: true,
        };
        let Ok(mut result) = self.readers.journal.read(request).finish().await else {
            return Step::Stalled;
        };
        match result.pop() {
            Some(Ok(run)) if run.next.0 > at => self.cursor.fill(at, run),
            // The log continues behind a gap, and nothing is behind it yet.
            Some(Ok(run)) => match run.bounds {
                Some(bounds) if bounds.end.0 > at => self.move_to(bounds.end.0),
                _ => return Step::AtEnd,
            },
            // The next messages are no longer kept.
            Some(Err(ReadError::OutOfRange { start, .. })) if start.0 > at => self.move_to(start.0),
            Some(Err(ReadError::OutOfRange { .. })) => return Step::AtEnd,
            Some(Err(ReadError::Damaged { to, .. })) if to.0 > at => {
                tracing::error!("a reader passes over {log} from {at} to {to}: it is damaged");
                self.move_to(to.0);
            }
            Some(Err(ReadError::NoSuchLog(_))) => return Step::Gone,
            Some(Err(error @ (ReadError::Damaged { .. } | ReadError::Io { .. }))) => {
                tracing::warn!(%error, "a reader waits");
                return Step::Stalled;
            }
            None => return Step::Stalled,
        }
        Step::Moved
    }
}
