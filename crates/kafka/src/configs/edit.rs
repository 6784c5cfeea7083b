//! Edits of settings. A request's edits are applied as a whole or not at all.

use stafett_topics::TopicSettings;

use super::config_type::ConfigType;
use super::topics::{self, Config};
use super::{BadConfig, VALUE_BYTES_MAX, brokers, flush, groups, kept, list};

/// Kind of resource that has the settings, and so the names that apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Area {
    Topic,
    Broker,
    Group,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Set,
    /// Removes the setting, so that the default applies.
    Delete,
    /// Adds the missing elements to a list.
    Append,
    /// Removes elements from a list.
    Subtract,
}

/// A change of one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edit {
    pub name: Box<str>,
    pub operation: Operation,
    pub value: Option<Box<str>>,
}

/// A change of the settings of a resource.
#[derive(Debug)]
pub(crate) struct ConfigChange {
    pub area: Area,
    /// True if settings that are not named return to their defaults.
    pub is_whole: bool,
    pub edits: Vec<Edit>,
}

impl ConfigChange {
    pub(crate) fn apply(&self, before: &TopicSettings) -> Result<TopicSettings, BadConfig> {
        let after = if self.is_whole {
            edit(self.area, &TopicSettings::default(), &self.edits)?
        } else {
            edit(self.area, before, &self.edits)?
        };
        let is_named = self.edits.iter().any(|edit| *edit.name == *topics::SPREAD);
        if is_named && after.spread.unwrap_or(false) != before.spread.unwrap_or(false) {
            let name = topics::SPREAD.to_owned();
            return Err(BadConfig::Fixed { name });
        }
        Ok(after)
    }
}

/// A setting known in an area.
#[derive(Debug, Clone, Copy)]
struct ConfigDefinition {
    name: &'static str,
    kind: ConfigType,
    default: &'static str,
    /// The topic setting that this is or gives the default of.
    config: Option<&'static Config>,
    is_fixed: bool,
}

impl Operation {
    pub(crate) fn of(code: i8) -> Result<Self, BadConfig> {
        match code {
            0 => Ok(Self::Set),
            1 => Ok(Self::Delete),
            2 => Ok(Self::Append),
            3 => Ok(Self::Subtract),
            other => Err(BadConfig::Operation(other)),
        }
    }
}

impl Area {
    fn what(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Broker => "broker",
            Self::Group => "group",
        }
    }

    fn find(self, name: &str) -> Option<ConfigDefinition> {
        match self {
            Self::Topic => topics::find(name).map(|config| ConfigDefinition::of(config, config.name)),
            Self::Broker => topics::find_broker(name)
                .map(|config| ConfigDefinition::of(config, config.broker_name))
                .or_else(|| {
                    brokers::find(name).map(|config| ConfigDefinition {
                        name: config.name,
                        kind: config.kind,
                        default: "",
                        config: None,
                        is_fixed: config.is_fixed,
                    })
                }),
            Self::Group => groups::find(name).map(|config| ConfigDefinition {
                name: config.name,
                kind: config.kind,
                default: config.default,
                config: None,
                is_fixed: false,
            }),
        }
    }
}

impl ConfigDefinition {
    fn of(config: &'static Config, name: &'static str) -> Self {
        Self {
            name,
            kind: config.kind,
            default: config.default,
            config: Some(config),
            is_fixed: false,
        }
    }

    fn value(&self, settings: &TopicSettings) -> Option<String> {
        match self.config {
            Some(config) => topics::value_in(settings, config, self.name),
            None => kept(settings, self.name),
        }
    }

    fn put(&self, settings: &mut TopicSettings, value: Option<&str>) {
        match (self.config, value) {
            (Some(config), _) => topics::put(settings, config, self.name, value),
            (None, Some(value)) => drop(settings.other.insert(self.name.into(), value.into())),
            (None, None) => drop(settings.other.remove(self.name)),
        }
    }

    fn check(&self, value: &str) -> Result<(), BadConfig> {
        let name = self.name;
        if value.len() > VALUE_BYTES_MAX {
            return Err(BadConfig::TooLong { name });
        }
        let wrong = |why| BadConfig::Value {
            name,
            value: value.to_owned(),
            why,
        };
        self.kind.check(value).map_err(wrong)
    }
}

/// Builds a topic's settings from those that its creator set.
pub(crate) fn settings<'a>(
    set: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<TopicSettings, BadConfig> {
    let edits: Vec<Edit> = set
        .map(|(name, value)| Edit {
            name: name.into(),
            operation: Operation::Set,
            value: value.map(Into::into),
        })
        .collect();
    edit(Area::Topic, &TopicSettings::default(), &edits)
}

/// Applies edits to settings. Fails at the first invalid one.
pub(crate) fn edit(area: Area, before: &TopicSettings, edits: &[Edit]) -> Result<TopicSettings, BadConfig> {
    let mut settings = before.clone();
    let mut is_level_set = false;
    for edit in edits {
        let what = area.what();
        let Some(known) = area.find(&edit.name) else {
            if edit.operation == Operation::Delete {
                // An unknown setting is not set.
                continue;
            }
            let name = edit.name.to_string();
            return Err(BadConfig::Unknown { what, name });
        };
        let name = known.name;
        is_level_set |= name == topics::DURABILITY;
        if known.is_fixed {
            return Err(BadConfig::Fixed {
                name: name.to_owned(),
            });
        }
        let value = match (edit.operation, edit.value.as_deref()) {
            (Operation::Delete, _) => {
                known.put(&mut settings, None);
                continue;
            }
            (_, None) => return Err(BadConfig::Null { what, name }),
            (Operation::Set, Some(value)) => value.trim().to_owned(),
            (Operation::Append | Operation::Subtract, Some(_)) if !known.kind.is_list() => {
                return Err(BadConfig::NotAList { name });
            }
            (operation, Some(value)) => {
                let had = known.value(&settings).unwrap_or_else(|| known.default.to_owned());
                combined(&had, operation, value)
            }
        };
        known.check(&value)?;
        known.put(&mut settings, Some(&value));
    }
    flush::apply(&mut settings, is_level_set);
    Ok(settings)
}

/// Returns a list with elements added or removed.
fn combined(had: &str, operation: Operation, value: &str) -> String {
    let mut parts: Vec<&str> = list(had).collect();
    if operation == Operation::Append {
        for part in list(value) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
    } else {
        parts.retain(|part| !list(value).any(|gone| gone == *part));
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use stafett_model::Durability;
    use stafett_topics::CleanupPolicy;

    use super::super::topics::CLEANUP_POLICY;
    use super::*;

    fn one(name: &str, operation: Operation, value: Option<&str>) -> Edit {
        Edit {
            name: name.into(),
            operation,
            value: value.map(Into::into),
        }
    }

    fn changed(
        area: Area,
        before: &TopicSettings,
        name: &str,
        operation: Operation,
        value: &str,
    ) -> TopicSettings {
        edit(area, before, &[one(name, operation, Some(value))]).unwrap()
    }

    #[test]
    fn every_setting_of_a_topic_can_be_set_to_its_default_and_back() {
        for config in topics::ALL {
            let none = TopicSettings::default();
            let set = changed(Area::Topic, &none, config.name, Operation::Set, config.default);
            let value = topics::value_in(&set, config, config.name);
            assert_eq!(value.as_deref(), Some(config.default), "{}", config.name);
            let edits = [one(config.name, Operation::Delete, None)];
            assert_eq!(edit(Area::Topic, &set, &edits), Ok(none), "{}", config.name);
        }
        assert!(topics::ALL.is_sorted_by_key(|config| config.name));
    }

    #[test]
    fn a_flush_of_each_write_is_the_level_sync_unless_another_is_set() {
        for (area, names) in [
            (Area::Topic, ["flush.messages", "flush.ms"]),
            (
                Area::Broker,
                ["log.flush.interval.messages", "log.flush.interval.ms"],
            ),
        ] {
            for (name, (syncs, later)) in names.into_iter().zip([("1", "2"), ("0", "1")]) {
                let none = TopicSettings::default();
                let set = changed(area, &none, name, Operation::Set, syncs);
                assert_eq!(set.durability, Some(Durability::Sync), "{name}");
                assert_eq!(changed(area, &set, name, Operation::Set, syncs), set);
                let over = changed(area, &set, name, Operation::Set, later);
                assert_eq!((over.durability, over.other.len()), (None, 1), "{name}");
                let edits = [one(name, Operation::Delete, None)];
                assert_eq!(edit(area, &set, &edits), Ok(none.clone()), "{name}");
                // The level's own name goes before, and after it is gone the flushes count again.
                let level = changed(area, &set, "stafett.durability", Operation::Set, "os");
                assert_eq!(level.durability, Some(Durability::Os), "{name}");
                assert_eq!(
                    edit(area, &level, &edits).unwrap().durability,
                    Some(Durability::Os)
                );
                let unset = [one("stafett.durability", Operation::Delete, None)];
                assert_eq!(edit(area, &level, &unset), Ok(set), "{name}");
                let level = changed(area, &none, "stafett.durability", Operation::Set, "os");
                let both = changed(area, &level, name, Operation::Set, syncs);
                assert_eq!(both.durability, Some(Durability::Os), "{name}");
                let sync = changed(area, &both, "stafett.durability", Operation::Set, "sync");
                assert_eq!(
                    edit(area, &sync, &edits).unwrap().durability,
                    Some(Durability::Sync)
                );
            }
        }
    }

    #[test]
    fn lists_grow_and_shrink() {
        let name = "leader.replication.throttled.replicas";
        let none = TopicSettings::default();
        let set = changed(Area::Topic, &none, name, Operation::Append, "0:1,1:1");
        let set = changed(Area::Topic, &set, name, Operation::Append, "1:1, 2:1");
        assert_eq!(set.other.get(name).map(|value| &**value), Some("0:1,1:1,2:1"));
        let set = changed(Area::Topic, &set, name, Operation::Subtract, "0:1,7:1");
        assert_eq!(set.other.get(name).map(|value| &**value), Some("1:1,2:1"));
        let set = changed(Area::Topic, &none, CLEANUP_POLICY, Operation::Append, "delete");
        assert_eq!(set.cleanup, Some(CleanupPolicy::default()));
        let set = changed(Area::Topic, &set, CLEANUP_POLICY, Operation::Append, "compact");
        let shown = |set: &TopicSettings| set.cleanup.map(|policy| policy.to_string());
        assert_eq!(shown(&set).as_deref(), Some("delete,compact"));
        let set = changed(Area::Topic, &set, CLEANUP_POLICY, Operation::Subtract, "delete");
        assert_eq!(shown(&set).as_deref(), Some("compact"));
    }

    #[test]
    fn compaction_is_the_same_for_topics_and_as_a_default() {
        let none = TopicSettings::default();
        for (topic, broker, value) in [
            ("cleanup.policy", "log.cleanup.policy", "compact"),
            ("delete.retention.ms", "log.cleaner.delete.retention.ms", "7"),
            ("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", "8"),
            ("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", "9"),
            (
                "min.cleanable.dirty.ratio",
                "log.cleaner.min.cleanable.ratio",
                "0.01",
            ),
        ] {
            let own = changed(Area::Topic, &none, topic, Operation::Set, value);
            assert_eq!(own, changed(Area::Broker, &none, broker, Operation::Set, value));
            let config = topics::find(topic).unwrap();
            assert_eq!(topics::value_in(&own, config, topic).as_deref(), Some(value));
            assert!(own.other.is_empty() && own != none, "{topic}");
        }
    }

    #[test]
    fn the_same_setting_of_a_topic_and_of_the_broker_means_the_same() {
        let none = TopicSettings::default();
        let topic = changed(Area::Topic, &none, "retention.ms", Operation::Set, " 5 ");
        let broker = changed(Area::Broker, &none, "log.retention.ms", Operation::Set, "5");
        assert_eq!(topic, broker);
        let kept = changed(
            Area::Broker,
            &none,
            "log.segment.bytes",
            Operation::Set,
            "1048576",
        );
        assert!(kept.other.contains_key("log.segment.bytes"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let said = |area, name, operation, value: Option<&str>| {
            edit(area, &TopicSettings::default(), &[one(name, operation, value)])
                .unwrap_err()
                .to_string()
        };
        let set = Operation::Set;
        for (name, value, words) in [
            (
                "retention.ms",
                "soon",
                "Invalid value soon for configuration retention.ms: Not a number of type LONG",
            ),
            (
                "retention.ms",
                "-2",
                "Invalid value -2 for configuration retention.ms: Value must be at least -1",
            ),
            (
                "preallocate",
                "yes",
                "Invalid value yes for configuration preallocate: Expected value to be either true or false",
            ),
            (
                "cleanup.policy",
                "shred",
                "Invalid value shred for configuration cleanup.policy: String must be one of: compact, delete",
            ),
            ("no.such", "1", "Unknown topic config name: no.such"),
        ] {
            assert_eq!(said(Area::Topic, name, set, Some(value)), words);
        }
        assert_eq!(
            said(Area::Topic, "retention.ms", set, None),
            "Null value not supported for topic configs: retention.ms"
        );
        assert!(said(Area::Topic, "retention.ms", Operation::Append, Some("1")).contains("not a list"));
        assert!(said(Area::Broker, "node.id", set, Some("1")).contains("node.id"));
        assert!(said(Area::Topic, "retention.ms", set, Some(&"1".repeat(9000))).contains("longer"));
    }
}
