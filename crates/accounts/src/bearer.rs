//! Bearer tokens of an authorization server: JSON Web Tokens (RFC 7519) that are checked offline against its
//! public keys (RFC 7517). A token says which user its bearer is; rights are those of the user's rules.
//!
//! Tokens that are signed with a shared secret, or not at all, are refused, whatever the keys say.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::Value;

/// Bytes of the longest token.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Keys of a server, at most.
const KEYS_MAX: usize = 64;
/// Difference of clocks that is tolerated. A token is good for so long behind its `exp`, in logins and in what
/// goes on.
const LEEWAY: Duration = Duration::from_secs(30);

/// An authorization server.
#[derive(Debug, Clone, Default)]
pub struct BearerSettings {
    /// Its keys, as JSON (RFC 7517).
    pub keys: Vec<u8>,
    /// Issuer of its tokens.
    pub issuer: String,
    /// Audience that a token has to be for.
    pub audience: String,
    /// Claim that is the name of the user.
    pub user_claim: String,
}

/// Settings that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BearerError {
    #[error("the keys are no JSON Web Key Set: {0}")]
    Malformed(String),
    #[error("the key set has none of 1 to {KEYS_MAX} public keys that sign tokens (RSA, EC, Ed25519)")]
    NoKeys,
    #[error("tokens need an issuer, an audience and the claim of the user")]
    Incomplete,
}

/// Checks tokens of one server.
pub(super) struct Bearer {
    keys: Vec<Key>,
    issuer: String,
    audience: String,
    user_claim: String,
}

struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    public: DecodingKey,
}

/// Returns true if the header asks for rules that are not known here (RFC 7515, 4.1.11; RFC 7797).
fn has_extension(token: &[u8]) -> bool {
    let header = token.split(|byte| *byte == b'.').next().unwrap_or_default();
    let header = URL_SAFE_NO_PAD.decode(header).unwrap_or_default();
    let header: HashMap<String, Value> = serde_json::from_slice(&header).unwrap_or_default();
    header.contains_key("crit") || header.contains_key("b64")
}

/// Claims of a good token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    pub(super) user: String,
    /// End of the token, with the tolerated difference of clocks.
    pub(super) expires_ms: i64,
}

impl fmt::Debug for Bearer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} keys of {}", self.keys.len(), self.issuer)
    }
}

/// Returns true for the form of a signed token: three parts with dots between, the first a JSON object.
pub(super) fn is_bearer(token: &[u8]) -> bool {
    token.starts_with(b"eyJ") && token.split(|byte| *byte == b'.').count() == 3
}

impl BearerSettings {
    /// Refuses settings that lack what tokens need, beside the keys.
    pub fn check(&self) -> Result<(), BearerError> {
        let needed = [&self.issuer, &self.audience, &self.user_claim];
        if needed.iter().any(|text| text.is_empty()) {
            return Err(BearerError::Incomplete);
        }
        Ok(())
    }
}

impl Bearer {
    pub(super) fn new(settings: &BearerSettings) -> Result<Self, BearerError> {
        settings.check()?;
        let BearerSettings {
            keys,
            issuer,
            audience,
            user_claim,
        } = settings;
        let set: JwkSet =
            serde_json::from_slice(keys).map_err(|error| BearerError::Malformed(error.to_string()))?;
        let keys: Vec<Key> = set.keys.iter().filter_map(Key::of).collect();
        if keys.is_empty() || keys.len() > KEYS_MAX {
            return Err(BearerError::NoKeys);
        }
        Ok(Self {
            keys,
            issuer: issuer.clone(),
            audience: audience.clone(),
            user_claim: user_claim.clone(),
        })
    }

    /// Returns true for a token of a key that is not among these: newer ones may have it.
    pub(super) fn lacks_key_of(&self, token: &[u8]) -> bool {
        let header = (token.len() <= TOKEN_BYTES_MAX).then(|| decode_header(token).ok());
        let named = header.flatten().and_then(|header| header.kid);
        named.is_some_and(|named| self.keys.iter().all(|key| key.id.as_ref() != Some(&named)))
    }

    /// Checks a token. `None` if it is not good.
    pub(super) fn check(&self, token: &[u8]) -> Option<Claimed> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        // An unknown algorithm, `none` among them, is an error of the header.
        let header = decode_header(token).ok()?;
        if has_extension(token) {
            return None;
        }
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY.as_secs();
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        let is_candidate = |key: &&Key| {
            let is_named = header.kid.is_none() || key.id.is_none() || key.id == header.kid;
            is_named && key.algorithms.contains(&header.alg)
        };
        let mut candidates = self.keys.iter().filter(is_candidate);
        let claims = candidates.find_map(|key| {
            let decoded = decode::<HashMap<String, Value>>(token, &key.public, &validation);
            decoded.ok().map(|data| data.claims)
        })?;
        // The library takes a list that contains the issuer.
        claims.get("iss")?.as_str()?;
        let user = claims.get(&self.user_claim)?.as_str()?;
        let expiry = claims.get("exp")?.as_f64()?;
        #[expect(clippy::cast_possible_truncation, reason = "saturates far in the future")]
        let expires_ms = ((expiry + LEEWAY.as_secs_f64()) * 1000.0) as i64;
        (!user.is_empty()).then(|| Claimed {
            user: user.to_owned(),
            expires_ms,
        })
    }
}

impl Key {
    /// Returns a public key that signs tokens. `None` for others.
    fn of(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        if !matches!(common.public_key_use, None | Some(PublicKeyUse::Signature)) {
            return None;
        }
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "other curves, shared secrets, and kinds that the library may add"
        )]
        let known: &[Algorithm] = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => &[
                Algorithm::RS256,
                Algorithm::RS384,
                Algorithm::RS512,
                Algorithm::PS256,
                Algorithm::PS384,
                Algorithm::PS512,
            ],
            AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P256 => {
                &[Algorithm::ES256]
            }
            AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P384 => {
                &[Algorithm::ES384]
            }
            AlgorithmParameters::OctetKeyPair(_) => &[Algorithm::EdDSA],
            _ => return None,
        };
        let declared: Option<Algorithm> = match common.key_algorithm {
            Some(algorithm) => Some(algorithm.to_string().parse().ok()?),
            None => None,
        };
        let algorithms: HashSet<Algorithm> = match declared {
            Some(algorithm) => known.iter().copied().filter(|it| *it == algorithm).collect(),
            None => known.iter().copied().collect(),
        };
        (!algorithms.is_empty()).then_some(())?;
        Some(Self {
            id: common.key_id.clone(),
            algorithms: algorithms.into_iter().collect(),
            public: DecodingKey::from_jwk(jwk).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::json;

    use super::*;

    struct Server {
        key: EncodingKey,
        jwk: Jwk,
    }

    fn server(id: &str) -> Server {
        let pair = rcgen::KeyPair::generate().unwrap();
        let key = EncodingKey::from_ec_der(&pair.serialize_der());
        let mut jwk = Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap();
        jwk.common.key_id = Some(id.to_owned());
        Server { key, jwk }
    }

    fn settings(keys: &[&Jwk]) -> BearerSettings {
        BearerSettings {
            keys: json!({ "keys": keys }).to_string().into_bytes(),
            issuer: "https://login.example".to_owned(),
            audience: "stafett".to_owned(),
            user_claim: "sub".to_owned(),
        }
    }

    fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
    }

    fn claims() -> Value {
        json!({ "iss": "https://login.example", "aud": ["other", "stafett"], "sub": "ann", "exp": now() + 600 })
    }

    fn signed(server: &Server, claims: &Value) -> Vec<u8> {
        let header = Header {
            kid: server.jwk.common.key_id.clone(),
            ..Header::new(Algorithm::ES256)
        };
        encode(&header, claims, &server.key).unwrap().into_bytes()
    }

    #[test]
    fn a_good_token_names_its_user_and_all_others_are_refused() {
        let (own, other) = (server("a"), server("b"));
        let bearer = Bearer::new(&settings(&[&other.jwk, &own.jwk])).unwrap();
        let good = signed(&own, &claims());
        assert!(is_bearer(&good));
        let claimed = bearer.check(&good).unwrap();
        assert_eq!(claimed.user, "ann");
        let left_ms = claimed.expires_ms - i64::try_from(now()).unwrap() * 1000;
        assert!((620_000..=630_000).contains(&left_ms), "{left_ms}");
        let with = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            signed(&own, &claims)
        };
        for (name, value) in [
            ("exp", json!(now() - 100)),
            ("exp", Value::Null),
            ("nbf", json!(now() + 100)),
            ("aud", json!("other")),
            ("aud", Value::Null),
            ("iss", json!("https://other.example")),
            ("iss", Value::Null),
            ("iss", json!(["https://login.example"])),
            ("sub", Value::Null),
            ("sub", json!("")),
            ("sub", json!(["ann"])),
        ] {
            assert_eq!(bearer.check(&with(name, value.clone())), None, "{name} {value}");
        }
        // A key that is not one of the server's, also under the name of one that is.
        let stranger = server("a");
        assert_eq!(bearer.check(&signed(&stranger, &claims())), None);
        assert!(!bearer.lacks_key_of(&signed(&stranger, &claims())));
        assert!(bearer.lacks_key_of(&signed(&server("c"), &claims())));
        let only_other = Bearer::new(&settings(&[&other.jwk])).unwrap();
        assert_eq!(only_other.check(&good), None);
    }

    #[test]
    fn forged_and_malformed_tokens_are_refused() {
        let own = server("a");
        let bearer = Bearer::new(&settings(&[&own.jwk])).unwrap();
        let good = String::from_utf8(signed(&own, &claims())).unwrap();
        let parts: Vec<&str> = good.split('.').collect();
        let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let none = encoded(&json!({ "alg": "none", "typ": "JWT" }));
        // The public key as a shared secret.
        let secret = EncodingKey::from_secret(&serde_json::to_vec(&own.jwk).unwrap());
        let confused = encode(&Header::new(Algorithm::HS256), &claims(), &secret).unwrap();
        let mut changed = claims();
        changed["sub"] = json!("root");
        for forged in [
            format!("{none}.{}.", parts[1]),
            format!("{none}.{}.{}", parts[1], parts[2]),
            format!("{}.{}.", parts[0], parts[1]),
            format!("{}.{}.{}", parts[0], encoded(&changed), parts[2]),
            confused,
            good[..good.len() - 4].to_owned(),
            "eyJ..".to_owned(),
            "eyJ.eyJ.eyJ".to_owned(),
            String::new(),
            format!("{}.{}", "e".repeat(100_000), good),
        ] {
            assert_eq!(bearer.check(forged.as_bytes()), None, "{forged:.80}");
        }
        for (name, value) in [("crit", json!(["x"])), ("b64", json!(false))] {
            let mut header = json!({"alg": "ES256", "typ": "JWT"});
            header[name] = value;
            let message = format!("{}.{}", encoded(&header), encoded(&claims()));
            let signature =
                jsonwebtoken::crypto::sign(message.as_bytes(), &own.key, Algorithm::ES256).unwrap();
            let token = format!("{message}.{signature}");
            assert_eq!(bearer.check(token.as_bytes()), None, "{name}");
        }
        let mut large = claims();
        large["more"] = json!("x".repeat(TOKEN_BYTES_MAX));
        assert_eq!(bearer.check(&signed(&own, &large)), None);
    }

    #[test]
    fn key_sets_without_a_public_key_and_incomplete_settings_are_refused() {
        let own = server("a");
        let good = settings(&[&own.jwk]);
        let with = |keys: &str| BearerSettings {
            keys: keys.as_bytes().to_vec(),
            ..good.clone()
        };
        assert!(matches!(Bearer::new(&with("{")), Err(BearerError::Malformed(_))));
        let shared = r#"{"keys": [{"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}]}"#;
        for keys in [r#"{"keys": []}"#, shared] {
            assert_eq!(Bearer::new(&with(keys)).unwrap_err(), BearerError::NoKeys);
        }
        let anyone = BearerSettings {
            audience: String::new(),
            ..good
        };
        assert_eq!(Bearer::new(&anyone).unwrap_err(), BearerError::Incomplete);
    }
}
