//! Settings of groups.

use std::time::Duration;

use super::consumer::Rules;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupSettings {
    /// Initial delay of a group's first generation, in ms. Each member that joins meanwhile prolongs it.
    pub initial_delay_ms: u32,
    /// Shortest session timeout that a classic member may ask for, in ms.
    pub session_ms_min: u32,
    /// Longest session timeout that a classic member may ask for, in ms.
    pub session_ms_max: u32,
    /// Bound on the members of one group.
    pub members_max: usize,
    /// Rules for groups whose partitions the broker assigns.
    pub consumer: Rules,
    /// Rules for share groups.
    pub share: Rules,
    /// Bound on the heartbeats per second of all members of such groups together: with more members, the
    /// interval grows, up to [`Rules::heartbeat_ms`].
    pub heartbeats_per_second: u32,
    /// Directions in which groups may move between the protocols while they run.
    pub migration: Migration,
    /// Bound on the number of groups.
    pub groups_max: usize,
    /// Bound on the bytes of a group's name.
    pub name_bytes_max: usize,
    /// Bound on the bytes of a member's join request that the group keeps.
    pub member_bytes_max: usize,
    /// Bound on the bytes of the assignments that a leader sends for one generation.
    pub assignment_bytes_max: usize,
    /// Bound on the memory of the members of all groups, in bytes.
    pub memory_bytes_max: usize,
    /// Bound on the bytes of a commit's metadata text.
    pub commit_text_bytes_max: usize,
    /// Retention of the commits of a group without members. `None` keeps them forever.
    pub commit_retention: Option<Duration>,
    /// Interval between searches for expired commits.
    pub sweep_every: Duration,
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            initial_delay_ms: 50,
            session_ms_min: 6_000,
            session_ms_max: 1_800_000,
            members_max: 10_000,
            consumer: Rules::default(),
            share: Rules {
                members_max: 200,
                ..Rules::default()
            },
            heartbeats_per_second: 2_000,
            migration: Migration::default(),
            groups_max: 1_000_000,
            name_bytes_max: 32_767,
            member_bytes_max: 16 << 20,
            assignment_bytes_max: 16 << 20,
            memory_bytes_max: 256 << 20,
            commit_text_bytes_max: 4096,
            commit_retention: Some(Duration::from_hours(7 * 24)),
            sweep_every: Duration::from_mins(10),
        }
    }
}

/// Directions in which groups may move between the protocols while they have members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Migration {
    #[default]
    Bidirectional,
    /// From the classic protocol to that of consumer groups only.
    Upgrade,
    /// From consumer groups to the classic protocol only.
    Downgrade,
    Disabled,
}

impl Migration {
    pub const ALL: [Self; 4] = [
        Self::Bidirectional,
        Self::Upgrade,
        Self::Downgrade,
        Self::Disabled,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Bidirectional => "bidirectional",
            Self::Upgrade => "upgrade",
            Self::Downgrade => "downgrade",
            Self::Disabled => "disabled",
        }
    }

    pub(super) fn upgrades(self) -> bool {
        matches!(self, Self::Bidirectional | Self::Upgrade)
    }

    pub(super) fn downgrades(self) -> bool {
        matches!(self, Self::Bidirectional | Self::Downgrade)
    }
}

/// Settings of one group, which override those of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupOverrides {
    /// In force while it is a consumer group.
    pub consumer: RuleOverrides,
    /// In force while it is a share group.
    pub share: RuleOverrides,
}

/// Rules that one group sets for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleOverrides {
    pub session_ms: Option<u32>,
    pub heartbeat_ms: Option<u32>,
}

impl RuleOverrides {
    /// Returns the rules of the group.
    pub(super) fn over(self, base: Rules) -> Rules {
        let mut rules = base;
        if let Some(session_ms) = self.session_ms {
            rules.session_ms = session_ms.into();
        }
        if let Some(heartbeat_ms) = self.heartbeat_ms {
            rules.heartbeat_ms = heartbeat_ms;
            rules.heartbeat_ms_min = heartbeat_ms;
        }
        rules
    }
}
