//! Delayed messages: they wait before they are routed.
//!
//! A message waits in the log of the minute in which it is due: its *bucket*. Of a bucket that is due much
//! later, only its name is in memory, for any number of messages. Shortly before its minute the bucket is
//! *opened*: the due times of its messages are read into memory, and they are released in the order of these
//! times ([`crate::publish`]). A release is one append with the messages for their targets and the released
//! offsets of the bucket; so a crash repeats nothing and loses nothing. A bucket that is empty after its
//! minute is deleted.
//!
//! - [`bucket`]: a bucket and its stored format
//! - `header`: the record header of a waiting message
//! - `open_bucket`: an opened bucket

mod bucket;
mod header;
mod metrics;
mod open_bucket;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;
use stafett_journal::{Change, Frame, Journal, LogSpec, Refusal, Retention, StateItem};
use stafett_model::{Durability, Lock, LockGuard, LogId, Message, Namespace, NamespaceId};
use stafett_store::{Clock, StageOutcome};
use tokio::sync::Notify;

pub(crate) use bucket::{Bucket, Minute, done, frame};
pub(crate) use header::{DelayHeader, without};
pub(crate) use metrics::DelayedMetrics;
pub(crate) use open_bucket::OpenBucket;

/// Bound on the delay of a message.
pub(crate) const DELAY_MS_MAX: u64 = u32::MAX as u64;

/// All delayed messages.
#[derive(Debug)]
pub(crate) struct Delayed {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) clock: Arc<Clock>,
    buckets: Lock<BTreeMap<Minute, Arc<Bucket>>>,
    /// Notified when a bucket is created.
    pub(crate) made: Notify,
    pub(crate) metrics: DelayedMetrics,
}

/// A message to be stored in its bucket. The bucket exists while this does.
#[derive(Debug)]
pub(crate) struct DelayedMessage {
    pub(crate) message: Message,
    pub(crate) log: LogId,
    /// Keeps the bucket from being deleted until the message is staged.
    pub(crate) bucket: Arc<Bucket>,
}

/// Reason why a message cannot be delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DelayError {
    TooLong,
    Journal(Refusal),
}

/// Buckets as they are loaded.
#[derive(Debug, Default)]
pub(crate) struct StoredBuckets(BTreeMap<Minute, Bucket>);

impl StoredBuckets {
    /// Adds a row; `None` if its format is unknown.
    pub(crate) fn add(&mut self, row: StateItem<'_>) -> Option<()> {
        match row {
            StateItem::Value { key, value } => {
                self.0.insert(Minute::of_key(key)?, Bucket::decode(value)?);
                Some(())
            }
            StateItem::Delta { key, delta } => self.0.get_mut(&Minute::of_key(key)?)?.add_done(delta),
        }
    }
}

impl Delayed {
    /// Takes over the stored buckets.
    pub(crate) fn open(journal: Arc<dyn Journal>, clock: Arc<Clock>, stored: StoredBuckets) -> Self {
        let buckets = stored.0.into_iter();
        let buckets = buckets.map(|(minute, bucket)| (minute, Arc::new(bucket)));
        Self {
            clock,
            buckets: Lock::new(buckets.collect()),
            made: Notify::new(),
            metrics: DelayedMetrics::default(),
            journal,
        }
    }

    /// Prepares a message to wait before it is routed by an exchange.
    pub(crate) fn wait(
        &self,
        (namespace, space): (&Namespace, NamespaceId),
        exchange: &str,
        message: &Message,
        more_keys: &[ByteString],
    ) -> Result<DelayedMessage, DelayError> {
        let delay_ms = message.delay_ms.unwrap_or(0);
        if delay_ms > DELAY_MS_MAX {
            return Err(DelayError::TooLong);
        }
        let due_ms = self.clock.wall_ms().saturating_add_unsigned(delay_ms);
        let bucket = self.bucket(Minute::of(due_ms)).map_err(DelayError::Journal)?;
        let note = DelayHeader {
            namespace: namespace.clone(),
            space,
            exchange: exchange.into(),
            due_ms,
            more_keys: more_keys.to_vec(),
        };
        self.metrics.delayed.inc();
        Ok(DelayedMessage {
            message: note.on(message.clone()),
            log: bucket.log,
            bucket,
        })
    }

    /// Returns the bucket of a minute, which is created if it does not exist. Appends to it follow its
    /// creation in the journal.
    fn bucket(&self, minute: Minute) -> Result<Arc<Bucket>, Refusal> {
        let mut buckets = self.lock();
        if let Some(bucket) = buckets.get(&minute) {
            return Ok(Arc::clone(bucket));
        }
        let log = self.journal.allocate(1);
        let bucket = Arc::new(Bucket::new(log));
        // Delayed messages are always synced, independent of the durability of queues.
        let spec = LogSpec {
            durability: Durability::Sync,
            retention: Retention::default(),
            compaction: None,
        };
        let create = Frame::CreateLogs {
            first: log,
            count: 1,
            spec,
        };
        let frames = [create, frame(minute, Change::Put(bucket.encode()))];
        if let StageOutcome::Refused(refusal) = StageOutcome::of(&*self.journal, frames) {
            return Err(refusal);
        }
        buckets.insert(minute, Arc::clone(&bucket));
        drop(buckets);
        self.made.notify_one();
        Ok(bucket)
    }

    /// Returns the earliest bucket, or the earliest one behind `after`.
    fn first_bucket(&self, after: Option<Minute>) -> Option<(Minute, Arc<Bucket>)> {
        let buckets = self.lock();
        let mut behind = match after {
            Some(after) => buckets.range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded)),
            None => buckets.range(..),
        };
        behind
            .next()
            .map(|(minute, bucket)| (*minute, Arc::clone(bucket)))
    }

    fn lock(&self) -> LockGuard<'_, BTreeMap<Minute, Arc<Bucket>>> {
        self.buckets.lock()
    }
}
