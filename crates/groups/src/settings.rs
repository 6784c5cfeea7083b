//! What can be set about groups.

use std::time::Duration;

use super::consumer::Rules;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupSettings {
    /// How long the first generation of a group waits for more members, in ms: each that comes in that time
    /// prolongs it.
    pub initial_delay_ms: u32,
    /// Members may be silent for so long, in ms: the least and the most that they may ask for.
    pub session_ms_min: u32,
    pub session_ms_max: u32,
    /// Members of one group.
    pub members_max: usize,
    /// What holds for groups whose partitions the broker assigns.
    pub consumer: Rules,
    /// Members of such groups are told to report less often, the more there are, to keep all of them at so
    /// many reports a second, as far as [`Rules::heartbeat_ms`] allows.
    pub heartbeats_per_second: u32,
    /// Which groups may move between the protocols while they run.
    pub migration: Migration,
    /// Groups there may be.
    pub groups_max: usize,
    /// Bytes of a group's name.
    pub name_bytes_max: usize,
    /// Bytes of what one member says of itself when it joins.
    pub member_bytes_max: usize,
    /// Bytes of what a leader gives out in one generation.
    pub assignment_bytes_max: usize,
    /// Bytes that the members of all groups may take in memory.
    pub memory_bytes_max: usize,
    /// Bytes of the text beside a commit.
    pub commit_text_bytes_max: usize,
    /// How long commits of a group are kept that has no members; `None`: for ever.
    pub commit_retention: Option<Duration>,
    /// How often expired commits are looked for.
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

/// Which groups may move between the protocols while they have members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Migration {
    #[default]
    Bidirectional,
    /// From the classic protocol to that of consumer groups, and not back.
    Upgrade,
    /// Only back.
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

/// What is set for one group, over what holds for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupOverrides {
    pub session_ms: Option<u32>,
    pub heartbeat_ms: Option<u32>,
}

impl GroupOverrides {
    /// What holds for the group.
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
