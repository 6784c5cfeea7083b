//! Settings of live topics.

use stafett_admin::WebSockets;
use stafett_live::LiveFrontSettings;
use stafett_live_topics::{DuplicateRule, LiveSettings};
use stafett_ws::connection::Limits;

use crate::config::Settings;

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns the settings of the broker.
pub(crate) fn broker_settings(settings: &Settings) -> LiveSettings {
    let live = &settings.live;
    let duplicates = duplicate_settings(settings);
    LiveSettings {
        subscriptions_max: size(live.subscriptions_max),
        patterns_max: size(live.patterns_max),
        filters_max: size(live.filters_max),
        clients_max: size(live.clients_max),
        duplicates: duplicates.rules,
        duplicates_max: duplicates.max,
        logs: live.logs.clone(),
        ..LiveSettings::default()
    }
}

/// Rules for duplicates, and the number of messages to remember.
pub(crate) struct DuplicateSettings {
    pub(crate) rules: Vec<DuplicateRule>,
    pub(crate) max: usize,
}

pub(crate) fn duplicate_settings(settings: &Settings) -> DuplicateSettings {
    DuplicateSettings {
        rules: settings.live.duplicates.clone(),
        max: size(settings.live.duplicates_max),
    }
}

/// Returns the limits of `WebSocket`s to the API: those of live topics, with messages as large as its
/// bodies.
pub(crate) fn socket_limits(settings: &Settings) -> Limits {
    Limits {
        idle: settings.live.idle_timeout_ms,
        ..WebSockets::default().limits
    }
}

/// Returns the settings of the front end.
pub(crate) fn front_settings(settings: &Settings) -> LiveFrontSettings {
    let live = &settings.live;
    LiveFrontSettings {
        message_bytes_max: size(live.message_bytes_max),
        topic_bytes_max: size(live.topic_bytes_max),
        outbox_bytes: size(live.outbox_bytes),
        outbox_bytes_max: size(live.outbox_bytes_max).max(size(live.outbox_bytes)),
        idle_timeout: live.idle_timeout_ms,
        origins: live.origins.clone(),
        ..LiveFrontSettings::default()
    }
}
