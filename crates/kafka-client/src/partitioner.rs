//! Partition of a key, as the Java client computes it (`Utils.murmur2`, `BuiltInPartitioner`), so that
//! records of one key land in one partition regardless of the client.

/// Returns the partition of `key` among `partitions`.
pub fn partition_of(key: &[u8], partitions: usize) -> usize {
    let partitions = u32::try_from(partitions).unwrap_or(u32::MAX);
    usize::try_from(stafett_model::partition_of(key, partitions)).unwrap_or(0)
}
