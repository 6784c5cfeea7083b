//! The server's side of SCRAM (RFC 5802, RFC 7677), without channel binding.
//!
//! ```text
//! client   n,,n=user,r=NONCE                        ▶ First
//! server   r=NONCE+OURS,s=SALT,i=ITERATIONS
//! client   c=biws,r=NONCE+OURS,p=PROOF              ▶ Exchange::finish
//! server   v=SIGNATURE
//! ```
//!
//! A user that does not exist gets a salt and iterations like others, always the same, and fails at the end.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use crate::verifier::{Hash, ITERATIONS, ScramVerifier};

/// Bytes of the longest message of a client.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// Bytes of the longest nonce of a client.
const NONCE_BYTES_MAX: usize = 512;

/// Reason why an exchange ends. Each but [`ScramError::Refused`] is a client that does not follow the
/// protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    #[error("the message is malformed")]
    Malformed,
    #[error("channel binding and extensions are not supported")]
    Unsupported,
    #[error("the user acts for itself only")]
    OtherAuthorization,
    #[error("the nonce is not that of this exchange")]
    ForgedNonce,
    /// Wrong password, or no such user.
    #[error("the proof is wrong")]
    Refused,
}

/// First message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct First {
    pub user: String,
    nonce: String,
    /// The part that the client repeats in base64.
    gs2_header: String,
    /// The rest, which is signed.
    bare: String,
}

/// An exchange that waits for the client's second message.
pub struct Exchange {
    verifier: ScramVerifier,
    is_known: bool,
    nonce: String,
    gs2_header: String,
    /// Beginning of the signed message.
    signed: String,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Exchange")
    }
}

impl First {
    pub fn read(message: &[u8]) -> Result<Self, ScramError> {
        let message = text(message)?;
        let mut parts = message.splitn(3, ',');
        let (binding, authorization) = (next(&mut parts)?, next(&mut parts)?);
        let bare = next(&mut parts)?;
        if !matches!(binding, "n" | "y") {
            let is_binding = binding.starts_with("p=");
            return Err(if is_binding {
                ScramError::Unsupported
            } else {
                ScramError::Malformed
            });
        }
        let mut fields = bare.split(',');
        let first = next(&mut fields)?;
        if first.starts_with("m=") {
            return Err(ScramError::Unsupported);
        }
        let user = name(first.strip_prefix("n=").ok_or(ScramError::Malformed)?)?;
        let nonce = next(&mut fields)?
            .strip_prefix("r=")
            .ok_or(ScramError::Malformed)?;
        let is_nonce = nonce.bytes().all(|byte| matches!(byte, 0x21..=0x7e));
        if nonce.is_empty() || nonce.len() > NONCE_BYTES_MAX || !is_nonce {
            return Err(ScramError::Malformed);
        }
        // Extensions are optional, but one that stands for another kind of login changes the password's
        // meaning.
        if fields.any(|field| field.eq_ignore_ascii_case("tokenauth=true")) {
            return Err(ScramError::Unsupported);
        }
        match authorization.strip_prefix("a=") {
            None if authorization.is_empty() => {}
            None => return Err(ScramError::Malformed),
            Some(other) if name(other)? == user => {}
            Some(_) => return Err(ScramError::OtherAuthorization),
        }
        Ok(Self {
            user,
            nonce: nonce.to_owned(),
            gs2_header: format!("{binding},{authorization},"),
            bare: bare.to_owned(),
        })
    }

    /// Answers with the salt of the user, or of one that could be there. `nonce` is random, `secret` always
    /// the same.
    #[must_use]
    pub fn answer(
        self,
        hash: Hash,
        verifier: Option<&ScramVerifier>,
        nonce: &str,
        secret: &[u8],
    ) -> (Exchange, String) {
        let nonce = self.nonce + nonce;
        let is_known = verifier.is_some();
        // Made up for each, so that a user that is there takes no less work.
        let made_up = unknown(hash, &self.user, secret);
        let verifier = verifier.cloned().unwrap_or(made_up);
        let (salt, iterations) = (STANDARD.encode(&verifier.salt), verifier.iterations);
        let answer = format!("r={nonce},s={salt},i={iterations}");
        let exchange = Exchange {
            verifier,
            is_known,
            nonce,
            gs2_header: self.gs2_header,
            signed: format!("{},{answer},", self.bare),
        };
        (exchange, answer)
    }
}

impl Exchange {
    /// Checks the proof of the client, and returns the last message, which proves that the server has the
    /// verifier.
    pub fn finish(self, message: &[u8]) -> Result<String, ScramError> {
        let message = text(message)?;
        let (unsigned, proof) = message.rsplit_once(",p=").ok_or(ScramError::Malformed)?;
        let mut fields = unsigned.split(',');
        let binding = next(&mut fields)?
            .strip_prefix("c=")
            .ok_or(ScramError::Malformed)?;
        let nonce = next(&mut fields)?
            .strip_prefix("r=")
            .ok_or(ScramError::Malformed)?;
        let decoded = |text: &str| STANDARD.decode(text).map_err(|_| ScramError::Malformed);
        let (binding, proof) = (decoded(binding)?, decoded(proof)?);
        if binding != self.gs2_header.as_bytes() {
            return Err(ScramError::Unsupported);
        }
        // Some clients send their own part twice (librdkafka before 2.6): all of it is signed, and ours is in
        // it.
        if !nonce.ends_with(&self.nonce) {
            return Err(ScramError::ForgedNonce);
        }
        let ScramVerifier {
            hash,
            stored_key,
            server_key,
            ..
        } = &self.verifier;
        let signed = self.signed + unsigned;
        let signature = hash.mac(stored_key, signed.as_bytes());
        if proof.len() != signature.len() {
            return Err(ScramError::Malformed);
        }
        let client_key: Vec<u8> = signature.iter().zip(&proof).map(|(a, b)| a ^ b).collect();
        let is_right = bool::from(hash.digest(&client_key).ct_eq(stored_key));
        let answer = STANDARD.encode(hash.mac(server_key, signed.as_bytes()));
        if is_right && self.is_known {
            Ok(format!("v={answer}"))
        } else {
            Err(ScramError::Refused)
        }
    }
}

/// Makes up a verifier that no password fits.
fn unknown(hash: Hash, user: &str, secret: &[u8]) -> ScramVerifier {
    let salt = hash.mac(secret, user.as_bytes());
    let salt = salt.get(..16).unwrap_or_default();
    ScramVerifier {
        hash,
        salt: salt.into(),
        iterations: ITERATIONS,
        stored_key: hash.mac(secret, salt).into(),
        server_key: hash.mac(salt, secret).into(),
    }
}

fn text(message: &[u8]) -> Result<&str, ScramError> {
    let message = (message.len() <= MESSAGE_BYTES_MAX).then_some(message);
    let text = message.and_then(|message| std::str::from_utf8(message).ok());
    text.ok_or(ScramError::Malformed)
}

fn next<'a>(parts: &mut impl Iterator<Item = &'a str>) -> Result<&'a str, ScramError> {
    parts.next().ok_or(ScramError::Malformed)
}

/// Reads a name, in which `=2C` is a comma and `=3D` an equals sign.
fn name(encoded: &str) -> Result<String, ScramError> {
    let mut name = String::new();
    let mut parts = encoded.split('=');
    name.push_str(next(&mut parts)?);
    for part in parts {
        let rest = part.strip_prefix("2C").map(|rest| (',', rest));
        let rest = rest.or_else(|| part.strip_prefix("3D").map(|rest| ('=', rest)));
        let (letter, rest) = rest.ok_or(ScramError::Malformed)?;
        name.push(letter);
        name.push_str(rest);
    }
    if name.is_empty() {
        return Err(ScramError::Malformed);
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::verifier::HASHED;

    /// Returns the number of bytes that each call hashes for a wrong proof.
    fn hashed_for(hash: Hash, user: &str, verifier: Option<&ScramVerifier>) -> Vec<usize> {
        HASHED.take();
        let first = First::read(format!("n,,n={user},r=theirs").as_bytes()).unwrap();
        let (exchange, _) = first.answer(hash, verifier, "ours", b"secret");
        let proof = STANDARD.encode(vec![7; hash.bytes()]);
        let last = format!("c=biws,r=theirsours,p={proof}");
        assert_eq!(exchange.finish(last.as_bytes()), Err(ScramError::Refused));
        HASHED.take()
    }

    #[test]
    fn an_unknown_user_takes_as_much_work_as_a_known_one() {
        for hash in [Hash::Sha256, Hash::Sha512] {
            let known = ScramVerifier::of_password(hash, b"secret", b"salt of 16 bytes", ITERATIONS);
            let of_known = hashed_for(hash, "user", Some(&known));
            assert!(!of_known.is_empty());
            assert_eq!(of_known, hashed_for(hash, "resu", None), "{hash:?}");
        }
    }

    const FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const OURS: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                         p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn pencil() -> ScramVerifier {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        ScramVerifier::of_password(Hash::Sha256, b"pencil", &salt, 4096)
    }

    fn begun() -> (Exchange, String) {
        let first = First::read(FIRST).unwrap();
        assert_eq!(first.user, "user");
        first.answer(Hash::Sha256, Some(&pencil()), OURS, b"secret")
    }

    /// Answers as a client does.
    fn proof(hash: Hash, password: &[u8], first_bare: &str, answer: &str) -> String {
        let field = |name: &str| {
            let mut fields = answer.split(',');
            fields.find_map(|field| field.strip_prefix(name)).unwrap()
        };
        let (nonce, salt) = (field("r="), STANDARD.decode(field("s=")).unwrap());
        let salted = hash.salted(password, &salt, field("i=").parse().unwrap());
        let client_key = hash.mac(&salted, b"Client Key");
        let unsigned = format!("c=biws,r={nonce}");
        let signed = format!("{first_bare},{answer},{unsigned}");
        let signature = hash.mac(&hash.digest(&client_key), signed.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        format!("{unsigned},p={}", STANDARD.encode(proof))
    }

    #[test]
    fn the_exchange_of_rfc_7677_section_3_is_followed() {
        let (exchange, answer) = begun();
        let expected =
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        assert_eq!(answer, expected);
        let last = exchange.finish(FINAL.as_bytes());
        assert_eq!(
            last.as_deref(),
            Ok("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
        );
    }

    #[test]
    fn both_hashes_let_in_the_right_password_only() {
        for hash in [Hash::Sha256, Hash::Sha512] {
            let verifier = ScramVerifier::of_password(hash, b"right", b"some salt", 4096);
            for (password, expected) in [(&b"right"[..], true), (b"wrong", false)] {
                let first = First::read(b"n,,n=a=2Cb=3D,r=abc").unwrap();
                assert_eq!(first.user, "a,b=");
                let (exchange, answer) = first.answer(hash, Some(&verifier), "xyz", b"");
                let last = exchange.finish(proof(hash, password, "n=a=2Cb=3D,r=abc", &answer).as_bytes());
                assert_eq!(last.is_ok(), expected);
                assert!(expected || last == Err(ScramError::Refused));
            }
        }
    }

    #[test]
    fn an_unknown_user_looks_like_a_known_one_and_is_refused() {
        let ask = |user: &str| {
            let first = First::read(format!("n,,n={user},r=abc").as_bytes()).unwrap();
            first.answer(Hash::Sha256, None, "xyz", b"secret")
        };
        let ((exchange, answer), (_, again), (_, other)) = (ask("ann"), ask("ann"), ask("bob"));
        assert_eq!(answer, again, "its salt is always the same");
        assert_ne!(answer, other);
        assert!(answer.ends_with(",i=8192"));
        let message = proof(Hash::Sha256, b"any", "n=ann,r=abc", &answer);
        assert_eq!(exchange.finish(message.as_bytes()), Err(ScramError::Refused));
    }

    #[test]
    fn hostile_first_messages_are_refused() {
        let long = format!("n,,n=user,r={}", "a".repeat(NONCE_BYTES_MAX + 1));
        let large = format!("n,,n={},r=a", "a".repeat(MESSAGE_BYTES_MAX));
        for (message, expected) in [
            ("", ScramError::Malformed),
            ("n", ScramError::Malformed),
            ("n,,", ScramError::Malformed),
            ("n,,n=user", ScramError::Malformed),
            ("n,,n=user,r=", ScramError::Malformed),
            ("n,,n=user,r=a b", ScramError::Malformed),
            ("n,,n=,r=abc", ScramError::Malformed),
            ("n,,n=a=2,r=abc", ScramError::Malformed),
            ("n,,n=a=2c,r=abc", ScramError::Malformed),
            ("n,,r=abc,n=user", ScramError::Malformed),
            ("x,,n=user,r=abc", ScramError::Malformed),
            ("n,user,n=user,r=abc", ScramError::Malformed),
            ("p=tls-unique,,n=user,r=abc", ScramError::Unsupported),
            ("n,,m=x,n=user,r=abc", ScramError::Unsupported),
            ("n,,n=user,r=abc,tokenauth=true", ScramError::Unsupported),
            ("n,a=root,n=user,r=abc", ScramError::OtherAuthorization),
            (&long, ScramError::Malformed),
            (&large, ScramError::Malformed),
        ] {
            assert_eq!(First::read(message.as_bytes()), Err(expected), "{message}");
        }
        assert_eq!(First::read(b"n,,n=\xff,r=abc"), Err(ScramError::Malformed));
        assert!(First::read(b"n,a=user,n=user,r=abc").is_ok());
    }

    #[test]
    fn forged_and_disordered_last_messages_are_refused() {
        let own = FINAL.split_once(",p=").unwrap().0;
        for (message, expected) in [
            (String::from_utf8(FIRST.to_vec()).unwrap(), ScramError::Malformed),
            (String::new(), ScramError::Malformed),
            (own.to_owned(), ScramError::Malformed),
            (format!("{own},p="), ScramError::Malformed),
            (format!("{own},p=!"), ScramError::Malformed),
            (format!("{own},p=AAAA"), ScramError::Malformed),
            (FINAL.replace("c=biws", "c=eSws"), ScramError::Unsupported),
            (FINAL.replace("r=rOpr", "r=rOpS"), ScramError::ForgedNonce),
            (FINAL.replace(OURS, ""), ScramError::ForgedNonce),
            (FINAL.replace("p=dHz", "p=dHy"), ScramError::Refused),
        ] {
            assert_eq!(begun().0.finish(message.as_bytes()), Err(expected), "{message}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_messages_never_let_in(
            first in proptest::collection::vec(any::<u8>(), 0..80), last in "[crpn=,a-z]{0,60}",
        ) {
            let _ = First::read(&first);
            prop_assert!(begun().0.finish(last.as_bytes()).is_err());
        }
    }
}
