//! Batches of a fetch response, split by their headers; records are not read.

use bytes::Bytes;
use stafett_model::{BatchError, BatchHeader};

/// Iterator over the whole batches of a partition's response. A truncated batch at the end is left out;
/// brokers may send one.
#[derive(Debug, Clone)]
pub struct Batches {
    rest: Bytes,
    verify: bool,
}

impl Batches {
    /// Iterates over all batches and verifies their checksums.
    pub fn new(bytes: Bytes) -> Self {
        Self {
            rest: bytes,
            verify: true,
        }
    }

    /// Iterates over all batches by their headers alone.
    pub fn unverified(bytes: Bytes) -> Self {
        Self {
            rest: bytes,
            verify: false,
        }
    }
}

impl Iterator for Batches {
    type Item = Result<(BatchHeader, Bytes), BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = match BatchHeader::parse(&self.rest) {
            Ok(header) if header.bytes > self.rest.len() => return None,
            Ok(_) if self.verify => BatchHeader::verify(&self.rest),
            other => other,
        };
        match read {
            Ok(header) => Some(Ok((header, self.rest.split_to(header.bytes)))),
            Err(BatchError::Truncated { .. }) => None,
            Err(error) => {
                self.rest = Bytes::new();
                Some(Err(error))
            }
        }
    }
}

/// Returns the offset behind the last whole batch of `bytes`. `None` if there is no whole batch.
pub fn next_offset(bytes: &Bytes) -> Result<Option<i64>, BatchError> {
    let mut next = None;
    for batch in Batches::unverified(bytes.clone()) {
        let (header, _) = batch?;
        let behind = header
            .base_offset
            .checked_add(i64::from(header.last_offset_delta))
            .and_then(|last| last.checked_add(1));
        next = Some(behind.ok_or(BatchError::BaseOffset(header.base_offset))?);
    }
    Ok(next)
}
