//! Arguments of queues and exchanges: from tables to the settings of the core, and the exceptions for invalid
//! arguments.

use bytes::Bytes;
use bytestring::ByteString;
use stafett_amqp_wire::{Table, TableBuilder, Value};
use stafett_messaging::queues::{DeadLetter, Overflow, QueueSettings};
use stafett_model::Durability;

use crate::exception::Exception;
use crate::known_arguments;

/// Largest `x-max-priority` of RabbitMQ.
const PRIORITY_MAX: i64 = 255;
/// Longest time that RabbitMQ accepts, for messages and for queues: ten years.
pub(crate) const TIME_MS_MAX: i64 = 315_360_000_000;
/// RabbitMQ's default redelivery limit of quorum queues.
const QUORUM_DELIVERY_LIMIT: u32 = 20;

/// Our own arguments: the stored topic that a queue consumes, and where it begins.
pub(crate) const TOPIC: &str = "x-stafett-topic";
const FROM: &str = "x-stafett-from";
/// Arguments that a queue over a topic cannot honour, because it stores no messages of its own.
const NOT_OVER_TOPICS: [&str; 4] = [
    "x-max-length",
    "x-max-length-bytes",
    "x-overflow",
    "x-max-priority",
];

/// Type of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum QueueType {
    #[default]
    Classic,
    Quorum,
    Stream,
}

impl QueueType {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Quorum => "quorum",
            Self::Stream => "stream",
        }
    }

    pub(crate) fn of(arguments: &Table) -> Self {
        match arguments.get("x-queue-type") {
            Some(value) => match value.text() {
                Some("quorum") => Self::Quorum,
                Some("stream") => Self::Stream,
                _ => Self::Classic,
            },
            None => Self::Classic,
        }
    }
}

/// Returns the settings that the arguments of a queue stand for. Exceptions name the queue as it is given.
pub(crate) fn queue_settings(arguments: &Table, what: &str) -> Result<(QueueType, QueueSettings), Exception> {
    let mut settings = QueueSettings::default();
    let mut dead_letter_exchange = None;
    let mut dead_letter_key = None;
    let kind = queue_type(arguments, what)?;
    known_arguments::check(arguments, kind, what)?;
    if kind == QueueType::Quorum {
        settings.delivery_limit = Some(QUORUM_DELIVERY_LIMIT);
        settings.has_default_delivery_limit = arguments.get("x-delivery-limit").is_none();
        settings.two_priorities = true;
        settings.keeps_transient = true;
    }
    for (name, value) in arguments.iter() {
        let argument = Argument {
            name: &name,
            value: &value,
            what,
        };
        match name.as_ref() {
            "x-message-ttl" => settings.ttl_ms = Some(argument.time(0)?),
            "x-expires" => settings.expires_ms = Some(argument.time(1)?),
            "x-max-length" => settings.length_max = Some(argument.number(0)?),
            "x-max-length-bytes" => settings.bytes_max = Some(argument.number(0)?),
            "x-overflow" => settings.overflow = argument.overflow()?,
            "x-dead-letter-exchange" => dead_letter_exchange = Some(argument.exchange()?),
            "x-dead-letter-routing-key" => dead_letter_key = Some(argument.text()?),
            "x-max-priority" => settings.priority_max = argument.priority()?,
            "x-stafett-durability" => settings.durability = Some(argument.level()?),
            "x-single-active-consumer" => settings.single_active_consumer = argument.switch()?,
            TOPIC => {
                // Checked for its type only; the session looks up the topic.
                argument.text()?;
            }
            FROM => {
                from_end(argument.text()?.as_ref())
                    .ok_or_else(|| argument.wrong("\"expected first or next\""))?;
            }
            "x-delivery-limit" if kind == QueueType::Quorum => settings.delivery_limit = argument.limit()?,
            _ => argument.check_without_effect()?,
        }
    }
    if kind == QueueType::Quorum && settings.overflow == Overflow::RejectPublishDeadLetter {
        // RabbitMQ accepts it, logs a warning, and drops the oldest messages instead.
        settings.overflow = Overflow::DropHead;
    }
    settings.active_yields = kind == QueueType::Quorum && settings.single_active_consumer;
    match (dead_letter_exchange, dead_letter_key) {
        (Some(exchange), routing_key) => {
            settings.dead_letter = Some(DeadLetter {
                exchange,
                routing_key,
            });
        }
        (None, Some(_)) => {
            return Err(Exception::precondition(format!(
                "invalid arg 'x-dead-letter-routing-key' for {what}: routing_key_but_no_dlx_defined"
            )));
        }
        (None, None) => {}
    }
    Ok((kind, settings))
}

/// Returns the topic of a queue over a topic, and true if the queue begins at the topic's end.
pub(crate) fn over_topic(arguments: &Table, what: &str) -> Result<Option<(ByteString, bool)>, Exception> {
    let text = |name| {
        arguments
            .get(name)
            .and_then(|value| value.text().map(ByteString::from))
    };
    let Some(topic) = text(TOPIC) else { return Ok(None) };
    if let Some(name) = NOT_OVER_TOPICS.iter().find(|name| arguments.get(name).is_some()) {
        return Err(Exception::precondition(format!(
            "invalid arg '{name}' for {what}: it keeps no messages beside those of topic '{topic}'"
        )));
    }
    let from_end = text(FROM).and_then(|from| from_end(&from)).unwrap_or(false);
    Ok(Some((topic, from_end)))
}

fn from_end(text: &str) -> Option<bool> {
    match text {
        "first" => Some(false),
        "next" => Some(true),
        _ => None,
    }
}

fn queue_type(arguments: &Table, what: &str) -> Result<QueueType, Exception> {
    let Some(value) = arguments.get("x-queue-type") else {
        return Ok(QueueType::Classic);
    };
    match value.text() {
        Some("classic" | "quorum" | "stream") => Ok(QueueType::of(arguments)),
        other => {
            let argument = Argument {
                name: "x-queue-type",
                value: &value,
                what,
            };
            Err(match other {
                Some(other) => argument.wrong(&format!("\"unsupported queue type '{other}'\"")),
                None => argument.unacceptable(),
            })
        }
    }
}

/// An argument, and the name of its owner for exceptions.
pub(crate) struct Argument<'a> {
    pub name: &'a str,
    pub value: &'a Value,
    pub what: &'a str,
}

impl Argument<'_> {
    pub(crate) fn wrong(&self, why: &str) -> Exception {
        let Self { name, what, .. } = self;
        Exception::precondition(format!("invalid arg '{name}' for {what}: {why}"))
    }

    fn unacceptable(&self) -> Exception {
        let kind = self.value.type_name();
        self.wrong(&format!("{{unacceptable_type,{kind}}}"))
    }

    fn unexpected(&self, wanted: &str) -> Exception {
        self.wrong(&format!("\"expected {wanted}, got {}\"", self.value.type_name()))
    }

    /// Checks arguments that RabbitMQ checks and that have no effect here.
    pub(crate) fn check_without_effect(&self) -> Result<(), Exception> {
        match self.name {
            "x-queue-mode" => match self.mode()? {
                "default" | "lazy" => Ok(()),
                other => Err(self.wrong(&format!("\"unsupported queue mode '{other}'\""))),
            },
            "x-queue-version" => match self.integer()? {
                1 | 2 => Ok(()),
                other => Err(self.wrong(&format!("\"unsupported queue version '{other}'\""))),
            },
            "x-queue-leader-locator" => match self.value.text() {
                Some("client-local" | "balanced" | "random" | "least-leaders") => Ok(()),
                Some(_) => Err(self.wrong("invalid_queue_locator_arg")),
                None => Err(self.unacceptable()),
            },
            "x-dead-letter-strategy" => match self.value.text() {
                Some("at-most-once" | "at-least-once") => Ok(()),
                Some(_) => Err(self.wrong("invalid_dlx_strategy")),
                None => Err(self.unacceptable()),
            },
            "x-max-in-memory-length" | "x-max-in-memory-bytes" => self.number(0).map(drop),
            "x-quorum-initial-group-size" | "x-initial-cluster-size" => self.number(1).map(drop),
            _ => Ok(()),
        }
    }

    fn mode(&self) -> Result<&str, Exception> {
        self.value.text().ok_or_else(|| self.unacceptable())
    }

    fn integer(&self) -> Result<i64, Exception> {
        let number = self
            .value
            .integer()
            .filter(|_| !matches!(self.value, Value::Timestamp(_)));
        number.ok_or_else(|| self.unexpected("integer"))
    }

    pub(crate) fn number(&self, min: i64) -> Result<u64, Exception> {
        let number = self.integer()?;
        if number < min {
            let why = if number < 0 {
                "value_negative"
            } else {
                "value_zero"
            };
            return Err(self.wrong(&format!("{{{why},{number}}}")));
        }
        u64::try_from(number).map_err(|_| self.unacceptable())
    }

    /// Returns a time in ms.
    fn time(&self, min: i64) -> Result<u64, Exception> {
        let number = self.number(min)?;
        if number > TIME_MS_MAX.unsigned_abs() {
            return Err(self.wrong(&format!("{{value_too_large,{number}}}")));
        }
        Ok(number)
    }

    fn limit(&self) -> Result<Option<u32>, Exception> {
        let number = self.integer()?;
        Ok(if number < 0 {
            None
        } else {
            Some(u32::try_from(number).unwrap_or(u32::MAX))
        })
    }

    fn priority(&self) -> Result<u8, Exception> {
        let number = self.integer()?;
        if number > PRIORITY_MAX {
            return Err(self.wrong(&format!("{{max_value_exceeded,{number}}}")));
        }
        u8::try_from(self.number(0)?).map_err(|_| self.unacceptable())
    }

    /// Reads our own argument: the durability that a persistent message has when it is confirmed.
    fn level(&self) -> Result<Durability, Exception> {
        let text = self.value.text().ok_or_else(|| self.unexpected("longstr"))?;
        text.parse::<Durability>()
            .map_err(|error| self.wrong(&format!("\"{error}\"")))
    }

    fn switch(&self) -> Result<bool, Exception> {
        if let Value::Bool(value) = self.value {
            Ok(*value)
        } else {
            Err(self.unacceptable())
        }
    }

    pub(crate) fn text(&self) -> Result<ByteString, Exception> {
        self.value
            .text()
            .map(ByteString::from)
            .ok_or_else(|| self.unacceptable())
    }

    /// Returns the name of an exchange.
    fn exchange(&self) -> Result<ByteString, Exception> {
        let Self { name, value, what } = self;
        value.text().map(ByteString::from).ok_or_else(|| {
            let kind = value.type_name();
            Exception::precondition(format!("invalid type '{kind}' for arg '{name}' in {what}"))
        })
    }

    fn overflow(&self) -> Result<Overflow, Exception> {
        match self.text()?.as_ref() {
            "drop-head" => Ok(Overflow::DropHead),
            "reject-publish" => Ok(Overflow::RejectPublish),
            "reject-publish-dlx" => Ok(Overflow::RejectPublishDeadLetter),
            _ => Err(self.wrong("invalid_overflow")),
        }
    }
}

/// Returns the arguments in a canonical order, so that equal ones have equal bytes: RabbitMQ ignores the
/// order.
pub(crate) fn canonical(arguments: &Table) -> Bytes {
    let mut fields: Vec<_> = arguments.iter().collect();
    fields.sort_by(|(left, _), (right, _)| left.cmp(right));
    fields.dedup_by(|(left, _), (right, _)| left == right);
    let mut table = TableBuilder::new();
    for (name, value) in fields {
        table.push(&name, &value);
    }
    table.finish().as_bytes().clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(name: &str, value: impl Into<Value>) -> Result<QueueSettings, String> {
        let table = TableBuilder::new().with(name, value).finish();
        queue_settings(&table, "queue 'q' in vhost '/'")
            .map(|(_, settings)| settings)
            .map_err(|exception| exception.text)
    }

    #[test]
    fn arguments_become_settings() {
        assert_eq!(
            settings("x-message-ttl", Value::I32(60_000)).unwrap().ttl_ms,
            Some(60_000)
        );
        assert_eq!(
            settings("x-max-length", Value::U8(3)).unwrap().length_max,
            Some(3)
        );
        assert_eq!(settings("x-max-priority", Value::I64(9)).unwrap().priority_max, 9);
        assert_eq!(
            settings("x-overflow", "reject-publish").unwrap().overflow,
            Overflow::RejectPublish
        );
        let quorum = settings("x-queue-type", "quorum").unwrap();
        assert_eq!(quorum.delivery_limit, Some(20));
        assert!(quorum.two_priorities && quorum.keeps_transient && !quorum.active_yields);
        let table = TableBuilder::new()
            .with("x-queue-type", "quorum")
            .with("x-overflow", "reject-publish-dlx")
            .finish();
        let (_, quorum) = queue_settings(&table, "q").unwrap();
        assert_eq!(quorum.overflow, Overflow::DropHead);
        assert!(settings("x-stafett-topic", "orders").is_ok());
        assert_eq!(
            settings("x-stafett-durability", "os").unwrap().durability,
            Some(Durability::Os)
        );
        assert_eq!(
            settings("x-queue-mode", "lazy").unwrap(),
            QueueSettings::default()
        );
    }

    #[test]
    fn arguments_without_sense_are_named() {
        let prefix = "invalid arg 'x-message-ttl' for queue 'q' in vhost '/': ";
        assert_eq!(
            settings("x-message-ttl", Value::I32(-1)),
            Err(format!("{prefix}{{value_negative,-1}}"))
        );
        assert_eq!(
            settings("x-message-ttl", "1"),
            Err(format!("{prefix}\"expected integer, got longstr\""))
        );
        assert!(settings("x-expires", Value::I32(0)).is_err());
        assert!(settings("x-expires", Value::I64(TIME_MS_MAX)).is_ok());
        assert_eq!(
            settings("x-message-ttl", Value::I64(TIME_MS_MAX + 1)),
            Err(format!("{prefix}{{value_too_large,315360000001}}"))
        );
        for name in ["x-overflow", "x-single-active-consumer", "x-queue-type"] {
            let why = settings(name, Value::I32(1)).unwrap_err();
            assert!(why.ends_with("{unacceptable_type,signedint}"), "{why}");
        }
        assert!(settings("x-max-priority", Value::I32(256)).is_err());
        assert!(settings("x-overflow", "reject").is_err());
        assert!(settings("x-stafett-durability", "fsync").is_err());
        assert!(settings("x-stafett-durability", Value::I32(1)).is_err());
        assert!(settings("x-queue-type", "heap").is_err());
        for (name, value) in [
            ("x-queue-mode", Value::from("busy")),
            ("x-queue-mode", Value::I32(1)),
            ("x-queue-version", Value::I32(3)),
            ("x-queue-leader-locator", Value::from("moon")),
        ] {
            assert!(settings(name, value).is_err(), "{name}");
        }
        assert_eq!(
            settings("x-delivery-limit", Value::I32(3)),
            Err("invalid arg 'x-delivery-limit' for queue 'q' in vhost '/' of queue type rabbit_classic_queue".into())
        );
        assert!(settings("x-dead-letter-routing-key", "key").is_err());
        assert_eq!(
            settings("x-dead-letter-exchange", Value::I32(1)),
            Err("invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'".into())
        );
    }

    #[test]
    fn a_queue_over_a_topic_says_which_and_from_where() {
        let over = |table: TableBuilder| {
            over_topic(&table.finish(), "q")
                .map(|over| over.map(|(topic, from_end)| (topic.to_string(), from_end)))
                .map_err(|exception| exception.text)
        };
        let topic = || TableBuilder::new().with("x-stafett-topic", "orders");
        assert_eq!(over(TableBuilder::new()), Ok(None));
        assert_eq!(over(topic()), Ok(Some(("orders".to_owned(), false))));
        assert_eq!(
            over(topic().with("x-stafett-from", "next")),
            Ok(Some(("orders".to_owned(), true)))
        );
        assert!(
            over(topic().with("x-max-length", Value::I32(1)))
                .unwrap_err()
                .contains("x-max-length")
        );
        assert!(settings("x-stafett-from", "last").is_err());
        assert!(settings("x-stafett-topic", Value::I32(1)).is_err());
    }
}
