//! From messages to appends.

use stafett_journal::{Append, Ticket};
use stafett_model::checksum::crc32c;
use stafett_model::{BatchBuilder, Codec, Record};

use super::LiveLogs;
use super::entry::BYTES_HEADER;
use crate::live::hub::Live;
use crate::live::message::{Message, Payload};

/// Bytes of a batch beyond which another one is begun.
const BATCH_BYTES: usize = 256 << 10;

/// Messages on their way into logs, in their order.
#[derive(Debug, Default)]
pub struct Staged {
    /// By partition; the last one of a partition is still being filled.
    batches: Vec<(usize, BatchBuilder)>,
    bytes: usize,
}

impl Staged {
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl LiveLogs {
    /// Puts a message where its log is; false if there is no log behind its topic.
    pub(crate) fn stage(&self, message: &Message<'_>, now_ms: i64, staged: &mut Staged) -> bool {
        let Some(log) = self.behind(message.topic) else {
            return false;
        };
        let choice = usize::try_from(crc32c(message.topic.as_bytes())).unwrap_or(0);
        let partition = log.partitions.start + choice % log.partitions.len().max(1);
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
            // What a message may be is far below what a batch may.
            return batch.push(&record).is_ok();
        }
        let mut batch = BatchBuilder::new(Codec::None);
        let pushed = batch.push(&record).is_ok();
        staged.batches.push((partition, batch));
        pushed
    }
}

impl Live {
    /// Stores what was staged; it is delivered once it is as durable as its log promises.
    pub fn store(&self, staged: Staged) -> Option<Ticket> {
        let logs = self.logs.get()?;
        let append = |(partition, batch): (usize, BatchBuilder)| {
            let log = logs.partitions.get(partition)?.log;
            Some(Append::batch(log, batch.finish().ok()?))
        };
        let appends: Vec<Append> = staged.batches.into_iter().filter_map(append).collect();
        (!appends.is_empty()).then(|| self.journal.append(appends))
    }
}
