//! Counters of one object, and the state of its sampling.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use stafett_model::Lock;

use crate::history::History;
use crate::series::SERIES_MAX;

/// Counters of an object, allocated at the first count.
#[derive(Debug, Default)]
pub struct Words<const N: usize>(OnceLock<Box<Block<N>>>);

#[derive(Debug)]
struct Block<const N: usize> {
    words: [AtomicU64; N],
    tracked: Tracked,
}

/// State of an object's sampling.
#[derive(Debug, Default)]
pub struct Tracked {
    /// True while the object is on the list of the next sweep.
    pub(crate) is_listed: AtomicBool,
    /// Sweep of the latest samples; 0 if there are none.
    pub(crate) tick: AtomicU32,
    pub(crate) record: Lock<Record>,
}

/// The latest samples of an object.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Values at the latest sweep, of counters the low bits.
    pub(crate) values: [u32; SERIES_MAX],
    /// Increases of counters within the latest step.
    pub(crate) increases: [u32; SERIES_MAX],
    pub(crate) history: Option<Box<History>>,
}

impl<const N: usize> Words<N> {
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Counts. `adds` are the counters' indexes and the numbers added to them.
    #[inline]
    pub fn add<const M: usize>(&self, adds: [(usize, u64); M]) -> &Tracked {
        let block = self.block();
        for (at, count) in adds {
            if count > 0
                && let Some(word) = block.words.get(at)
            {
                word.fetch_add(count, Ordering::Relaxed);
            }
        }
        &block.tracked
    }

    /// Returns the state of sampling, which begins.
    #[inline]
    pub fn touch(&self) -> &Tracked {
        &self.block().tracked
    }

    #[inline]
    fn block(&self) -> &Block<N> {
        self.0.get_or_init(|| {
            Box::new(Block {
                words: std::array::from_fn(|_| AtomicU64::new(0)),
                tracked: Tracked::default(),
            })
        })
    }

    /// Returns the state of sampling; `None` if nothing was counted.
    pub fn tracked(&self) -> Option<&Tracked> {
        self.0.get().map(|block| &block.tracked)
    }

    /// Returns a counter.
    pub fn get(&self, at: usize) -> u64 {
        let word = self.0.get().and_then(|block| block.words.get(at));
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Returns all counters.
    pub fn all(&self) -> [u64; N] {
        std::array::from_fn(|at| self.get(at))
    }

    /// Returns the bytes in memory, without histories.
    pub fn bytes(&self) -> usize {
        self.0.get().map_or(0, |_| size_of::<Block<N>>())
    }
}
