//! Durability levels: the state that a write has reached when it is acknowledged.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Condition for acknowledging a write to a log.
///
/// | level | acknowledged when | survives |
/// |---|---|---|
/// | `memory` | accepted | nothing |
/// | `os` | written to the operating system | a killed process |
/// | `interval:N,T` | written; synced after N records or T ms at the latest | a killed process |
/// | `sync` | `fdatasync` returned | power loss |
///
/// With `interval`, a power loss costs at most the last N records or T ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    Memory,
    Os,
    Interval {
        records: u32,
        every: Duration,
    },
    #[default]
    Sync,
}

/// Error: the text is not a durability level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown durability {given:?}: expected memory, os, interval:RECORDS,MILLISECONDS (each 1 or more) or sync"
)]
pub struct UnknownDurability {
    pub given: String,
}

impl Durability {
    /// Returns the weaker of two levels; of two intervals, `self`.
    #[must_use]
    pub fn or_lower(self, other: Self) -> Self {
        if other.rank() < self.rank() { other } else { self }
    }

    /// Returns the stricter of two levels; of two intervals, `self`.
    #[must_use]
    pub fn or_higher(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    fn rank(self) -> u8 {
        match self {
            Self::Memory => 0,
            Self::Os => 1,
            Self::Interval { .. } => 2,
            Self::Sync => 3,
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Os => f.write_str("os"),
            Self::Interval { records, every } => write!(f, "interval:{records},{}", every.as_millis()),
            Self::Sync => f.write_str("sync"),
        }
    }
}

impl FromStr for Durability {
    type Err = UnknownDurability;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownDurability {
            given: text.to_owned(),
        };
        match text {
            "memory" => Ok(Self::Memory),
            "os" => Ok(Self::Os),
            "sync" => Ok(Self::Sync),
            _ => {
                let (records, millis) = text
                    .strip_prefix("interval:")
                    .and_then(|rest| rest.split_once(','))
                    .ok_or_else(unknown)?;
                let records = records
                    .trim()
                    .parse()
                    .ok()
                    .filter(|n| *n > 0)
                    .ok_or_else(unknown)?;
                let millis: u32 = millis
                    .trim()
                    .parse()
                    .ok()
                    .filter(|n| *n > 0)
                    .ok_or_else(unknown)?;
                Ok(Self::Interval {
                    records,
                    every: Duration::from_millis(millis.into()),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_reads_back_as_written() {
        for text in ["memory", "os", "interval:1000,20", "sync"] {
            assert_eq!(text.parse::<Durability>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_level_is_only_ever_lowered() {
        let levels =
            ["memory", "os", "interval:1000,20", "sync"].map(|text| text.parse::<Durability>().unwrap());
        for (rank, level) in levels.iter().enumerate() {
            for (other_rank, other) in levels.iter().enumerate() {
                assert_eq!(level.or_lower(*other), levels[rank.min(other_rank)]);
            }
        }
        let other: Durability = "interval:1,1".parse().unwrap();
        assert_eq!(levels[2].or_lower(other), levels[2]);
    }

    #[test]
    fn nonsense_is_named() {
        for text in [
            "",
            "fsync",
            "interval",
            "interval:0,5",
            "interval:5,0",
            "interval:-1,2",
            "interval:1",
        ] {
            assert_eq!(text.parse::<Durability>().unwrap_err().given, text);
        }
    }
}
