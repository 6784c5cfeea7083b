//! One rule: which subject may, or must not, do which actions to which things.
//!
//! ```text
//! stored key    u8 version (1), u8 subject (0 user, 1 role, 2 everyone), text name of the subject,
//!               u8 form (0 literal, 1 prefix, 2 pattern), text name, u16 kinds, u8 effect (0 allow, 1 deny),
//!               u8 with namespace, text namespace, text address of the peer or nothing
//! stored value  u16 actions
//! ```
//!
//! Rules with the same key are one rule, with the actions of both. Numbers are little-endian.

use std::net::IpAddr;

use stafett_model::codec::{get, get_text, put_text};

use crate::action::Actions;
use crate::resource::Kinds;

/// Format of stored keys.
const VERSION: u8 = 1;

/// The callers of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    User(Box<str>),
    /// Users with this tag.
    Role(Box<str>),
    Everyone,
}

impl Subject {
    fn parts(&self) -> (u8, &str) {
        match self {
            Self::User(name) => (0, name),
            Self::Role(name) => (1, name),
            Self::Everyone => (2, ""),
        }
    }

    fn of(kind: u8, name: &str) -> Option<Self> {
        match kind {
            0 => Some(Self::User(name.into())),
            1 => Some(Self::Role(name.into())),
            2 => Some(Self::Everyone),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    Allow,
    Deny,
}

/// How the name of a rule is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    Literal,
    Prefix,
    Pattern,
}

impl Form {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Literal => "literal",
            Self::Prefix => "prefix",
            Self::Pattern => "pattern",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    pub subject: Subject,
    pub effect: Effect,
    pub kinds: Kinds,
    /// `None` for all namespaces, and for kinds that lie in none.
    pub namespace: Option<Box<str>>,
    pub form: Form,
    /// An empty prefix stands for all names.
    pub name: Box<str>,
    /// Address of the peer; `None` for all.
    pub host: Option<IpAddr>,
    pub actions: Actions,
}

impl Rule {
    #[must_use]
    pub fn key(&self) -> Vec<u8> {
        let mut key = vec![VERSION];
        let (kind, subject) = self.subject.parts();
        key.push(kind);
        put_text(subject, &mut key);
        key.push(self.form as u8);
        put_text(&self.name, &mut key);
        key.extend_from_slice(&self.kinds.bits().to_le_bytes());
        key.push(self.effect as u8);
        key.push(u8::from(self.namespace.is_some()));
        put_text(self.namespace.as_deref().unwrap_or_default(), &mut key);
        let host = self.host.map(|host| host.to_string()).unwrap_or_default();
        put_text(&host, &mut key);
        key
    }

    #[must_use]
    pub fn value(&self) -> Vec<u8> {
        self.actions.bits().to_le_bytes().to_vec()
    }

    /// Reads a stored rule. `None` if its format is unknown.
    #[must_use]
    pub fn decode(mut key: &[u8], mut value: &[u8]) -> Option<Self> {
        let rest = &mut key;
        let [version, subject] = get(rest)?;
        let subject = Subject::of(subject, get_text(rest)?)?;
        let form = match get(rest)? {
            [0] => Form::Literal,
            [1] => Form::Prefix,
            [2] => Form::Pattern,
            _ => return None,
        };
        let name = get_text(rest)?.into();
        let kinds = Kinds::from_bits(u16::from_le_bytes(get(rest)?));
        let effect = match get(rest)? {
            [0] => Effect::Allow,
            [1] => Effect::Deny,
            _ => return None,
        };
        let [has_namespace] = get(rest)?;
        let namespace = get_text(rest)?;
        let namespace = (has_namespace != 0).then(|| namespace.into());
        let host = match get_text(rest)? {
            "" => None,
            text => Some(text.parse().ok()?),
        };
        let actions = Actions::from_bits(u16::from_le_bytes(get(&mut value)?));
        (version == VERSION && rest.is_empty() && value.is_empty()).then_some(Self {
            subject,
            effect,
            kinds,
            namespace,
            form,
            name,
            host,
            actions,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Kind;

    #[test]
    fn a_rule_survives_its_storage_and_damage_is_noticed() {
        let rule = Rule {
            subject: Subject::Role("clerks".into()),
            effect: Effect::Deny,
            kinds: Kinds::NAMESPACED,
            namespace: Some("/".into()),
            form: Form::Pattern,
            name: "^a.*".into(),
            host: Some([127, 0, 0, 1].into()),
            actions: Actions::DEFINE,
        };
        assert_eq!(Rule::decode(&rule.key(), &rule.value()), Some(rule.clone()));
        let plain = Rule {
            subject: Subject::Everyone,
            effect: Effect::Allow,
            kinds: Kind::Topic.into(),
            namespace: None,
            form: Form::Prefix,
            name: "".into(),
            host: None,
            actions: Actions::ALL,
        };
        assert_eq!(Rule::decode(&plain.key(), &plain.value()), Some(plain));
        let key = rule.key();
        for end in 0..key.len() {
            assert_eq!(Rule::decode(&key[..end], &rule.value()), None);
        }
        assert_eq!(Rule::decode(&key, &[0]), None);
    }
}
