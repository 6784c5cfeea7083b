//! Personal data made less so: a hash under a secret keeps users apart without their names, and a mask leaves
//! out a part of a value.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::secret::{Secret, SecretError};

/// Bytes of a hash before they are written as text.
const HASH_BYTES: usize = 16;

/// Key of hashes: where it stands, and itself once it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey {
    place: Secret,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HashKey({})", self.place)
    }
}

impl HashKey {
    pub(crate) fn new(place: Secret) -> Self {
        Self {
            place,
            bytes: Vec::new(),
        }
    }

    /// Reads the key.
    pub(crate) fn read(&mut self) -> Result<(), SecretError> {
        self.bytes = self.place.resolve()?.into_bytes();
        Ok(())
    }

    /// Returns the hash of a value: HMAC-SHA-256, its first 16 bytes as base64url.
    pub(crate) fn hash(&self, plain: &str) -> String {
        // HMAC takes keys of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.bytes) else {
            return String::new();
        };
        mac.update(plain.as_bytes());
        let hash = mac.finalize().into_bytes();
        URL_SAFE_NO_PAD.encode(hash.get(..HASH_BYTES).unwrap_or_default())
    }
}

/// Part of a value that stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// The first bits of an IP address: those of IPv4, and of IPv6.
    Network { bits: u8, bits_v6: u8 },
    /// The last characters of a text.
    Last(usize),
    /// Nothing.
    Blank,
}

impl Mask {
    /// Returns the rest of a text. `None` if it is no IP address where it has to be one.
    pub(crate) fn of(self, text: &str) -> Option<String> {
        match self {
            Self::Network { bits, bits_v6 } => {
                let ip: IpAddr = text.trim().parse().ok()?;
                Some(match ip.to_canonical() {
                    IpAddr::V4(ip) => {
                        Ipv4Addr::from_bits(first_bits(ip.to_bits().into(), bits, 32) as u32).to_string()
                    }
                    IpAddr::V6(ip) => Ipv6Addr::from_bits(first_bits(ip.to_bits(), bits_v6, 128)).to_string(),
                })
            }
            Self::Last(count) => {
                let length = text.chars().count();
                let hidden = length.saturating_sub(count);
                let stars = text.chars().take(hidden).map(|_| '*');
                Some(stars.chain(text.chars().skip(hidden)).collect())
            }
            Self::Blank => Some(String::new()),
        }
    }
}

/// Returns a number of `width` bits with all but its first bits cleared.
fn first_bits(number: u128, bits: u8, width: u8) -> u128 {
    let cleared = u32::from(width.saturating_sub(bits));
    number
        .checked_shr(cleared)
        .and_then(|high| high.checked_shl(cleared))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_leave_what_they_say() {
        let network = Mask::Network {
            bits: 24,
            bits_v6: 48,
        };
        assert_eq!(network.of("192.0.2.77").as_deref(), Some("192.0.2.0"));
        assert_eq!(network.of("2001:db8:1:2::3").as_deref(), Some("2001:db8:1::"));
        assert_eq!(network.of("::ffff:192.0.2.77").as_deref(), Some("192.0.2.0"));
        assert_eq!(network.of("no address"), None);
        let nothing = Mask::Network { bits: 0, bits_v6: 0 };
        assert_eq!(nothing.of("192.0.2.77").as_deref(), Some("0.0.0.0"));
        assert_eq!(nothing.of("2001:db8::1").as_deref(), Some("::"));
        let all = Mask::Network {
            bits: 32,
            bits_v6: 128,
        };
        assert_eq!(all.of("192.0.2.77").as_deref(), Some("192.0.2.77"));
        assert_eq!(Mask::Last(4).of("1234567890").as_deref(), Some("******7890"));
        assert_eq!(Mask::Last(4).of("äöü").as_deref(), Some("äöü"));
        assert_eq!(Mask::Blank.of("secret").as_deref(), Some(""));
    }

    #[test]
    fn a_hash_depends_on_its_key_and_is_short() {
        let mut key = HashKey::new(Secret::parse("one"));
        key.read().unwrap();
        let mut other = HashKey::new(Secret::parse("other"));
        other.read().unwrap();
        assert_eq!(key.hash("ann"), key.hash("ann"));
        assert_ne!(key.hash("ann"), other.hash("ann"));
        assert_ne!(key.hash("ann"), key.hash("bob"));
        assert_eq!(key.hash("").len(), 22);
        // Made with Python's hmac.
        assert_eq!(key.hash("ann"), "sxtJ1S3nfxmtBjRMgaRVew");
    }
}
