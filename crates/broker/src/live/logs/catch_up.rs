//! From an earlier offset to the live stream, without a gap or a double.
//!
//! What is wanted is held back before the subscription takes effect, and only once that is stored a task reads up to where the
//! partition has been delivered: one for each client and partition that is behind. What the task hands over, and how far it
//! has come then, changes under the lock of delivery; so does who listens. So whoever leaves or is taken over has been
//! given exactly what lies before its position.

use std::collections::BTreeSet;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use stafett_journal::{ReadError, ReadFrom, ReadRequest, Run};
use stafett_model::Offset;

use super::behind::{Step, Want, Wants};
use super::{LiveLogs, Partition, entry};
use crate::live::change::{ChangeError, NameList, SubscriptionChange, What};
use crate::live::clients::{ClientName, ClientNumber};
use crate::live::hub::Live;
use crate::live::logs::positions::{Beginning, Mark};
use crate::live::message::Encoded;
use crate::live::outbox::{Offered, Outbox};

const READ_BYTES: usize = 256 << 10;
/// Topics up to which a reading asks the index; more are in nearly every stretch.
const INDEXED_TOPICS_MAX: usize = 128;
/// Stretches of the index that are looked at under one lock.
const STRETCHES_AT_ONCE: usize = 1024;

/// From where a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum From {
    /// With what is published from now on.
    #[default]
    New,
    Earliest,
    Offset(u64),
    /// Where the client was last; from now on, if it never was.
    Resume,
}

/// What was asked for together: the partitions, and under which id.
#[derive(Debug)]
struct Held {
    client: ClientNumber,
    places: Vec<(usize, u64)>,
}

/// A topic with a log that a client is about to subscribe to.
struct Wanted {
    topic: Arc<str>,
    partitions: Range<usize>,
    /// Whether the client has it already.
    had: bool,
}

/// What a reading found.
struct Found {
    messages: Vec<(Offset, Bytes)>,
    next: Offset,
}

impl Live {
    /// Subscribes a client that listens with `outbox`, beginning somewhere: what is there of the topics' logs is delivered
    /// first, and then what comes, without a gap or a double. It goes on to its end also when nobody waits for it any more.
    pub(crate) async fn subscribe_and_catch_up(
        self: Arc<Self>,
        client: ClientName,
        topics: NameList,
        from: From,
        outbox: Arc<Outbox>,
    ) -> Result<usize, ChangeError> {
        let number = self.clients().find(&client);
        let held = number.and_then(|number| self.hold(number, &topics, from, &outbox));
        let what = What::Subscribe(topics);
        let mut results = self.change_all(vec![SubscriptionChange { client, what }]).await;
        let result = results
            .pop()
            .unwrap_or_else(|| Err(crate::broker::NotStored::Unknown.into()));
        if let Some(held) = held {
            self.on_answer(&held, result.is_ok(), &outbox);
        }
        result
    }

    /// Holds back for a client what it is about to catch up with. `None` if there is no log behind any of the topics, or if it
    /// does not listen here.
    fn hold(
        &self,
        client: ClientNumber,
        topics: &NameList,
        from: From,
        outbox: &Arc<Outbox>,
    ) -> Option<Held> {
        let logs = self.logs.get().filter(|_| from != From::New)?;
        let mut wanted = Vec::new();
        for name in topics.iter() {
            if let Some(log) = logs.behind(name) {
                let had = || self.topics.has(name, client.0) || self.has_pattern_for(name, client);
                wanted.push(Wanted {
                    topic: Arc::from(name),
                    partitions: log.partitions.clone(),
                    had: from == From::Resume && had(),
                });
            }
        }
        let concerned: BTreeSet<usize> = wanted
            .iter()
            .flat_map(|wanted| wanted.partitions.clone())
            .collect();
        let mut follows = logs.stand_still();
        if wanted.is_empty() || !self.is_listening(client, outbox) {
            return None;
        }
        let now: Vec<Offset> = follows.iter().map(|follow| follow.next).collect();
        let names = wanted.iter().map(|wanted| Arc::clone(&wanted.topic));
        let beginning = self.positions.begin(client, names, &now, logs);
        let mut lowest = now;
        let mut places = Vec::new();
        for place in concerned {
            let (Some(partition), Some(follow), Some(lowest)) = (
                logs.partitions.get(place),
                follows.get_mut(place),
                lowest.get_mut(place),
            ) else {
                continue;
            };
            let bounds = self.journal.bounds(partition.log);
            let start = bounds.map_or(Offset::ZERO, |bounds| bounds.start);
            let was = beginning.was.get(place).copied().flatten();
            let at = match from {
                From::New => follow.next,
                From::Earliest => start,
                From::Offset(offset) => Offset(offset),
                From::Resume => was.unwrap_or(follow.next),
            };
            let at = at.max(start).min(follow.next);
            let wants = wants(&wanted, &beginning, place, at, from);
            if !wants.is_empty() {
                *lowest = at;
            }
            places.push((place, follow.ask(client.0, outbox, wants)));
        }
        self.positions.store_lower(&*self.journal, logs, client, &lowest);
        Some(Held { client, places })
    }

    /// What was held back is subscribed to, or refused.
    fn on_answer(self: &Arc<Self>, held: &Held, is_stored: bool, outbox: &Arc<Outbox>) {
        let Some(logs) = self.logs.get() else { return };
        for (place, id) in &held.places {
            let Some(partition) = logs.partitions.get(*place) else {
                continue;
            };
            let run = partition.follow().answer(held.client.0, *id, is_stored);
            if let Some(run) = run {
                let (live, outbox) = (Arc::clone(self), Arc::clone(outbox));
                let (ended, place, client) = (self.ended.clone(), *place, held.client);
                // It ends with the client's listening, or with all.
                drop(self.changes.spawn(async move {
                    ended
                        .run_until_cancelled(live.catch_up(place, client, run, &outbox))
                        .await;
                }));
            }
        }
    }

    /// Brings a client from where it is behind to the live stream.
    async fn catch_up(&self, place: usize, client: ClientNumber, run: u64, outbox: &Arc<Outbox>) {
        let Some(logs) = self.logs.get() else { return };
        let Some(partition) = logs.partitions.get(place) else {
            return;
        };
        // What a pass wanted may be much: it is dropped without the lock.
        let mut last_pass = None;
        while wait_for_room(partition, client, run, outbox).await {
            let Ok(_reading) = logs.readings.acquire().await else {
                return;
            };
            let Some(step) = partition.follow().step(client.0, run) else {
                return;
            };
            let Some(found) = self.find(logs, partition, &step, client, outbox).await else {
                return;
            };
            self.hand_over((place, partition), (client, run), outbox, found);
            drop(last_pass.replace(step.pass));
            tokio::task::yield_now().await;
        }
    }

    /// Reads once, past what has nothing for this client. `None` if the journal ends.
    async fn find(
        &self,
        logs: &LiveLogs,
        partition: &Partition,
        step: &Step,
        client: ClientNumber,
        outbox: &Arc<Outbox>,
    ) -> Option<Found> {
        let at = pass_over(logs, partition, step);
        let nothing_up_to = |next: Offset| Found {
            messages: Vec::new(),
            next: next.min(step.limit),
        };
        if at > step.at {
            return Some(nothing_up_to(at));
        }
        let request = ReadRequest {
            logs: vec![ReadFrom {
                log: partition.log,
                offset: at,
                bytes_max: READ_BYTES,
            }],
            bytes_max: READ_BYTES,
            first_batch_whole: true,
        };
        let mut runs = self.journal.read(request).finish().await.ok()?;
        Some(match runs.pop() {
            Some(Ok(run)) if run.next > at => {
                self.metrics.caught_up_bytes.inc_by(run.bytes as u64);
                self.messages_of(logs, partition, &run, step, client, outbox)
            }
            Some(Err(ReadError::OutOfRange { start, .. })) if start > at => nothing_up_to(start),
            Some(Err(ReadError::Damaged { to, .. })) => nothing_up_to(to),
            other => {
                // What cannot be read is not waited for.
                let (topic, from, to) = (&partition.topic.name, at.0, step.limit.0);
                tracing::warn!(%topic, from, to, read = ?other.map(Result::err), "live topics: a client cannot catch up");
                nothing_up_to(step.limit)
            }
        })
    }

    /// The wanted messages of a run, in the client's format.
    fn messages_of(
        &self,
        logs: &LiveLogs,
        partition: &Partition,
        run: &Run,
        step: &Step,
        client: ClientNumber,
        outbox: &Arc<Outbox>,
    ) -> Found {
        let next = run.next.min(step.limit);
        let (mut topics, mut messages) = (Vec::new(), Vec::new());
        let is_wanted = |topic: &str, offset| {
            topics.push((offset, logs.short_hash(topic)));
            // Who has unsubscribed meanwhile gets nothing more.
            step.pass.is_wanted(topic, offset) && self.topics.has(topic, client.0)
        };
        entry::each(run, step.at, next, is_wanted, |message, offset| {
            messages.push((offset, Encoded::new(*message).form(outbox.format())));
        });
        partition.index().learn(step.at, next, &topics);
        Found { messages, next }
    }

    /// Puts what was found into the outbox as far as there is room, unless the client has left.
    fn hand_over(
        &self,
        (place, partition): (usize, &Partition),
        (client, run): (ClientNumber, u64),
        outbox: &Arc<Outbox>,
        found: Found,
    ) {
        let mut follow = partition.follow();
        if !follow.is_running(client.0, run) {
            return;
        }
        let mut at = found.next;
        let mut count = 0;
        for (offset, message) in found.messages {
            let mark = Mark {
                client: client.0,
                place,
                offset,
            };
            match outbox.offer(message, mark) {
                Offered::Taken => count += 1,
                Offered::Dropped => {}
                Offered::NoRoom => {
                    at = offset;
                    break;
                }
            }
        }
        follow.advance(client.0, run, at);
        drop(follow);
        self.metrics.delivered.inc_by(count);
    }
}

/// Returns when a client that is behind has room in its outbox; false if it is not behind here any more.
async fn wait_for_room(partition: &Partition, client: ClientNumber, run: u64, outbox: &Arc<Outbox>) -> bool {
    loop {
        let mut moved = pin!(outbox.moved());
        moved.as_mut().enable();
        if !partition.follow().is_running(client.0, run) {
            return false;
        }
        if outbox.has_room() {
            return true;
        }
        moved.await;
    }
}

fn pass_over(logs: &LiveLogs, partition: &Partition, step: &Step) -> Offset {
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

/// What is wanted of one partition, from `at` on.
fn wants(wanted: &[Wanted], beginning: &Beginning, place: usize, at: Offset, from: From) -> Wants {
    let since = beginning.since.get(place).copied().unwrap_or(at);
    let mut wants = Wants::new();
    for (wanted, begins) in wanted.iter().zip(&beginning.begins) {
        if !wanted.partitions.contains(&place) {
            continue;
        }
        let until = match (from, wanted.had) {
            // What came since the client listens came live.
            (From::Resume, true) if *begins && at < since => Some(since),
            (From::Resume, true) => continue,
            _ => None,
        };
        wants.insert(Arc::clone(&wanted.topic), Want { from: at, until });
    }
    wants
}
