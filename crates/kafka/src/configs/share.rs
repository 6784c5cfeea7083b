//! Settings of share groups' deliveries.

use stafett_shares::{PlaceStart, ShareRules};
use stafett_topics::{TopicSettings, Visibility};

use super::config_type::ConfigType;

pub(super) const RESET: &str = "share.auto.offset.reset";
pub(super) const DELIVERIES: &str = "share.delivery.count.limit";
pub(super) const LOCKS: &str = "share.partition.max.record.locks";
pub(super) const LOCK_MS: &str = "share.record.lock.duration.ms";
pub(super) const ISOLATION: &str = "share.isolation.level";
pub(super) const RENEW: &str = "share.renew.acknowledge.enable";

const COMMITTED: &str = "read_committed";

pub(super) const ISOLATION_TYPE: ConfigType = ConfigType::OneOf(&[COMMITTED, "read_uncommitted"]);
pub(super) const RESET_TYPE: ConfigType = ConfigType::ShareReset;
pub(super) const DELIVERIES_TYPE: ConfigType = ConfigType::Integer { min: 2, max: 10 };
pub(super) const LOCKS_TYPE: ConfigType = ConfigType::Integer {
    min: 100,
    max: 10_000,
};
pub(super) const LOCK_MS_TYPE: ConfigType = ConfigType::Integer {
    min: 15_000,
    max: 60_000,
};

/// Settings of a group that have an effect on deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShareSettings {
    pub rules: ShareRules,
    pub reset: Reset,
    /// True if members may renew their locks.
    pub renews: bool,
}

/// Value of `share.auto.offset.reset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reset {
    Earliest,
    Latest,
    /// The first record that is at most this old, in ms.
    Age(i64),
}

impl Reset {
    pub(super) fn read(value: &str) -> Option<Self> {
        match value {
            "earliest" => Some(Self::Earliest),
            "latest" => Some(Self::Latest),
            _ => Some(Self::Age(duration_ms(value.strip_prefix("by_duration:")?)?)),
        }
    }

    /// Returns where a group begins now, in ms since 1970.
    pub(crate) fn start(self, now_ms: i64) -> PlaceStart {
        match self {
            Self::Earliest => PlaceStart::First,
            Self::Latest => PlaceStart::Next,
            Self::Age(ms) => PlaceStart::Time(now_ms.saturating_sub(ms)),
        }
    }
}

/// Returns the settings of a group. Values stored by an earlier version may be out of bounds: they count as
/// not set.
pub(crate) fn share_settings(settings: &TopicSettings) -> ShareSettings {
    let number = |name: &str, kind: ConfigType, default: u32| {
        let value = settings.other.get(name).filter(|value| kind.check(value).is_ok());
        value.and_then(|value| value.parse().ok()).unwrap_or(default)
    };
    let locks_max = number(LOCKS, LOCKS_TYPE, 2000);
    let level = settings.other.get(ISOLATION);
    let reads_committed = level.is_some_and(|level| **level == *COMMITTED);
    let rules = ShareRules {
        lock_ms: number(LOCK_MS, LOCK_MS_TYPE, 30_000),
        deliveries_max: number(DELIVERIES, DELIVERIES_TYPE, 5),
        locks_max: usize::try_from(locks_max).unwrap_or(usize::MAX),
        visibility: if reads_committed {
            Visibility::Committed
        } else {
            Visibility::Stored
        },
    };
    let reset = settings.other.get(RESET).and_then(|value| Reset::read(value));
    let renews = settings.other.get(RENEW);
    ShareSettings {
        rules,
        reset: reset.unwrap_or(Reset::Latest),
        renews: renews.is_none_or(|value| !value.eq_ignore_ascii_case("false")),
    }
}

/// Reads an ISO 8601 duration of days, hours, minutes and seconds, as Java does: `P1DT2H3M4.5S`. `None` if it
/// is malformed, empty or negative.
fn duration_ms(text: &str) -> Option<i64> {
    let rest = text.strip_prefix('P')?;
    let (days, time) = rest.split_once('T').unwrap_or((rest, ""));
    if rest.is_empty() || rest.ends_with('T') {
        return None;
    }
    let mut total: i64 = 0;
    for (part, units) in [
        (days, &[('D', 86_400_000.0)][..]),
        (time, &[('H', 3_600_000.0), ('M', 60_000.0), ('S', 1000.0)][..]),
    ] {
        let mut part = part;
        for (unit, ms) in units {
            if let Some((number, behind)) = part.split_once(*unit) {
                let may_have_fraction = *unit == 'S' || !number.contains('.');
                let is_number =
                    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
                if !may_have_fraction || !is_number {
                    return None;
                }
                let value: f64 = number.parse().ok()?;
                #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
                let value = (value * ms) as i64;
                total = total.checked_add(value)?;
                part = behind;
            }
        }
        if !part.is_empty() {
            return None;
        }
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_java_does() {
        for (text, expected) in [
            ("PT1H", Some(3_600_000)),
            ("P1DT2M", Some(86_520_000)),
            ("PT1.5S", Some(1500)),
            ("P2D", Some(172_800_000)),
        ] {
            assert_eq!(duration_ms(text), expected, "{text}");
        }
        for text in [
            "", "P", "PT", "1H", "PT1", "PTH", "PT1.5H", "PT-1H", "P1H", "PT1H1D", "PTNaNS",
        ] {
            assert_eq!(duration_ms(text), None, "{text}");
        }
    }

    #[test]
    fn a_group_follows_its_settings_as_far_as_they_are_in_bounds() {
        let mut settings = TopicSettings::default();
        let defaults = share_settings(&settings);
        assert_eq!(defaults.rules.lock_ms, 30_000);
        assert_eq!((defaults.reset, defaults.renews), (Reset::Latest, true));
        assert_eq!(defaults.rules.visibility, Visibility::Stored);
        for (name, value) in [
            (RESET, "by_duration:PT1H"),
            (LOCK_MS, "15000"),
            (DELIVERIES, "11"),
            (RENEW, "false"),
            (ISOLATION, COMMITTED),
        ] {
            settings.other.insert(name.into(), value.into());
        }
        let set = share_settings(&settings);
        assert_eq!((set.rules.lock_ms, set.rules.deliveries_max), (15_000, 5));
        assert_eq!((set.reset, set.renews), (Reset::Age(3_600_000), false));
        assert_eq!(set.rules.visibility, Visibility::Committed);
    }
}
