//! A binding from an exchange to a queue, a stored topic or another exchange, and its stored format.
//!
//! ```text
//! key    text namespace, text source, u8 destination (1 queue, 2 exchange, 3 topic), text its name,
//!        bytes binding key, bytes arguments
//! value  u8 version, u8 mode (0 all, 1 any), in version 2: text filter, each pair of headers: bytes name, value
//!
//! a value  0 any value matches; 1 nothing; 2 u8 bool; 3 i128; 4 u64 bits of a double; 5 bytes text;
//!          6 bytes other
//! ```
//!
//! Texts and bytes are preceded by their length as u32; numbers are little-endian. The key identifies the
//! binding: binding again with the same key has no effect.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use stafett_model::Namespace;
use stafett_model::codec::{get, get_bytes, get_text, put_bytes, put_text};
use stafett_routing::{Filter, HeaderMatch, HeaderValue, Hop, Mode, Pattern};

use super::target::Target;

/// Destination of a binding, by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    Queue(Arc<str>),
    Exchange(Arc<str>),
    /// A stored topic.
    Topic(Arc<str>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    pub source: Arc<str>,
    pub destination: Destination,
    /// Binding key; not always text.
    pub key: Bytes,
    /// Arguments for the front end: opaque, but part of the identity.
    pub arguments: Bytes,
    /// Arguments that the core evaluates.
    pub headers: Option<Box<HeaderMatch>>,
    pub durable: bool,
}

const VERSION: u8 = 1;
/// Version of bindings with a filter.
const FILTERED: u8 = 2;

impl Destination {
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Queue(name) | Self::Exchange(name) | Self::Topic(name) => name,
        }
    }

    fn tag(&self) -> u8 {
        match self {
            Self::Queue(_) => 1,
            Self::Exchange(_) => 2,
            Self::Topic(_) => 3,
        }
    }

    pub(crate) fn hop(&self) -> Hop<Target> {
        match self {
            Self::Queue(name) => Hop::Target(Target::Queue(Arc::clone(name))),
            Self::Topic(name) => Hop::Target(Target::Topic(Arc::clone(name))),
            Self::Exchange(name) => Hop::Exchange(Arc::clone(name)),
        }
    }
}

impl Binding {
    pub(crate) fn filter(&self) -> Option<&Arc<Filter>> {
        self.headers.as_ref()?.filter.as_ref()
    }

    pub(crate) fn pattern(&self) -> Pattern {
        Pattern {
            key: self.key.clone(),
            headers: self.headers.as_deref().cloned().unwrap_or_default(),
        }
    }

    /// Compares the identities: by source, then by destination.
    pub(crate) fn cmp_from(&self, other: &Self) -> Ordering {
        let own = (&self.source, &self.destination, &self.key, &self.arguments);
        own.cmp(&(&other.source, &other.destination, &other.key, &other.arguments))
    }

    /// Compares the identities: by destination, then by source.
    pub(crate) fn cmp_to(&self, other: &Self) -> Ordering {
        let own = (&self.destination, &self.source, &self.key, &self.arguments);
        own.cmp(&(&other.destination, &other.source, &other.key, &other.arguments))
    }

    pub(crate) fn state_key(&self, namespace: &Namespace) -> Bytes {
        let mut out = Vec::with_capacity(64);
        put_text(namespace.as_str(), &mut out);
        put_text(&self.source, &mut out);
        out.push(self.destination.tag());
        put_text(self.destination.name(), &mut out);
        put_bytes(&self.key, &mut out);
        put_bytes(&self.arguments, &mut out);
        out.into()
    }

    pub(crate) fn encode(&self) -> Bytes {
        let Some(headers) = &self.headers else {
            return Bytes::from_static(&[VERSION, 0]);
        };
        let mode = match headers.mode {
            Mode::All => 0,
            Mode::Any => 1,
        };
        let mut out = vec![VERSION, mode];
        if let Some(filter) = &headers.filter {
            out = vec![FILTERED, mode];
            put_text(filter.source(), &mut out);
        }
        for (name, value) in &headers.pairs {
            put_bytes(name, &mut out);
            put_value(value.as_ref(), &mut out);
        }
        out.into()
    }

    /// Decodes a stored binding. `None` if this version does not know the format.
    pub(crate) fn decode(mut key: &[u8], mut value: &[u8]) -> Option<(Namespace, Self)> {
        let rest = &mut key;
        let namespace = Namespace::new(get_text(rest)?);
        let source = get_text(rest)?.into();
        let [tag] = get(rest)?;
        let name = get_text(rest)?.into();
        let destination = match tag {
            1 => Destination::Queue(name),
            2 => Destination::Exchange(name),
            3 => Destination::Topic(name),
            _ => return None,
        };
        let key = Bytes::copy_from_slice(get_bytes(rest)?);
        let arguments = Bytes::copy_from_slice(get_bytes(rest)?);
        let is_end = rest.is_empty();
        let rest = &mut value;
        let [version @ (VERSION | FILTERED), mode] = get(rest)? else {
            return None;
        };
        let mode = match mode {
            0 => Mode::All,
            1 => Mode::Any,
            _ => return None,
        };
        let mut headers = HeaderMatch {
            mode,
            pairs: Vec::new(),
            filter: None,
        };
        if version == FILTERED {
            headers.filter = Some(Arc::new(Filter::compile(get_text(rest)?).ok()?));
        }
        while !rest.is_empty() {
            let name = Bytes::copy_from_slice(get_bytes(rest)?);
            headers.pairs.push((name, get_value(rest)?));
        }
        let headers = (headers != HeaderMatch::default()).then(|| Box::new(headers));
        let binding = Self {
            source,
            destination,
            key,
            arguments,
            headers,
            durable: true,
        };
        is_end.then_some((namespace, binding))
    }
}

fn put_value(value: Option<&HeaderValue>, out: &mut Vec<u8>) {
    match value {
        None => out.push(0),
        Some(HeaderValue::Nothing) => out.push(1),
        Some(HeaderValue::Bool(value)) => out.extend_from_slice(&[2, u8::from(*value)]),
        Some(HeaderValue::Integer(value)) => {
            out.push(3);
            out.extend_from_slice(&value.to_le_bytes());
        }
        Some(HeaderValue::Float(bits)) => {
            out.push(4);
            out.extend_from_slice(&bits.to_le_bytes());
        }
        Some(HeaderValue::Text(bytes)) => {
            out.push(5);
            put_bytes(bytes, out);
        }
        Some(HeaderValue::Other(bytes)) => {
            out.push(6);
            put_bytes(bytes, out);
        }
    }
}

#[expect(clippy::option_option, reason = "malformed, any value, a value")]
fn get_value(rest: &mut &[u8]) -> Option<Option<HeaderValue>> {
    let [tag] = get(rest)?;
    let value = match tag {
        0 => return Some(None),
        1 => HeaderValue::Nothing,
        2 => HeaderValue::Bool(get::<1>(rest)? != [0]),
        3 => HeaderValue::Integer(i128::from_le_bytes(get(rest)?)),
        4 => HeaderValue::Float(u64::from_le_bytes(get(rest)?)),
        5 => HeaderValue::Text(Bytes::copy_from_slice(get_bytes(rest)?)),
        6 => HeaderValue::Other(Bytes::copy_from_slice(get_bytes(rest)?)),
        _ => return None,
    };
    Some(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_reads_back() {
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        let pairs = vec![
            (text("a"), None),
            (text("b"), Some(HeaderValue::Nothing)),
            (text("c"), Some(HeaderValue::Bool(true))),
            (text("d"), Some(HeaderValue::Integer(-5))),
            (text("e"), Some(HeaderValue::Float(1.5f64.to_bits()))),
            (text("f"), Some(HeaderValue::Text(text("x")))),
            (text("g"), Some(HeaderValue::Other(text("")))),
        ];
        let any = HeaderMatch {
            mode: Mode::Any,
            pairs,
            filter: None,
        };
        let filtered = HeaderMatch {
            filter: Some(Arc::new(Filter::compile("value.a == 1").unwrap())),
            ..any.clone()
        };
        for (headers, destination) in [
            (None, Destination::Queue("q".into())),
            (Some(Box::new(any.clone())), Destination::Exchange("x".into())),
            (Some(Box::new(filtered)), Destination::Queue("q".into())),
            (
                Some(Box::new(HeaderMatch {
                    mode: Mode::All,
                    ..any
                })),
                Destination::Topic("t".into()),
            ),
        ] {
            let binding = Binding {
                source: "from".into(),
                destination,
                key: Bytes::from_static(b"\xff.key"),
                arguments: text("opaque"),
                headers,
                durable: true,
            };
            let namespace = Namespace::new("shop");
            let (key, value) = (binding.state_key(&namespace), binding.encode());
            assert_eq!(Binding::decode(&key, &value), Some((namespace, binding)));
            for cut in 0..key.len() {
                assert_eq!(Binding::decode(&key[..cut], &value), None, "cut at {cut}");
            }
        }
    }
}
