//! Batches of a publication: messages with the same targets share one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_journal::{Append, BatchFrame, Frame, Selection, StateWait, Target};
use stafett_model::{Arrival, BatchBuilder, Codec, Durability, LogId, Message, with_append_time};

use super::outcome::{BatchMembers, Refused};
use super::{RouteIndex, Targets};
use crate::queues::Queue;

/// Size of a batch, in bytes, from which a new one is begun, if segments are large.
const BATCH_BYTES: usize = 128 << 10;
/// Bound on the logs of one stored batch.
const TARGETS_MAX: usize = 4096;

/// Messages of one batch.
#[derive(Debug)]
struct OpenBatch {
    key: BatchKey,
    logs: SmallVec<[LogId; 1]>,
    batch: BatchBuilder,
    members: Vec<u32>,
}

/// Common properties of a batch's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct BatchKey {
    route: RouteIndex,
    /// Priority; 0 if no target has priorities.
    priority: u8,
    /// True if the batch gets the durability of its logs: if the message is persistent, if no target queue is
    /// durable, or if a target keeps transient messages or is a topic.
    persistent: bool,
    append_time: bool,
}

/// The batches of a publication. A message joins the last batch with its key only if no target got another
/// batch since.
#[derive(Debug, Default)]
pub(super) struct BatchAssembler {
    list: Vec<OpenBatch>,
    /// Maps are filled once there are several batches.
    last_of_key: HashMap<BatchKey, usize>,
    last_of_log: HashMap<LogId, usize>,
    /// Approximate number of messages to come.
    left: usize,
    /// Size of a batch, in bytes, from which a new one is begun.
    batch_bytes: usize,
}

impl BatchAssembler {
    pub(super) fn new(messages: usize, batch_bytes: usize) -> Self {
        Self {
            left: messages,
            batch_bytes: batch_bytes.min(BATCH_BYTES),
            ..Self::default()
        }
    }

    pub(super) fn add(
        &mut self,
        index: u32,
        message: &Message,
        route: RouteIndex,
        targets: &Targets,
        (ms, arrivals): (i64, &AtomicU64),
    ) -> Result<(), Refused> {
        let any = |what: fn(&Queue) -> bool| targets.queues.iter().any(|queue| what(queue));
        let key = BatchKey {
            route,
            priority: if any(|queue| queue.declared.has_priorities()) {
                message.priority
            } else {
                0
            },
            persistent: message.persistent
                || !targets.logs.is_empty()
                || !any(|queue| queue.durable)
                || any(|queue| queue.declared.keeps_transient),
            append_time: targets.append_time,
        };
        let at = match self.list.last() {
            Some(last) if last.key == key => self.list.len() - 1,
            _ => self.group(key, message, targets)?,
        };
        let group = self.list.get_mut(at).ok_or(Refused::TooLarge)?;
        let bytes = message.bytes();
        self.left = self.left.saturating_sub(1);
        let group = if group.batch.bytes() + bytes > self.batch_bytes && !group.batch.is_empty() {
            let logs = group.logs.clone();
            let at = self.begin(key, logs, bytes);
            self.list.get_mut(at).ok_or(Refused::TooLarge)?
        } else {
            group
        };
        // The arrival number gives the order across lanes.
        let number = if any(|queue| queue.declared.has_priorities()) {
            arrivals.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            0
        };
        let written = message.write(Arrival { ms, number }, &mut group.batch);
        written.map_err(|_| Refused::TooLarge)?;
        group.members.push(index);
        Ok(())
    }

    /// Returns the group that a message may join, or a new one.
    fn group(&mut self, key: BatchKey, message: &Message, targets: &Targets) -> Result<usize, Refused> {
        if let Some(&at) = self.last_of_key.get(&key)
            && let Some(group) = self.list.get(at)
            && group
                .logs
                .iter()
                .all(|log| self.last_of_log.get(log) == Some(&at))
        {
            return Ok(at);
        }
        // Deleted queues are skipped.
        let queues = targets.queues.iter().filter(|queue| !queue.is_deleted());
        let logs = queues.map(|queue| queue.log_for(message.priority));
        let mut logs = logs.collect::<Result<SmallVec<[LogId; 1]>, Refused>>()?;
        logs.extend_from_slice(&targets.logs);
        if logs.len() > 1 {
            // A log gets a message once, even if several targets lead to it.
            logs.sort_unstable();
            logs.dedup();
        }
        Ok(self.begin(key, logs, message.bytes()))
    }

    /// Begins a batch. The first one has room for all remaining messages, if they are as large as the first.
    fn begin(&mut self, key: BatchKey, logs: SmallVec<[LogId; 1]>, message_bytes: usize) -> usize {
        let at = self.list.len();
        let expected = if at == 0 { self.left + 1 } else { 4 };
        let room = expected.saturating_mul(message_bytes);
        self.list.push(OpenBatch {
            key,
            logs,
            batch: BatchBuilder::with_capacity(Codec::None, room.min(self.batch_bytes.max(message_bytes))),
            members: Vec::with_capacity(expected.min(1024)),
        });
        if at > 0 {
            // A single group needs no maps.
            let from = if at == 1 { 0 } else { at };
            for (number, group) in self.list.iter().enumerate().skip(from) {
                self.last_of_key.insert(group.key, number);
                for log in &group.logs {
                    self.last_of_log.insert(*log, number);
                }
            }
        }
        at
    }

    pub(super) fn finish(
        self,
        together: bool,
        arrived_ms: i64,
        extra: SmallVec<[Frame; 1]>,
    ) -> (Vec<Append>, Vec<BatchMembers>) {
        let mut appends = Vec::with_capacity(self.list.len());
        let mut members = Vec::with_capacity(self.list.len());
        let pinned = |frame: &Frame| {
            if let Frame::Batch(batch) = frame {
                batch.body.len()
            } else {
                0
            }
        };
        let mut all = Append {
            pinned_bytes: extra.iter().map(pinned).sum(),
            frames: extra,
            // Durability if no batch is added.
            state: StateWait::Written,
            ..Append::default()
        };
        for group in self.list {
            let Ok(mut body) = group.batch.finish() else {
                continue;
            };
            if group.key.append_time
                && let Ok(split) = with_append_time(&body, arrived_ms)
            {
                body = split.join();
            }
            if group.logs.is_empty() {
                continue;
            }
            members.push(BatchMembers {
                append: if together { 0 } else { appends.len() },
                logs: group.logs.len(),
                messages: group.members,
            });
            if together {
                all.pinned_bytes += body.len();
                all.frames.extend(frames(&body, &group.logs));
                continue;
            }
            appends.push(Append {
                // An acknowledged message can be consumed: so it waits for the write, but never for a sync.
                level: (!group.key.persistent).then_some(Durability::Os),
                pinned_bytes: body.len(),
                frames: frames(&body, &group.logs).collect(),
                ..Append::default()
            });
        }
        if !all.frames.is_empty() {
            appends.push(all);
        }
        (appends, members)
    }
}

/// Returns the frames of a batch: several if it has very many logs.
fn frames(body: &Bytes, logs: &[LogId]) -> impl Iterator<Item = Frame> {
    logs.chunks(TARGETS_MAX).map(move |logs| {
        let targets = logs.iter().map(|log| Target {
            log: *log,
            records: Selection::All,
        });
        Frame::Batch(BatchFrame {
            body: body.clone(),
            targets: targets.collect(),
        })
    })
}
