//! Default settings of topics.

use stafett_journal::{Compaction, LogSpec};
use stafett_model::Codec;

use crate::cleanup::CleanupPolicy;
use crate::topic::TopicSettings;

/// Settings of topics that have not set their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicDefaults {
    /// Durability and limits; retention holds where the policy deletes.
    pub logs: LogSpec,
    pub cleanup: CleanupPolicy,
    /// Where the policy compacts.
    pub compaction: Compaction,
    /// Bound on the size of a batch, in bytes.
    pub message_bytes_max: u32,
    pub append_time: bool,
    /// Bound on how far a record's timestamp may be in the past, in ms; `u64::MAX` for no bound.
    /// Bound on how far a record's timestamp may be in the future, in ms.
    pub earlier_ms_max: u64,
    pub later_ms_max: u64,
    /// Codec for stored batches; `None` keeps the producer's.
    pub codec: Option<Codec>,
    /// Number of partitions of a topic that is created without one.
    pub partitions: u32,
}

impl Default for TopicDefaults {
    fn default() -> Self {
        Self {
            logs: LogSpec::default(),
            cleanup: CleanupPolicy::default(),
            compaction: Compaction::default(),
            message_bytes_max: 1_048_588,
            append_time: false,
            earlier_ms_max: u64::MAX,
            later_ms_max: 3_600_000,
            codec: None,
            partitions: 1,
        }
    }
}

impl TopicDefaults {
    /// Returns the rules for the batches of a topic with these settings of its own.
    pub fn rules(&self, own: &TopicSettings) -> Rules {
        Rules {
            message_bytes_max: own.message_bytes_max.unwrap_or(self.message_bytes_max),
            append_time: own.append_time.unwrap_or(self.append_time),
            earlier_ms_max: own.earlier_ms_max.unwrap_or(self.earlier_ms_max),
            later_ms_max: own.later_ms_max.unwrap_or(self.later_ms_max),
            codec: own.codec.unwrap_or(self.codec),
            compacts: own.cleanup.unwrap_or(self.cleanup).compacts,
        }
    }

    /// Returns these defaults, overridden by settings of a narrower scope.
    #[must_use]
    pub fn under(self, nearer: &TopicSettings) -> Self {
        let rules = self.rules(nearer);
        Self {
            logs: nearer.limits(&self.logs),
            cleanup: nearer.cleanup.unwrap_or(self.cleanup),
            compaction: nearer.compaction.under(&self.compaction),
            message_bytes_max: rules.message_bytes_max,
            append_time: rules.append_time,
            earlier_ms_max: rules.earlier_ms_max,
            later_ms_max: rules.later_ms_max,
            codec: rules.codec,
            partitions: self.partitions,
        }
    }
}

/// Rules for batches of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub message_bytes_max: u32,
    pub append_time: bool,
    pub earlier_ms_max: u64,
    pub later_ms_max: u64,
    pub codec: Option<Codec>,
    /// True if every record needs a key.
    pub compacts: bool,
}
