//! Topic names of namespaces: topic names are global, and have a smaller alphabet than names in namespaces.
//!
//! In the default namespace, a topic's name is used as it is; in another one, the topic is
//! `stream-NAMESPACE.NAME`. A byte that is not allowed in topic names is written as `_` and two hexadecimal
//! digits; so is a `_` that two such digits follow.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use stafett_model::{Namespace, TopicName};

use crate::registry::Topics;
use crate::topic::{Topic, is_internal};

/// Beginning of the names of topics in other namespaces than the default one.
pub(crate) const IN_NAMESPACE: &str = "stream-";

/// Returns the prefix of the namespace that a topic is of.
pub(crate) fn prefix_of(topic: &str) -> &str {
    let end = topic.find('.').filter(|_| topic.starts_with(IN_NAMESPACE));
    end.and_then(|end| topic.get(..=end)).unwrap_or_default()
}

/// Returns the name of the stored topic for a name in a namespace; `None` if no topic can have it.
pub fn topic_name<'a>(namespace: &Namespace, name: &'a str) -> Option<Cow<'a, str>> {
    let mut topic = topic_prefix(namespace);
    if topic.is_empty() && !name.contains('_') && TopicName::check(name).is_ok() {
        return Some(Cow::Borrowed(name));
    }
    escape(name, &[], &mut topic);
    TopicName::check(&topic).is_ok().then_some(Cow::Owned(topic))
}

/// Returns the common prefix of the names of a namespace's topics.
pub fn topic_prefix(namespace: &Namespace) -> String {
    let mut prefix = String::new();
    if namespace.as_str() != Namespace::DEFAULT {
        prefix.push_str(IN_NAMESPACE);
        escape(namespace.as_str(), &['.'], &mut prefix);
        prefix.push('.');
    }
    prefix
}

/// Returns the name that a topic has in a namespace; `None` if it is not of this namespace.
pub fn name_in(namespace: &Namespace, topic: &str) -> Option<String> {
    let name = unescaped(topic.strip_prefix(&topic_prefix(namespace))?)?;
    (topic_name(namespace, &name)? == topic).then_some(name)
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        let digits = behind
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits
            .filter(|digits| *byte == b'_' && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() {
            behind.get(2..)?
        } else {
            behind
        };
    }
    String::from_utf8(bytes).ok()
}

impl Topics {
    /// Returns the stored topic for a name in a namespace, unless it is a queue or internal to the broker.
    pub fn in_namespace(&self, namespace: &Namespace, name: &str) -> Option<Arc<Topic>> {
        let topic = self.named(&topic_name(namespace, name)?)?;
        Some(topic).filter(|topic| !topic.id.is_queue() && !is_internal(&topic.name))
    }
}

/// Appends a text, with bytes escaped that topic names cannot have or that are in `also`.
pub fn escape(text: &str, also: &[char], out: &mut String) {
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let letter = char::from(*byte);
        let follows_hex = || {
            let next = bytes.get(at + 1..at + 3);
            next.is_some_and(|next| next.iter().all(u8::is_ascii_hexdigit))
        };
        let plain = match letter {
            '_' => !follows_hex(),
            '.' | '-' => true,
            other => other.is_ascii_alphanumeric(),
        };
        if plain && !also.contains(&letter) {
            out.push(letter);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "_{byte:02x}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_legal_and_different() {
        let escaped = |text| {
            let mut out = String::new();
            escape(text, &[], &mut out);
            out
        };
        for (text, expected) in [
            ("orders.new-2", "orders.new-2"),
            ("my_queue", "my_queue"),
            ("a_ff", "a_5fff"),
            ("a b", "a_20b"),
            ("a_20b", "a_5f20b"),
            ("é", "_c3_a9"),
        ] {
            assert_eq!(escaped(text), expected);
        }
    }

    #[test]
    fn a_name_of_a_namespace_is_one_topic() {
        let shop = Namespace::new("a.b");
        for (namespace, name, expected) in [
            (&Namespace::default(), "orders", Some("orders")),
            (&Namespace::default(), "my_orders", Some("my_orders")),
            (&Namespace::default(), "my orders", Some("my_20orders")),
            (&shop, "orders", Some("stream-a_2eb.orders")),
            (&Namespace::default(), "", None),
        ] {
            assert_eq!(topic_name(namespace, name).as_deref(), expected);
            let back = expected.and_then(|topic| name_in(namespace, topic));
            assert_eq!(back.as_deref(), expected.map(|_| name));
        }
        assert_eq!(topic_name(&shop, &"x".repeat(240)), None, "it would be too long");
        assert_eq!(name_in(&shop, "orders"), None);
        assert_eq!(name_in(&shop, "stream-a.b.orders"), None);
    }
}
