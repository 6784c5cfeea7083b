//! Definition of a queue, and its stored format.
//!
//! Key: the queue's id (u64 big-endian), which is the id of its first log. Numbers have seven bits per byte,
//! low bits first. Texts and bytes are preceded by their length as a number.
//!
//! ```text
//! u8 version = 1, u8 flags (1 durable, 2 exclusive, 4 auto-delete, 8 over a topic, 16 of a client,
//!     32 with arguments),
//! text namespace, text name
//! number logs, each: u8 priority, number log
//! number settings, each: u8 tag (constants from `TTL` on), number or text
//! bytes arguments: only with such
//! u128 topic, little-endian: only over a topic; the queue's own log is then empty and only gives it its id
//! ```

use bytes::Bytes;
use bytestring::ByteString;
use stafett_model::{LogId, Namespace, read_number, write_number};
use stafett_queue::{DeadLetter, Overflow, QueueSettings};
use stafett_topics::TopicId;

/// Owner of exclusive queues: one connection. Ids are not reused while the process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u64);

/// Id of a queue. A queue recreated under the same name has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

/// Parameters of a queue declaration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declare {
    /// True if the queue survives a restart, with its persistent messages.
    pub durable: bool,
    /// Sole user of the queue, which is deleted with it.
    pub exclusive: Option<OwnerId>,
    /// True if the queue is deleted with its last consumer.
    pub auto_delete: bool,
    /// True if the queue is that of a registered client.
    pub personal: bool,
    pub settings: QueueSettings,
    /// Declaration in the format of the front end, if it has one: compared and returned, opaque to the core.
    pub arguments: Option<Bytes>,
    /// Stored topic whose messages are those of the queue.
    pub over: Option<TopicQueueSpec>,
}

impl Declare {
    /// Returns the definition of the queue, with its first log.
    pub(super) fn definition(self, namespace: &Namespace, name: &str, log: LogId) -> Definition {
        Definition {
            namespace: namespace.clone(),
            name: name.into(),
            durable: self.durable,
            exclusive: self.exclusive.is_some(),
            auto_delete: self.auto_delete,
            personal: self.personal,
            settings: self.settings,
            arguments: self.arguments,
            logs: vec![(0, log)],
            over: self.over.map(|over| over.topic),
        }
    }
}

/// Stored topic for a queue over a topic. Such a queue has no messages of its own, and changes nothing in the
/// topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicQueueSpec {
    pub topic: TopicId,
    /// True to begin after the messages that exist when it is declared; false to begin with the oldest one.
    pub from_end: bool,
}

/// Stored form of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the stored form")]
pub(crate) struct Definition {
    pub(crate) namespace: Namespace,
    pub(crate) name: ByteString,
    pub(crate) durable: bool,
    pub(crate) exclusive: bool,
    pub(crate) auto_delete: bool,
    pub(crate) personal: bool,
    pub(crate) settings: QueueSettings,
    pub(crate) arguments: Option<Bytes>,
    /// Logs by priority.
    pub(crate) logs: Vec<(u8, LogId)>,
    pub(crate) over: Option<TopicId>,
}

const VERSION: u8 = 1;
const DURABLE: u8 = 1;
const EXCLUSIVE: u8 = 2;
const AUTO_DELETE: u8 = 4;
const OVER: u8 = 8;
const PERSONAL: u8 = 16;
const ARGUMENTS: u8 = 32;

impl Definition {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(self.durable, DURABLE)
            | flag(self.exclusive, EXCLUSIVE)
            | flag(self.auto_delete, AUTO_DELETE)
            | flag(self.over.is_some(), OVER)
            | flag(self.personal, PERSONAL)
            | flag(self.arguments.is_some(), ARGUMENTS);
        let mut out = vec![VERSION, flags];
        put(self.namespace.as_str().as_bytes(), &mut out);
        put(self.name.as_bytes(), &mut out);
        write_number(self.logs.len() as u64, &mut out);
        for (priority, log) in &self.logs {
            out.push(*priority);
            write_number(log.0, &mut out);
        }
        encode_settings(&self.settings, &mut out);
        if let Some(arguments) = &self.arguments {
            put(arguments, &mut out);
        }
        if let Some(topic) = self.over {
            out.extend_from_slice(&topic.0.to_le_bytes());
        }
        out
    }

    /// Decodes a stored definition. `None` if this version does not know the format.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let ([VERSION, flags], mut rest) = bytes.split_first_chunk::<2>()? else {
            return None;
        };
        let namespace = Namespace::new(text(&mut rest)?);
        let name = text(&mut rest)?.into();
        let count = number(&mut rest)?;
        let logs = (0..count)
            .map(|_| Some((byte(&mut rest)?, LogId(number(&mut rest)?))))
            .collect::<Option<Vec<_>>>()?;
        let settings = decode_settings(&mut rest)?;
        let arguments = match flags & ARGUMENTS {
            0 => None,
            _ => Some(Bytes::copy_from_slice(take(&mut rest)?)),
        };
        let mut over = None;
        if flags & OVER != 0 {
            let (topic, behind) = rest.split_first_chunk()?;
            (over, rest) = (Some(TopicId(u128::from_le_bytes(*topic))), behind);
        }
        rest.is_empty().then_some(Self {
            namespace,
            name,
            durable: flags & DURABLE != 0,
            exclusive: flags & EXCLUSIVE != 0,
            auto_delete: flags & AUTO_DELETE != 0,
            personal: flags & PERSONAL != 0,
            settings,
            arguments,
            logs,
            over,
        })
    }
}

const TTL: u8 = 1;
const EXPIRES: u8 = 2;
const LENGTH: u8 = 3;
const BYTES: u8 = 4;
const OVERFLOW: u8 = 5;
const DEAD_LETTER: u8 = 6;
const DEAD_LETTER_KEY: u8 = 7;
const PRIORITY: u8 = 8;
const DELIVERY_LIMIT: u8 = 9;
const SINGLE_ACTIVE: u8 = 10;
const DURABILITY: u8 = 11;
const RETAIN: u8 = 12;
const TRAITS: u8 = 13;
/// Flags in the number of `TRAITS`.
const TWO_PRIORITIES: u64 = 1;
const ACTIVE_YIELDS: u64 = 2;
const KEEPS_TRANSIENT: u64 = 4;

fn encode_settings(settings: &QueueSettings, out: &mut Vec<u8>) {
    let overflow = match settings.overflow {
        Overflow::DropHead => None,
        Overflow::RejectPublish => Some(1),
        Overflow::RejectPublishDeadLetter => Some(2),
    };
    let numbers = [
        (TTL, settings.ttl_ms),
        (EXPIRES, settings.expires_ms),
        (LENGTH, settings.length_max),
        (BYTES, settings.bytes_max),
        (OVERFLOW, overflow),
        (PRIORITY, non_zero(settings.priority_max.into())),
        (DELIVERY_LIMIT, settings.delivery_limit.map(u64::from)),
        (SINGLE_ACTIVE, non_zero(settings.single_active_consumer.into())),
        (RETAIN, non_zero(settings.retain)),
        (TRAITS, non_zero(traits(settings))),
    ];
    let dead_letter = settings.dead_letter.as_ref();
    let texts = [
        (DEAD_LETTER, dead_letter.map(|to| to.exchange.to_string())),
        (
            DEAD_LETTER_KEY,
            dead_letter
                .and_then(|to| to.routing_key.as_ref())
                .map(ToString::to_string),
        ),
        (DURABILITY, settings.durability.map(|level| level.to_string())),
    ];
    let numbers: Vec<_> = numbers
        .into_iter()
        .filter_map(|(which, value)| Some((which, value?)))
        .collect();
    let texts: Vec<_> = texts
        .into_iter()
        .filter_map(|(which, value)| Some((which, value?)))
        .collect();
    write_number((numbers.len() + texts.len()) as u64, out);
    for (which, value) in numbers {
        out.push(which);
        write_number(value, out);
    }
    for (which, value) in texts {
        out.push(which);
        put(value.as_bytes(), out);
    }
}

fn traits(settings: &QueueSettings) -> u64 {
    let flag = |set, flag| if set { flag } else { 0 };
    flag(settings.two_priorities, TWO_PRIORITIES)
        | flag(settings.active_yields, ACTIVE_YIELDS)
        | flag(settings.keeps_transient, KEEPS_TRANSIENT)
}

fn decode_settings(rest: &mut &[u8]) -> Option<QueueSettings> {
    let mut settings = QueueSettings::default();
    for _ in 0..number(rest)? {
        match byte(rest)? {
            TTL => settings.ttl_ms = Some(number(rest)?),
            EXPIRES => settings.expires_ms = Some(number(rest)?),
            LENGTH => settings.length_max = Some(number(rest)?),
            BYTES => settings.bytes_max = Some(number(rest)?),
            OVERFLOW => {
                settings.overflow = match number(rest)? {
                    1 => Overflow::RejectPublish,
                    2 => Overflow::RejectPublishDeadLetter,
                    _ => return None,
                }
            }
            DEAD_LETTER => {
                settings.dead_letter = Some(DeadLetter {
                    exchange: text(rest)?.into(),
                    routing_key: None,
                });
            }
            DEAD_LETTER_KEY => settings.dead_letter.as_mut()?.routing_key = Some(text(rest)?.into()),
            PRIORITY => settings.priority_max = u8::try_from(number(rest)?).ok()?,
            DELIVERY_LIMIT => settings.delivery_limit = Some(u32::try_from(number(rest)?).ok()?),
            SINGLE_ACTIVE => settings.single_active_consumer = number(rest)? != 0,
            DURABILITY => settings.durability = Some(text(rest)?.parse().ok()?),
            RETAIN => settings.retain = number(rest)?,
            TRAITS => {
                let traits = number(rest)?;
                settings.two_priorities = traits & TWO_PRIORITIES != 0;
                settings.active_yields = traits & ACTIVE_YIELDS != 0;
                settings.keeps_transient = traits & KEEPS_TRANSIENT != 0;
            }
            _ => return None,
        }
    }
    Some(settings)
}

fn non_zero(value: u64) -> Option<u64> {
    (value != 0).then_some(value)
}

fn put(bytes: &[u8], out: &mut Vec<u8>) {
    write_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (value, behind) = read_number(rest)?;
    *rest = behind;
    Some(value)
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (first, behind) = rest.split_first()?;
    *rest = behind;
    Some(*first)
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number(rest)?).ok()?;
    let (front, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(front)
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take(rest)?).ok()
}

#[cfg(test)]
mod tests {
    use stafett_model::Durability;

    use super::*;

    #[test]
    fn a_definition_reads_back_and_cut_ones_do_not() {
        let settings = QueueSettings {
            ttl_ms: Some(0),
            expires_ms: Some(7),
            length_max: Some(1),
            bytes_max: Some(u64::MAX),
            overflow: Overflow::RejectPublishDeadLetter,
            dead_letter: Some(DeadLetter {
                exchange: "".into(),
                routing_key: Some("dead".into()),
            }),
            priority_max: 9,
            delivery_limit: Some(20),
            single_active_consumer: true,
            two_priorities: true,
            active_yields: true,
            keeps_transient: true,
            durability: Some(Durability::Os),
            retain: 5,
        };
        let full = Definition {
            namespace: Namespace::default(),
            name: "orders".into(),
            durable: true,
            exclusive: false,
            auto_delete: true,
            personal: true,
            settings,
            arguments: Some(Bytes::from_static(b"args")),
            logs: vec![(0, LogId(7)), (9, LogId(300))],
            over: Some(TopicId(u128::MAX - 5)),
        };
        let plain = Definition {
            settings: QueueSettings::default(),
            personal: false,
            over: None,
            ..full.clone()
        };
        for definition in [full, plain] {
            let bytes = definition.encode();
            assert_eq!(Definition::decode(&bytes), Some(definition));
            for cut in 0..bytes.len() {
                assert_eq!(Definition::decode(&bytes[..cut]), None, "cut at {cut}");
            }
        }
    }
}
