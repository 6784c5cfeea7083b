//! Numbers that a password is checked against: neither the password, nor anything that it follows from.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};
use stafett_model::codec::{get, get_bytes, put_bytes};
use subtle::ConstantTimeEq;

/// Iterations of new verifiers.
pub const ITERATIONS: u32 = 8192;
/// Least iterations that are accepted, as in RFC 7677.
pub const ITERATIONS_MIN: u32 = 4096;
/// Most iterations that are accepted: a login must not take seconds.
pub const ITERATIONS_MAX: u32 = 100_000;
/// Bytes of the longest password that is looked at.
pub(crate) const PASSWORD_BYTES_MAX: usize = 1024;

#[cfg(test)]
thread_local! {
    /// Iterations of this thread.
    static SALTED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    /// Bytes that this thread hashed otherwise, by call.
    pub(crate) static HASHED: std::cell::RefCell<Vec<usize>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[cfg(test)]
fn count(bytes: &[u8]) {
    HASHED.with_borrow_mut(|hashed| hashed.push(bytes.len()));
}

#[cfg(not(test))]
fn count(_: &[u8]) {}

/// Hash function of a SCRAM verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    pub(crate) fn digest(self, bytes: &[u8]) -> Vec<u8> {
        count(bytes);
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    pub(crate) fn mac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        count(bytes);
        // A key of any length is possible.
        match self {
            Self::Sha256 => Hmac::<Sha256>::new_from_slice(key).map_or_else(
                |_| Vec::new(),
                |mac| mac.chain_update(bytes).finalize().into_bytes().to_vec(),
            ),
            Self::Sha512 => Hmac::<Sha512>::new_from_slice(key).map_or_else(
                |_| Vec::new(),
                |mac| mac.chain_update(bytes).finalize().into_bytes().to_vec(),
            ),
        }
    }

    /// Derives the salted password; takes milliseconds.
    pub(crate) fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        let mut salted = vec![0; self.bytes()];
        #[cfg(test)]
        SALTED.with(|counted| counted.set(counted.get() + iterations));
        match self {
            Self::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut salted),
            Self::Sha512 => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, iterations, &mut salted),
        }
        salted
    }

    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

/// Stored keys of SCRAM (RFC 5802, section 3).
#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    pub hash: Hash,
    pub salt: Box<[u8]>,
    pub iterations: u32,
    pub stored_key: Box<[u8]>,
    pub server_key: Box<[u8]>,
}

impl ScramVerifier {
    /// Derives the keys of a password; takes milliseconds.
    #[must_use]
    pub fn of_password(hash: Hash, password: &[u8], salt: &[u8], iterations: u32) -> Self {
        Self::of_salted(hash, &hash.salted(password, salt, iterations), salt, iterations)
    }

    /// Derives the keys of a password that was salted elsewhere.
    #[must_use]
    pub fn of_salted(hash: Hash, salted: &[u8], salt: &[u8], iterations: u32) -> Self {
        let stored_key = hash.digest(&hash.mac(salted, b"Client Key"));
        Self {
            hash,
            salt: salt.into(),
            iterations,
            stored_key: stored_key.into(),
            server_key: hash.mac(salted, b"Server Key").into(),
        }
    }

    /// Returns true if it is that of the password; takes milliseconds.
    #[must_use]
    pub fn verifies(&self, password: &[u8]) -> bool {
        let given = Self::of_password(self.hash, password, &self.salt, self.iterations);
        given.stored_key.ct_eq(&self.stored_key).into()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.iterations.to_le_bytes());
        for bytes in [&self.salt, &self.stored_key, &self.server_key] {
            put_bytes(bytes, out);
        }
    }

    fn decode(hash: Hash, rest: &mut &[u8]) -> Option<Self> {
        let iterations = u32::from_le_bytes(get(rest)?);
        let mut bytes = || get_bytes(rest).map(Into::into);
        Some(Self {
            hash,
            iterations,
            salt: bytes()?,
            stored_key: bytes()?,
            server_key: bytes()?,
        })
    }
}

impl std::fmt::Debug for ScramVerifier {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?} with {} iterations", self.hash, self.iterations)
    }
}

/// A salt of four bytes, and a hash of salt and password, as in definitions of other brokers. Fast
/// to guess, so a login replaces nothing, and users should get new passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct SaltedHash {
    pub hash: Hash,
    /// Salt, then hash.
    pub bytes: Box<[u8]>,
}

/// Bytes of the salt.
const SALT_BYTES: usize = 4;

impl SaltedHash {
    /// Takes salt and hash. `None` if the length is wrong.
    #[must_use]
    pub fn new(hash: Hash, bytes: &[u8]) -> Option<Self> {
        let bytes = (bytes.len() == SALT_BYTES + hash.bytes())
            .then_some(bytes)?
            .into();
        Some(Self { hash, bytes })
    }

    #[must_use]
    pub fn of_password(hash: Hash, password: &[u8], salt: [u8; SALT_BYTES]) -> Self {
        let digest = hash.digest(&[&salt, password].concat());
        Self {
            hash,
            bytes: [&salt[..], &digest].concat().into(),
        }
    }

    #[must_use]
    pub fn verifies(&self, password: &[u8]) -> bool {
        let Some((salt, digest)) = self.bytes.split_at_checked(SALT_BYTES) else {
            return false;
        };
        self.hash.digest(&[salt, password].concat()).ct_eq(digest).into()
    }
}

impl std::fmt::Debug for SaltedHash {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}", self.hash)
    }
}

/// All verifiers of a user. Without one the user has no password.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verifiers {
    pub sha256: Option<ScramVerifier>,
    pub sha512: Option<ScramVerifier>,
    pub salted: Option<SaltedHash>,
}

impl Verifiers {
    /// Derives the verifiers of a password; takes milliseconds.
    #[must_use]
    pub fn of_password(password: &[u8], salt: &[u8]) -> Self {
        let verifier = |hash| Some(ScramVerifier::of_password(hash, password, salt, ITERATIONS));
        Self {
            sha256: verifier(Hash::Sha256),
            sha512: verifier(Hash::Sha512),
            salted: None,
        }
    }

    #[must_use]
    pub fn scram(&self, hash: Hash) -> Option<&ScramVerifier> {
        match hash {
            Hash::Sha256 => self.sha256.as_ref(),
            Hash::Sha512 => self.sha512.as_ref(),
        }
    }

    pub fn set_scram(&mut self, hash: Hash, verifier: Option<ScramVerifier>) {
        match hash {
            Hash::Sha256 => self.sha256 = verifier,
            Hash::Sha512 => self.sha512 = verifier,
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sha256.is_none() && self.sha512.is_none() && self.salted.is_none()
    }

    /// Returns true if the password is that of one of them; takes milliseconds, whether there is one or not.
    #[must_use]
    pub fn verifies(&self, password: &[u8]) -> bool {
        if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        if let Some(scram) = self.sha256.as_ref().or(self.sha512.as_ref()) {
            // Kafka's tools make verifiers of fewer iterations, which are as much work all the same.
            let fewer = ITERATIONS.saturating_sub(scram.iterations);
            let filler = (fewer > 0).then(|| scram.hash.salted(password, &scram.salt, fewer));
            return scram.verifies(password) && filler.is_none_or(|filler| !filler.is_empty());
        }
        // As long as for a user with a verifier of this program.
        let salted = Hash::Sha256.salted(password, b"no verifier is here", ITERATIONS);
        let is_right = self.salted.as_ref().is_some_and(|hash| hash.verifies(password));
        !salted.is_empty() && is_right
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for (tag, scram) in [(1, &self.sha256), (2, &self.sha512)] {
            if let Some(scram) = scram {
                out.push(tag);
                scram.encode(out);
            }
        }
        if let Some(salted) = &self.salted {
            out.push(match salted.hash {
                Hash::Sha256 => 3,
                Hash::Sha512 => 4,
            });
            put_bytes(&salted.bytes, out);
        }
        out.push(0);
    }

    pub(crate) fn decode(rest: &mut &[u8]) -> Option<Self> {
        let mut verifiers = Self::default();
        loop {
            match get(rest)? {
                [0] => return Some(verifiers),
                [1] => verifiers.sha256 = Some(ScramVerifier::decode(Hash::Sha256, rest)?),
                [2] => verifiers.sha512 = Some(ScramVerifier::decode(Hash::Sha512, rest)?),
                [3] => verifiers.salted = Some(SaltedHash::new(Hash::Sha256, get_bytes(rest)?)?),
                [4] => verifiers.salted = Some(SaltedHash::new(Hash::Sha512, get_bytes(rest)?)?),
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn a_wrong_password_of_an_unknown_user_takes_as_many_hashes_as_that_of_a_known_one() {
        let known = Verifiers::of_password(b"secret", b"salt of 16 bytes");
        let iterations = |verifiers: &Verifiers, password: &[u8]| {
            SALTED.set(0);
            let _ = verifiers.verifies(password);
            SALTED.get()
        };
        let only_512 = Verifiers {
            sha256: None,
            ..known.clone()
        };
        let imported = Verifiers {
            salted: Some(SaltedHash::of_password(Hash::Sha256, b"secret", *b"salt")),
            ..Verifiers::default()
        };
        let fewer = |hash| {
            Some(ScramVerifier::of_password(
                hash,
                b"secret",
                b"salt",
                ITERATIONS_MIN,
            ))
        };
        let of_kafka = Verifiers {
            sha256: fewer(Hash::Sha256),
            ..Verifiers::default()
        };
        let unknown = Verifiers::default();
        for verifiers in [&known, &only_512, &imported, &of_kafka, &unknown] {
            for password in [&b"secret"[..], b"wrong", &[b'x'; PASSWORD_BYTES_MAX]] {
                assert_eq!(iterations(verifiers, password), ITERATIONS, "{verifiers:?}");
            }
            assert_eq!(iterations(verifiers, b""), 0);
            assert_eq!(iterations(verifiers, &[b'x'; PASSWORD_BYTES_MAX + 1]), 0);
        }
    }

    #[test]
    fn a_password_is_verified_by_each_kind() {
        let mut verifiers = Verifiers::of_password(b"secret", b"salt of 16 bytes");
        assert!(verifiers.verifies(b"secret") && !verifiers.verifies(b"Secret") && !verifiers.verifies(b""));
        verifiers.sha256 = None;
        assert!(verifiers.verifies(b"secret") && !verifiers.verifies(b"secret "));
        verifiers.sha512 = None;
        assert!(!verifiers.verifies(b"secret"));
        verifiers.salted = Some(SaltedHash::of_password(Hash::Sha512, b"secret", [1, 2, 3, 4]));
        assert!(verifiers.verifies(b"secret") && !verifiers.verifies(b"secre"));
    }

    #[test]
    fn salted_hashes_are_those_of_published_documentation() {
        // The example of RabbitMQ's page on passwords: salt 908D C60A, password test12.
        let bytes = STANDARD
            .decode("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")
            .unwrap();
        let hash = SaltedHash::new(Hash::Sha256, &bytes).unwrap();
        assert!(hash.verifies(b"test12") && !hash.verifies(b"test13"));
        assert_eq!(SaltedHash::new(Hash::Sha512, &bytes), None);
    }

    #[test]
    fn verifiers_survive_their_storage() {
        let mut verifiers = Verifiers::of_password(b"secret", b"salt");
        verifiers.salted = Some(SaltedHash::of_password(Hash::Sha256, b"secret", [1, 2, 3, 4]));
        for verifiers in [Verifiers::default(), verifiers] {
            let mut bytes = Vec::new();
            verifiers.encode(&mut bytes);
            assert_eq!(Verifiers::decode(&mut &bytes[..]), Some(verifiers));
            assert_eq!(Verifiers::decode(&mut &bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(Verifiers::decode(&mut &[9][..]), None);
    }
}
