//! Valid messages drawn from a seed: a decoder that returns random values.
//!
//! A message decoded from such values has exactly the fields of its version, so it can be written in that
//! version and must come back the same. This needs no generated code per message.

use bytes::Bytes;

use crate::decode::{DecodeLimits, Decoder};
use crate::str::Str;

/// Tags for which a value may be drawn in each flexible struct. No schema uses more.
pub(crate) const TAGS_DRAWN: u32 = 4;

impl Decoder {
    /// Returns a decoder without a frame that draws its values from `seed`. It never fails and never ends.
    pub fn sampling(seed: u64) -> Self {
        let mut decoder = Self::new(Bytes::new(), DecodeLimits::default());
        decoder.sampler = Some(Sampler(seed ^ 0x5bf0_3635_dcf6_9a1d));
        decoder
    }
}

/// `SplitMix64`: small, and random enough for samples.
#[derive(Debug, Clone)]
pub(crate) struct Sampler(u64);

impl Sampler {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> usize {
        usize::try_from(self.draw() % bound).unwrap_or(0)
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.draw() & 1 == 0
    }

    /// Returns zeros, ones, a small number or noise.
    pub(crate) fn fixed<const N: usize>(&mut self) -> [u8; N] {
        match self.draw() % 4 {
            0 => [0; N],
            1 => [0xff; N],
            2 => {
                let mut small = [0; N];
                if let Some(last) = small.last_mut() {
                    *last = self.draw().to_be_bytes()[0] & 0x7f;
                }
                small
            }
            _ => [0; N].map(|_: u8| self.draw().to_be_bytes()[0]),
        }
    }

    /// Returns a number that equals itself, so not NaN.
    pub(crate) fn finite(&mut self) -> f64 {
        f64::from(i32::from_be_bytes(self.fixed()))
    }

    pub(crate) fn string(&mut self, nullable: bool) -> Option<Str> {
        const TEXTS: [&str; 6] = [
            "",
            "a",
            "orders",
            "tåg och båt",
            "\u{1f426}\u{0}",
            "a.longer-name_with.all+of@it",
        ];
        if nullable && self.below(4) == 0 {
            return None;
        }
        if self.below(16) == 0 {
            return Some(Str::from("x".repeat(self.below(400))));
        }
        Some(Str::from(TEXTS.get(self.below(6)).copied().unwrap_or_default()))
    }

    pub(crate) fn bytes(&mut self, nullable: bool) -> Option<Bytes> {
        if nullable && self.below(4) == 0 {
            return None;
        }
        let length = if self.below(8) == 0 {
            self.below(5000)
        } else {
            self.below(20)
        };
        let fill = self.draw().to_be_bytes()[0];
        Some(Bytes::from(vec![fill; length]))
    }

    pub(crate) fn count(&mut self, nullable: bool) -> Option<usize> {
        (!nullable || self.below(4) != 0).then(|| self.below(3))
    }
}
