//! Names of tasks: a partition, or a slice of it by the hash of the key.
//!
//! `7` is all of partition 7, `7.0` and `7.1` its halves, `7.10` the third quarter: behind the dot stand
//! the first bits of the slice hash.

use std::fmt;
use std::str::FromStr;

use stafett_model::slice_hash;

/// Most bits of a slice.
pub const SLICE_BITS_MAX: u8 = 10;

/// A task of an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    pub partition: u32,
    slice: Slice,
}

/// A part of a partition: keys whose slice hash begins with these bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Slice {
    /// The bits, left-aligned, so that slices stand in the order of their hashes.
    bits: u16,
    count: u8,
}

impl TaskId {
    /// Returns the task of a whole partition.
    pub const fn whole(partition: u32) -> Self {
        let slice = Slice { bits: 0, count: 0 };
        Self { partition, slice }
    }

    pub fn slice(self) -> Slice {
        self.slice
    }

    /// Returns both halves. `None` if they would be too fine.
    pub fn halves(self) -> Option<[Self; 2]> {
        let Slice { bits, count } = self.slice;
        if count >= SLICE_BITS_MAX {
            return None;
        }
        let half = |bit: u16| Self {
            slice: Slice {
                bits: bits | bit << (15 - u32::from(count)),
                count: count + 1,
            },
            ..self
        };
        Some([half(0), half(1)])
    }

    /// Returns this many slices, a power of 2. `None` if they would be too fine.
    pub fn slices(self, count: u32) -> Option<Vec<Self>> {
        let mut slices = vec![self];
        while slices.len() < count as usize {
            let halves = slices.into_iter().map(Self::halves).collect::<Option<Vec<_>>>()?;
            slices = halves.concat();
        }
        Some(slices)
    }

    /// Returns true for the task itself and its slices.
    pub fn is_within(self, other: Self) -> bool {
        let (own, of) = (self.slice, other.slice);
        let differ = u32::from(own.bits ^ of.bits) >> (16 - u32::from(of.count));
        self.partition == other.partition && own.count >= of.count && differ == 0
    }

    /// Returns the task of which this is a half, if it is one.
    pub fn parent(self) -> Option<Self> {
        let count = self.slice.count.checked_sub(1)?;
        let bits = self.slice.bits & !(1 << (15 - u32::from(count)));
        let slice = Slice { bits, count };
        Some(Self { slice, ..self })
    }
}

impl Slice {
    /// Returns the bits, left-aligned, and their number.
    pub(crate) fn parts(self) -> (u16, u8) {
        (self.bits, self.count)
    }

    /// Returns a slice of its parts.
    pub(crate) fn of_parts(bits: u16, count: u8) -> Option<Self> {
        let is_aligned = bits.checked_shl(u32::from(count)).unwrap_or(0) == 0;
        (count <= SLICE_BITS_MAX && is_aligned).then_some(Self { bits, count })
    }

    /// Returns the part that two slices share. `None` if they have no key in common.
    pub(crate) fn shared(self, other: Self) -> Option<Self> {
        let (wide, narrow) = if self.count < other.count {
            (self, other)
        } else {
            (other, self)
        };
        let differ = u32::from(wide.bits ^ narrow.bits) >> (16 - u32::from(wide.count));
        (differ == 0).then_some(narrow)
    }

    /// Returns true for all of a partition.
    pub fn is_whole(self) -> bool {
        self.count == 0
    }

    /// Returns true if records of this key are in the slice. Records without a key are in the first one.
    pub fn has(self, key: Option<&[u8]>) -> bool {
        let Some(shift) = 32_u32.checked_sub(u32::from(self.count)).filter(|it| *it < 32) else {
            return true;
        };
        let hash = key.map_or(0, slice_hash);
        hash >> shift == u32::from(self.bits) >> (16 - u32::from(self.count))
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.partition)?;
        if self.slice.count > 0 {
            f.write_str(".")?;
        }
        for place in 0..u32::from(self.slice.count) {
            write!(f, "{}", self.slice.bits >> (15 - place) & 1)?;
        }
        Ok(())
    }
}

/// Error: a text is not the name of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a task is named by its partition, and a slice of it by up to 10 bits behind a dot: 7, 7.0, 7.10")]
pub struct NotATask;

impl FromStr for TaskId {
    type Err = NotATask;

    fn from_str(text: &str) -> Result<Self, NotATask> {
        let (partition, bits) = text
            .split_once('.')
            .map_or((text, None), |(it, bits)| (it, Some(bits)));
        // One task has one name.
        let is_plain = partition == "0" || partition.starts_with(|it: char| ('1'..='9').contains(&it));
        let mut task = Self::whole(partition.parse().ok().filter(|_| is_plain).ok_or(NotATask)?);
        if bits.is_some_and(str::is_empty) {
            return Err(NotATask);
        }
        for bit in bits.unwrap_or_default().bytes() {
            let [zero, one] = task.halves().ok_or(NotATask)?;
            task = match bit {
                b'0' => zero,
                b'1' => one,
                _ => return Err(NotATask),
            };
        }
        Ok(task)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stafett_model::partition_of;

    use super::*;

    #[test]
    fn names_are_read_back_and_others_refused() {
        for name in ["0", "7", "4294967295", "7.0", "7.1", "7.0111111111"] {
            assert_eq!(name.parse::<TaskId>().unwrap().to_string(), name);
        }
        for name in [
            "",
            "07",
            "+7",
            "7.",
            "7.2",
            "7.01111111111",
            "4294967296",
            ".1",
            "7.1.1",
        ] {
            assert_eq!(name.parse::<TaskId>(), Err(NotATask), "{name}");
        }
    }

    #[test]
    fn halves_have_one_parent_and_stand_in_order() {
        let [zero, one] = TaskId::whole(3).halves().unwrap();
        assert_eq!(
            (zero.parent(), one.parent()),
            (Some(TaskId::whole(3)), Some(TaskId::whole(3)))
        );
        assert_eq!(TaskId::whole(3).parent(), None);
        let [low, high] = one.halves().unwrap();
        assert!(TaskId::whole(3) < zero && zero < one && low < high && one.parent() < Some(low));
        assert_eq!(high.to_string(), "3.11");
        assert!(high.is_within(one) && high.is_within(TaskId::whole(3)) && one.is_within(one));
        assert!(!one.is_within(high) && !zero.is_within(one) && !high.is_within(TaskId::whole(2)));
        let slices = TaskId::whole(3).slices(4).unwrap();
        let names: Vec<_> = slices.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["3.00", "3.01", "3.10", "3.11"]);
        assert_eq!(slices[0].slices(1 << 9), None);
        for slice in slices.iter().map(|task| task.slice()) {
            let (bits, count) = slice.parts();
            assert_eq!(Slice::of_parts(bits, count), Some(slice));
            assert_eq!(Slice::of_parts(bits | 1, count), None);
        }
    }

    /// The bits that chose the partition say nothing about the slice.
    #[test]
    fn slices_of_a_partition_are_even() {
        for partitions in [6, 8, 12, 288] {
            let mut counts = [0_u32; 4];
            for number in 0..100_000 * partitions.min(12) / 6 {
                let key = format!("user-{number}");
                if partition_of(key.as_bytes(), partitions) == 1 {
                    counts[(slice_hash(key.as_bytes()) >> 30) as usize] += 1;
                }
            }
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            let sum: u32 = counts.iter().sum();
            let spread = f64::from(most - least) / f64::from(sum).sqrt();
            assert!(spread < 3.0, "{partitions} partitions: {counts:?}");
        }
    }

    proptest! {
        #[test]
        fn a_key_is_in_one_half(key: Vec<u8>, bits in prop::collection::vec(any::<bool>(), 0..9)) {
            let mut task = TaskId::whole(0);
            for bit in bits {
                let [zero, one] = task.halves().unwrap();
                task = if bit { one } else { zero };
            }
            let within = task.slice().has(Some(&key));
            let halves = task.halves().unwrap().map(|half| half.slice().has(Some(&key)));
            prop_assert_eq!(within, halves[0] != halves[1]);
            prop_assert!(within || !halves[0]);
        }
    }
}
