//! Conversion of messages to appends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stafett_journal::{Append, Ticket};
use stafett_model::{BatchBuilder, Codec, Record};
use stafett_topics::partition_by_name;

use super::LiveLogs;
use super::record::BYTES_HEADER;
use crate::live::Live;
use crate::message::{Message, Payload};

/// Size of a batch, in bytes, from which a new one is begun.
const BATCH_BYTES: usize = 256 << 10;

/// Messages to be stored in logs, in order.
#[derive(Debug, Default)]
pub struct PendingAppends {
    /// Batches by partition; the last one of a partition is still being filled.
    batches: Vec<(usize, BatchBuilder)>,
    bytes: usize,
    /// Logs, with the version of the rules.
    logs: Option<(u64, Arc<LiveLogs>)>,
}

impl PendingAppends {
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl LiveLogs {
    /// Adds a message to the batch of its log; false if there is no log behind its topic.
    pub(crate) fn stage(&self, message: &Message<'_>, now_ms: i64, staged: &mut PendingAppends) -> bool {
        let Some(log) = self.behind(message.topic) else {
            return false;
        };
        let choice = partition_by_name(message.topic, log.partitions.len());
        let Some(partition) = log.partitions.get(choice).copied() else {
            return false;
        };
        let headers = match message.payload {
            Payload::Json(_) => &[][..],
            Payload::Bytes(_) => &[(BYTES_HEADER, None)],
        };
        let record = Record {
            key: Some(message.topic.as_bytes()),
            value: Some(message.payload.bytes()),
            headers,
            timestamp: now_ms,
        };
        staged.bytes += message.topic.len() + message.payload.bytes().len();
        let open = staged.batches.iter_mut().rev().find(|(of, _)| *of == partition);
        if let Some((_, batch)) = open
            && batch.bytes() < BATCH_BYTES
        {
            // The bound on a message is far below that on a batch.
            return batch.push(&record).is_ok();
        }
        let mut batch = BatchBuilder::new(Codec::None);
        let pushed = batch.push(&record).is_ok();
        staged.batches.push((partition, batch));
        pushed
    }
}

impl Live {
    /// Stages a message if there is a log behind its topic.
    pub(crate) fn stage(
        &self,
        message: &Message<'_>,
        now_ms: impl FnOnce() -> i64,
        staged: &mut PendingAppends,
    ) -> bool {
        // The only cost if there never was a rule.
        let version = self.logs_version.load(Ordering::Acquire);
        if version == 0 {
            return false;
        }
        let logs = match staged.logs.take().filter(|(known, _)| *known == version) {
            Some((_, logs)) => logs,
            None => match self.logs() {
                Some(logs) => logs,
                None => return false,
            },
        };
        let is_staged = logs.behind(message.topic).is_some() && logs.stage(message, now_ms(), staged);
        staged.logs = Some((version, logs));
        is_staged
    }

    /// Appends the staged messages; they are delivered once they are as durable as their log promises.
    pub fn store(&self, staged: PendingAppends) -> Option<Ticket> {
        if staged.is_empty() {
            return None;
        }
        let logs = self.logs()?;
        let append = |(partition, batch): (usize, BatchBuilder)| {
            let log = logs.partitions.get(partition)?.log;
            Some(Append::batch(log, batch.finish().ok()?))
        };
        let appends: Vec<Append> = staged.batches.into_iter().filter_map(append).collect();
        (!appends.is_empty()).then(|| self.journal.append(appends))
    }
}
