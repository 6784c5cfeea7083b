//! Task that opens buckets and releases messages when they are due.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use stafett_journal::{Append, Change, Frame, Outcome, Precondition, StateWait};
use stafett_model::StoredMessage;
use stafett_store::NotStored;
use tokio_util::sync::CancellationToken;

use super::Delayed;
use super::bucket::{Minute, done, frame};
use super::note::{Note, without};
use super::opened::Opened;
use crate::exchanges::way::{Way, route_in};
use crate::queues::{NotTogether, Publication};

/// Time from the opening of a bucket to the beginning of its minute.
const AHEAD_MS: i64 = 5_000;
/// Bytes at which a release ends; the last message may exceed them.
const BYTES_MAX: usize = 1 << 20;
/// Pause before a retry after a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// Outcome of a release.
enum Released {
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

/// Releases due messages until it is stopped.
pub(crate) async fn run(delayed: Arc<Delayed>, way: Weak<Way>, stop: CancellationToken) {
    let watch = delayed.journal.watch();
    let mut opened: BTreeMap<Minute, Opened> = BTreeMap::new();
    let mut steps = delayed.clock.steps();
    loop {
        let made = delayed.made.notified();
        watch.take();
        let (mut busy, mut well) = (false, true);
        if std::mem::replace(&mut steps, delayed.clock.steps()) != steps {
            opened.values_mut().for_each(Opened::forget);
        }
        delayed.open_buckets(&mut opened, &watch);
        for bucket in opened.values_mut() {
            well &= bucket.catch_up(&*delayed.journal, &delayed.clock).await;
        }
        {
            let Some(way) = way.upgrade() else { return };
            // The bucket that is due first is released first.
            for bucket in opened.values_mut() {
                match delayed.release(bucket, &way).await {
                    Released::Nothing => continue,
                    Released::Some => busy = true,
                    Released::NotNow | Released::TooLarge => well = false,
                    Released::Stopped => return,
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

impl Delayed {
    /// Opens the buckets whose minute begins soon.
    fn open_buckets(&self, opened: &mut BTreeMap<Minute, Opened>, watch: &stafett_journal::Watch) {
        let soon = self.clock.now_ms().saturating_add(AHEAD_MS);
        let mut last = None;
        while let Some((minute, bucket)) = self.first_bucket(last) {
            if self.clock.earliest_ms(minute.start_ms()) > soon {
                return;
            }
            opened.entry(minute).or_insert_with(|| {
                self.journal.watch_log(watch, bucket.log, 0);
                Opened::new(minute, bucket)
            });
            last = Some(minute);
        }
    }

    /// Returns the next time at which there is something to do, if nothing changes.
    fn next_time(&self, opened: &BTreeMap<Minute, Opened>) -> Option<tokio::time::Instant> {
        let due = opened.values().filter_map(Opened::next_ms).min();
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

    /// Routes the due messages of a bucket and stores them, together with their released offsets.
    async fn release(&self, bucket: &mut Opened, way: &Way) -> Released {
        let mut offsets = bucket.due(self.clock.now_ms());
        if offsets.is_empty() {
            return Released::Nothing;
        }
        let Some(messages) = bucket.messages(&*self.journal, &offsets).await else {
            return Released::NotNow;
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
            let publication = self.route(way, due);
            let delta = Change::Delta(done(&mut offsets.clone()));
            let released = match self
                .store(way, publication, frame(bucket.minute, delta.clone()))
                .await
            {
                Released::TooLarge if offsets.len() > 1 => {
                    offsets.truncate(offsets.len() / 2);
                    continue;
                }
                Released::TooLarge => {
                    // It never fits: it is larger than it was in its bucket.
                    tracing::error!(
                        "a message that waited is lost: it is larger than can be stored together"
                    );
                    let done = frame(bucket.minute, delta);
                    self.store(way, Publication::together(), done).await
                }
                released @ (Released::Nothing | Released::Some | Released::NotNow | Released::Stopped) => {
                    released
                }
            };
            if let Released::Some = released {
                bucket.released(&offsets);
                self.metrics.released.inc_by(offsets.len() as u64);
            }
            return released;
        }
    }

    /// Returns the publication of messages that are released now.
    fn route<'a>(&self, way: &Way, due: impl Iterator<Item = &'a StoredMessage>) -> Publication {
        let mut publication = Publication::together();
        for stored in due {
            let Some(note) = Note::of(stored) else { continue };
            let message = without(stored);
            // A later namespace of the same name must not get the message.
            let space = way.exchanges.space(&note.namespace);
            let space = space.filter(|space| space.id == note.space);
            let to = (&*message.routing_key, &message);
            let targets = space.map(|space| {
                let Note {
                    namespace,
                    exchange,
                    more_keys,
                    ..
                } = &note;
                route_in(way, namespace, &space, exchange, more_keys, to)
            });
            let targets = targets.unwrap_or_default();
            if targets.is_empty() {
                self.metrics.unroutable.inc();
                continue;
            }
            let route = publication.route(targets);
            publication.push(message, route);
        }
        publication
    }

    async fn store(&self, way: &Way, publication: Publication, done: Frame) -> Released {
        if publication.is_empty() {
            let append = Append {
                frees_space: true,
                ..Append::state([done], StateWait::Written)
            };
            return match self.journal.append(vec![append]).await.pop() {
                Some(Outcome::Committed(_)) => Released::Some,
                Some(Outcome::Refused(stafett_journal::Refusal::Closed) | Outcome::Unknown) | None => {
                    Released::Stopped
                }
                Some(Outcome::Refused(_)) => Released::NotNow,
            };
        }
        let stored = way.queues.append_with(publication, [done].into_iter().collect());
        match stored.together().await {
            // Messages refused by a full queue are not retried.
            Ok(_) => Released::Some,
            Err(NotTogether::NotStored(
                NotStored::Refused(stafett_journal::Refusal::Closed) | NotStored::Unknown,
            )) => Released::Stopped,
            Err(NotTogether::NotStored(NotStored::Refused(stafett_journal::Refusal::TooLarge {
                ..
            }))) => Released::TooLarge,
            Err(NotTogether::NotStored(_) | NotTogether::Misfit { .. } | NotTogether::SourceGone) => {
                Released::NotNow
            }
        }
    }

    /// Deletes empty buckets whose minute is over.
    async fn delete_empty(&self, opened: &mut BTreeMap<Minute, Opened>) {
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
