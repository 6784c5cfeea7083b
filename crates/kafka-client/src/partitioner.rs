//! Which partition a key belongs to, as the Java client decides it (`Utils.murmur2`, `BuiltInPartitioner`), so that
//! records of one key meet in one partition whoever sends them.

/// The partition of `key` among `partitions`.
pub fn partition_of(key: &[u8], partitions: usize) -> usize {
    let positive = usize::try_from(murmur2(key) & 0x7fff_ffff).unwrap_or(0);
    positive % partitions.max(1)
}

/// Murmur hash, version 2, with the seed that Kafka uses.
fn murmur2(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    // The length is mixed in as a Java int.
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let mut hash = SEED ^ length;
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (place, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_java_client() {
        // What org.apache.kafka.common.utils.Utils.murmur2 gives.
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
    }
}
