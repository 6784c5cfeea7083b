//! The settings of groups. They are kept in their group's scope, where whoever runs the groups finds them.

use super::kind::Kind;

pub(crate) struct GroupConfig {
    pub name: &'static str,
    /// What the broker calls its default.
    pub broker_name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    pub about: &'static str,
}

const fn config(
    name: &'static str,
    broker_name: &'static str,
    kind: Kind,
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

const SESSION: Kind = Kind::Integer {
    min: 45_000,
    max: 60_000,
};
const HEARTBEAT: Kind = Kind::Integer {
    min: 5000,
    max: 15_000,
};
const INTERVAL: Kind = Kind::Integer { min: 0, max: 15_000 };
const FOLLOWED: &str = "Kept and shown; members of consumer groups follow the broker's own settings.";
const LATER: &str = "Kept and shown; groups of this kind are not served yet.";

/// All of them, sorted by name.
#[rustfmt::skip]
pub(crate) const GROUP: &[GroupConfig] = &[
    config("consumer.assignment.interval.ms", "group.consumer.assignment.interval.ms", INTERVAL, "1000", super::WITHOUT_EFFECT),
    config("consumer.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms", HEARTBEAT, "5000",
        FOLLOWED),
    config("consumer.session.timeout.ms", "group.consumer.session.timeout.ms", SESSION, "45000",
        FOLLOWED),
    config("share.assignment.interval.ms", "group.share.assignment.interval.ms", INTERVAL, "1000", LATER),
    config("share.auto.offset.reset", "share.auto.offset.reset", Kind::Text, "latest", LATER),
    config("share.delivery.count.limit", "group.share.delivery.count.limit", Kind::Integer { min: 2, max: 10 }, "5", LATER),
    config("share.heartbeat.interval.ms", "group.share.heartbeat.interval.ms", HEARTBEAT, "5000", LATER),
    config("share.isolation.level", "share.isolation.level", Kind::OneOf(&["read_committed", "read_uncommitted"]), "read_uncommitted", LATER),
    config("share.partition.max.record.locks", "group.share.partition.max.record.locks", Kind::Integer { min: 100, max: 10_000 }, "2000", LATER),
    config("share.record.lock.duration.ms", "group.share.record.lock.duration.ms", Kind::Integer { min: 15_000, max: 60_000 }, "30000", LATER),
    config("share.renew.acknowledge.enable", "share.renew.acknowledge.enable", Kind::Boolean, "true", LATER),
    config("share.session.timeout.ms", "group.share.session.timeout.ms", SESSION, "45000", LATER),
    config("streams.assignment.interval.ms", "group.streams.assignment.interval.ms", INTERVAL, "1000", LATER),
    config("streams.heartbeat.interval.ms", "group.streams.heartbeat.interval.ms", HEARTBEAT, "5000", LATER),
    config("streams.initial.rebalance.delay.ms", "group.streams.initial.rebalance.delay.ms", Kind::int(0), "3000", LATER),
    config("streams.num.standby.replicas", "group.streams.num.standby.replicas", Kind::Integer { min: 0, max: 2 }, "0", LATER),
    config("streams.session.timeout.ms", "group.streams.session.timeout.ms", SESSION, "45000", LATER),
];

pub(super) fn find(name: &str) -> Option<&'static GroupConfig> {
    GROUP.iter().find(|config| config.name == name)
}
