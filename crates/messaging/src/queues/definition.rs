//! Definition of a queue, and its stored format.
//!
//! Key: the queue's id (u64 big-endian), which is the id of its first log. Numbers have seven bits per byte,
//! low bits first. Texts and bytes are preceded by their length as a number.
//!
//! ```text
//! u8 version = 1, or 2 with the time of registration,
//! u8 flags (1 durable, 2 exclusive, 4 auto-delete, 8 over a topic, 16 of a client, 32 with arguments,
//!     64 paused, 128 with changed settings),
//! text namespace, text name
//! number when the client was registered, milliseconds since 1970: only in version 2
//! number logs, each: u8 priority, number log
//! settings, and changed settings: only with such; both in the form of `stafett_queue`
//! bytes arguments: only with such
//! u128 topic, little-endian: only over a topic; the queue's own log is then empty and only gives it its id
//! ```

use bytes::Bytes;
use bytestring::ByteString;
use stafett_model::codec::{get, get_compact, get_compact_text, get_number, put_compact};
use stafett_model::{LogId, Namespace, write_number};
use stafett_queue::{ChangedSettings, QueueSettings};
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
    pub(super) fn definition(self, namespace: &Namespace, name: &str, log: LogId, now_ms: i64) -> Definition {
        let now_ms = u64::try_from(now_ms).ok();
        Definition {
            namespace: namespace.clone(),
            name: name.into(),
            durable: self.durable,
            exclusive: self.exclusive.is_some(),
            auto_delete: self.auto_delete,
            personal: self.personal,
            registered_ms: now_ms.filter(|_| self.personal),
            settings: self.settings,
            changed: ChangedSettings::default(),
            is_paused: false,
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
    /// When the client was registered, in milliseconds since 1970. `None` if the queue is no client's, or was
    /// stored by an earlier version.
    pub(crate) registered_ms: Option<u64>,
    /// As declared.
    pub(crate) settings: QueueSettings,
    pub(crate) changed: ChangedSettings,
    pub(crate) is_paused: bool,
    pub(crate) arguments: Option<Bytes>,
    /// Logs by priority.
    pub(crate) logs: Vec<(u8, LogId)>,
    pub(crate) over: Option<TopicId>,
}

const VERSION: u8 = 1;
const WITH_REGISTRATION: u8 = 2;
const DURABLE: u8 = 1;
const EXCLUSIVE: u8 = 2;
const AUTO_DELETE: u8 = 4;
const OVER: u8 = 8;
const PERSONAL: u8 = 16;
const ARGUMENTS: u8 = 32;
const PAUSED: u8 = 64;
const CHANGED: u8 = 128;

impl Definition {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(self.durable, DURABLE)
            | flag(self.exclusive, EXCLUSIVE)
            | flag(self.auto_delete, AUTO_DELETE)
            | flag(self.over.is_some(), OVER)
            | flag(self.personal, PERSONAL)
            | flag(self.arguments.is_some(), ARGUMENTS)
            | flag(self.is_paused, PAUSED)
            | flag(!self.changed.is_empty(), CHANGED);
        let version = self.registered_ms.map_or(VERSION, |_| WITH_REGISTRATION);
        let mut out = vec![version, flags];
        put_compact(self.namespace.as_str().as_bytes(), &mut out);
        put_compact(self.name.as_bytes(), &mut out);
        if let Some(ms) = self.registered_ms {
            write_number(ms, &mut out);
        }
        write_number(self.logs.len() as u64, &mut out);
        for (priority, log) in &self.logs {
            out.push(*priority);
            write_number(log.0, &mut out);
        }
        self.settings.encode(&mut out);
        if !self.changed.is_empty() {
            self.changed.encode(&mut out);
        }
        if let Some(arguments) = &self.arguments {
            put_compact(arguments, &mut out);
        }
        if let Some(topic) = self.over {
            out.extend_from_slice(&topic.0.to_le_bytes());
        }
        out
    }

    /// Decodes a stored definition. `None` if this version does not know the format.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let ([version @ (VERSION | WITH_REGISTRATION), flags], mut rest) = bytes.split_first_chunk::<2>()?
        else {
            return None;
        };
        let namespace = Namespace::new(get_compact_text(&mut rest)?);
        let name = get_compact_text(&mut rest)?.into();
        let registered_ms = match *version {
            WITH_REGISTRATION => Some(get_number(&mut rest)?),
            _ => None,
        };
        let count = get_number(&mut rest)?;
        let logs = (0..count)
            .map(|_| {
                let [priority] = get(&mut rest)?;
                Some((priority, LogId(get_number(&mut rest)?)))
            })
            .collect::<Option<Vec<_>>>()?;
        let settings = QueueSettings::decode(&mut rest)?;
        let changed = match flags & CHANGED {
            0 => ChangedSettings::default(),
            _ => ChangedSettings::decode(&mut rest)?,
        };
        // Earlier builds stored arguments without the flag, empty if the front end had none.
        let topic_bytes = if flags & OVER == 0 { 0 } else { size_of::<u128>() };
        let is_older = flags & (ARGUMENTS | CHANGED) == 0 && rest.len() > topic_bytes;
        let arguments = if is_older || flags & ARGUMENTS != 0 {
            Some(Bytes::copy_from_slice(get_compact(&mut rest)?))
                .filter(|bytes| !is_older || !bytes.is_empty())
        } else {
            None
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
            registered_ms,
            settings,
            changed,
            is_paused: flags & PAUSED != 0,
            arguments,
            logs,
            over,
        })
    }
}

#[cfg(test)]
mod tests {
    use stafett_model::Durability;
    use stafett_queue::{DeadLetter, Overflow, Setting};

    use super::*;

    fn settings() -> QueueSettings {
        QueueSettings {
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
            has_default_delivery_limit: true,
            single_active_consumer: true,
            two_priorities: true,
            active_yields: true,
            keeps_transient: true,
            durability: Some(Durability::Os),
            retain: 5,
        }
    }

    #[test]
    fn a_definition_reads_back_and_cut_ones_do_not() {
        let changed = [
            Setting::TtlMs(None),
            Setting::ExpiresMs(Some(1)),
            Setting::LengthMax(Some(0)),
            Setting::BytesMax(None),
            Setting::Overflow(Overflow::DropHead),
            Setting::DeadLetter(Some(DeadLetter {
                exchange: "dead".into(),
                routing_key: None,
            })),
            Setting::DeliveryLimit(Some(1)),
            Setting::Durability(Some(Durability::Sync)),
            Setting::Retain(9),
        ];
        let less = [
            Setting::DeadLetter(Some(DeadLetter {
                exchange: "".into(),
                routing_key: Some("".into()),
            })),
            Setting::Durability(None),
            Setting::DeliveryLimit(None),
        ];
        let full = Definition {
            namespace: Namespace::default(),
            name: "orders".into(),
            durable: true,
            exclusive: false,
            auto_delete: true,
            personal: true,
            registered_ms: Some(1_795_000_000_123),
            settings: settings(),
            changed: changed.into_iter().collect(),
            is_paused: true,
            arguments: Some(Bytes::from_static(b"args")),
            logs: vec![(0, LogId(7)), (9, LogId(300))],
            over: Some(TopicId(u128::MAX - 5)),
        };
        let other = Definition {
            changed: less.into_iter().collect(),
            ..full.clone()
        };
        let plain = Definition {
            settings: QueueSettings::default(),
            changed: [Setting::DeadLetter(None)].into_iter().collect(),
            is_paused: false,
            personal: false,
            registered_ms: None,
            over: None,
            ..full.clone()
        };
        let oldest = Definition {
            changed: ChangedSettings::default(),
            ..plain.clone()
        };
        for definition in [full, other, plain, oldest] {
            let bytes = definition.encode();
            assert_eq!(Definition::decode(&bytes), Some(definition));
            for cut in 0..bytes.len() {
                assert_eq!(Definition::decode(&bytes[..cut]), None, "cut at {cut}");
            }
        }
    }

    #[test]
    fn definitions_of_earlier_builds_have_arguments_without_the_flag() {
        for over in [None, Some(TopicId(7))] {
            for arguments in [None, Some(Bytes::from_static(b"args"))] {
                let definition = Definition {
                    namespace: Namespace::default(),
                    name: "orders".into(),
                    durable: true,
                    exclusive: false,
                    auto_delete: false,
                    personal: false,
                    registered_ms: None,
                    settings: settings(),
                    changed: ChangedSettings::default(),
                    is_paused: false,
                    // They stored an empty one for none.
                    arguments: Some(arguments.clone().unwrap_or_default()),
                    logs: vec![(0, LogId(7))],
                    over,
                };
                let mut bytes = definition.encode();
                bytes[1] &= !ARGUMENTS;
                let read = Definition {
                    arguments,
                    ..definition
                };
                assert_eq!(Definition::decode(&bytes), Some(read));
            }
        }
    }
}
