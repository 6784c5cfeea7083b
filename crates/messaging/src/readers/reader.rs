//! One reader: its credit, its outbox, and its end.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use stafett_model::{Lock, StoredMessage};
use stafett_topics::{StartPosition, Topic, TopicId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Readers;
use super::header_filter::HeaderFilter;
use stafett_delivery::{ConsumerState, Event, MessageFilter, Outbox, ReadSource};

/// Parameters of a reader.
#[derive(Debug, Clone, Default)]
pub struct ReaderSpec {
    pub start: StartPosition,
    /// The only partition to read; `None` for all of them, each in order.
    pub partition: Option<u32>,
    /// Bound on the messages in flight; `None` for no bound.
    pub credit: Option<u32>,
    /// Filter of messages by a header; `None` for all.
    pub wanted: Option<HeaderFilter>,
    /// Condition on the messages; `None` for all.
    pub filter: Option<Arc<dyn MessageFilter>>,
}

/// A reader of a topic.
pub struct Reader {
    pub topic: TopicId,
    pub(super) token: u64,
    pub(super) outbox: Arc<Outbox>,
    credit: Option<u32>,
    wanted: Option<HeaderFilter>,
    filter: Option<Arc<dyn MessageFilter>>,
    in_flight: AtomicU32,
    pub(super) wake: Notify,
    pub(super) ended: CancellationToken,
    /// The grown topic, until the task takes it.
    grown: Lock<Option<Arc<Topic>>>,
}

/// Handle of a reader; dropping it ends the reader.
#[derive(Debug)]
pub struct ReaderHandle {
    reader: Arc<Reader>,
    readers: Weak<Readers>,
}

impl Reader {
    pub(super) fn new(topic: &Topic, spec: &ReaderSpec, outbox: Arc<Outbox>, token: u64) -> Arc<Self> {
        Arc::new(Self {
            topic: topic.id,
            token,
            outbox,
            credit: spec.credit,
            wanted: spec.wanted.clone(),
            filter: spec.filter.clone(),
            in_flight: AtomicU32::new(0),
            wake: Notify::new(),
            ended: CancellationToken::new(),
            grown: Lock::default(),
        })
    }

    /// Takes credit for a message, if there is any. Called by the reader's task only.
    pub(super) fn take_credit(&self) -> bool {
        let used = self.in_flight.load(Ordering::Acquire);
        if self.credit.is_some_and(|credit| used >= credit) {
            return false;
        }
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        true
    }

    pub(super) fn wants(&self, message: &StoredMessage) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.has(message))
            && self
                .filter
                .as_ref()
                .is_none_or(|filter| filter.is_true_of(message))
    }

    pub(super) fn follow(&self, topic: &Arc<Topic>) {
        *self.grown.lock() = Some(Arc::clone(topic));
        self.resume();
    }

    /// Takes the topic, if it has grown since the last call.
    pub(super) fn take_grown(&self) -> Option<Arc<Topic>> {
        self.grown.lock().take()
    }

    /// Ends the reader, as its topic is deleted, and notifies its client.
    pub(super) fn on_gone(&self) {
        if !self.ended.is_cancelled() {
            self.ended.cancel();
            self.outbox.tell(Event::ConsumerGone { token: self.token });
        }
    }
}

impl ReadSource for Reader {
    fn release(&self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let less = |used: u32| Some(used.saturating_sub(count));
        // The closure never fails.
        let _ = self
            .in_flight
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        self.resume();
    }

    fn resume(&self) {
        self.wake.notify_one();
    }
}

/// Reference to a reader that may have ended.
#[derive(Debug, Clone)]
pub struct WeakReader(Weak<Reader>);

impl WeakReader {
    /// Returns the state. `None` if the reader has ended.
    pub(crate) fn state(&self) -> Option<ConsumerState> {
        let reader = self.0.upgrade()?;
        (!reader.ended.is_cancelled()).then(|| ConsumerState {
            in_flight: reader.in_flight.load(Ordering::Acquire),
            is_active: true,
        })
    }

    /// Ends the reader and tells its client. Returns false if it has ended.
    pub(crate) fn cancel(&self) -> bool {
        let reader = self.0.upgrade();
        let is_open = |reader: &Arc<Reader>| !reader.ended.is_cancelled();
        reader
            .filter(is_open)
            .inspect(|reader| reader.on_gone())
            .is_some()
    }
}

impl ReaderHandle {
    pub fn downgrade(&self) -> WeakReader {
        WeakReader(Arc::downgrade(&self.reader))
    }

    pub(super) fn of(reader: Arc<Reader>, readers: Weak<Readers>) -> Self {
        Self { reader, readers }
    }
}

impl Drop for ReaderHandle {
    fn drop(&mut self) {
        self.reader.ended.cancel();
        if let Some(readers) = self.readers.upgrade() {
            readers.forget(&self.reader);
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("topic", &self.topic)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
