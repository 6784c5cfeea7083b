//! Delivering what has become visible.

use std::sync::Arc;

use stafett_journal::{ReadError, ReadFrom, ReadRequest, Run};
use stafett_model::Offset;

use super::{LiveLogs, Partition, entry};
use crate::live::hub::Live;

/// Bytes that are read at once, and delivered under one lock.
const READ_BYTES: usize = 256 << 10;

impl Live {
    /// Delivers what is appended to a log from now on, until live topics end.
    pub(crate) async fn follow(self: Arc<Self>, log: usize) {
        let Some(logs) = self.logs.get() else { return };
        let Some(partitions) = logs.logs.get(log).map(|log| log.partitions.clone()) else {
            return;
        };
        let watch = self.journal.watch();
        for (token, place) in (0..).zip(partitions.clone()) {
            if let Some(partition) = logs.partitions.get(place) {
                self.journal.watch_log(&watch, partition.log, token);
            }
        }
        let ended = self.ended.clone();
        ended
            .run_until_cancelled(async {
                loop {
                    if self.deliver(logs, partitions.clone()).await {
                        // Others on this thread have their turn.
                        tokio::task::yield_now().await;
                    } else {
                        watch.grown().await;
                    }
                }
            })
            .await;
    }

    /// Reads once, and delivers; false if there was nothing.
    async fn deliver(&self, logs: &LiveLogs, places: std::ops::Range<usize>) -> bool {
        let partitions = logs.partitions.get(places.clone()).unwrap_or_default();
        let from = |partition: &Partition| ReadFrom {
            log: partition.log,
            offset: partition.follow().next,
            bytes_max: READ_BYTES,
        };
        let request = ReadRequest {
            logs: partitions.iter().map(from).collect(),
            bytes_max: READ_BYTES * partitions.len(),
            first_batch_whole: true,
        };
        let Ok(runs) = self.journal.read(request).finish().await else {
            return false;
        };
        let mut any = false;
        for ((place, partition), run) in places.zip(partitions).zip(runs) {
            match run {
                Ok(run) => any |= self.deliver_run(logs, place, partition, &run),
                Err(ReadError::OutOfRange { start, .. }) => {
                    let mut follow = partition.follow();
                    any |= follow.next < start;
                    follow.next = follow.next.max(start);
                }
                Err(ReadError::Damaged { to, .. }) => {
                    partition.follow().next = to;
                    any = true;
                }
                Err(error @ (ReadError::NoSuchLog(_) | ReadError::Io { .. })) => {
                    tracing::warn!(topic = %partition.topic.name, %error, "live topics: not delivered");
                }
            }
        }
        any
    }

    fn deliver_run(&self, logs: &LiveLogs, place: usize, partition: &Partition, run: &Run) -> bool {
        let mut follow = partition.follow();
        let first = follow.next;
        if run.next <= first {
            return false;
        }
        let mut topics = Vec::new();
        let is_wanted = |topic: &str, _| {
            topics.push(logs.short_hash(topic));
            true
        };
        entry::each(run, first, run.next, is_wanted, |message, _| {
            let receivers = self.fan_out(*message, Some((place, &*follow)));
            self.count_delivered(receivers);
        });
        follow.next = run.next;
        drop(follow);
        let mut index = partition.index();
        index.grow(first, run.next, run.bytes, &topics);
        index.forget_below(run.bounds.map_or(Offset::ZERO, |bounds| bounds.start));
        true
    }
}
