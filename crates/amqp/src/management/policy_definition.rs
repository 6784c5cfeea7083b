//! Definitions of policies: from RabbitMQ's keys to the settings of the core, and back.
//!
//! Served are keys with an effect on queues here, and those that RabbitMQ has for its own storage, which are
//! kept, shown and without effect. Any other key is refused, and so is a policy for streams or exchanges.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use stafett_messaging::queues::{
    DeliveryLimit, NewPolicy, Overflow, PolicyKind, PolicyScope, PolicySettings,
};

use super::call::Fields;
use crate::arguments::TIME_MS_MAX;

/// Kinds of queues that a key is for: a policy with a key of one kind applies to no queue of another.
const OF_QUEUES: PolicyScope = PolicyScope::ALL;
const OF_CLASSIC: PolicyScope = PolicyScope {
    plain: true,
    two_priorities: false,
};
const OF_QUORUM: PolicyScope = PolicyScope {
    plain: false,
    two_priorities: true,
};

/// A key of a definition.
struct Key {
    name: &'static str,
    kind: Kind,
    of: PolicyScope,
    /// True if an operator policy may have it.
    is_of_operators: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Number {
        what: &'static str,
        min: i64,
        max: i64,
    },
    Text {
        what: &'static str,
    },
    /// One of these words.
    Word {
        what: &'static str,
        words: &'static [&'static str],
    },
}

const fn key(name: &'static str, kind: Kind, of: PolicyScope, is_of_operators: bool) -> Key {
    Key {
        name,
        kind,
        of,
        is_of_operators,
    }
}

const fn number(what: &'static str, min: i64, max: i64) -> Kind {
    Kind::Number { what, min, max }
}

const KEYS: [Key; 16] = [
    key(
        "message-ttl",
        number("message TTL", 0, TIME_MS_MAX),
        OF_QUEUES,
        true,
    ),
    key("expires", number("queue expiry", 1, TIME_MS_MAX), OF_QUEUES, true),
    key(
        "max-length",
        number("maximum length", 0, i64::MAX),
        OF_QUEUES,
        true,
    ),
    key(
        "max-length-bytes",
        number("maximum length in bytes", 0, i64::MAX),
        OF_QUEUES,
        true,
    ),
    key(
        "overflow",
        Kind::Word {
            what: "overflow value",
            words: &["drop-head", "reject-publish", "reject-publish-dlx"],
        },
        OF_QUEUES,
        true,
    ),
    key(
        "dead-letter-exchange",
        Kind::Text {
            what: "dead letter exchange name",
        },
        OF_QUEUES,
        false,
    ),
    key(
        "dead-letter-routing-key",
        Kind::Text {
            what: "dead letter routing key",
        },
        OF_QUEUES,
        false,
    ),
    key(
        "delivery-limit",
        number("delivery limit", i64::MIN, i64::MAX),
        OF_QUORUM,
        true,
    ),
    // Without effect from here on.
    key(
        "queue-mode",
        Kind::Word {
            what: "queue-mode value",
            words: &["default", "lazy"],
        },
        OF_CLASSIC,
        false,
    ),
    key(
        "queue-version",
        number("queue-version value", 1, 2),
        OF_QUEUES,
        false,
    ),
    key(
        "queue-master-locator",
        Kind::Word {
            what: "master locator",
            words: &["client-local", "min-masters", "random"],
        },
        OF_CLASSIC,
        false,
    ),
    key(
        "queue-leader-locator",
        Kind::Word {
            what: "queue leader locator value",
            words: &["client-local", "balanced", "random", "least-leaders"],
        },
        OF_QUEUES,
        false,
    ),
    key(
        "dead-letter-strategy",
        Kind::Word {
            what: "dead letter strategy",
            words: &["at-most-once", "at-least-once"],
        },
        OF_QUORUM,
        false,
    ),
    key(
        "max-in-memory-length",
        number("maximum memory in bytes", 0, i64::MAX),
        OF_QUORUM,
        true,
    ),
    key(
        "max-in-memory-bytes",
        number("maximum memory in bytes", 0, i64::MAX),
        OF_QUORUM,
        true,
    ),
    key(
        "target-group-size",
        number("qq target count value", 1, i64::MAX),
        OF_QUORUM,
        true,
    ),
];

/// The parts of a policy beside its name and pattern.
pub(super) struct PolicyDefinition {
    pub(super) scope: PolicyScope,
    pub(super) settings: PolicySettings,
    pub(super) priority: i32,
    /// `apply-to` and the definition, as JSON.
    pub(super) stored: Bytes,
}

impl PolicyDefinition {
    /// Reads a policy. The error is the reason.
    pub(super) fn read(kind: PolicyKind, fields: &Fields) -> Result<Self, String> {
        let priority = priority(fields.get("priority"))?;
        let apply_to = match fields.get("apply-to") {
            None | Some(Value::Null) => "all",
            Some(Value::String(text)) => text,
            Some(other) => return Err(format!("apply-to should be binary, actually was {}", term(other))),
        };
        let mut scope = scope(apply_to)?;
        let definition = match fields.get("definition") {
            Some(Value::Object(definition)) if !definition.is_empty() => definition,
            Some(Value::Object(_)) => return Err("no policy provided".to_owned()),
            other => {
                let shown = other.map(term).unwrap_or_default();
                return Err(format!("definition should be an object, actually was {shown}"));
            }
        };
        let mut unknown = Vec::new();
        for (name, value) in definition {
            if let Some(key) = Key::of(kind, name) {
                key.check(value)?;
                scope.plain &= key.of.plain;
                scope.two_priorities &= key.of.two_priorities;
            } else {
                unknown.push(format!("{{<<\"{name}\">>,{}}}", term(value)));
            }
        }
        if !unknown.is_empty() {
            let unknown = unknown.join(",");
            return Err(format!("[{unknown}] are not recognised policy settings"));
        }
        let stored = json!({ "apply-to": apply_to, "definition": definition });
        Ok(Self {
            scope,
            settings: settings(definition),
            priority,
            stored: stored.to_string().into(),
        })
    }
}

fn priority(value: Option<&Value>) -> Result<i32, String> {
    let Some(value) = value else { return Ok(0) };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a fraction, or far beyond all priorities"
    )]
    let number = value
        .as_i64()
        .or_else(|| value.as_f64().map(|number| number as i64));
    let number =
        number.ok_or_else(|| format!("priority should be a number, actually was {}", term(value)))?;
    Ok(i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX }))
}

fn scope(apply_to: &str) -> Result<PolicyScope, String> {
    match apply_to {
        "all" | "queues" => Ok(OF_QUEUES),
        "classic_queues" => Ok(OF_CLASSIC),
        "quorum_queues" => Ok(OF_QUORUM),
        "streams" | "exchanges" => Err(format!("apply-to '{apply_to}': policies are for queues here")),
        other => Err(format!(
            "apply-to '{other}' unrecognised; should be one of: 'queues', 'classic_queues',  'quorum_queues', or 'all'"
        )),
    }
}

/// Returns false for a policy whose keys, or whose kinds of things, are not served here.
pub(super) fn is_served(kind: PolicyKind, policy: &Value) -> bool {
    let apply_to = policy.get("apply-to").and_then(Value::as_str);
    let definition = policy.get("definition").and_then(Value::as_object);
    let is_known =
        |definition: &Map<String, Value>| definition.keys().all(|name| Key::of(kind, name).is_some());
    !matches!(apply_to, Some("streams" | "exchanges")) && definition.is_none_or(is_known)
}

impl Key {
    /// Returns the key that a policy may have under a name.
    fn of(kind: PolicyKind, name: &str) -> Option<&'static Self> {
        let mut known = KEYS.iter();
        known.find(|key| key.name == name && (key.is_of_operators || kind == PolicyKind::User))
    }

    fn check(&self, value: &Value) -> Result<(), String> {
        let (what, is_good) = match self.kind {
            Kind::Number { what, min, max } => {
                let number = value.as_i64();
                (what, number.is_some_and(|number| (min..=max).contains(&number)))
            }
            Kind::Text { what } => (what, value.is_string()),
            Kind::Word { what, words } => (what, value.as_str().is_some_and(|word| words.contains(&word))),
        };
        if is_good {
            Ok(())
        } else {
            Err(format!("{} is not a valid {what}", term(value)))
        }
    }
}

/// Returns the settings of a definition that was checked.
fn settings(definition: &Map<String, Value>) -> PolicySettings {
    let number = |name| definition.get(name).and_then(Value::as_u64);
    let text = |name| definition.get(name).and_then(Value::as_str);
    let limit = definition.get("delivery-limit").and_then(Value::as_i64);
    PolicySettings {
        ttl_ms: number("message-ttl"),
        expires_ms: number("expires"),
        length_max: number("max-length"),
        bytes_max: number("max-length-bytes"),
        overflow: text("overflow").map(|word| match word {
            "reject-publish" => Overflow::RejectPublish,
            "reject-publish-dlx" => Overflow::RejectPublishDeadLetter,
            _ => Overflow::DropHead,
        }),
        dead_letter_exchange: text("dead-letter-exchange").map(Into::into),
        dead_letter_key: text("dead-letter-routing-key").map(Into::into),
        delivery_limit: limit.map(|limit| match u64::try_from(limit) {
            Ok(limit) => DeliveryLimit::Returns(u32::try_from(limit).unwrap_or(u32::MAX)),
            Err(_) => DeliveryLimit::None,
        }),
    }
}

/// Returns `apply-to` and the definition of a policy, which may be of another front end.
pub(super) fn shown(policy: &NewPolicy) -> (Value, Value) {
    if let Ok(Value::Object(mut stored)) = serde_json::from_slice(&policy.definition)
        && let (Some(apply_to), Some(definition)) = (stored.remove("apply-to"), stored.remove("definition"))
    {
        return (apply_to, definition);
    }
    let apply_to = match (policy.scope.plain, policy.scope.two_priorities) {
        (true, false) => "classic_queues",
        (false, true) => "quorum_queues",
        _ => "queues",
    };
    let settings = &policy.settings;
    let mut definition = Map::new();
    let mut add =
        |name: &str, value: Option<Value>| value.map(|value| definition.insert(name.to_owned(), value));
    add("message-ttl", settings.ttl_ms.map(Value::from));
    add("expires", settings.expires_ms.map(Value::from));
    add("max-length", settings.length_max.map(Value::from));
    add("max-length-bytes", settings.bytes_max.map(Value::from));
    let overflow = settings.overflow.map(|overflow| match overflow {
        Overflow::DropHead => "drop-head",
        Overflow::RejectPublish => "reject-publish",
        Overflow::RejectPublishDeadLetter => "reject-publish-dlx",
    });
    add("overflow", overflow.map(Value::from));
    let text = |text: &bytestring::ByteString| json!(&**text);
    add(
        "dead-letter-exchange",
        settings.dead_letter_exchange.as_ref().map(text),
    );
    add(
        "dead-letter-routing-key",
        settings.dead_letter_key.as_ref().map(text),
    );
    let limit = settings.delivery_limit.map(|limit| match limit {
        DeliveryLimit::Returns(count) => json!(count),
        DeliveryLimit::None => json!(-1),
    });
    add("delivery-limit", limit);
    (json!(apply_to), Value::Object(definition))
}

/// Returns the definition that holds: that of a policy, within that of an operator policy.
pub(super) fn effective(mut user: Map<String, Value>, operator: Map<String, Value>) -> Map<String, Value> {
    for (name, value) in operator {
        let smaller = user.get(&name).and_then(|own| {
            let is_smaller = own.as_i64()? < value.as_i64()?;
            // A limit below 0 is none.
            (is_smaller && own.as_i64()? >= 0).then(|| own.clone())
        });
        user.insert(name, smaller.unwrap_or(value));
    }
    user
}

/// Prints a value as RabbitMQ does in its refusals.
pub(super) fn term(value: &Value) -> String {
    match value {
        Value::String(text) => format!("<<\"{text}\">>"),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(term).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("<<\"{name}\">> => {}", term(value)))
                .collect();
            format!("#{{{}}}", fields.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: PolicyKind, apply_to: &str, definition: &Value) -> Result<PolicyDefinition, String> {
        let fields = json!({ "pattern": "x", "apply-to": apply_to, "definition": definition });
        let Value::Object(fields) = fields else {
            unreachable!()
        };
        PolicyDefinition::read(kind, &Fields(fields))
    }

    #[test]
    fn definitions_become_settings_and_are_shown_as_they_came() {
        let definition = json!({
            "message-ttl": 5, "expires": 6, "max-length": 7, "max-length-bytes": 8, "overflow": "reject-publish",
            "dead-letter-exchange": "dlx", "dead-letter-routing-key": "key", "queue-mode": "lazy",
        });
        let read = read(PolicyKind::User, "queues", &definition).unwrap();
        assert_eq!(read.scope, OF_CLASSIC, "queue-mode is of classic queues");
        let expected = PolicySettings {
            ttl_ms: Some(5),
            expires_ms: Some(6),
            length_max: Some(7),
            bytes_max: Some(8),
            overflow: Some(Overflow::RejectPublish),
            dead_letter_exchange: Some("dlx".into()),
            dead_letter_key: Some("key".into()),
            delivery_limit: None,
        };
        assert_eq!(read.settings, expected);
        let mut new = NewPolicy {
            name: "p".into(),
            pattern: "x".into(),
            priority: 0,
            scope: read.scope,
            settings: read.settings,
            definition: read.stored,
        };
        assert_eq!(shown(&new), (json!("queues"), definition.clone()));
        // One of another front end has no keys without effect.
        new.definition = Bytes::new();
        let mut without = definition;
        without.as_object_mut().unwrap().remove("queue-mode");
        assert_eq!(shown(&new), (json!("classic_queues"), without));
    }

    #[test]
    fn a_limit_of_deliveries_is_for_quorum_queues() {
        let limit = |limit| read(PolicyKind::User, "all", &json!({ "delivery-limit": limit })).unwrap();
        assert_eq!(limit(3).scope, OF_QUORUM);
        assert_eq!(limit(3).settings.delivery_limit, Some(DeliveryLimit::Returns(3)));
        assert_eq!(limit(-1).settings.delivery_limit, Some(DeliveryLimit::None));
    }

    #[test]
    fn definitions_without_sense_are_refused_with_the_key_or_the_value() {
        for (kind, apply_to, definition, expected) in [
            (PolicyKind::User, "all", json!({}), "no policy provided"),
            (
                PolicyKind::User,
                "all",
                json!({"max-age": "1D"}),
                "[{<<\"max-age\">>,<<\"1D\">>}] are not",
            ),
            (
                PolicyKind::User,
                "all",
                json!({"max-length": -1}),
                "-1 is not a valid maximum length",
            ),
            (
                PolicyKind::User,
                "all",
                json!({"max-length": "7"}),
                "<<\"7\">> is not",
            ),
            (
                PolicyKind::User,
                "all",
                json!({"expires": 0}),
                "0 is not a valid queue expiry",
            ),
            (
                PolicyKind::User,
                "all",
                json!({"overflow": "x"}),
                "<<\"x\">> is not",
            ),
            (
                PolicyKind::User,
                "streams",
                json!({"max-length-bytes": 1}),
                "apply-to",
            ),
            (
                PolicyKind::User,
                "moons",
                json!({"max-length": 1}),
                "apply-to 'moons' unrecognised",
            ),
            (
                PolicyKind::Operator,
                "all",
                json!({"dead-letter-exchange": "x"}),
                "[{<<\"dead-letter-exchange\">>,<<\"x\">>}] are not",
            ),
            (PolicyKind::User, "all", json!([1]), "definition"),
        ] {
            let why = read(kind, apply_to, &definition).err().unwrap();
            assert!(why.contains(expected), "{definition}: {why}");
        }
    }

    #[test]
    fn an_operator_policy_bounds_what_is_shown() {
        let object = |value: Value| value.as_object().cloned().unwrap();
        let user =
            object(json!({"max-length": 5, "message-ttl": 9, "overflow": "drop-head", "delivery-limit": -1}));
        let operator = object(
            json!({"max-length": 7, "message-ttl": 3, "overflow": "reject-publish",
                                     "delivery-limit": 4}),
        );
        let expected =
            json!({"max-length": 5, "message-ttl": 3, "overflow": "reject-publish", "delivery-limit": 4});
        assert_eq!(Value::Object(effective(user, operator)), expected);
    }
}
