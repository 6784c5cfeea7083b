//! Keys of tokens: secrets, and public keys of other programs.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use sha2::Sha256;

/// Bytes of a secret, at least: a shorter one can be guessed.
const SECRET_BYTES_MIN: usize = 16;
const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const END: &str = "-----END PUBLIC KEY-----";
/// A public key on the curve P-256 in DER, before the point `04 x y` (RFC 5480).
const P256: &[u8] = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
const P256_BYTES: usize = 32;
/// A public key of Ed25519 in DER, before its 32 bytes (RFC 8410).
const ED25519: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";
const ED25519_BYTES: usize = 32;

/// Algorithms of signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signing {
    Hmac,
    P256,
    Ed25519,
}

impl Signing {
    /// Returns the algorithm that a JWT names.
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            "HS256" => Some(Self::Hmac),
            "ES256" => Some(Self::P256),
            "EdDSA" => Some(Self::Ed25519),
            _ => None,
        }
    }
}

/// A key that tokens are checked with.
#[derive(Clone)]
pub enum Key {
    Secret(Vec<u8>),
    P256(DecodingKey),
    Ed25519(DecodingKey),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret(_) => "a secret",
            Self::P256(_) => "a public key of P-256",
            Self::Ed25519(_) => "a public key of Ed25519",
        })
    }
}

impl Key {
    /// Reads a secret: any text of 16 bytes or more.
    pub(crate) fn secret(text: &str) -> Result<Self, &'static str> {
        if text.len() < SECRET_BYTES_MIN {
            return Err("a key has at least 16 bytes");
        }
        if text.contains("-----BEGIN") {
            return Err("it is a key in PEM, which is no secret: give it as public_key");
        }
        Ok(Self::Secret(text.as_bytes().to_vec()))
    }

    /// Reads a public key in PEM.
    pub(crate) fn public(text: &str) -> Result<Self, &'static str> {
        let why = "it is no public key in PEM, of the curve P-256 or of Ed25519";
        let body = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
        let body = body.ok_or(why)?.0;
        let body: String = body.split_ascii_whitespace().collect();
        let der = STANDARD.decode(body).map_err(|_| why)?;
        let text = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
        if let Some(point) = der.strip_prefix(P256)
            && let Some((x, y)) = point
                .strip_prefix(&[4])
                .and_then(|xy| xy.split_at_checked(P256_BYTES))
            && y.len() == P256_BYTES
        {
            let key = DecodingKey::from_ec_components(&text(x), &text(y));
            return key.map(Self::P256).map_err(|_| why);
        }
        if let Some(key) = der.strip_prefix(ED25519).filter(|key| key.len() == ED25519_BYTES) {
            let key = DecodingKey::from_ed_components(&text(key));
            return key.map(Self::Ed25519).map_err(|_| why);
        }
        Err(why)
    }

    /// Returns true if `signature` (base64url) is this key's for `signed`.
    pub(crate) fn has_signed(&self, signed: &str, signature: &str, by: Signing) -> bool {
        let verified =
            |key, algorithm| crypto::verify(signature, signed.as_bytes(), key, algorithm).unwrap_or(false);
        match (self, by) {
            (Self::Secret(secret), Signing::Hmac) => {
                let mac = Hmac::<Sha256>::new_from_slice(secret);
                let signature = URL_SAFE_NO_PAD.decode(signature);
                mac.ok().zip(signature.ok()).is_some_and(|(mac, signature)| {
                    mac.chain_update(signed.as_bytes())
                        .verify_slice(&signature)
                        .is_ok()
                })
            }
            (Self::P256(key), Signing::P256) => verified(key, Algorithm::ES256),
            (Self::Ed25519(key), Signing::Ed25519) => verified(key, Algorithm::EdDSA),
            (Self::Secret(_), Signing::P256 | Signing::Ed25519)
            | (Self::P256(_), Signing::Hmac | Signing::Ed25519)
            | (Self::Ed25519(_), Signing::Hmac | Signing::P256) => false,
        }
    }

    /// Returns the signature of a text, base64url. `None` for a public key.
    pub(crate) fn sign(&self, text: &str) -> Option<String> {
        let Self::Secret(secret) = self else {
            return None;
        };
        let mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
        let signature = mac.chain_update(text.as_bytes()).finalize().into_bytes();
        Some(URL_SAFE_NO_PAD.encode(signature))
    }
}
