//! Messages as answers show them, and the choice of messages by a query.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use stafett_delivery::{DeliveryId, LeaseId, SearchOrder};
use stafett_http::{Parameter, Problem, Query};
use stafett_messaging::queues::{Narrow, Queue, QueueId};
use stafett_model::{Death, DeathReason, StoredMessage};

use crate::content::{Form, Text};
use crate::mask::{MASK, Masks};
use crate::time::rfc3339;

/// Record headers with a meaning: the same names as those of AMQP's properties.
pub(crate) const SENDER: &str = "user-id";
pub(crate) const CONTEXT: &str = "correlation-id";
pub(crate) const REPLY_TO: &str = "reply-to";
pub(crate) const CONTENT_TYPE: &str = "content-type";
pub(crate) const MESSAGE_ID: &str = "message-id";

/// Bound on the shown bytes of a message's content and of its headers, where it is only looked at.
pub(crate) const SHOWN_BYTES_MAX: usize = 256 << 10;
/// Prefix of query keys that name a message header.
const HEADER: &str = "header.";

/// A message of a queue.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Message")]
pub(crate) struct MessageOf {
    /// Queue, lane and offset: names this message for ever.
    id: String,
    #[serde(rename = "message_id")]
    own_id: Option<String>,
    queue: String,
    namespace: String,
    /// `ready`, `in_flight` or `settled`.
    state: &'static str,
    sender: Option<String>,
    priority: u8,
    /// Number that ties a response to its request.
    context: Option<u64>,
    /// Queue for responses.
    reply_to: Option<String>,
    exchange: String,
    routing_key: String,
    sent_at: Option<String>,
    expires_at: Option<String>,
    /// Number of times that the message returned to the queue.
    delivery_count: u32,
    /// True if the message may have been delivered before.
    redelivered: bool,
    /// A text, or JSON if the content type says so. Null if it is neither.
    #[schemars(with = "Option<serde_json::Value>")]
    pub(crate) content: Option<Box<RawValue>>,
    content_base64: Option<String>,
    content_type: Option<String>,
    /// Bytes of the content.
    bytes: usize,
    /// Key of a record, or of a message that goes to a topic.
    key: Option<Text>,
    headers: BTreeMap<String, Option<Text>>,
    /// True if the content or the headers are too large to be shown whole.
    cut: bool,
    /// Dead-letterings per queue and reason, the latest first.
    deaths: Vec<DeathOf>,
    /// Lease under which the message is in flight.
    lease: Option<String>,
    /// Holder of a message in flight, where it is shown alone or in the list of those.
    pub(crate) holder: Option<HolderOf>,
}

/// Holder of a message in flight.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Holder")]
pub(crate) enum HolderOf {
    /// Id of a consumer.
    Consumer(String),
    /// Time at which the lease ends.
    LeaseUntil(String),
    /// `request`: one in progress, or a channel that took it without a consumer; or `consumer that has
    /// ended`.
    By(&'static str),
}

/// Dead-letterings of a message from one queue for one reason.
#[derive(Debug, Serialize, JsonSchema)]
struct DeathOf {
    queue: String,
    /// `expired`, `length`, `rejected` or `delivery_limit`.
    reason: &'static str,
    count: u64,
    first_at: String,
    exchange: String,
    routing_key: String,
}

/// Properties of a message that are not its own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shown {
    pub(crate) state: &'static str,
    pub(crate) delivery_count: u32,
    pub(crate) redelivered: bool,
    pub(crate) lease: Option<LeaseId>,
    pub(crate) form: Form,
    /// True if all of its content is shown, however large.
    pub(crate) is_whole: bool,
}

impl MessageOf {
    pub(crate) fn of(queue: &Queue, id: DeliveryId, message: &StoredMessage, shown: Shown) -> Self {
        let content_type = text(message, CONTENT_TYPE);
        let value = message.value();
        let (headers, mut cut) = headers(message, shown.is_whole);
        let front = value.get(..SHOWN_BYTES_MAX).filter(|_| !shown.is_whole);
        cut |= front.is_some();
        let form = match front {
            // A part of JSON is no JSON.
            Some(_) if shown.form != Form::Base64 => Form::Text,
            _ => shown.form,
        };
        let (content, content_base64) = form.show(front.unwrap_or(value), content_type.as_deref());
        let ttl = [queue.settings().ttl_ms, message.ttl_ms()];
        let ttl = ttl.into_iter().flatten().min();
        let expires = ttl.and_then(|ms| message.arrived_ms().checked_add_unsigned(ms));
        let sent = Some(message.timestamp_ms()).filter(|ms| *ms >= 0);
        Self {
            id: message_id(queue.id, id),
            own_id: text(message, MESSAGE_ID),
            queue: queue.name.to_string(),
            namespace: queue.namespace.to_string(),
            state: shown.state,
            sender: text(message, SENDER),
            priority: message.priority(),
            context: context(message),
            reply_to: text(message, REPLY_TO),
            exchange: message.exchange().to_owned(),
            routing_key: message.routing_key().to_owned(),
            sent_at: sent.map(rfc3339),
            expires_at: expires.map(rfc3339),
            delivery_count: shown.delivery_count,
            redelivered: shown.redelivered,
            content,
            content_base64,
            content_type,
            bytes: value.len(),
            key: message.key().map(|key| {
                Text::of(
                    key.get(..SHOWN_BYTES_MAX)
                        .filter(|_| !shown.is_whole)
                        .unwrap_or(key),
                )
            }),
            headers,
            cut,
            deaths: message.deaths().iter().map(DeathOf::of).collect(),
            lease: shown.lease.map(lease_text),
            holder: None,
        }
    }
}

impl MessageOf {
    /// Masks named fields and headers.
    pub(crate) fn masked(mut self, masks: &Masks) -> Self {
        if masks.is_empty() {
            return self;
        }
        masks.mask(&mut self.content, &mut self.content_base64, self.cut);
        for (name, value) in &mut self.headers {
            if masks.covers(name) && value.is_some() {
                *value = Some(Text::of(MASK.as_bytes()));
            }
        }
        // Headers with fields of their own have two names.
        for (header, field, value) in [
            (SENDER, "sender", &mut self.sender),
            (REPLY_TO, "reply_to", &mut self.reply_to),
            (CONTENT_TYPE, "content_type", &mut self.content_type),
            (MESSAGE_ID, "message_id", &mut self.own_id),
        ] {
            if (masks.covers(header) || masks.covers(field)) && value.is_some() {
                *value = Some(MASK.to_owned());
            }
        }
        if masks.covers(CONTEXT) || masks.covers("context") {
            // A number has no other form.
            self.context = None;
        }
        if masks.covers("key") && self.key.is_some() {
            self.key = Some(Text::of(MASK.as_bytes()));
        }
        self
    }
}

impl DeathOf {
    fn of(death: &Death) -> Self {
        Self {
            queue: death.queue.to_string(),
            reason: reason(death.reason),
            count: death.count,
            first_at: rfc3339(death.first_ms),
            exchange: death.exchange.to_string(),
            routing_key: death.routing_key.to_string(),
        }
    }
}

fn reason(reason: DeathReason) -> &'static str {
    match reason {
        DeathReason::Expired => "expired",
        DeathReason::Length => "length",
        DeathReason::Rejected => "rejected",
        DeathReason::DeliveryLimit => "delivery_limit",
    }
}

/// Returns the sender's headers, without those that have a field, and true if some are left out.
fn headers(message: &StoredMessage, is_whole: bool) -> (BTreeMap<String, Option<Text>>, bool) {
    let mut bytes = 0;
    let mut headers = BTreeMap::new();
    let has_context = context(message).is_some();
    for (name, value) in message.headers() {
        let has_field = match name {
            b"user-id" | b"reply-to" | b"content-type" | b"message-id" => true,
            b"correlation-id" => has_context,
            _ => name.starts_with(b"stafett."),
        };
        if has_field {
            continue;
        }
        bytes += name.len() + value.map_or(0, <[u8]>::len);
        if !is_whole && bytes > SHOWN_BYTES_MAX {
            return (headers, true);
        }
        headers.insert(String::from_utf8_lossy(name).into_owned(), value.map(Text::of));
    }
    (headers, false)
}

fn text(message: &StoredMessage, header: &str) -> Option<String> {
    let value = message.header(header.as_bytes())??;
    Some(String::from_utf8_lossy(value).into_owned())
}

pub(crate) fn context(message: &StoredMessage) -> Option<u64> {
    let value = message.header(CONTEXT.as_bytes())??;
    let number: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    // Only the plain form: a search by the number finds no other.
    let is_plain = value == b"0" || value.first().is_some_and(|first| (b'1'..=b'9').contains(first));
    is_plain.then_some(number)
}

pub(crate) fn message_id(queue: QueueId, id: DeliveryId) -> String {
    format!("{}-{}-{}", queue.0, id.lane, id.offset)
}

/// Reads the id of a message of this queue. `None` if it is of another one, or malformed.
pub(crate) fn parse_message_id(queue: QueueId, text: &str) -> Option<DeliveryId> {
    let mut parts = text.split('-');
    let mut part = || parts.next()?.parse::<u64>().ok();
    let (of, lane, offset) = (part()?, part()?, part()?);
    let id = DeliveryId {
        lane: u32::try_from(lane).ok()?,
        offset,
    };
    (of == queue.0 && parts.next().is_none()).then_some(id)
}

pub(crate) fn lease_text(lease: LeaseId) -> String {
    let DeliveryId { lane, offset } = lease.message;
    format!("{lane}-{offset}-{:016x}", lease.nonce)
}

/// Reads a lease. `None` if it is malformed.
pub(crate) fn parse_lease(text: &str) -> Option<LeaseId> {
    let mut parts = text.split('-');
    let message = DeliveryId {
        lane: parts.next()?.parse().ok()?,
        offset: parts.next()?.parse().ok()?,
    };
    let nonce = u64::from_str_radix(parts.next().filter(|it| it.len() == 16)?, 16).ok()?;
    parts.next().is_none().then_some(LeaseId { message, nonce })
}

/// Choice of messages by sender, context, priority, headers and deaths.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    sender: Option<String>,
    context: Option<u64>,
    priority: Option<u8>,
    priority_min: Option<u8>,
    headers: Vec<(String, String)>,
    died_in: Option<String>,
    died_of: Option<String>,
}

impl Choice {
    /// Keys of a query.
    pub(crate) const KEYS: [Parameter; 9] = [
        Parameter::text("sender", "Only messages of this sender."),
        Parameter::text("context", "Only messages with this context, a number."),
        Parameter::number("priority", 255, "Only messages of this priority."),
        Parameter::number("priority_min", 255, "Only messages of at least this priority."),
        Parameter::text(
            HEADER,
            "Only messages with this value of the header NAME. May be there for several names.",
        ),
        Parameter::text("died_in", "Only dead letters of this queue."),
        Parameter::text(
            "died_of",
            "Only messages that died of this reason: expired, length, rejected or delivery_limit.",
        ),
        Parameter::text(
            "order",
            "priority, the default: the highest first, and of equals the oldest; or oldest.",
        ),
        Parameter::text(
            "as",
            "Form of the content: auto, the default, text, json or base64.",
        ),
    ];

    pub(crate) fn of(query: &Query) -> Result<Self, Problem> {
        let priority = |key| {
            let number = query.number(key, u8::MAX.into())?;
            Ok::<_, Problem>(number.and_then(|number| u8::try_from(number).ok()))
        };
        let owned = |key| query.get(key).map(str::to_owned);
        let headers = query.pairs().filter_map(|(key, value)| {
            let name = key.strip_prefix(HEADER)?;
            Some((name.to_owned(), value.to_owned()))
        });
        Ok(Self {
            sender: owned("sender"),
            context: query.number("context", u64::MAX)?,
            priority: priority("priority")?,
            priority_min: priority("priority_min")?,
            headers: headers.collect(),
            died_in: owned("died_in"),
            died_of: owned("died_of"),
        })
    }

    /// Chooses the messages of a context.
    pub(crate) fn of_context(context: u64) -> Self {
        Self {
            context: Some(context),
            ..Self::default()
        }
    }

    /// Returns properties that all messages of the choice have; `number` gets the text of its context.
    pub(crate) fn narrow<'a>(&'a self, number: &'a mut String) -> Narrow<'a> {
        let mut headers = self.headers.iter();
        let header = if let Some(context) = self.context {
            *number = context.to_string();
            Some((CONTEXT, number.as_bytes()))
        } else if let Some(sender) = &self.sender {
            Some((SENDER, sender.as_bytes()))
        } else {
            headers
                .next()
                .map(|(name, value)| (name.as_str(), value.as_bytes()))
        };
        let lowest = self.priority.max(self.priority_min);
        let highest = self.priority.unwrap_or(u8::MAX);
        Narrow {
            priorities: lowest.map(|lowest| (lowest, highest.max(lowest))),
            header,
        }
    }

    /// Returns true if it chooses all messages.
    pub(crate) fn is_all(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn wants(&self, message: &StoredMessage) -> bool {
        let has =
            |name: &str, value: &str| message.header(name.as_bytes()).flatten() == Some(value.as_bytes());
        let died = |death: &Death| {
            self.died_in.as_ref().is_none_or(|queue| *queue == *death.queue)
                && self.died_of.as_ref().is_none_or(|of| of == reason(death.reason))
        };
        self.priority
            .is_none_or(|priority| message.priority() == priority)
            && self.priority_min.is_none_or(|min| message.priority() >= min)
            && self.sender.as_ref().is_none_or(|sender| has(SENDER, sender))
            && self.context.is_none_or(|number| context(message) == Some(number))
            && self.headers.iter().all(|(name, value)| has(name, value))
            && (self.died_in.is_none() && self.died_of.is_none() || message.deaths().iter().any(died))
    }
}

pub(crate) fn order(query: &Query) -> Result<SearchOrder, Problem> {
    match query.get("order") {
        None | Some("priority") => Ok(SearchOrder::Priority),
        Some("oldest") => Ok(SearchOrder::Oldest),
        Some(other) => Err(Problem::bad_request(format!(
            "order is priority or oldest, not {other:?}"
        ))),
    }
}

/// Returns the text of a place in a search, for `after`.
pub(crate) fn place_text(place: &[DeliveryId]) -> String {
    let parts = place.iter().map(|id| format!("{}.{}", id.lane, id.offset));
    parts.collect::<Vec<_>>().join("_")
}

/// Reads `after`.
pub(crate) fn after(query: &Query) -> Result<Vec<DeliveryId>, Problem> {
    let part = |text: &str| {
        let (lane, offset) = text.split_once('.')?;
        Some(DeliveryId {
            lane: lane.parse().ok()?,
            offset: offset.parse().ok()?,
        })
    };
    let Some(text) = query.get("after") else {
        return Ok(Vec::new());
    };
    let place: Option<Vec<DeliveryId>> = text.split('_').map(part).collect();
    place.ok_or_else(|| Problem::bad_request("after is the next of an answer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_leases_read_back_and_others_do_not() {
        let id = DeliveryId {
            lane: 7,
            offset: 4711,
        };
        let text = message_id(QueueId(12), id);
        assert_eq!(text, "12-7-4711");
        assert_eq!(parse_message_id(QueueId(12), &text), Some(id));
        for bad in [
            "",
            "12-7",
            "12-7-4711-0",
            "13-7-4711",
            "12--1",
            "12-7-x",
            "12-4294967296-0",
        ] {
            assert_eq!(parse_message_id(QueueId(12), bad), None, "{bad}");
        }
        let lease = LeaseId {
            message: id,
            nonce: 0x1f,
        };
        assert_eq!(parse_lease(&lease_text(lease)), Some(lease));
        for bad in [
            "",
            "7-4711",
            "7-4711-1f",
            "7-4711-000000000000001g",
            "7-4711-000000000000001f-",
        ] {
            assert_eq!(parse_lease(bad), None, "{bad}");
        }
    }
}
