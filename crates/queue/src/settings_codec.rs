//! Stored form of settings: of those that a queue was declared with, of changed ones, and of a policy's.
//!
//! ```text
//! declared, policy   number settings, each: u8 tag, number or text
//! changed            number settings, each: u8 tag, u8 1 if it has a value, the value: only with such; the value of
//!                    `DEAD_LETTER` is text exchange, u8 1 if it has a key, text key
//! ```
//!
//! Numbers have seven bits per byte, low bits first. Texts are preceded by their length as a number.

use stafett_model::codec::{get, get_compact_text, get_number, put_compact};
use stafett_model::write_number;

use crate::changed_settings::{ChangedSettings, Setting};
use crate::policy_settings::{DeliveryLimit, PolicySettings};
use crate::settings::{DeadLetter, Overflow, QueueSettings};

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
const DEFAULT_DELIVERY_LIMIT: u64 = 8;

impl QueueSettings {
    /// Adds the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let overflow = non_zero(overflow_number(self.overflow));
        let numbers = [
            (TTL, self.ttl_ms),
            (EXPIRES, self.expires_ms),
            (LENGTH, self.length_max),
            (BYTES, self.bytes_max),
            (OVERFLOW, overflow),
            (PRIORITY, non_zero(self.priority_max.into())),
            (DELIVERY_LIMIT, self.delivery_limit.map(u64::from)),
            (SINGLE_ACTIVE, non_zero(self.single_active_consumer.into())),
            (RETAIN, non_zero(self.retain)),
            (TRAITS, non_zero(traits(self))),
        ];
        let dead_letter = self.dead_letter.as_ref();
        let texts = [
            (DEAD_LETTER, dead_letter.map(|to| to.exchange.to_string())),
            (
                DEAD_LETTER_KEY,
                dead_letter
                    .and_then(|to| to.routing_key.as_ref())
                    .map(ToString::to_string),
            ),
            (DURABILITY, self.durability.map(|level| level.to_string())),
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
            put_compact(value.as_bytes(), out);
        }
    }

    /// Takes the stored form off the front. `None` if the format is unknown.
    pub fn decode(rest: &mut &[u8]) -> Option<Self> {
        let mut settings = Self::default();
        let mut common = PolicySettings::default();
        for _ in 0..get_number(rest)? {
            match tag(rest)? {
                PRIORITY => settings.priority_max = u8::try_from(get_number(rest)?).ok()?,
                DELIVERY_LIMIT => settings.delivery_limit = Some(u32::try_from(get_number(rest)?).ok()?),
                SINGLE_ACTIVE => settings.single_active_consumer = get_number(rest)? != 0,
                DURABILITY => settings.durability = Some(get_compact_text(rest)?.parse().ok()?),
                RETAIN => settings.retain = get_number(rest)?,
                TRAITS => {
                    let traits = get_number(rest)?;
                    settings.two_priorities = traits & TWO_PRIORITIES != 0;
                    settings.active_yields = traits & ACTIVE_YIELDS != 0;
                    settings.keeps_transient = traits & KEEPS_TRANSIENT != 0;
                    settings.has_default_delivery_limit = traits & DEFAULT_DELIVERY_LIMIT != 0;
                }
                tag => decode_common(tag, rest, &mut common)?,
            }
        }
        let dead_letter = match (common.dead_letter_exchange, common.dead_letter_key) {
            (None, Some(_)) => return None,
            (exchange, routing_key) => exchange.map(|exchange| DeadLetter {
                exchange,
                routing_key,
            }),
        };
        Some(Self {
            ttl_ms: common.ttl_ms,
            expires_ms: common.expires_ms,
            length_max: common.length_max,
            bytes_max: common.bytes_max,
            overflow: common.overflow.unwrap_or_default(),
            dead_letter,
            ..settings
        })
    }
}

impl ChangedSettings {
    /// Adds the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        write_number(self.iter().count() as u64, out);
        for setting in self.iter() {
            let (tag, value) = match setting {
                Setting::TtlMs(ms) => (TTL, *ms),
                Setting::ExpiresMs(ms) => (EXPIRES, *ms),
                Setting::LengthMax(max) => (LENGTH, *max),
                Setting::BytesMax(max) => (BYTES, *max),
                Setting::Overflow(overflow) => (OVERFLOW, Some(overflow_number(*overflow))),
                Setting::DeliveryLimit(limit) => (DELIVERY_LIMIT, limit.map(u64::from)),
                Setting::Retain(count) => (RETAIN, Some(*count)),
                Setting::Durability(level) => {
                    let level = level.map(|level| level.to_string());
                    put_text(DURABILITY, level.as_deref(), out);
                    continue;
                }
                Setting::DeadLetter(target) => {
                    put_text(DEAD_LETTER, target.as_ref().map(|to| &*to.exchange), out);
                    if let Some(to) = target {
                        let key = to.routing_key.as_ref();
                        out.push(key.is_some().into());
                        if let Some(key) = key {
                            put_compact(key.as_bytes(), out);
                        }
                    }
                    continue;
                }
            };
            out.extend([tag, value.is_some().into()]);
            if let Some(value) = value {
                write_number(value, out);
            }
        }
    }

    /// Takes the stored form off the front. `None` if the format is unknown.
    pub fn decode(rest: &mut &[u8]) -> Option<Self> {
        let count = get_number(rest)?;
        (0..count).map(|_| decode_setting(rest)).collect()
    }
}

impl PolicySettings {
    /// Adds the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let limit = self.delivery_limit.map(|limit| match limit {
            DeliveryLimit::Returns(count) => u64::from(count) + 1,
            DeliveryLimit::None => 0,
        });
        let numbers = [
            (TTL, self.ttl_ms),
            (EXPIRES, self.expires_ms),
            (LENGTH, self.length_max),
            (BYTES, self.bytes_max),
            (OVERFLOW, self.overflow.map(overflow_number)),
            (DELIVERY_LIMIT, limit),
        ];
        let texts = [
            (DEAD_LETTER, &self.dead_letter_exchange),
            (DEAD_LETTER_KEY, &self.dead_letter_key),
        ];
        let count = numbers.iter().filter(|(_, value)| value.is_some()).count()
            + texts.iter().filter(|(_, value)| value.is_some()).count();
        write_number(count as u64, out);
        for (tag, value) in numbers {
            if let Some(value) = value {
                out.push(tag);
                write_number(value, out);
            }
        }
        for (tag, value) in texts {
            if let Some(value) = value {
                out.push(tag);
                put_compact(value.as_bytes(), out);
            }
        }
    }

    /// Takes the stored form off the front. `None` if the format is unknown.
    pub fn decode(rest: &mut &[u8]) -> Option<Self> {
        let mut settings = Self::default();
        for _ in 0..get_number(rest)? {
            match tag(rest)? {
                DELIVERY_LIMIT => {
                    settings.delivery_limit = Some(match get_number(rest)?.checked_sub(1) {
                        Some(count) => DeliveryLimit::Returns(u32::try_from(count).ok()?),
                        None => DeliveryLimit::None,
                    });
                }
                tag => decode_common(tag, rest, &mut settings)?,
            }
        }
        Some(settings)
    }
}

fn overflow_number(overflow: Overflow) -> u64 {
    match overflow {
        Overflow::DropHead => 0,
        Overflow::RejectPublish => 1,
        Overflow::RejectPublishDeadLetter => 2,
    }
}

fn overflow(number: u64) -> Option<Overflow> {
    Some(match number {
        0 => Overflow::DropHead,
        1 => Overflow::RejectPublish,
        2 => Overflow::RejectPublishDeadLetter,
        _ => return None,
    })
}

fn put_text(tag: u8, text: Option<&str>, out: &mut Vec<u8>) {
    out.extend([tag, text.is_some().into()]);
    if let Some(text) = text {
        put_compact(text.as_bytes(), out);
    }
}

fn decode_setting(rest: &mut &[u8]) -> Option<Setting> {
    let tag = tag(rest)?;
    let has_value = flag(rest)?;
    let number_of = |rest: &mut &[u8]| {
        if has_value {
            get_number(rest).map(Some)
        } else {
            Some(None)
        }
    };
    Some(match tag {
        TTL => Setting::TtlMs(number_of(rest)?),
        EXPIRES => Setting::ExpiresMs(number_of(rest)?),
        LENGTH => Setting::LengthMax(number_of(rest)?),
        BYTES => Setting::BytesMax(number_of(rest)?),
        OVERFLOW => Setting::Overflow(overflow(number_of(rest)??)?),
        DELIVERY_LIMIT => {
            let limit = number_of(rest)?.map(u32::try_from);
            Setting::DeliveryLimit(limit.transpose().ok()?)
        }
        RETAIN => Setting::Retain(number_of(rest)??),
        DURABILITY if !has_value => Setting::Durability(None),
        DURABILITY => Setting::Durability(Some(get_compact_text(rest)?.parse().ok()?)),
        DEAD_LETTER if !has_value => Setting::DeadLetter(None),
        DEAD_LETTER => {
            let exchange = get_compact_text(rest)?.into();
            let has_key = flag(rest)?;
            let routing_key = if has_key {
                Some(get_compact_text(rest)?.into())
            } else {
                None
            };
            Setting::DeadLetter(Some(DeadLetter {
                exchange,
                routing_key,
            }))
        }
        _ => return None,
    })
}

/// Reads a setting that queues and policies store alike.
fn decode_common(tag: u8, rest: &mut &[u8], settings: &mut PolicySettings) -> Option<()> {
    match tag {
        TTL => settings.ttl_ms = Some(get_number(rest)?),
        EXPIRES => settings.expires_ms = Some(get_number(rest)?),
        LENGTH => settings.length_max = Some(get_number(rest)?),
        BYTES => settings.bytes_max = Some(get_number(rest)?),
        OVERFLOW => settings.overflow = Some(overflow(get_number(rest)?)?),
        DEAD_LETTER => settings.dead_letter_exchange = Some(get_compact_text(rest)?.into()),
        DEAD_LETTER_KEY => settings.dead_letter_key = Some(get_compact_text(rest)?.into()),
        _ => return None,
    }
    Some(())
}

fn traits(settings: &QueueSettings) -> u64 {
    let flag = |set, flag| if set { flag } else { 0 };
    flag(settings.two_priorities, TWO_PRIORITIES)
        | flag(settings.active_yields, ACTIVE_YIELDS)
        | flag(settings.keeps_transient, KEEPS_TRANSIENT)
        | flag(settings.has_default_delivery_limit, DEFAULT_DELIVERY_LIMIT)
}

fn non_zero(value: u64) -> Option<u64> {
    (value != 0).then_some(value)
}

fn tag(rest: &mut &[u8]) -> Option<u8> {
    get(rest).map(|[tag]| tag)
}

fn flag(rest: &mut &[u8]) -> Option<bool> {
    match get(rest)? {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}
