//! Kafka's settings of flushes as a level of durability: of a topic that syncs each write before it answers,
//! the level is `sync`.
//!
//! `stafett.durability` of the same scope goes before them. Other values ask for a sync later on, which no
//! answer waits for: they are kept and shown, and have no effect.

use stafett_model::Durability;
use stafett_topics::TopicSettings;

/// Names of a topic's setting and of the broker's default of it.
pub(super) const MESSAGES: [&str; 2] = ["flush.messages", "log.flush.interval.messages"];
pub(super) const MS: [&str; 2] = ["flush.ms", "log.flush.interval.ms"];

/// Set while the level comes from these settings. It is never shown.
const MARK: &str = "stafett.durability.is_of_flush";

/// Sets the level of edited settings: the one that was set by its own name, else that of the flushes.
/// `is_level_set` is true if the edit sets or removes the level itself.
pub(super) fn apply(settings: &mut TopicSettings, is_level_set: bool) {
    let was_marked = settings.other.remove(MARK).is_some();
    // The level may have been set since by something that does not know the mark.
    let was_of_flush = was_marked && settings.durability == Some(Durability::Sync);
    if was_of_flush && !is_level_set {
        settings.durability = None;
    }
    if settings.durability.is_none() && syncs_each_write(settings) {
        settings.durability = Some(Durability::Sync);
        settings.other.insert(MARK.into(), "".into());
    }
}

fn syncs_each_write(settings: &TopicSettings) -> bool {
    let has = |names: [&str; 2], wanted: i64| {
        let values = names.iter().filter_map(|name| settings.other.get(*name));
        values.into_iter().any(|value| value.parse() == Ok(wanted))
    };
    has(MESSAGES, 1) || has(MS, 0)
}
