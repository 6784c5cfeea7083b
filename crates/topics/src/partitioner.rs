//! Choice of the partition of a stored topic. It is data on disk: it must not change.

use stafett_model::checksum::crc32c;
use stafett_model::{LogId, partition_of};

use crate::topic::Topic;

impl Topic {
    /// The log that a key leads to, as producers of Kafka choose it.
    pub fn log_by_key(&self, key: &[u8]) -> Option<LogId> {
        let partitions = self.partitions();
        if partitions <= 1 {
            return self.log(0);
        }
        self.log(partition_of(key, partitions))
    }
}

/// The partition, of `partitions`, that the name of a live topic leads to. 0 if there is none.
pub fn partition_by_name(name: &str, partitions: usize) -> usize {
    let choice = usize::try_from(crc32c(name.as_bytes())).unwrap_or(0);
    choice % partitions.max(1)
}
