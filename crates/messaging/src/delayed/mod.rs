//! Messages that wait for their time before they are routed.
//!
//! A message waits in the log of the minute in which its time comes: its *bucket*. Of a bucket whose minute
//! is far away nothing is in memory but its name, however much waits in it. Shortly before its minute the
//! bucket is *opened*: the times of its messages are read into memory, and the task of this module releases
//! them, in the order of their times. A release is one append that holds the messages, for wherever they are
//! routed now, and what of the bucket is done; so a crash repeats nothing and loses nothing. A bucket that is
//! empty when its minute is over is deleted.
//!
//! - [`bucket`]: a bucket and how it is stored
//! - `note`: what a waiting message has written on it
//! - `opened`: a bucket whose time has come
//! - `release`: the task

mod bucket;
mod metrics;
mod note;
mod opened;
mod release;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker};

use bytestring::ByteString;
use stafett_journal::{
    Append, Change, Frame, Journal, LogSpec, Outcome, Refusal, Retention, StateItem, StateUnreadable,
    StateWait,
};
use stafett_model::{Durability, Lock, LogId, Message, Namespace};
use stafett_store::spaces;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::exchanges::space::SpaceId;
use crate::exchanges::way::WayBack;
use crate::queues::clock::Clock;
use bucket::{Bucket, Minute};
use note::Note;
use release::run;

pub(crate) use metrics::DelayedMetrics;

/// The longest that a message can wait.
pub(crate) const DELAY_MS_MAX: u64 = u32::MAX as u64;

/// All messages that wait.
#[derive(Debug)]
pub(crate) struct Delayed {
    journal: Arc<dyn Journal>,
    clock: Arc<Clock>,
    buckets: Lock<BTreeMap<Minute, Arc<Bucket>>>,
    /// Rings when a bucket is made.
    made: Notify,
    metrics: DelayedMetrics,
}

/// The task that releases; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Releasing {
    delayed: Arc<Delayed>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A message on its way into its bucket. As long as this is there the bucket stays.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) message: Message,
    pub(crate) log: LogId,
    /// Keeps the bucket from being deleted until the message is staged.
    pub(crate) bucket: Arc<Bucket>,
}

/// Why a message cannot wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CannotWait {
    TooLong,
    Journal(Refusal),
}

impl Releasing {
    pub(crate) fn spawn(delayed: Arc<Delayed>, way: WayBack) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(run(Arc::clone(&delayed), way, stop.clone()));
        tasks.close();
        Self { delayed, tasks, stop }
    }

    pub(crate) fn metrics(&self) -> &DelayedMetrics {
        &self.delayed.metrics
    }

    /// Lets a release that is under way end, and begins no other one.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Delayed {
    /// Loads what is stored. Call it before anything is appended.
    pub(crate) fn open(journal: Arc<dyn Journal>, clock: Arc<Clock>) -> Result<Self, StateUnreadable> {
        let mut buckets: BTreeMap<Minute, Bucket> = BTreeMap::new();
        spaces::BUCKETS.load(&*journal, |item| match item {
            StateItem::Value { key, value } => {
                buckets.insert(Minute::of_key(key)?, Bucket::decode(value)?);
                Some(())
            }
            StateItem::Delta { key, delta } => buckets.get_mut(&Minute::of_key(key)?)?.add_done(delta),
        })?;
        let buckets = buckets
            .into_iter()
            .map(|(minute, bucket)| (minute, Arc::new(bucket)));
        Ok(Self {
            clock,
            buckets: Lock::new(buckets.collect()),
            made: Notify::new(),
            metrics: DelayedMetrics::default(),
            journal,
        })
    }

    /// Prepares a message to wait before it goes on from an exchange.
    pub(crate) fn wait(
        &self,
        (namespace, space): (&Namespace, SpaceId),
        exchange: &str,
        message: &Message,
        more_keys: &[ByteString],
    ) -> Result<Waiting, CannotWait> {
        let delay_ms = message.delay_ms.unwrap_or(0);
        if delay_ms > DELAY_MS_MAX {
            return Err(CannotWait::TooLong);
        }
        let due_ms = self.clock.wall_ms().saturating_add_unsigned(delay_ms);
        let bucket = self.bucket(Minute::of(due_ms)).map_err(CannotWait::Journal)?;
        let note = Note {
            namespace: namespace.clone(),
            space,
            exchange: exchange.into(),
            due_ms,
            more_keys: more_keys.to_vec(),
        };
        self.metrics.delayed.inc();
        Ok(Waiting {
            message: note.on(message.clone()),
            log: bucket.log,
            bucket,
        })
    }

    /// The bucket of a minute; it is made if there is none. Appends to it are behind its making in the
    /// journal.
    fn bucket(&self, minute: Minute) -> Result<Arc<Bucket>, Refusal> {
        let mut buckets = self.lock();
        if let Some(bucket) = buckets.get(&minute) {
            return Ok(Arc::clone(bucket));
        }
        let log = self.journal.allocate(1);
        let bucket = Arc::new(Bucket::new(log));
        // What waits is as durable as it can be, whatever queues promise for what they hold.
        let spec = LogSpec {
            durability: Durability::Sync,
            retention: Retention::default(),
        };
        let create = Frame::CreateLogs {
            first: log,
            count: 1,
            spec,
        };
        let frames = [create, bucket::frame(minute, Change::Put(bucket.encode()))];
        let mut ticket = self
            .journal
            .append(vec![Append::state(frames, StateWait::Written)]);
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(outcomes) = Pin::new(&mut ticket).poll(&mut context)
            && let Some(Outcome::Refused(refusal)) = outcomes.first()
        {
            return Err(*refusal);
        }
        buckets.insert(minute, Arc::clone(&bucket));
        drop(buckets);
        self.made.notify_one();
        Ok(bucket)
    }

    /// The bucket whose time comes first, behind `after` if that is given.
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

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Minute, Arc<Bucket>>> {
        self.buckets.lock()
    }
}
