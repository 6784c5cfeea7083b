//! Numbers that every tool expects: each is present, 0 where nothing was counted.

use serde_json::{Map, Value, json};

/// Counts of messages, as RabbitMQ names them.
const MESSAGE_STATS: [&str; 14] = [
    "publish",
    "publish_in",
    "publish_out",
    "confirm",
    "deliver",
    "deliver_no_ack",
    "deliver_get",
    "get",
    "get_no_ack",
    "get_empty",
    "ack",
    "redeliver",
    "return_unroutable",
    "drop_unroutable",
];

/// Returns a number with its rate, which is not measured yet.
pub(super) fn put(fields: &mut Map<String, Value>, name: &str, count: u64) {
    fields.insert(name.to_owned(), json!(count));
    fields.insert(format!("{name}_details"), json!({ "rate": 0.0 }));
}

/// Returns an object of numbers with their rates.
pub(super) fn counts(pairs: &[(&str, u64)]) -> Value {
    let mut fields = Map::new();
    for (name, count) in pairs {
        put(&mut fields, name, *count);
    }
    Value::Object(fields)
}

/// Returns counts of messages that are not kept per object yet.
pub(super) fn message_stats() -> Value {
    counts(&MESSAGE_STATS.map(|name| (name, 0)))
}

/// Messages in queues.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lengths {
    pub(super) ready: u64,
    pub(super) unacknowledged: u64,
    pub(super) consumers: u64,
}

impl Lengths {
    pub(super) fn add(&mut self, other: Self) {
        self.ready += other.ready;
        self.unacknowledged += other.unacknowledged;
        self.consumers += other.consumers;
    }

    /// Adds the lengths and their rates.
    pub(super) fn show(self, fields: &mut Map<String, Value>) {
        put(fields, "messages", self.ready + self.unacknowledged);
        put(fields, "messages_ready", self.ready);
        put(fields, "messages_unacknowledged", self.unacknowledged);
    }
}
