//! A large set of numbers, split by upper halves into chunks. Each chunk is a sorted list of lower halves or
//! a bitmap, whichever is smaller.

/// Most lower halves of a list; a bitmap takes no more space then.
const SPARSE_MAX: usize = 4096;
const WORDS: usize = (1 << 16) / 64;

#[derive(Debug, Clone, Default)]
pub(crate) struct Chunks {
    /// Sorted by `high`; none is empty.
    chunks: Vec<Chunk>,
    len: usize,
}

#[derive(Debug, Clone)]
struct Chunk {
    high: u16,
    lows: Lows,
}

#[derive(Debug, Clone)]
enum Lows {
    Sparse(Vec<u16>),
    Dense { words: Box<[u64; WORDS]>, len: u32 },
}

fn split(id: u32) -> (u16, u16) {
    let [a, b, c, d] = id.to_be_bytes();
    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}

fn join(high: u16, low: u16) -> u32 {
    (u32::from(high) << 16) | u32::from(low)
}

impl Chunks {
    /// Adds a number; false if it was present.
    pub(crate) fn insert(&mut self, id: u32) -> bool {
        let (high, low) = split(id);
        let added = match self.place(high) {
            Ok(place) => self
                .chunks
                .get_mut(place)
                .is_some_and(|chunk| chunk.lows.insert(low)),
            Err(place) => {
                let lows = Lows::Sparse(vec![low]);
                self.chunks.insert(place, Chunk { high, lows });
                true
            }
        };
        self.len += usize::from(added);
        added
    }

    /// Removes a number; false if it was not present.
    pub(crate) fn remove(&mut self, id: u32) -> bool {
        let (high, low) = split(id);
        let Ok(place) = self.place(high) else { return false };
        let Some(chunk) = self.chunks.get_mut(place) else {
            return false;
        };
        let removed = chunk.lows.remove(low);
        if chunk.lows.len() == 0 {
            self.chunks.remove(place);
        }
        self.len -= usize::from(removed);
        removed
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        let (high, low) = split(id);
        let chunk = self.place(high).ok().and_then(|place| self.chunks.get(place));
        chunk.is_some_and(|chunk| chunk.lows.contains(low))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Iterates over all numbers, smallest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.iter_from(0)
    }

    /// Iterates over the numbers from `first` on, smallest first.
    pub(crate) fn iter_from(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        let (high, low) = split(first);
        let start = self.place(high).unwrap_or_else(|place| place);
        self.chunks.iter().skip(start).flat_map(move |chunk| {
            let from = if chunk.high == high { low } else { 0 };
            chunk.lows.iter_from(from).map(|low| join(chunk.high, low))
        })
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let lows: usize = self.chunks.iter().map(|chunk| chunk.lows.heap_bytes()).sum();
        self.chunks.capacity() * size_of::<Chunk>() + lows
    }

    fn place(&self, high: u16) -> Result<usize, usize> {
        self.chunks.binary_search_by_key(&high, |chunk| chunk.high)
    }
}

impl FromIterator<u32> for Chunks {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut chunks = Self::default();
        for id in ids {
            chunks.insert(id);
        }
        chunks
    }
}

impl Lows {
    fn insert(&mut self, low: u16) -> bool {
        match self {
            Self::Sparse(lows) => {
                let Err(place) = lows.binary_search(&low) else {
                    return false;
                };
                if lows.len() < SPARSE_MAX {
                    lows.insert(place, low);
                } else {
                    let mut words = Box::new([0; WORDS]);
                    for low in lows.iter().copied().chain([low]) {
                        if let Some(word) = words.get_mut(word_of(low)) {
                            *word |= bit_of(low);
                        }
                    }
                    let len = u32::try_from(lows.len()).unwrap_or(0) + 1;
                    *self = Self::Dense { words, len };
                }
                true
            }
            Self::Dense { words, len } => {
                let Some(word) = words.get_mut(word_of(low)) else {
                    return false;
                };
                let added = *word & bit_of(low) == 0;
                *word |= bit_of(low);
                *len += u32::from(added);
                added
            }
        }
    }

    fn remove(&mut self, low: u16) -> bool {
        match self {
            Self::Sparse(lows) => lows.binary_search(&low).map(|place| lows.remove(place)).is_ok(),
            Self::Dense { words, len } => {
                let Some(word) = words.get_mut(word_of(low)) else {
                    return false;
                };
                let removed = *word & bit_of(low) != 0;
                *word &= !bit_of(low);
                *len -= u32::from(removed);
                // Half of the bound, so that alternating changes do not convert back and forth.
                if self.len() <= SPARSE_MAX / 2 {
                    *self = Self::Sparse(self.iter_from(0).collect());
                }
                removed
            }
        }
    }

    fn contains(&self, low: u16) -> bool {
        match self {
            Self::Sparse(lows) => lows.binary_search(&low).is_ok(),
            Self::Dense { words, .. } => words
                .get(word_of(low))
                .is_some_and(|word| word & bit_of(low) != 0),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Sparse(lows) => lows.len(),
            Self::Dense { len, .. } => usize::try_from(*len).unwrap_or(usize::MAX),
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Sparse(lows) => lows.capacity() * size_of::<u16>(),
            Self::Dense { .. } => size_of::<[u64; WORDS]>(),
        }
    }

    fn iter_from(&self, from: u16) -> impl Iterator<Item = u16> + '_ {
        let (sparse, dense) = match self {
            Self::Sparse(lows) => {
                let start = lows.partition_point(|low| *low < from);
                (lows.get(start..).unwrap_or_default(), None)
            }
            Self::Dense { words, .. } => (&[][..], Some(words)),
        };
        let words = dense.into_iter().flat_map(move |words| {
            words
                .iter()
                .enumerate()
                .skip(word_of(from))
                .flat_map(move |(index, word)| {
                    let before = if index == word_of(from) {
                        bit_of(from) - 1
                    } else {
                        0
                    };
                    Bits(word & !before).map(move |bit| u16::try_from(index * 64 + bit).unwrap_or(u16::MAX))
                })
        });
        sparse.iter().copied().chain(words)
    }
}

fn word_of(low: u16) -> usize {
    usize::from(low) / 64
}

fn bit_of(low: u16) -> u64 {
    1 << (low % 64)
}

/// Iterator over the indices of set bits.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        usize::try_from(bit).ok()
    }
}
