//! Truncation of a partition: which offsets it may begin at.

use stafett_model::{LogId, Offset};

use crate::catalog::TopicCatalog;
use crate::topic::{Topic, is_internal};

/// Reasons for which a partition is not truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TruncateError {
    #[error("only the broker writes into this topic")]
    Internal,
    #[error("the topic has no such partition")]
    NoSuchPartition,
    #[error("the partition ends at offset {0}")]
    BehindEnd(Offset),
}

impl TopicCatalog {
    /// Checks that a partition can be truncated before an offset; `None` stands for its end. Returns its log
    /// and the offset, for [`Self::truncate`].
    pub fn check_truncation(
        &self,
        topic: &Topic,
        partition: u32,
        before: Option<Offset>,
    ) -> Result<(LogId, Offset), TruncateError> {
        if is_internal(&topic.name) {
            return Err(TruncateError::Internal);
        }
        let log = topic.log(partition).ok_or(TruncateError::NoSuchPartition)?;
        let bounds = self.bounds(log).ok_or(TruncateError::NoSuchPartition)?;
        let before = before.unwrap_or(bounds.end);
        if before > bounds.end {
            return Err(TruncateError::BehindEnd(bounds.end));
        }
        Ok((log, before))
    }
}
