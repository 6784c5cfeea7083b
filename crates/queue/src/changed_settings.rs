//! Settings that are changed while a queue exists. They lie over those of its declaration, which stay as they
//! were: a declaration is compared with these.

use stafett_model::Durability;

use crate::settings::{DeadLetter, Overflow, QueueSettings};

/// New value of a setting that may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    TtlMs(Option<u64>),
    ExpiresMs(Option<u64>),
    LengthMax(Option<u64>),
    BytesMax(Option<u64>),
    Overflow(Overflow),
    DeadLetter(Option<DeadLetter>),
    DeliveryLimit(Option<u32>),
    Durability(Option<Durability>),
    Retain(u64),
}

/// Settings that differ from those of the declaration, each at most once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedSettings(Vec<Setting>);

impl Setting {
    fn apply(&self, to: &mut QueueSettings) {
        match self {
            Self::TtlMs(ms) => to.ttl_ms = *ms,
            Self::ExpiresMs(ms) => to.expires_ms = *ms,
            Self::LengthMax(max) => to.length_max = *max,
            Self::BytesMax(max) => to.bytes_max = *max,
            Self::Overflow(overflow) => to.overflow = *overflow,
            Self::DeadLetter(target) => to.dead_letter.clone_from(target),
            Self::DeliveryLimit(limit) => to.delivery_limit = *limit,
            Self::Durability(level) => to.durability = *level,
            Self::Retain(count) => to.retain = *count,
        }
    }

    fn is_same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl ChangedSettings {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.0.iter()
    }

    /// Changes settings. Those that are then as declared are forgotten.
    pub fn set(&mut self, new: impl IntoIterator<Item = Setting>, declared: &QueueSettings) {
        for setting in new {
            self.0.retain(|known| !known.is_same_kind(&setting));
            if declared.with([&setting]) != *declared {
                self.0.push(setting);
            }
        }
    }
}

impl FromIterator<Setting> for ChangedSettings {
    fn from_iter<T: IntoIterator<Item = Setting>>(settings: T) -> Self {
        Self(settings.into_iter().collect())
    }
}

impl QueueSettings {
    /// Returns the settings in force: these, with `changed` over them; of equals the last holds.
    #[must_use]
    pub fn with<'a>(&self, changed: impl IntoIterator<Item = &'a Setting>) -> Self {
        let mut settings = self.clone();
        for setting in changed {
            setting.apply(&mut settings);
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_lie_over_the_declaration_until_they_are_as_declared() {
        let declared = QueueSettings {
            ttl_ms: Some(5),
            length_max: Some(7),
            ..QueueSettings::default()
        };
        let mut changed = ChangedSettings::default();
        changed.set([Setting::TtlMs(None), Setting::Retain(3)], &declared);
        changed.set([Setting::Retain(4), Setting::LengthMax(Some(7))], &declared);
        let expected = QueueSettings {
            ttl_ms: None,
            retain: 4,
            ..declared.clone()
        };
        assert_eq!(declared.with(changed.iter()), expected);
        assert_eq!(changed.iter().count(), 2);
        changed.set([Setting::TtlMs(Some(5)), Setting::Retain(0)], &declared);
        assert!(changed.is_empty());
        assert_eq!(declared.with(changed.iter()), declared);
    }
}
