//! Signed tokens: `PAYLOAD.SIGNATURE`, or a JWT with `HS256`, `ES256` or `EdDSA`.
//!
//! ```text
//! base64url(claims) "." base64url(HMAC-SHA-256(key, base64url(claims)))
//! base64url(header) "." base64url(claims) "." base64url(signature of everything before)    RFC 7519
//! ```
//!
//! The signature is checked before any claim is read. A key checks signatures of its own algorithm alone,
//! whatever the header says.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::keys::{Key, Signing};

/// Bytes of a token, at most.
const TOKEN_BYTES_MAX: usize = 4096;
/// Difference between clocks that is forgiven.
const SKEW_S: i64 = 60;

/// Claims of a token.
pub type Claims = Map<String, Value>;

/// Place of the token in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenPlace {
    Query(String),
    Header(String),
    /// The header `Authorization: Bearer …`.
    Bearer,
}

impl TokenPlace {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text == "bearer" {
            return Some(Self::Bearer);
        }
        if let Some(name) = text.strip_prefix("query:") {
            return (!name.is_empty()).then(|| Self::Query(name.to_owned()));
        }
        let name = text.strip_prefix("header:")?;
        name.parse::<axum::http::HeaderName>()
            .ok()
            .map(|name| Self::Header(name.as_str().to_owned()))
    }
}

/// Conditions of a token.
#[derive(Clone)]
pub struct Check {
    pub keys: Vec<Key>,
    pub issuer: Option<String>,
    pub audience: Option<String>,
    /// Seconds since the claim `iat`, at most.
    pub age_s: Option<u64>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Check")
            .field("issuer", &self.issuer)
            .field("audience", &self.audience)
            .field("age_s", &self.age_s)
            .finish_non_exhaustive()
    }
}

/// Reason why a token does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("there is no token")]
    Missing,
    #[error("the token is not signed with a known key")]
    Signature,
    #[error("the token is over")]
    Over,
    #[error("the token is of another issuer or for another audience")]
    Other,
}

impl Check {
    /// Returns the claims of a token.
    pub fn verify(&self, token: &str, now_s: i64) -> Result<Claims, TokenError> {
        if token.is_empty() {
            return Err(TokenError::Missing);
        }
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Signature);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Signature)?;
        let (signing, payload) = match signed.split_once('.') {
            None => (Signing::Hmac, signed),
            Some((header, payload)) => (signing(header).ok_or(TokenError::Signature)?, payload),
        };
        let mut keys = self.keys.iter();
        if !keys.any(|key| key.has_signed(signed, signature, signing)) {
            return Err(TokenError::Signature);
        }
        let claims = read(payload).ok_or(TokenError::Signature)?;
        self.hold(&claims, now_s)?;
        Ok(claims)
    }

    fn hold(&self, claims: &Claims, now_s: i64) -> Result<(), TokenError> {
        // Seconds may have a fraction (RFC 7519). A time that is no number is over.
        let time = |name: &str| {
            let claim = claims.get(name)?;
            Some(claim.as_f64().filter(|seconds| seconds.is_finite()))
        };
        let (now_s, skew_s) = (now_s as f64, SKEW_S as f64);
        let is_over = time("exp").is_some_and(|end| end.is_none_or(|end| now_s > end + skew_s));
        let is_early = time("nbf").is_some_and(|begin| begin.is_none_or(|begin| now_s + skew_s < begin));
        let is_old = self.age_s.is_some_and(|age| {
            let issued = time("iat").flatten();
            issued.is_none_or(|issued| now_s - issued > age as f64 + skew_s || issued > now_s + skew_s)
        });
        if is_over || is_early || is_old {
            return Err(TokenError::Over);
        }
        let is_issuers = |issuer: &String| claims.get("iss").and_then(Value::as_str) == Some(issuer);
        // One audience, or a list (RFC 7519, 4.1.3).
        let is_for = |audience: &String| match claims.get("aud") {
            Some(Value::String(text)) => text == audience,
            Some(Value::Array(texts)) => texts.iter().any(|text| text.as_str() == Some(audience)),
            Some(_) | None => false,
        };
        if self.issuer.as_ref().is_none_or(is_issuers) && self.audience.as_ref().is_none_or(is_for) {
            Ok(())
        } else {
            Err(TokenError::Other)
        }
    }

    /// Makes a token of claims, signed with the first key. `None` if that is a public key.
    pub fn sign(&self, claims: &Claims) -> Option<String> {
        let payload = URL_SAFE_NO_PAD.encode(serde_json::to_vec(claims).ok()?);
        let signature = self.keys.first()?.sign(&payload)?;
        Some(format!("{payload}.{signature}"))
    }
}

/// Returns the algorithm that a header names. `None` if it is unknown, or if the header asks for rules that
/// are not known here (RFC 7515, 4.1.11; RFC 7797).
fn signing(header: &str) -> Option<Signing> {
    let header = read(header)?;
    let has_extension = header.contains_key("crit") || header.contains_key("b64");
    let name = header.get("alg")?.as_str().filter(|_| !has_extension)?;
    Signing::of(name)
}

fn read(part: &str) -> Option<Claims> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

#[cfg(test)]
mod tests;
