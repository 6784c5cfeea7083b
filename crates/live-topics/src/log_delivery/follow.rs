//! Live delivery of newly visible messages.

use std::sync::Arc;

use stafett_journal::{LogSlice, ReadFrom, ReadRequest, Visibility};
use stafett_model::Offset;
use stafett_topics::{LogRead, ReadEnd, SkipReason};

use super::{LiveLogs, Partition, record};
use crate::clients::ClientNumber;
use crate::live::Live;
use crate::log_state::{GapNotice, GapReason};
use crate::outbox::Outbox;

/// Bytes read at once, and delivered under one lock.
const READ_BYTES: usize = 256 << 10;

impl Live {
    /// Delivers messages appended to a stored topic from now on, until live topics end.
    pub(crate) async fn follow(self: Arc<Self>, logs: Arc<LiveLogs>, places: Vec<usize>) {
        let watch = self.journal.watch();
        for (token, place) in (0..).zip(&places) {
            if let Some(partition) = logs.partitions.get(*place) {
                self.journal.watch_log(&watch, partition.log, token);
            }
        }
        let ended = self.ended.clone();
        ended
            .run_until_cancelled(async {
                loop {
                    if self.deliver(&logs, &places).await {
                        // Lets other tasks of this thread run.
                        tokio::task::yield_now().await;
                    } else {
                        watch.grown().await;
                    }
                }
            })
            .await;
    }

    /// Reads once and delivers; false if there was nothing.
    async fn deliver(&self, logs: &LiveLogs, places: &[usize]) -> bool {
        let partition = |place: &usize| {
            let partition = logs.partitions.get(*place)?;
            let from = partition.progress().next;
            Some((*place, partition, from))
        };
        let partitions: Vec<(usize, &Arc<Partition>, Offset)> = places.iter().filter_map(partition).collect();
        let read = |(_, partition, from): &(usize, &Arc<Partition>, Offset)| ReadFrom {
            log: partition.log,
            offset: *from,
            bytes_max: READ_BYTES,
            visibility: Visibility::Committed,
        };
        let request = ReadRequest {
            logs: partitions.iter().map(read).collect(),
            bytes_max: READ_BYTES * partitions.len(),
            first_batch_whole: true,
        };
        let Ok(runs) = self.journal.read(request).finish().await else {
            return false;
        };
        let mut any = false;
        for ((place, partition, from), run) in partitions.into_iter().zip(runs) {
            match LogRead::of(from, Some(run)) {
                LogRead::Batches(run) => any |= self.deliver_run(logs, place, partition, run),
                LogRead::Skip(skipped) => match skipped.why {
                    // May also be a batch that did not fit beside those of other partitions.
                    SkipReason::Gap => {}
                    SkipReason::Expired => any |= self.pass_over(partition, skipped.to, GapReason::Expired),
                    SkipReason::Damaged => any |= self.pass_over(partition, skipped.to, GapReason::Damaged),
                },
                LogRead::End(ReadEnd::AtEnd) => {}
                LogRead::End(error) => {
                    tracing::warn!(topic = %partition.topic.name, %error, "live topics: not delivered");
                }
            }
        }
        any
    }

    /// Skips a range that cannot be delivered, and tells clients that follow logs; false if there is nothing
    /// to skip.
    fn pass_over(&self, partition: &Partition, to: Offset, why: GapReason) -> bool {
        let from = {
            let mut progress = partition.progress();
            let from = progress.next;
            progress.next = from.max(to);
            from
        };
        if to <= from {
            return false;
        }
        tracing::warn!(
            topic = %partition.topic.name, partition = partition.number, from = from.0, to = to.0, ?why,
            "live topics: messages that nobody gets"
        );
        for client in self.positions.listening() {
            self.notify_gap(partition, client, None, (from, to), why);
        }
        true
    }

    /// Tells a listening client of a range that it does not get. `outbox` defaults to its current one.
    pub(super) fn notify_gap(
        &self,
        partition: &Partition,
        client: ClientNumber,
        outbox: Option<&Arc<Outbox>>,
        (from, to): (Offset, Offset),
        why: GapReason,
    ) {
        let name = self.clients().get(client).map(|client| client.name.clone());
        let current = self.listener(client);
        if let Some((client, outbox)) = name.zip(outbox.cloned().or(current)) {
            self.metrics.missed.inc();
            outbox.on_gap(GapNotice {
                client,
                topic: Arc::from(&*partition.topic.name),
                partition: partition.number,
                from,
                to,
                why,
            });
        }
    }

    fn deliver_run(&self, logs: &LiveLogs, place: usize, partition: &Partition, run: LogSlice) -> bool {
        let mut progress = partition.progress();
        let first = progress.next;
        if run.next <= first {
            return false;
        }
        let (next, bytes) = (run.next, run.bytes);
        let start = run.bounds.map_or(Offset::ZERO, |bounds| bounds.start);
        let mut topics = Vec::new();
        let is_wanted = |topic: &str, _| {
            topics.push(logs.short_hash(topic));
            true
        };
        record::each(run, first, next, is_wanted, |message, _| {
            let hash = self.topics.hash(message.topic);
            let receivers = self.fan_out(hash, *message, Some((place, &*progress)));
            self.count_delivered(receivers);
        });
        progress.next = next;
        drop(progress);
        let mut index = partition.index();
        index.grow(first, next, bytes, &topics);
        index.forget_below(start);
        true
    }
}
