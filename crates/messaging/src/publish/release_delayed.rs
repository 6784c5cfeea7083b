//! Task that opens buckets of delayed messages, and routes and stores the messages when they are due.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use stafett_journal::{Append, Change, Frame, Outcome, Refusal, StateWait};
use stafett_model::StoredMessage;
use stafett_store::NotStored;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::delayed::{DelayHeader, Delayed, DelayedMetrics, Minute, OpenBucket, done, frame, without};
use crate::exchanges::resolver::Resolver;
use crate::queues::{AtomicPublishError, Publication};

/// Bytes at which a release ends; the last message may exceed them.
const BYTES_MAX: usize = 1 << 20;
/// Pause before a retry after a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// Outcome of a release.
enum ReleaseOutcome {
    /// Nothing was due.
    Nothing,
    Some,
    /// Not stored; may be retried.
    NotNow,
    /// The release does not fit into one append.
    TooLarge,
    /// The journal has stopped.
    Stopped,
}

/// Task that releases messages; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ReleaseTask {
    delayed: Arc<Delayed>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Release of due messages.
struct Release<'a> {
    delayed: &'a Delayed,
    resolver: &'a Resolver,
}

impl ReleaseTask {
    pub(crate) fn spawn(delayed: Arc<Delayed>, resolver: Weak<Resolver>) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(run(Arc::clone(&delayed), resolver, stop.clone()));
        tasks.close();
        Self { delayed, tasks, stop }
    }

    pub(crate) fn metrics(&self) -> &DelayedMetrics {
        &self.delayed.metrics
    }

    /// Stops the task; a release in progress completes.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for ReleaseTask {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Releases due messages until it is stopped.
async fn run(delayed: Arc<Delayed>, resolver: Weak<Resolver>, stop: CancellationToken) {
    let watch = delayed.journal.watch();
    let mut opened: BTreeMap<Minute, OpenBucket> = BTreeMap::new();
    let mut steps = delayed.clock.steps();
    loop {
        let made = delayed.made.notified();
        watch.take();
        let (mut busy, mut well) = (false, true);
        if std::mem::replace(&mut steps, delayed.clock.steps()) != steps {
            opened.values_mut().for_each(OpenBucket::forget);
        }
        delayed.open_buckets(&mut opened, &watch);
        for bucket in opened.values_mut() {
            well &= bucket.catch_up(&*delayed.journal, &delayed.clock).await;
        }
        {
            let Some(resolver) = resolver.upgrade() else {
                return;
            };
            let release = Release {
                delayed: &delayed,
                resolver: &resolver,
            };
            // The bucket that is due first is released first.
            for bucket in opened.values_mut() {
                match release.release(bucket).await {
                    ReleaseOutcome::Nothing => continue,
                    ReleaseOutcome::Some => busy = true,
                    ReleaseOutcome::NotNow | ReleaseOutcome::TooLarge => well = false,
                    ReleaseOutcome::Stopped => return,
                }
                break;
            }
        }
        delayed.delete_empty(&mut opened).await;
        if stop.is_cancelled() {
            return;
        }
        if busy && well {
            continue;
        }
        let next = if well {
            delayed.next_time(&opened)
        } else {
            Some(tokio::time::Instant::now() + AGAIN)
        };
        let sleep = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep => {}
            () = made => {}
            () = delayed.clock.stepped() => {}
            () = watch.grown() => {}
        }
    }
}

impl Release<'_> {
    /// Routes the due messages of a bucket and stores them, together with their released offsets.
    async fn release(&self, bucket: &mut OpenBucket) -> ReleaseOutcome {
        let mut offsets = bucket.due(self.delayed.clock.now_ms());
        if offsets.is_empty() {
            return ReleaseOutcome::Nothing;
        }
        let Some(messages) = bucket.messages(&*self.delayed.journal, &offsets).await else {
            return ReleaseOutcome::NotNow;
        };
        let mut bytes = 0;
        let fits = |offset: &&u64| {
            let fits = bytes < BYTES_MAX;
            bytes += messages.get(*offset).map_or(0, StoredMessage::bytes);
            fits
        };
        offsets.truncate(offsets.iter().take_while(fits).count());
        loop {
            let due = offsets.iter().filter_map(|offset| messages.get(offset));
            let publication = self.route(due);
            let delta = Change::Delta(done(&mut offsets.clone()));
            let released = match self.store(publication, frame(bucket.minute, delta.clone())).await {
                ReleaseOutcome::TooLarge if offsets.len() > 1 => {
                    offsets.truncate(offsets.len() / 2);
                    continue;
                }
                ReleaseOutcome::TooLarge => {
                    // It never fits: it is larger than it was in its bucket.
                    tracing::error!(
                        "a message that waited is lost: it is larger than can be stored together"
                    );
                    let done = frame(bucket.minute, delta);
                    self.store(Publication::together(), done).await
                }
                released @ (ReleaseOutcome::Nothing
                | ReleaseOutcome::Some
                | ReleaseOutcome::NotNow
                | ReleaseOutcome::Stopped) => released,
            };
            if let ReleaseOutcome::Some = released {
                bucket.released(&offsets);
                self.delayed.metrics.released.inc_by(offsets.len() as u64);
            }
            return released;
        }
    }

    /// Returns the publication of messages that are released now.
    fn route<'a>(&self, due: impl Iterator<Item = &'a StoredMessage>) -> Publication {
        let mut publication = Publication::together();
        for stored in due {
            let Some(note) = DelayHeader::of(stored) else {
                continue;
            };
            let message = without(stored);
            // A later namespace of the same name must not get the message.
            let space = self.resolver.exchanges.space(&note.namespace);
            let space = space.filter(|space| space.id == note.space);
            let targets = space.map(|routing| {
                let DelayHeader {
                    exchange, more_keys, ..
                } = &note;
                self.resolver.reroute(&routing, exchange, more_keys, &message)
            });
            let targets = targets.unwrap_or_default();
            if targets.is_empty() {
                self.delayed.metrics.unroutable.inc();
                continue;
            }
            let route = publication.route(targets);
            publication.push(message, route);
        }
        publication
    }

    async fn store(&self, publication: Publication, done: Frame) -> ReleaseOutcome {
        if publication.is_empty() {
            let append = Append {
                frees_space: true,
                ..Append::state([done], StateWait::Written)
            };
            return match self.delayed.journal.append(vec![append]).await.pop() {
                Some(Outcome::Committed(_)) => ReleaseOutcome::Some,
                Some(Outcome::Refused(Refusal::Closed) | Outcome::Unknown) | None => ReleaseOutcome::Stopped,
                Some(Outcome::Refused(_)) => ReleaseOutcome::NotNow,
            };
        }
        let stored = self
            .resolver
            .queues
            .append_with(publication, [done].into_iter().collect());
        match stored.together().await {
            // Messages refused by a full queue are not retried.
            Ok(()) => ReleaseOutcome::Some,
            Err(AtomicPublishError::NotStored(NotStored::Refused(Refusal::Closed) | NotStored::Unknown)) => {
                ReleaseOutcome::Stopped
            }
            Err(AtomicPublishError::NotStored(NotStored::Refused(Refusal::TooLarge { .. }))) => {
                ReleaseOutcome::TooLarge
            }
            Err(
                AtomicPublishError::NotStored(_)
                | AtomicPublishError::Misfit { .. }
                | AtomicPublishError::SourceGone,
            ) => ReleaseOutcome::NotNow,
        }
    }
}
