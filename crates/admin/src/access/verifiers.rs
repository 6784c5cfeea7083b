//! Verifiers of passwords, as definitions show them: neither a password, nor anything that it follows from.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_access::{Hash, ITERATIONS_MAX, ITERATIONS_MIN, SaltedHash, ScramVerifier, Verifiers};
use stafett_http::Problem;

/// Bound on the bytes of a salt.
const SALT_BYTES_MAX: usize = 64;

/// Verifiers of a password.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "UserVerifiers")]
#[serde(deny_unknown_fields)]
pub(crate) struct VerifiersShown {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scram_sha256: Option<Scram>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scram_sha512: Option<Scram>,
    /// Salt and hash, as RabbitMQ has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    salted_hash: Option<Salted>,
}

/// Keys of SCRAM (RFC 5802), in base64.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ScramKeys")]
#[serde(deny_unknown_fields)]
struct Scram {
    iterations: u32,
    salt: String,
    stored_key: String,
    server_key: String,
}

/// Four bytes of salt and a hash of salt and password, in base64.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SaltedHash")]
#[serde(deny_unknown_fields)]
struct Salted {
    /// `sha256` or `sha512`.
    hash: String,
    bytes: String,
}

const HASHES: [(&str, Hash); 2] = [("sha256", Hash::Sha256), ("sha512", Hash::Sha512)];

impl VerifiersShown {
    pub(crate) fn of(verifiers: &Verifiers) -> Self {
        let scram = |verifier: &Option<ScramVerifier>| {
            verifier.as_ref().map(|it| Scram {
                iterations: it.iterations,
                salt: STANDARD.encode(&it.salt),
                stored_key: STANDARD.encode(&it.stored_key),
                server_key: STANDARD.encode(&it.server_key),
            })
        };
        let word = |hash| HASHES.into_iter().find(|(_, known)| *known == hash);
        Self {
            scram_sha256: scram(&verifiers.sha256),
            scram_sha512: scram(&verifiers.sha512),
            salted_hash: verifiers.salted.as_ref().map(|it| Salted {
                hash: word(it.hash).map_or("", |(word, _)| word).to_owned(),
                bytes: STANDARD.encode(&it.bytes),
            }),
        }
    }

    pub(super) fn read(&self) -> Result<Verifiers, Problem> {
        let salted = self.salted_hash.as_ref().map(|given| {
            let hash = HASHES.into_iter().find(|(word, _)| *word == given.hash);
            let bytes = STANDARD.decode(&given.bytes).ok();
            let salted = hash
                .zip(bytes)
                .and_then(|((_, hash), bytes)| SaltedHash::new(hash, &bytes));
            salted.ok_or_else(|| {
                bad("salted_hash: hash is sha256 or sha512, bytes are salt and hash in base64")
            })
        });
        let scram = |hash, given: &Option<Scram>| given.as_ref().map(|given| given.read(hash)).transpose();
        Ok(Verifiers {
            sha256: scram(Hash::Sha256, &self.scram_sha256)?,
            sha512: scram(Hash::Sha512, &self.scram_sha512)?,
            salted: salted.transpose()?,
        })
    }
}

impl Scram {
    fn read(&self, hash: Hash) -> Result<ScramVerifier, Problem> {
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&self.iterations) {
            return Err(bad(&format!(
                "iterations are {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )));
        }
        let read = |name: &str, text: &str, fits: fn(usize, Hash) -> bool| {
            let bytes = STANDARD.decode(text).ok().filter(|bytes| fits(bytes.len(), hash));
            bytes.ok_or_else(|| bad(&format!("{name} is base64 of as many bytes as the hash has")))
        };
        Ok(ScramVerifier {
            hash,
            iterations: self.iterations,
            salt: read("salt", &self.salt, |bytes, _| {
                (1..=SALT_BYTES_MAX).contains(&bytes)
            })?
            .into(),
            stored_key: read("stored_key", &self.stored_key, |bytes, hash| {
                bytes == hash.bytes()
            })?
            .into(),
            server_key: read("server_key", &self.server_key, |bytes, hash| {
                bytes == hash.bytes()
            })?
            .into(),
        })
    }
}

fn bad(why: &str) -> Problem {
    Problem::bad_request(format!("verifiers: {why}")).with("field", "verifiers")
}
