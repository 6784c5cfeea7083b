//! Tokens that stand for a user. Only their hashes are kept: a token is random, so nothing slower is needed.
//!
//! ```text
//! stored key    32 bytes: SHA-256 of the token
//! stored value  u8 version (1), text id, text user, text description, i64 expiry in ms since 1970 (0 for
//! none)
//! ```

use sha2::{Digest, Sha256};
use stafett_model::codec::{get, get_text, put_text};

/// Format of stored values.
const VERSION: u8 = 1;

/// SHA-256 of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    #[must_use]
    pub fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub hash: TokenHash,
    /// Id by which it is shown and revoked; no part of the token.
    pub id: Box<str>,
    pub user: Box<str>,
    pub description: Box<str>,
    /// `None` for a token that does not expire.
    pub expires_ms: Option<i64>,
}

impl Token {
    #[must_use]
    pub fn is_expired(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|expiry| expiry <= now_ms)
    }

    #[must_use]
    pub fn value(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        for text in [&self.id, &self.user, &self.description] {
            put_text(text, &mut value);
        }
        value.extend_from_slice(&self.expires_ms.unwrap_or_default().to_le_bytes());
        value
    }

    /// Reads a stored token. `None` if its format is unknown.
    #[must_use]
    pub fn decode(key: &[u8], mut value: &[u8]) -> Option<Self> {
        let rest = &mut value;
        let [VERSION] = get(rest)? else { return None };
        let mut text = || get_text(rest).map(Into::into);
        let (id, user, description) = (text()?, text()?, text()?);
        let expires_ms = Some(i64::from_le_bytes(get(rest)?)).filter(|expiry| *expiry != 0);
        rest.is_empty().then_some(Self {
            hash: TokenHash(key.try_into().ok()?),
            id,
            user,
            description,
            expires_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_storage_and_expires() {
        for expires_ms in [None, Some(7)] {
            let token = Token {
                hash: TokenHash::of(b"secret"),
                id: "1a".into(),
                user: "ann".into(),
                description: "for the nightly job".into(),
                expires_ms,
            };
            assert_eq!(Token::decode(&token.hash.0, &token.value()), Some(token.clone()));
            assert_eq!(token.is_expired(7), expires_ms.is_some());
            assert!(!token.is_expired(6));
            assert_eq!(Token::decode(b"short", &token.value()), None);
        }
    }
}
