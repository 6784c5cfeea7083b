//! Values in a block of records, found without taking the records out (the layout is drawn in
//! `docs/format.md`).

/// Iterator over values. Each step costs some nanoseconds; malformed bytes end the walk.
#[derive(Debug, Clone)]
pub struct Values<'a> {
    rest: &'a [u8],
}

impl<'a> Values<'a> {
    /// The values of the records in `block`, which is not compressed.
    pub fn new(block: &'a [u8]) -> Self {
        Self { rest: block }
    }

    #[inline]
    fn step(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = varint(self.rest)?;
        let (record, next) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = next;
        // Attributes, and the deltas of timestamp and offset.
        let (_, rest) = varint(record.get(1..)?)?;
        let (_, rest) = varint(rest)?;
        let (key, rest) = varint(rest)?;
        let rest = rest.get(usize::try_from(key.max(0)).ok()?..)?;
        let (length, rest) = varint(rest)?;
        rest.get(..usize::try_from(length.max(0)).ok()?)
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let value = self.step();
        if value.is_none() {
            self.rest = &[];
        }
        value
    }
}

/// Reads a number in the zigzag encoding of protocol buffers. Returns the rest, too.
#[inline]
fn varint(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let mut value = 0_u64;
    for (place, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            #[expect(clippy::cast_possible_wrap, reason = "halved before")]
            let number = (value >> 1) as i64 ^ -((value & 1) as i64);
            return Some((number, bytes.get(place + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
    use stafett_model::batch::HEADER_BYTES;
    use stafett_model::{BatchBuilder, Codec, Record};

    use super::*;

    fn block() -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut random = SmallRng::seed_from_u64(1);
        let mut builder = BatchBuilder::new(Codec::None);
        let values: Vec<Vec<u8>> = (0..300).map(|n| vec![b'v'; n * 7 % 501]).collect();
        for value in &values {
            let key = vec![b'k'; random.random_range(0..200)];
            let record = Record {
                key: random.random::<bool>().then_some(&key),
                value: Some(value),
                headers: &[(b"h", Some(b"x"))],
                timestamp: random.random_range(0..1 << 40),
            };
            builder.push(&record).unwrap();
        }
        (values, builder.finish().unwrap()[HEADER_BYTES..].to_vec())
    }

    #[test]
    fn values_are_found_as_the_model_wrote_them() {
        let (values, block) = block();
        let found: Vec<Vec<u8>> = Values::new(&block).map(<[u8]>::to_vec).collect();
        assert_eq!(found, values);
    }

    #[test]
    fn damage_ends_the_walk_and_nothing_else() {
        let (values, block) = block();
        for cut in 0..block.len().min(2000) {
            assert!(Values::new(&block[..cut]).count() <= values.len());
        }
        let mut random = SmallRng::seed_from_u64(2);
        for _ in 0..2000 {
            let mut bytes = vec![0; 200];
            random.fill(bytes.as_mut_slice());
            assert!(Values::new(&bytes).count() <= 200);
        }
    }
}
