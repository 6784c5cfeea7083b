//! Buffered standard output, for up to the requested number of records.

use std::io::{self, BufWriter, Stdout, Write};

use anyhow::Context;
use stafett_kafka_client::batches::{Aborted, Batches};
use stafett_kafka_client::{Fetched, Source};
use stafett_model::{Offset, records};

use super::Job;

const BUFFER_BYTES: usize = 256 * 1024;
/// Maximum bytes of a decompressed batch.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// Prints records.
pub(super) struct Output<'a> {
    job: &'a Job,
    out: BufWriter<Stdout>,
    printed: u64,
}

impl<'a> Output<'a> {
    pub(super) fn new(job: &'a Job) -> Self {
        Self {
            job,
            out: BufWriter::with_capacity(BUFFER_BYTES, io::stdout()),
            printed: 0,
        }
    }

    /// Returns true if the requested number of records is printed.
    pub(super) fn is_full(&self) -> bool {
        self.printed >= self.job.max
    }

    /// Returns true if the command waits for more records at the end.
    pub(super) fn follows(&self) -> bool {
        self.job.until.is_none()
    }

    /// Prints the records fetched from `source` up to `end`. Returns the offset of the next record to read.
    pub(super) fn print(&mut self, source: &Source, fetched: &Fetched, end: i64) -> anyhow::Result<i64> {
        let about = || format!("partition {} of topic `{}`", source.partition, source.topic);
        let mut next = fetched.from;
        let mut aborted = Aborted::new(fetched.aborted.clone());
        for batch in Batches::new(fetched.bytes.clone()) {
            let (header, bytes) = batch.with_context(about)?;
            let behind = header.base_offset + i64::from(header.last_offset_delta) + 1;
            // Control batches are of the broker itself, such as the end of a transaction.
            if aborted.has(&header, &bytes) || header.is_control() || behind <= fetched.from {
                next = next.max(behind);
                continue;
            }
            let mut walk = records(&bytes, BATCH_BYTES_MAX).with_context(about)?;
            if header.base_offset < fetched.from {
                let from = u64::try_from(fetched.from).unwrap_or(0);
                walk.seek(Offset(from)).with_context(about)?;
            }
            for record in walk {
                let record = record.with_context(about)?;
                let offset = i64::try_from(record.offset.0).unwrap_or(i64::MAX);
                if offset >= end || self.is_full() {
                    return Ok(offset);
                }
                self.job.format.write(
                    &mut self.out,
                    &source.topic,
                    source.partition,
                    &record,
                    &self.job.null,
                )?;
                self.printed += 1;
                next = offset + 1;
            }
            next = next.max(behind);
        }
        Ok(next)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
