//! Strategies by which classic members assign partitions.

use bytes::Bytes;

/// A strategy (assignor) that a member supports, with its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strategy {
    pub name: Box<str>,
    pub metadata: Bytes,
}
