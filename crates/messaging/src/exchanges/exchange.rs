//! An exchange: its definition and its stored format.
//!
//! ```text
//! key    u8 1, text namespace, text exchange
//! value  u8 version = 1
//!        u8 kind        1 direct, 2 fan-out, 3 topic, 4 headers, 5 hashed on the key,
//!                       6 on a header (text name follows), 7 on the message id,
//!                       8 on the correlation id, 9 on the timestamp
//!        u8 flags       1 delays, 2 deleted with its last binding, 4 internal, 8 has an alternate
//!        text alternate, if its flag is set
//!        the rest: the arguments
//! ```
//!
//! A text is preceded by its length as u32 little-endian.

use std::sync::Arc;

use bytes::Bytes;
use stafett_model::Namespace;
use stafett_model::codec::{get, get_text, put_text};
use stafett_routing::{ExchangeKind, HashOn, Property, Spec};

/// Definition of an exchange.
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewExchange {
    pub kind: ExchangeKind,
    /// True if delayed messages wait here before they are routed.
    pub delays: bool,
    /// True if the exchange survives a restart.
    pub durable: bool,
    /// True if the exchange is deleted with its last binding.
    pub auto_delete: bool,
    /// True if the exchange takes messages from other exchanges only.
    pub internal: bool,
    /// Exchange for messages that match no binding of this one.
    pub alternate: Option<Arc<str>>,
    /// Arguments for the front end: opaque, and not compared.
    pub arguments: Bytes,
}

/// An existing exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    pub name: Arc<str>,
    pub is: NewExchange,
}

/// Property in which an exchange differs from a declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    Kind,
    Durable,
    AutoDelete,
    Internal,
    Alternate,
}

const VERSION: u8 = 1;
const DELAYS: u8 = 1;
const AUTO_DELETE: u8 = 2;
const INTERNAL: u8 = 4;
const ALTERNATE: u8 = 8;

impl NewExchange {
    /// Creates the definition of a durable exchange without further properties.
    pub fn new(kind: ExchangeKind) -> Self {
        Self {
            kind,
            delays: false,
            durable: true,
            auto_delete: false,
            internal: false,
            alternate: None,
            arguments: Bytes::new(),
        }
    }

    pub(crate) fn spec(&self) -> Spec {
        Spec {
            kind: self.kind.clone(),
            delays: self.delays,
            internal: self.internal,
            alternate: self.alternate.clone(),
        }
    }

    /// Returns the first property in which `self` differs from `wanted`.
    pub fn difference(&self, wanted: &Self) -> Option<Difference> {
        let same = [
            (
                self.kind == wanted.kind && self.delays == wanted.delays,
                Difference::Kind,
            ),
            (self.durable == wanted.durable, Difference::Durable),
            (self.auto_delete == wanted.auto_delete, Difference::AutoDelete),
            (self.internal == wanted.internal, Difference::Internal),
            (self.alternate == wanted.alternate, Difference::Alternate),
        ];
        same.into_iter()
            .find_map(|(same, difference)| (!same).then_some(difference))
    }
}

impl Exchange {
    pub(crate) fn key(namespace: &Namespace, name: &str) -> Bytes {
        let mut out = Vec::new();
        put_text(namespace.as_str(), &mut out);
        put_text(name, &mut out);
        out.into()
    }

    pub(crate) fn encode(&self) -> Bytes {
        let is = &self.is;
        let kind = match &is.kind {
            ExchangeKind::ByName => 0,
            ExchangeKind::Direct => 1,
            ExchangeKind::FanOut => 2,
            ExchangeKind::Topic => 3,
            ExchangeKind::Headers => 4,
            ExchangeKind::Hashed(HashOn::Key) => 5,
            ExchangeKind::Hashed(HashOn::Header(_)) => 6,
            ExchangeKind::Hashed(HashOn::Property(Property::MessageId)) => 7,
            ExchangeKind::Hashed(HashOn::Property(Property::CorrelationId)) => 8,
            ExchangeKind::Hashed(HashOn::Property(Property::Timestamp)) => 9,
        };
        let mut out = vec![VERSION, kind];
        if let ExchangeKind::Hashed(HashOn::Header(name)) = &is.kind {
            put_text(name, &mut out);
        }
        let flag = |set, flag| if set { flag } else { 0 };
        out.push(
            flag(is.delays, DELAYS)
                | flag(is.auto_delete, AUTO_DELETE)
                | flag(is.internal, INTERNAL)
                | flag(is.alternate.is_some(), ALTERNATE),
        );
        if let Some(alternate) = &is.alternate {
            put_text(alternate, &mut out);
        }
        out.extend_from_slice(&is.arguments);
        out.into()
    }

    /// Decodes a stored definition; the tag of the key is removed already. `None` if this version does not
    /// know the format.
    pub(crate) fn decode(mut key: &[u8], mut value: &[u8]) -> Option<(Namespace, Self)> {
        let namespace = Namespace::new(get_text(&mut key)?);
        let name = Arc::from(get_text(&mut key)?);
        let rest = &mut value;
        let [VERSION, kind] = get(rest)? else {
            return None;
        };
        let kind = match kind {
            1 => ExchangeKind::Direct,
            2 => ExchangeKind::FanOut,
            3 => ExchangeKind::Topic,
            4 => ExchangeKind::Headers,
            5 => ExchangeKind::Hashed(HashOn::Key),
            6 => ExchangeKind::Hashed(HashOn::Header(get_text(rest)?.into())),
            7 => ExchangeKind::Hashed(HashOn::Property(Property::MessageId)),
            8 => ExchangeKind::Hashed(HashOn::Property(Property::CorrelationId)),
            9 => ExchangeKind::Hashed(HashOn::Property(Property::Timestamp)),
            _ => return None,
        };
        let [flags] = get(rest)?;
        let alternate = if flags & ALTERNATE == 0 {
            None
        } else {
            Some(get_text(rest)?.into())
        };
        let is = NewExchange {
            kind,
            delays: flags & DELAYS != 0,
            durable: true,
            auto_delete: flags & AUTO_DELETE != 0,
            internal: flags & INTERNAL != 0,
            alternate,
            arguments: Bytes::copy_from_slice(rest),
        };
        (key.is_empty()).then_some((namespace, Self { name, is }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_reads_back() {
        for kind in [
            ExchangeKind::Direct,
            ExchangeKind::FanOut,
            ExchangeKind::Topic,
            ExchangeKind::Headers,
            ExchangeKind::Hashed(HashOn::Key),
            ExchangeKind::Hashed(HashOn::Header("who".into())),
            ExchangeKind::Hashed(HashOn::Property(Property::MessageId)),
            ExchangeKind::Hashed(HashOn::Property(Property::CorrelationId)),
            ExchangeKind::Hashed(HashOn::Property(Property::Timestamp)),
        ] {
            for alternate in [None, Some("other".into())] {
                let is = NewExchange {
                    delays: alternate.is_some(),
                    auto_delete: true,
                    internal: alternate.is_none(),
                    alternate,
                    arguments: Bytes::from_static(b"opaque"),
                    ..NewExchange::new(kind.clone())
                };
                let exchange = Exchange {
                    name: "orders".into(),
                    is,
                };
                let namespace = Namespace::new("shop");
                let (key, value) = (Exchange::key(&namespace, "orders"), exchange.encode());
                assert_eq!(Exchange::decode(&key, &value), Some((namespace, exchange)));
                for cut in 0..value.len() - b"opaque".len() {
                    assert_eq!(Exchange::decode(&key, &value[..cut]), None, "cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn what_differs_is_named() {
        let is = NewExchange::new(ExchangeKind::Direct);
        let other = |change: fn(&mut NewExchange)| {
            let mut other = is.clone();
            change(&mut other);
            is.difference(&other)
        };
        assert_eq!(other(|_| ()), None);
        assert_eq!(
            other(|other| other.kind = ExchangeKind::Topic),
            Some(Difference::Kind)
        );
        assert_eq!(other(|other| other.delays = true), Some(Difference::Kind));
        assert_eq!(other(|other| other.durable = false), Some(Difference::Durable));
        assert_eq!(
            other(|other| other.auto_delete = true),
            Some(Difference::AutoDelete)
        );
        assert_eq!(other(|other| other.internal = true), Some(Difference::Internal));
        assert_eq!(
            other(|other| other.alternate = Some("x".into())),
            Some(Difference::Alternate)
        );
        assert_eq!(other(|other| other.arguments = Bytes::from_static(b"x")), None);
    }
}
