//! The right to give an agent orders: both sides prove that they know a secret without sending it.
//!
//! Each side sends an unpredictable number; the other answers with an HMAC-SHA-256 (RFC 2104) of it under the
//! secret and the name of its own side, so that no answer can be sent back as one's own. The rest of the
//! connection is neither signed nor encrypted.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// A secret that both sides know. It is never printed.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

/// Side that proves its knowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Controller,
    Agent,
}

/// Length of the shortest secret.
const BYTES_MIN: usize = 8;

impl Secret {
    /// Fails where it is too short.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() < BYTES_MIN {
            return Err(format!("a secret has at least {BYTES_MIN} bytes"));
        }
        Ok(Self(text.as_bytes().to_vec()))
    }

    /// The proof of one side for the number that the other has sent.
    pub fn proof(&self, side: Side, challenge: &str) -> String {
        STANDARD.encode(self.mac(side, challenge).finalize().into_bytes())
    }

    /// Returns true if the proof is right; takes the same time whatever is wrong with it.
    pub fn is_proven(&self, side: Side, challenge: &str, proof: &str) -> bool {
        STANDARD
            .decode(proof)
            .is_ok_and(|proof| self.mac(side, challenge).verify_slice(&proof).is_ok())
    }

    fn mac(&self, side: Side, challenge: &str) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "a key of any length is one (RFC 2104)")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any key is taken");
        mac.update(match side {
            Side::Controller => b"controller ",
            Side::Agent => b"agent ",
        });
        mac.update(challenge.as_bytes());
        mac
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Returns an unpredictable number.
pub fn challenge() -> String {
    uuid::Uuid::new_v4().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_side_one_number_and_one_secret() {
        let secret = Secret::new("a secret of ours\n").unwrap();
        let number = challenge();
        let proof = secret.proof(Side::Agent, &number);
        assert!(secret.is_proven(Side::Agent, &number, &proof));
        assert!(!secret.is_proven(Side::Controller, &number, &proof));
        assert!(!secret.is_proven(Side::Agent, &challenge(), &proof));
        let other = Secret::new("another secret").unwrap();
        assert!(!other.is_proven(Side::Agent, &number, &proof));
        for wrong in ["", "?", "AAAA", &"A".repeat(5000)] {
            assert!(!secret.is_proven(Side::Agent, &number, wrong));
        }
        assert_eq!(format!("{secret:?}"), "Secret");
        assert!(Secret::new("short\n").is_err());
    }

    #[test]
    fn proofs_are_hmacs_as_others_compute_them() {
        // Python: base64.b64encode(hmac.digest(b"keykeykey", b"agent abc", "sha256"))
        let secret = Secret::new("keykeykey").unwrap();
        assert_eq!(
            secret.proof(Side::Agent, "abc"),
            "42YnLmfVo8jfkuHdPPbUQ9XGAmTjToQEDGRF7p1Ed/c="
        );
    }
}
