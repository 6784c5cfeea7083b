//! Cleanup of a topic's logs: whether old records are deleted, and whether logs are compacted by key.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use stafett_journal::Compaction;

/// Cleanup policy. Shown as `delete`, `compact`, both in the order of its definition, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// True if of the records with the same key the newest stays.
    pub compacts: bool,
    /// True if records beyond the limits of age and bytes go.
    pub deletes: bool,
    /// True if it was defined as `delete,compact`, which means the same.
    pub names_delete_first: bool,
}

/// Error: not a cleanup policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a list of compact and delete")]
pub struct UnknownPolicy;

/// Settings of the compaction of a topic. Unset ones follow the broker's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompactionOptions {
    pub tombstones_kept: Option<Duration>,
    pub lag_min: Option<Duration>,
    /// `Some(None)` for no bound.
    pub lag_max: Option<Option<Duration>>,
    /// Share of a log's bytes, in millionths.
    pub dirty_share_min: Option<u32>,
}

impl Default for CleanupPolicy {
    fn default() -> Self {
        Self {
            compacts: false,
            deletes: true,
            names_delete_first: false,
        }
    }
}

impl fmt::Display for CleanupPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.compacts, self.deletes) {
            (true, true) if self.names_delete_first => "delete,compact",
            (true, true) => "compact,delete",
            (true, false) => "compact",
            (false, true) => "delete",
            (false, false) => "",
        })
    }
}

impl FromStr for CleanupPolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let mut policy = Self {
            compacts: false,
            deletes: false,
            names_delete_first: false,
        };
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part {
                "compact" => {
                    policy.names_delete_first = policy.deletes;
                    policy.compacts = true;
                }
                "delete" => policy.deletes = true,
                _ => return Err(UnknownPolicy),
            }
        }
        Ok(policy)
    }
}

impl CompactionOptions {
    /// Returns the compaction of a topic; unset options are those of `defaults`.
    pub fn under(&self, defaults: &Compaction) -> Compaction {
        Compaction {
            tombstones_kept: self.tombstones_kept.unwrap_or(defaults.tombstones_kept),
            lag_min: self.lag_min.unwrap_or(defaults.lag_min),
            lag_max: self.lag_max.unwrap_or(defaults.lag_max),
            dirty_share_min: self.dirty_share_min.unwrap_or(defaults.dirty_share_min),
        }
    }

    /// Returns these options; those that `self` has not set are those of `below`.
    #[must_use]
    pub fn over(&self, below: &Self) -> Self {
        Self {
            tombstones_kept: self.tombstones_kept.or(below.tombstones_kept),
            lag_min: self.lag_min.or(below.lag_min),
            lag_max: self.lag_max.or(below.lag_max),
            dirty_share_min: self.dirty_share_min.or(below.dirty_share_min),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_read_back_as_shown() {
        for shown in ["delete", "compact", "compact,delete", "delete,compact", ""] {
            assert_eq!(shown.parse::<CleanupPolicy>().unwrap().to_string(), shown);
        }
        assert_eq!(
            " delete, compact".parse::<CleanupPolicy>().unwrap().to_string(),
            "delete,compact"
        );
        assert_eq!("shred".parse::<CleanupPolicy>(), Err(UnknownPolicy));
    }
}
