//! Settings of groups. They are stored in the scope of their group; [`overrides`] are those with an effect.

use stafett_groups::{GroupOverrides, GroupSettings, RuleOverrides};
use stafett_topics::TopicSettings;

use super::config_type::ConfigType;

pub(crate) struct GroupConfig {
    pub name: &'static str,
    /// Broker's name of its default.
    pub broker_name: &'static str,
    pub kind: ConfigType,
    pub default: &'static str,
    pub about: &'static str,
}

const fn config(
    name: &'static str,
    broker_name: &'static str,
    kind: ConfigType,
    default: &'static str,
    about: &'static str,
) -> GroupConfig {
    GroupConfig {
        name,
        broker_name,
        kind,
        default,
        about,
    }
}

const HEARTBEAT_MS: &str = "consumer.heartbeat.interval.ms";
const SESSION_MS: &str = "consumer.session.timeout.ms";
const SHARE_HEARTBEAT_MS: &str = "share.heartbeat.interval.ms";
const SHARE_SESSION_MS: &str = "share.session.timeout.ms";

/// Bounds of a group's session timeout, in ms.
pub(super) const SESSION_MS_BOUNDS: (i32, i32) = (45_000, 60_000);
/// Bounds of a group's heartbeat interval, in ms.
pub(super) const HEARTBEAT_MS_BOUNDS: (i32, i32) = (5_000, 15_000);

const SESSION: ConfigType = between(SESSION_MS_BOUNDS);
const HEARTBEAT: ConfigType = between(HEARTBEAT_MS_BOUNDS);
const INTERVAL: ConfigType = ConfigType::Integer { min: 0, max: 15_000 };
const LATER: &str = "Kept and shown; groups of this kind are not served yet.";

const fn between((min, max): (i32, i32)) -> ConfigType {
    ConfigType::Integer { min, max }
}

/// All group settings, sorted by name.
#[rustfmt::skip]
pub(crate) const GROUP: &[GroupConfig] = &[
    config("consumer.assignment.interval.ms", "group.consumer.assignment.interval.ms", INTERVAL, "1000", super::WITHOUT_EFFECT),
    config(HEARTBEAT_MS, "group.consumer.heartbeat.interval.ms", HEARTBEAT, "5000",
        "How often members of the group are told to report. Where it is not set, as often as their number allows."),
    config(SESSION_MS, "group.consumer.session.timeout.ms", SESSION, "45000",
        "A member of the group that is silent for longer is put out."),
    config("share.assignment.interval.ms", "group.share.assignment.interval.ms", INTERVAL, "1000", super::WITHOUT_EFFECT),
    config(super::share::RESET, "share.auto.offset.reset", super::share::RESET_TYPE, "latest",
        "Where the share group begins in topics in which it has no place: latest, earliest, or by_duration:PT1H."),
    config(super::share::DELIVERIES, "group.share.delivery.count.limit", super::share::DELIVERIES_TYPE, "5",
        "How often a record is delivered; after the last time it does not come again."),
    config(SHARE_HEARTBEAT_MS, "group.share.heartbeat.interval.ms", HEARTBEAT, "5000",
        "How often members of the share group are told to report. Where it is not set, as often as their number allows."),
    config(super::share::ISOLATION, "share.isolation.level", super::share::ISOLATION_TYPE, "read_uncommitted",
        "Whether members of the share group get records of open and aborted transactions (read_uncommitted) or committed ones only."),
    config(super::share::LOCKS, "group.share.partition.max.record.locks", super::share::LOCKS_TYPE, "2000",
        "Records of a partition in flight from which on members get no new ones."),
    config(super::share::LOCK_MS, "group.share.record.lock.duration.ms", super::share::LOCK_MS_TYPE, "30000",
        "How long a member has for a record until it comes again."),
    config(super::share::RENEW, "share.renew.acknowledge.enable", ConfigType::Boolean, "true",
        "Whether members may renew their locks."),
    config(SHARE_SESSION_MS, "group.share.session.timeout.ms", SESSION, "45000",
        "A member of the share group that is silent for longer is put out."),
    config("streams.assignment.interval.ms", "group.streams.assignment.interval.ms", INTERVAL, "1000", LATER),
    config("streams.heartbeat.interval.ms", "group.streams.heartbeat.interval.ms", HEARTBEAT, "5000", LATER),
    config("streams.initial.rebalance.delay.ms", "group.streams.initial.rebalance.delay.ms", ConfigType::int(0), "3000", LATER),
    config("streams.num.standby.replicas", "group.streams.num.standby.replicas", ConfigType::Integer { min: 0, max: 2 }, "0", LATER),
    config("streams.session.timeout.ms", "group.streams.session.timeout.ms", SESSION, "45000", LATER),
];

pub(super) fn find(name: &str) -> Option<&'static GroupConfig> {
    GROUP.iter().find(|config| config.name == name)
}

/// Returns the settings of a group that have an effect.
pub(crate) fn overrides(settings: &TopicSettings) -> GroupOverrides {
    // Values stored by an earlier version may be out of bounds.
    let number = |name: &str, kind: ConfigType| {
        let value = settings.other.get(name)?;
        kind.check(value).ok()?;
        value.parse().ok()
    };
    let rules = |session_name, heartbeat_name| RuleOverrides {
        session_ms: number(session_name, SESSION),
        heartbeat_ms: number(heartbeat_name, HEARTBEAT),
    };
    GroupOverrides {
        consumer: rules(SESSION_MS, HEARTBEAT_MS),
        share: rules(SHARE_SESSION_MS, SHARE_HEARTBEAT_MS),
    }
}

/// Returns the value for groups that do not set it.
pub(crate) fn base_value(settings: &GroupSettings, config: &GroupConfig) -> String {
    match config.name {
        HEARTBEAT_MS => settings.consumer.heartbeat_ms.to_string(),
        SESSION_MS => settings.consumer.session_ms.to_string(),
        SHARE_HEARTBEAT_MS => settings.share.heartbeat_ms.to_string(),
        SHARE_SESSION_MS => settings.share.session_ms.to_string(),
        _ => config.default.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &str) -> GroupOverrides {
        let mut settings = TopicSettings::default();
        settings.other.insert(name.into(), value.into());
        overrides(&settings)
    }

    #[test]
    fn groups_follow_what_is_in_bounds() {
        assert_eq!(set(SESSION_MS, "50000").consumer.session_ms, Some(50_000));
        assert_eq!(set(HEARTBEAT_MS, "15000").consumer.heartbeat_ms, Some(15_000));
        assert_eq!(set(SHARE_SESSION_MS, "50000").share.session_ms, Some(50_000));
        assert_eq!(set(SHARE_HEARTBEAT_MS, "15000").share.heartbeat_ms, Some(15_000));
        for value in ["44999", "60001", "-1", "", "soon"] {
            assert_eq!(set(SESSION_MS, value), GroupOverrides::default(), "{value}");
        }
        for value in ["4999", "15001"] {
            assert_eq!(set(HEARTBEAT_MS, value), GroupOverrides::default(), "{value}");
        }
    }
}
