//! Ids of topics and members: sixteen bytes, written as text the way Kafka's tools do.

use std::fmt;

/// Sixteen bytes. Shown as URL-safe base64 without padding, 22 characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The id that means none.
    pub const ZERO: Self = Self([0; 16]);

    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

impl From<u128> for Uuid {
    fn from(value: u128) -> Self {
        Self(value.to_be_bytes())
    }
}

impl From<Uuid> for u128 {
    fn from(value: Uuid) -> Self {
        Self::from_be_bytes(value.0)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let bits = u128::from(*self);
        for place in 0..22 {
            // 21 groups of six bits, then the last two bits with four zeros behind them.
            let group = if place == 21 {
                (bits << 4) & 0x3f
            } else {
                (bits >> (122 - 6 * place)) & 0x3f
            };
            let letter = usize::try_from(group)
                .ok()
                .and_then(|at| ALPHABET.get(at))
                .copied()
                .unwrap_or(b'A');
            fmt::Write::write_char(f, char::from(letter))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_what_kafka_prints() {
        // Kafka's own constants: Uuid.ZERO_UUID and Uuid.ONE_UUID.
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(Uuid::from(1).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(Uuid::from(u128::MAX).to_string(), "_____________________w");
    }
}
