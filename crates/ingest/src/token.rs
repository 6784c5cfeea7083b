//! Signed tokens: `PAYLOAD.SIGNATURE`, or a JWT with HS256.
//!
//! ```text
//! base64url(claims) "." base64url(HMAC-SHA-256(key, base64url(claims)))
//! base64url(header) "." base64url(claims) "." base64url(HMAC-SHA-256(key, everything before))    RFC 7519
//! ```
//!
//! The signature is checked before anything of the token is read.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value};
use sha2::Sha256;

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
    pub keys: Vec<Vec<u8>>,
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
        let signature = URL_SAFE_NO_PAD
            .decode(signature)
            .map_err(|_| TokenError::Signature)?;
        let is_signed = self.keys.iter().any(|key| {
            let mac = Hmac::<Sha256>::new_from_slice(key);
            mac.is_ok_and(|mac| {
                mac.chain_update(signed.as_bytes())
                    .verify_slice(&signature)
                    .is_ok()
            })
        });
        if !is_signed {
            return Err(TokenError::Signature);
        }
        let payload = match signed.split_once('.') {
            None => signed,
            Some((header, payload)) => {
                let header = read(header).ok_or(TokenError::Signature)?;
                if header.get("alg").and_then(Value::as_str) != Some("HS256") {
                    return Err(TokenError::Signature);
                }
                payload
            }
        };
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
            issued.is_none_or(|issued| now_s - issued > age as f64 + skew_s)
        });
        if is_over || is_early || is_old {
            return Err(TokenError::Over);
        }
        let is = |wanted: &Option<String>, name: &str| {
            wanted.as_ref().is_none_or(|wanted| match claims.get(name) {
                Some(Value::String(text)) => text == wanted,
                Some(Value::Array(texts)) => texts.iter().any(|text| text.as_str() == Some(wanted)),
                _ => false,
            })
        };
        if is(&self.issuer, "iss") && is(&self.audience, "aud") {
            Ok(())
        } else {
            Err(TokenError::Other)
        }
    }

    /// Makes a token of claims, signed with the first key.
    pub fn sign(&self, claims: &Claims) -> Option<String> {
        let payload = URL_SAFE_NO_PAD.encode(serde_json::to_vec(claims).ok()?);
        let mac = Hmac::<Sha256>::new_from_slice(self.keys.first()?).ok()?;
        let signature = mac.chain_update(payload.as_bytes()).finalize().into_bytes();
        Some(format!("{payload}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

fn read(part: &str) -> Option<Claims> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check() -> Check {
        Check {
            keys: vec![
                b"the second key, of today".to_vec(),
                b"the first key, of before".to_vec(),
            ],
            issuer: Some("apps".to_owned()),
            audience: None,
            age_s: Some(100),
        }
    }

    fn claims(value: &Value) -> Claims {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn tokens_count_as_long_as_they_hold() {
        let check = check();
        let fraction = json!({"iss": "apps", "iat": 999.5, "exp": 1050.25, "nbf": 990.75});
        let token = check.sign(&claims(&fraction)).unwrap();
        assert_eq!(check.verify(&token, 1000), Ok(claims(&fraction)));
        let sound = json!({"iss": "apps", "iat": 1000, "exp": 1050, "sub": "d-1"});
        let token = check.sign(&claims(&sound)).unwrap();
        assert_eq!(check.verify(&token, 1000), Ok(claims(&sound)));
        assert_eq!(check.verify(&token, 1111), Err(TokenError::Over));
        let old = Check {
            keys: vec![check.keys[1].clone()],
            ..check.clone()
        };
        let earlier = old.sign(&claims(&json!({"iss": "apps", "iat": 1000}))).unwrap();
        assert!(check.verify(&earlier, 1000).is_ok(), "the key of before");
        assert_eq!(old.verify(&token, 1000), Err(TokenError::Signature));
        for (other, why) in [
            (json!({"iss": "others", "iat": 1000}), TokenError::Other),
            (json!({"iat": 1000}), TokenError::Other),
            (json!({"iss": "apps"}), TokenError::Over),
            (json!({"iss": "apps", "iat": 1000, "nbf": 2000}), TokenError::Over),
            (
                json!({"iss": "apps", "iat": 1000, "exp": 100.5}),
                TokenError::Over,
            ),
            (
                json!({"iss": "apps", "iat": 1000, "nbf": 2000.5}),
                TokenError::Over,
            ),
            (
                json!({"iss": "apps", "iat": 1000, "exp": "2000"}),
                TokenError::Over,
            ),
            (json!({"iss": "apps", "iat": 1000, "exp": null}), TokenError::Over),
            (json!({"iss": "apps", "iat": 1000, "nbf": [1]}), TokenError::Over),
            (json!({"iss": "apps", "iat": "1000"}), TokenError::Over),
        ] {
            let token = check.sign(&claims(&other)).unwrap();
            assert_eq!(check.verify(&token, 1000), Err(why), "{other}");
        }
    }

    #[test]
    fn nothing_of_a_forged_token_counts() {
        let check = check();
        let token = check.sign(&claims(&json!({"iss": "apps", "iat": 1000}))).unwrap();
        let (payload, signature) = token.split_once('.').unwrap();
        let forged = URL_SAFE_NO_PAD.encode("{\"iss\":\"apps\",\"iat\":1000,\"sub\":\"admin\"}");
        for (token, why) in [
            (String::new(), TokenError::Missing),
            (".".to_owned(), TokenError::Signature),
            (payload.to_owned(), TokenError::Signature),
            (format!("{payload}."), TokenError::Signature),
            (format!("{forged}.{signature}"), TokenError::Signature),
            (
                format!(
                    "{}.{payload}.{signature}",
                    URL_SAFE_NO_PAD.encode("{\"alg\":\"none\"}")
                ),
                TokenError::Signature,
            ),
            ("a".repeat(5000), TokenError::Signature),
        ] {
            assert_eq!(check.verify(&token, 1000), Err(why), "{token}");
        }
    }

    #[test]
    fn a_jwt_of_another_program_is_read() {
        // The example of RFC 7515, A.1, has another algorithm's key; this one was made with Python's hmac.
        let check = Check {
            keys: vec![b"0123456789abcdef".to_vec()],
            issuer: None,
            audience: Some("tv".to_owned()),
            age_s: None,
        };
        let token = JWT;
        assert_eq!(check.verify(token, 0).unwrap()["sub"], "d-1");
    }

    const JWT: &str = "eyJhbGciOiAiSFMyNTYiLCAidHlwIjogIkpXVCJ9.eyJzdWIiOiAiZC0xIiwgImF1ZCI6IFsid2ViIiwgInR2Il19.q5cdkJerCRNOf2-NJkGA17c6M2VQ1lIkB0SjyAlQF0o";
}
