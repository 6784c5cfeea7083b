//! The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding.
//!
//! ```text
//! client   n,,n=USER,r=NONCE                        Client::first
//! server   r=NONCE+OTHER,s=SALT,i=ITERATIONS        ▶ Client::proof
//! client   c=biws,r=NONCE+OTHER,p=PROOF
//! server   v=SIGNATURE                              ▶ Proof::accepts
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// Iterations that a server may ask for.
const ITERATIONS: std::ops::RangeInclusive<u32> = 4096..=1_000_000;

pub(super) struct Client {
    bare: String,
    nonce: String,
    password: String,
}

pub(super) struct Proof {
    pub(super) message: String,
    signature: [u8; 32],
}

fn signed(key: &[u8], message: &[u8]) -> [u8; 32] {
    // A key may have any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return [0; 32];
    };
    mac.update(message);
    mac.finalize().into_bytes().into()
}

impl Client {
    pub(super) fn new(user: &str, password: &str, nonce: &str) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Self {
            bare: format!("n={user},r={nonce}"),
            nonce: nonce.to_owned(),
            password: password.to_owned(),
        }
    }

    pub(super) fn first(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// Answers the server's challenge. `None` if it is none.
    pub(super) fn proof(&self, challenge: &str) -> Option<Proof> {
        let mut parts = challenge.split(',');
        let nonce = parts.next()?.strip_prefix("r=")?;
        let salt = STANDARD.decode(parts.next()?.strip_prefix("s=")?).ok()?;
        let iterations = parts.next()?.strip_prefix("i=")?.parse().ok()?;
        let is_ours = nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce);
        if !is_ours || !ITERATIONS.contains(&iterations) {
            return None;
        }
        let mut salted = [0; 32];
        pbkdf2::pbkdf2_hmac::<Sha256>(self.password.as_bytes(), &salt, iterations, &mut salted);
        let head = format!("c=biws,r={nonce}");
        let message = format!("{},{challenge},{head}", self.bare);
        let client_key = signed(&salted, b"Client Key");
        let stored_key: [u8; 32] = Sha256::digest(client_key).into();
        let client_signature = signed(&stored_key, message.as_bytes());
        let proof: Vec<u8> = client_key
            .iter()
            .zip(client_signature)
            .map(|(one, other)| one ^ other)
            .collect();
        let server_key = signed(&salted, b"Server Key");
        Some(Proof {
            message: format!("{head},p={}", STANDARD.encode(proof)),
            signature: signed(&server_key, message.as_bytes()),
        })
    }
}

impl Proof {
    /// True for the signature of a server that knows the password too.
    pub(super) fn accepts(&self, message: &str) -> bool {
        let signature = message
            .strip_prefix("v=")
            .and_then(|text| STANDARD.decode(text).ok());
        signature.is_some_and(|signature| signature == self.signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3.
    #[test]
    fn the_exchange_is_that_of_the_specification() {
        let client = Client::new("user", "pencil", "rOprNGfwEbeRWgbNEkqO");
        assert_eq!(client.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let challenge =
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let proof = client.proof(challenge).unwrap();
        assert_eq!(
            proof.message,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert!(proof.accepts("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        assert!(!proof.accepts("v=AAAA"));
        for bad in [
            "r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "r=rOprNGfwEbeRWgbNEkqOx,s=?,i=4096",
            "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1",
            "e=other-error",
        ] {
            assert!(client.proof(bad).is_none(), "{bad}");
        }
    }
}
