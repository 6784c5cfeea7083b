//! From an earlier offset to the live stream, without a gap or a double.
//!
//! Wanted topics are held back before the subscription takes effect. Only once it is stored, a task reads up
//! to the end of live delivery: one per client and partition that is behind. Handing over messages, advancing
//! the position and changes of listeners all happen under the delivery lock, so a client that leaves or is
//! taken over has been given exactly the messages before its position.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use stafett_journal::LogSlice;
use stafett_model::Offset;
use stafett_topics::{LogRead, ReadEnd, SkipReason, read_log};

use super::{LiveLogs, Partition, record};
use crate::clients::{ClientName, ClientNumber};
use crate::filters::Verdicts;
use crate::live::Live;
use crate::log_state::{
    Beginning, CatchUpPass, CatchUpRange, CatchUpRanges, GapReason, LogPosition, NextRead, PartitionProgress,
    TopicStart,
};
use crate::message::Encoded;
use crate::outbox::{OfferOutcome, Outbox};
use crate::subscribe::{ChangeError, NameList, SubscriptionChange, SubscriptionEdit};
use crate::topics::TopicHash;

const READ_BYTES: usize = 256 << 10;
/// Bound on the topics for which a pass consults the index; more are in nearly every stretch.
const INDEXED_TOPICS_MAX: usize = 128;
/// Stretches of the index examined under one lock.
const STRETCHES_AT_ONCE: usize = 1024;

/// Position at which a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartFrom {
    /// With messages published from now on.
    #[default]
    New,
    Earliest,
    Offset(u64),
    /// At the client's last position; from now on if there is none.
    Resume,
}

/// Topics of a subscription that are held back until [`Live::catch_up`] is called.
#[must_use]
#[derive(Debug)]
pub struct HeldSubscription {
    logs: Arc<LiveLogs>,
    client: ClientNumber,
    outbox: Arc<Outbox>,
    is_stored: bool,
    /// Partitions concerned, with the id of the request in each.
    places: Vec<(usize, u64)>,
    /// Expired parts of the requested range, by partition: from, to.
    expired: Vec<(usize, Offset, Offset)>,
}

/// A topic with a log that a client is about to subscribe to.
struct CatchUpTopic {
    topic: Arc<str>,
    partitions: Arc<[usize]>,
}

/// Extent to which the client has the topic already.
enum PriorSubscription {
    Not,
    /// All messages since it began to listen came live.
    SinceListening,
    /// Messages from these offsets on came live, by partition.
    Since(Box<[Offset]>),
}

/// Result of a reading.
struct CatchUpBatch {
    messages: Vec<(Offset, TopicHash, Bytes)>,
    next: Offset,
}

impl Live {
    /// Subscribes a client that listens with `outbox`, from a given position: see [`Live::subscribe_from`].
    pub(crate) async fn subscribe_and_catch_up(
        self: Arc<Self>,
        client: ClientName,
        topics: NameList,
        from: StartFrom,
        outbox: Arc<Outbox>,
    ) -> (Result<usize, ChangeError>, Option<HeldSubscription>) {
        let number = self.clients().find(&client);
        let mut held = number.and_then(|number| self.hold(number, &topics, from, &outbox));
        let what = SubscriptionEdit::Subscribe(topics);
        let mut results = self.change_all(vec![SubscriptionChange { client, what }]).await;
        let result = results
            .pop()
            .unwrap_or_else(|| Err(stafett_store::NotStored::Unknown.into()));
        if let Some(held) = held.as_mut().filter(|_| result.is_ok()) {
            held.is_stored = true;
            self.tell_expired(held);
        }
        (result, held)
    }

    /// Holds back the topics that a client is about to catch up with. `None` if no topic has a log, or if the
    /// client does not listen here.
    fn hold(
        &self,
        client: ClientNumber,
        topics: &NameList,
        from: StartFrom,
        outbox: &Arc<Outbox>,
    ) -> Option<HeldSubscription> {
        let logs = self.logs().filter(|_| from != StartFrom::New)?;
        let wanted = with_logs(topics, &logs);
        let concerned = wanted.iter().flat_map(|wanted| wanted.partitions.iter());
        let concerned: BTreeSet<usize> = concerned.copied().collect();
        let mut progresses = logs.pause_delivery();
        if wanted.is_empty() || !self.is_listening(client, outbox) {
            return None;
        }
        let now: Vec<Offset> = progresses.iter().map(|progress| progress.next).collect();
        let names = wanted.iter().map(|wanted| Arc::clone(&wanted.topic));
        let beginning = self.positions.begin(client, names, &now, &logs);
        let had: Vec<PriorSubscription> = wanted
            .iter()
            .zip(&beginning.topics)
            .map(|(wanted, begins)| match from {
                StartFrom::Resume => self.had(client, &wanted.topic, begins),
                StartFrom::New | StartFrom::Earliest | StartFrom::Offset(_) => PriorSubscription::Not,
            })
            .collect();
        let mut lowest = now;
        let (mut places, mut expired) = (Vec::new(), Vec::new());
        for place in concerned {
            let (Some(partition), Some(progress), Some(lowest)) = (
                logs.partitions.get(place),
                progresses.get_mut(place),
                lowest.get_mut(place),
            ) else {
                continue;
            };
            let bounds = self.journal.bounds(partition.log);
            let start = bounds.map_or(Offset::ZERO, |bounds| bounds.start);
            let was = beginning.was.get(place).copied().flatten();
            let asked = match from {
                StartFrom::New => progress.next,
                StartFrom::Earliest => start,
                StartFrom::Offset(offset) => Offset(offset),
                StartFrom::Resume => was.unwrap_or(progress.next),
            };
            let at = asked.max(start).min(progress.next);
            if asked < start {
                let owed = wants(&wanted, &had, &beginning, place, asked);
                let to = owed.values().map(|want| want.until.unwrap_or(start).min(start));
                expired.extend(to.max().map(|to| (place, asked, to)));
            }
            let wants = wants(&wanted, &had, &beginning, place, at);
            if !wants.is_empty() {
                *lowest = at;
            }
            places.push((place, progress.ask(client.0, outbox, wants)));
        }
        self.positions.store_lower(&*self.journal, &logs, client, &lowest);
        drop(progresses);
        Some(HeldSubscription {
            logs,
            client,
            outbox: Arc::clone(outbox),
            is_stored: false,
            places,
            expired,
        })
    }

    /// Returns to which extent a resuming client has a topic. The caller must hold up delivery.
    fn had(&self, client: ClientNumber, topic: &str, begins: &TopicStart) -> PriorSubscription {
        let patterns = self.patterns_for(topic, client);
        if self.topics.has(topic, client.0) || patterns > begins.late_patterns {
            PriorSubscription::SinceListening
        } else if patterns > 0 {
            PriorSubscription::Since(begins.late.clone())
        } else {
            PriorSubscription::Not
        }
    }

    /// Tells a client of the requested ranges that have expired.
    fn tell_expired(&self, held: &HeldSubscription) {
        for (place, from, to) in &held.expired {
            if let Some(partition) = held.logs.partitions.get(*place) {
                let why = GapReason::Expired;
                self.notify_gap(partition, held.client, Some(&held.outbox), (*from, *to), why);
            }
        }
    }

    /// Starts to deliver the messages of a subscription, or, if it was refused, those held back meanwhile.
    /// Messages that wait in the outbox and come again are removed: so the first message behind the answer to
    /// the subscription is the one at the position asked for.
    pub fn catch_up(self: &Arc<Self>, held: HeldSubscription) {
        for (place, id) in held.places {
            let Some(partition) = held.logs.partitions.get(place) else {
                continue;
            };
            let mut progress = partition.progress();
            let run = progress.answer(held.client.0, id, held.is_stored);
            if held.is_stored {
                self.take_back(&progress, place, held.client, &held.outbox);
            }
            drop(progress);
            if let Some(run) = run {
                let (live, logs) = (Arc::clone(self), Arc::clone(&held.logs));
                let (ended, client, outbox) = (self.ended.clone(), held.client, Arc::clone(&held.outbox));
                // The task ends when the client stops listening, or with all live topics.
                drop(self.changes.spawn(async move {
                    ended
                        .run_until_cancelled(live.catch_up_with(&logs, place, client, run, &outbox))
                        .await;
                }));
            }
        }
    }

    /// Removes waiting messages that the next pass brings again.
    fn take_back(&self, progress: &PartitionProgress, place: usize, client: ClientNumber, outbox: &Outbox) {
        let mut ranges: Option<HashMap<TopicHash, CatchUpRange>> = None;
        outbox.take_back(client, |message| {
            let ranges = ranges.get_or_insert_with(|| {
                let by_hash = |(topic, range): (&Arc<str>, &CatchUpRange)| (self.topics.hash(topic), *range);
                progress.next_pass(client.0).map(by_hash).collect()
            });
            let range = ranges.get(&message.topic);
            message.place() == place && range.is_some_and(|range| range.contains(message.offset))
        });
    }

    /// Brings a client from its position to the live stream.
    async fn catch_up_with(
        &self,
        logs: &LiveLogs,
        place: usize,
        client: ClientNumber,
        run: u64,
        outbox: &Arc<Outbox>,
    ) {
        let Some(partition) = logs.partitions.get(place) else {
            return;
        };
        // The wants of a pass may be large: they are dropped without the lock.
        let mut last_pass = None;
        while wait_for_room(partition, client, run, outbox).await {
            let Ok(_reading) = logs.limits.readings.acquire().await else {
                return;
            };
            let Some(step) = partition.progress().step(client.0, run) else {
                return;
            };
            let Some(found) = self.find(logs, partition, &step, client, outbox).await else {
                return;
            };
            self.hand_over((place, partition), (client, run), &step.pass, outbox, found);
            drop(last_pass.replace(step.pass));
            tokio::task::yield_now().await;
        }
    }

    /// Reads once, past stretches with nothing for this client. `None` if the journal has stopped.
    async fn find(
        &self,
        logs: &LiveLogs,
        partition: &Partition,
        step: &NextRead,
        client: ClientNumber,
        outbox: &Arc<Outbox>,
    ) -> Option<CatchUpBatch> {
        let at = pass_over(logs, partition, step);
        let nothing_up_to = |next: Offset| CatchUpBatch {
            messages: Vec::new(),
            next: next.min(step.limit),
        };
        if at > step.at {
            return Some(nothing_up_to(at));
        }
        let read = read_log(&*self.journal, partition.log, at, READ_BYTES)
            .finish()
            .await;
        let (to, why) = match read {
            LogRead::Batches(run) => {
                self.metrics.caught_up_bytes.inc_by(run.bytes as u64);
                return Some(self.messages_of(logs, partition, run, step, client, outbox));
            }
            LogRead::Skip(skipped) if skipped.why == SkipReason::Expired => (skipped.to, GapReason::Expired),
            LogRead::Skip(skipped) if skipped.why == SkipReason::Damaged => (skipped.to, GapReason::Damaged),
            LogRead::End(ReadEnd::Stopped) => return None,
            other @ (LogRead::Skip(_) | LogRead::End(_)) => {
                // An unreadable range is skipped, not retried.
                let (topic, from, to) = (&partition.topic.name, at.0, step.limit.0);
                tracing::warn!(%topic, from, to, read = ?other, "live topics: a client cannot catch up");
                (step.limit, GapReason::Unreadable)
            }
        };
        Some(self.skip(partition, step, (at, to), why, client, outbox))
    }

    /// Skips a missing range, and tells the client.
    fn skip(
        &self,
        partition: &Partition,
        step: &NextRead,
        (from, to): (Offset, Offset),
        why: GapReason,
        client: ClientNumber,
        outbox: &Arc<Outbox>,
    ) -> CatchUpBatch {
        let next = to.min(step.limit);
        self.notify_gap(partition, client, Some(outbox), (from, next), why);
        CatchUpBatch {
            messages: Vec::new(),
            next,
        }
    }

    /// Returns the wanted messages of a run, in the client's format.
    fn messages_of(
        &self,
        logs: &LiveLogs,
        partition: &Partition,
        run: LogSlice,
        step: &NextRead,
        client: ClientNumber,
        outbox: &Arc<Outbox>,
    ) -> CatchUpBatch {
        let next = run.next.min(step.limit);
        let (mut topics, mut messages) = (Vec::new(), Vec::new());
        let filter = self.listeners().filters.get(client).cloned();
        let is_wanted = |topic: &str, offset| {
            topics.push((offset, logs.short_hash(topic)));
            // A client that has unsubscribed meanwhile gets nothing more.
            step.pass.is_wanted(topic, offset) && self.topics.has(topic, client.0)
        };
        record::each(run, step.at, next, is_wanted, |message, offset| {
            if !outbox.admits(message.topic) {
                return;
            }
            if let Some(filter) = &filter
                && !Verdicts::new(message, &self.metrics).admits(filter)
            {
                return;
            }
            let hash = self.topics.hash(message.topic);
            messages.push((offset, hash, Encoded::new(*message).form(outbox.format())));
        });
        partition.index().learn(step.at, next, &topics);
        CatchUpBatch { messages, next }
    }

    /// Puts the messages into the outbox as far as there is room, unless the client has left.
    fn hand_over(
        &self,
        (place, partition): (usize, &Partition),
        (client, run): (ClientNumber, u64),
        pass: &Arc<CatchUpPass>,
        outbox: &Arc<Outbox>,
        found: CatchUpBatch,
    ) {
        let mut progress = partition.progress();
        if !progress.is_in_pass(client.0, run, pass) {
            return;
        }
        let mut at = found.next;
        let mut count = 0;
        for (offset, topic, message) in found.messages {
            let log_position = LogPosition::new(client.0, place, offset, topic);
            match outbox.offer(message, log_position) {
                OfferOutcome::Taken => count += 1,
                OfferOutcome::Dropped => {}
                OfferOutcome::NoRoom => {
                    at = offset;
                    break;
                }
            }
        }
        progress.advance(client.0, run, at);
        drop(progress);
        self.metrics.delivered.inc_by(count);
    }
}

/// Waits until a client has room in its outbox; false if it is no longer behind here.
async fn wait_for_room(partition: &Partition, client: ClientNumber, run: u64, outbox: &Arc<Outbox>) -> bool {
    loop {
        let mut moved = pin!(outbox.moved());
        moved.as_mut().enable();
        if !partition.progress().is_running(client.0, run) {
            return false;
        }
        if outbox.has_room() {
            return true;
        }
        moved.await;
    }
}

fn pass_over(logs: &LiveLogs, partition: &Partition, step: &NextRead) -> Offset {
    if step.pass.wants.len() > INDEXED_TOPICS_MAX {
        return step.at;
    }
    let topics: Vec<u32> = step
        .pass
        .wants
        .keys()
        .map(|topic| logs.short_hash(topic))
        .collect();
    partition
        .index()
        .pass_over(step.at, step.limit, &topics, STRETCHES_AT_ONCE)
}

/// Returns those of the topics that have a log behind them.
fn with_logs(topics: &NameList, logs: &LiveLogs) -> Vec<CatchUpTopic> {
    let wanted = topics.iter().filter_map(|name| {
        let log = logs.behind(name)?;
        Some(CatchUpTopic {
            topic: Arc::from(name),
            partitions: Arc::clone(&log.partitions),
        })
    });
    wanted.collect()
}

/// Returns the wanted topics of one partition, from `at` on.
fn wants(
    wanted: &[CatchUpTopic],
    had: &[PriorSubscription],
    beginning: &Beginning,
    place: usize,
    at: Offset,
) -> CatchUpRanges {
    let mut wants = CatchUpRanges::new();
    for ((wanted, had), begins) in wanted.iter().zip(had).zip(&beginning.topics) {
        if !wanted.partitions.contains(&place) {
            continue;
        }
        // Offset from which messages came live.
        let since = match had {
            PriorSubscription::Not => None,
            PriorSubscription::SinceListening => beginning.since.get(place).copied(),
            PriorSubscription::Since(since) => since.get(place).copied(),
        };
        match since {
            Some(since) if !begins.is_first || at >= since => {}
            until => {
                wants.insert(Arc::clone(&wanted.topic), CatchUpRange { from: at, until });
            }
        }
    }
    wants
}
