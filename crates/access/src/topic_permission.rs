//! Permissions for the routing keys of an exchange: those that a user may publish and bind with.
//!
//! Without one for an exchange, all keys are permitted. In a pattern, `{username}` and `{vhost}` stand for
//! the user and the namespace, as they are.
//!
//! ```text
//! stored key    text user, text namespace, exchange
//! stored value  u8 version (1), text pattern to publish, text pattern to bind
//! ```

use std::collections::BTreeMap;

use stafett_model::codec::{get, get_text, put_text};

use crate::pattern::{BadPattern, Pattern};

/// Format of stored values.
const VERSION: u8 = 1;
/// Bytes of a name.
const NAME_BYTES_MAX: usize = 1024;

/// Use of a routing key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyUse {
    Publish,
    Bind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPermission {
    pub user: Box<str>,
    pub namespace: Box<str>,
    pub exchange: Box<str>,
    /// Pattern of keys to publish with.
    pub write: Box<str>,
    /// Pattern of keys to bind with.
    pub read: Box<str>,
}

impl TopicPermission {
    /// Refuses patterns that cannot be used, and names that are too long.
    pub fn check(&self) -> Result<(), BadPattern> {
        for name in [&self.user, &self.namespace, &self.exchange] {
            if name.len() > NAME_BYTES_MAX {
                return Err(BadPattern {
                    pattern: String::new(),
                    why: format!("a name is longer than {NAME_BYTES_MAX} bytes"),
                });
            }
        }
        self.compile().map(drop)
    }

    fn compile(&self) -> Result<[Pattern; 2], BadPattern> {
        let expand = |pattern: &str| {
            let named = pattern.replace("{username}", &regex::escape(&self.user));
            Pattern::new(&named.replace("{vhost}", &regex::escape(&self.namespace)))
        };
        Ok([expand(&self.write)?, expand(&self.read)?])
    }

    #[must_use]
    pub fn key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        put_text(&self.user, &mut key);
        put_text(&self.namespace, &mut key);
        key.extend(self.exchange.as_bytes());
        key
    }

    #[must_use]
    pub fn value(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        put_text(&self.write, &mut value);
        put_text(&self.read, &mut value);
        value
    }

    /// Reads a stored permission. `None` if its format is unknown.
    #[must_use]
    pub fn decode(mut key: &[u8], mut value: &[u8]) -> Option<Self> {
        let (key, value) = (&mut key, &mut value);
        let (user, namespace) = (get_text(key)?.into(), get_text(key)?.into());
        let exchange = std::str::from_utf8(key).ok()?.into();
        let [VERSION] = get(value)? else { return None };
        let (write, read) = (get_text(value)?.into(), get_text(value)?.into());
        value.is_empty().then_some(Self {
            user,
            namespace,
            exchange,
            write,
            read,
        })
    }
}

/// User, namespace and exchange.
type Place = (Box<str>, Box<str>, Box<str>);

#[derive(Debug)]
struct Compiled {
    permission: TopicPermission,
    /// `None` for patterns that this version cannot use: nothing matches.
    patterns: Option<[Pattern; 2]>,
}

/// All topic permissions.
#[derive(Debug, Default)]
pub(crate) struct TopicPermissions(BTreeMap<Place, Compiled>);

impl TopicPermissions {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn put(&mut self, permission: TopicPermission) {
        let patterns = permission.compile().ok();
        let compiled = Compiled {
            permission: permission.clone(),
            patterns,
        };
        self.0.insert(place(permission), compiled);
    }

    pub(crate) fn delete(&mut self, permission: TopicPermission) {
        self.0.remove(&place(permission));
    }

    pub(crate) fn all(&self) -> Vec<TopicPermission> {
        self.0
            .values()
            .map(|compiled| compiled.permission.clone())
            .collect()
    }

    pub(crate) fn permits(
        &self,
        user: &str,
        namespace: &str,
        exchange: &str,
        key_use: KeyUse,
        key: &str,
    ) -> bool {
        let place = (user.into(), namespace.into(), exchange.into());
        let Some(compiled) = self.0.get(&place) else {
            return true;
        };
        let Some([write, read]) = &compiled.patterns else {
            return false;
        };
        match key_use {
            KeyUse::Publish => write.matches(key),
            KeyUse::Bind => read.matches(key),
        }
    }
}

fn place(permission: TopicPermission) -> Place {
    let TopicPermission {
        user,
        namespace,
        exchange,
        ..
    } = permission;
    (user, namespace, exchange)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(write: &str, read: &str) -> TopicPermission {
        TopicPermission {
            user: "a.b".into(),
            namespace: "/".into(),
            exchange: "x".into(),
            write: write.into(),
            read: read.into(),
        }
    }

    #[test]
    fn keys_are_permitted_by_pattern_and_all_of_them_without_a_permission() {
        let mut all = TopicPermissions::default();
        all.put(permission("^{username}\\.", "^$"));
        let may =
            |user: &str, exchange: &str, key_use, key: &str| all.permits(user, "/", exchange, key_use, key);
        assert!(may("a.b", "x", KeyUse::Publish, "a.b.c"));
        assert!(
            !may("a.b", "x", KeyUse::Publish, "axb.c"),
            "names are no patterns"
        );
        assert!(!may("a.b", "x", KeyUse::Bind, "a.b.c"));
        assert!(may("a.b", "y", KeyUse::Bind, "a.b.c") && may("bob", "x", KeyUse::Bind, "k"));
        assert!(all.permits("a.b", "other", "x", KeyUse::Bind, "k"));
        all.delete(permission("", ""));
        assert!(all.is_empty() && all.permits("a.b", "/", "x", KeyUse::Bind, "k"));
        assert!(permission("(", "").check().is_err() && permission("", "a{99999}").check().is_err());
        assert!(permission(".*", ".*").check().is_ok());
    }

    #[test]
    fn a_permission_survives_its_storage() {
        let permission = permission("^a", "b$");
        let (key, value) = (permission.key(), permission.value());
        assert_eq!(TopicPermission::decode(&key, &value), Some(permission));
        for end in 0..value.len() {
            assert_eq!(TopicPermission::decode(&key, &value[..end]), None);
        }
        assert_eq!(TopicPermission::decode(&key[..4], &value), None);
    }
}
