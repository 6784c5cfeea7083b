//! Which partition a key belongs to, as the Java client decides it (`Utils.murmur2`, `BuiltInPartitioner`),
//! so that records of one key meet in one partition whoever sends them.

/// The partition of `key` among `partitions`.
pub fn partition_of(key: &[u8], partitions: usize) -> usize {
    let partitions = u32::try_from(partitions).unwrap_or(u32::MAX);
    usize::try_from(stafett_model::partition_of(key, partitions)).unwrap_or(0)
}
