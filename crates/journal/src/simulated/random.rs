//! Random numbers from a seed (`SplitMix64`, S. Vigna): the same on every machine, so that failures are
//! reproducible.

#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which must not be 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns the number of bytes after which a write of `bytes` at `at` ends: anywhere, at a page boundary,
    /// or near its beginning or end.
    pub(super) fn cut(&mut self, at: u64, bytes: usize) -> usize {
        const PAGE_BYTES: u64 = 4096;
        let bytes = bytes as u64;
        let cut = match self.below(4) {
            0 => self.below(bytes + 1),
            1 => {
                let page = (at + self.below(bytes + 1)) / PAGE_BYTES * PAGE_BYTES;
                page.saturating_sub(at)
            }
            2 => self.below(160).min(bytes),
            _ => bytes - self.below(160).min(bytes),
        };
        usize::try_from(cut).unwrap_or(usize::MAX)
    }

    /// Decides which of `count` consecutive changes are kept: none, all, those up to one of them, or any.
    pub(super) fn survivors(&mut self, count: usize) -> Vec<bool> {
        match self.below(4) {
            0 => vec![false; count],
            1 => vec![true; count],
            2 => {
                let kept = self.below(count as u64 + 1);
                (0..count as u64).map(|index| index < kept).collect()
            }
            _ => {
                let rare = self.below(7) + 1;
                (0..count).map(|_| self.below(8) < rare).collect()
            }
        }
    }
}
