//! The text that all nodes of a cluster share: without it the table of nodes alone opens no connection.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::nodes::Key;

/// Characters of the shortest secret.
const CHARACTERS_MIN: usize = 16;

/// Reason why a text is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    #[error("it is empty")]
    Empty,
    #[error("a line of it has less than {CHARACTERS_MIN} characters")]
    Short,
}

/// The secrets of a cluster, in the order of their use; none if nodes know each other by their table alone.
/// Several are for the time of a change: a node proves the first one, and takes all. They are never printed.
#[derive(Clone, Default)]
pub struct Secrets(Vec<Box<str>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    /// Reads secrets, one a line.
    pub fn read(text: &str) -> Result<Self, SecretsError> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let secrets: Vec<Box<str>> = lines.map(Box::from).collect();
        if secrets.is_empty() {
            return Err(SecretsError::Empty);
        }
        if secrets
            .iter()
            .any(|secret| secret.chars().count() < CHARACTERS_MIN)
        {
            return Err(SecretsError::Short);
        }
        Ok(Self(secrets))
    }

    /// Returns the keys of proofs with a node: the HMAC-SHA-256 of its own key under each secret.
    pub(crate) fn keys(&self, node: &Key) -> Vec<Key> {
        if self.0.is_empty() {
            return vec![*node];
        }
        self.0.iter().map(|secret| under(secret, node)).collect()
    }
}

fn under(secret: &str, node: &Key) -> Key {
    #[expect(clippy::expect_used, reason = "a key of any length is one (RFC 2104)")]
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any key is taken");
    mac.update(b"stafett node");
    mac.update(&node.0);
    Key(mac.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_a_line_of_some_length() {
        assert_eq!(Secrets::read(" \n\n").unwrap_err(), SecretsError::Empty);
        assert_eq!(Secrets::read("short").unwrap_err(), SecretsError::Short);
        assert_eq!(
            Secrets::read("0123456789abcdef\nshort").unwrap_err(),
            SecretsError::Short
        );
        let two = Secrets::read("0123456789abcdef\n fedcba9876543210 \n").unwrap();
        assert_eq!(format!("{two:?}"), "Secrets", "it is not printed");
        let (node, other) = (Key::random(), Key::random());
        let keys = two.keys(&node);
        assert_eq!(keys.len(), 2);
        assert!(keys[0] != keys[1] && keys[0] != node && keys[0] != two.keys(&other)[0]);
        assert_eq!(Secrets::read("fedcba9876543210").unwrap().keys(&node), keys[1..]);
        assert_eq!(Secrets::default().keys(&node), [node]);
    }
}
