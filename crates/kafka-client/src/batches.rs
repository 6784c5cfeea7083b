//! Walks the batches that a fetch brought: whole ones by their headers, without looking at their records.

use bytes::Bytes;
use stafett_model::{BatchError, BatchHeader};

/// The whole batches at the front of what a partition answered; one that is cut off at the end is left out,
/// as a broker may send it.
#[derive(Debug, Clone)]
pub struct Batches {
    rest: Bytes,
    verify: bool,
}

impl Batches {
    /// All batches, their checksums verified.
    pub fn new(bytes: Bytes) -> Self {
        Self {
            rest: bytes,
            verify: true,
        }
    }

    /// All batches by their headers alone.
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

/// The offset behind the last whole batch of `bytes`, if there is one.
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
