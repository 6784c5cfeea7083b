//! Note of a waiting message: a record header, which is removed when the message is released.
//!
//! ```text
//! u64 id of its namespace, i64 due time in ms since 1970, text namespace, text exchange,
//! further routing keys, each: text
//! ```
//!
//! The id tells the namespace from a later one of the same name, which must not get the message. The header
//! of earlier versions, which is still read, has none: it means a namespace without an id.
//!
//! A text is preceded by its length as u32; numbers are little-endian.

use bytes::Bytes;
use bytestring::ByteString;
use stafett_model::codec::{get, get_text, put_text};
use stafett_model::{Message, Namespace, NamespaceId, StoredMessage};

const HEADER: &str = "stafett.delayed-2";
const HEADER_WITHOUT_ID: &str = "stafett.delayed";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DelayHeader {
    pub(crate) namespace: Namespace,
    pub(crate) space: NamespaceId,
    /// Exchange that routes the message.
    pub(crate) exchange: ByteString,
    pub(crate) due_ms: i64,
    /// Routing keys besides the message's own.
    pub(crate) more_keys: Vec<ByteString>,
}

impl DelayHeader {
    pub(crate) fn on(&self, mut message: Message) -> Message {
        let mut out = self.space.0.to_le_bytes().to_vec();
        out.extend_from_slice(&self.due_ms.to_le_bytes());
        put_text(self.namespace.as_str(), &mut out);
        put_text(&self.exchange, &mut out);
        for key in &self.more_keys {
            put_text(key, &mut out);
        }
        take_off(&mut message);
        message
            .headers
            .push((ByteString::from_static(HEADER), Some(Bytes::from(out))));
        message
    }

    pub(crate) fn of(stored: &StoredMessage) -> Option<Self> {
        let (mut note, has_id) = match stored.header(HEADER.as_bytes()) {
            Some(note) => (note?, true),
            None => (stored.header(HEADER_WITHOUT_ID.as_bytes())??, false),
        };
        let rest = &mut note;
        let space = if has_id {
            NamespaceId(u64::from_le_bytes(get(rest)?))
        } else {
            NamespaceId::default()
        };
        let due_ms = i64::from_le_bytes(get(rest)?);
        let namespace = Namespace::new(get_text(rest)?);
        let exchange = get_text(rest)?.into();
        let mut more_keys = Vec::new();
        while !rest.is_empty() {
            more_keys.push(get_text(rest)?.into());
        }
        Some(Self {
            namespace,
            space,
            exchange,
            due_ms,
            more_keys,
        })
    }
}

/// Returns the message without its note and its delay.
pub(crate) fn without(stored: &StoredMessage) -> Message {
    let mut message = stored.to_message();
    take_off(&mut message);
    message.delay_ms = None;
    message
}

fn take_off(message: &mut Message) {
    message
        .headers
        .retain(|(name, _)| *name != HEADER && *name != HEADER_WITHOUT_ID);
}
