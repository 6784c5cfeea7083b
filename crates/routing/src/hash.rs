//! A stable hash: the same across restarts, versions and machines, since it decides where keyed messages go.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes 64 bits so that each input bit changes half of the output bits (finaliser of `SplitMix64`, Steele et
/// al. 2014).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Hashes eight bytes at a time and the length last, so that trailing zeros make a difference.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut state = words.iter().fold(STEP, |state, word| {
        mix(state ^ u64::from_le_bytes(*word)).wrapping_add(STEP)
    });
    let mut last = [0; 8];
    for (slot, byte) in last.iter_mut().zip(rest) {
        *slot = *byte;
    }
    state = mix(state ^ u64::from_le_bytes(last)).wrapping_add(STEP);
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    mix(state ^ length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_what_it_always_was() {
        let of = |text: &str| hash(text.as_bytes());
        let found: Vec<u64> = ["", "a", "orders.eu", "orders.eu\0"]
            .iter()
            .map(|text| of(text))
            .collect();
        assert_eq!(found, PINNED);
    }

    const PINNED: [u64; 4] = [
        12_035_550_249_420_947_055,
        14_196_328_556_932_946_464,
        5_781_096_107_692_175_200,
        17_911_629_323_599_896_513,
    ];
}
