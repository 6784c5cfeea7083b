//! Cost of finding the subscribers of a topic, with few topics and with many.
//!
//! ```text
//! cargo run --release -p stafett-routing --example live_lookup -- [TOPICS…]
//! ```
//!
//! For each number of topics: nanoseconds per look-up, sequential and random, one by one and sixteen at a
//! time.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a tool for measuring, which ends with an error by panicking"
)]

use std::hash::{BuildHasher, RandomState};
use std::sync::RwLock;
use std::time::Instant;

use stafett_routing::live::{IdSet, TopicTable};

const SHARDS: u64 = 64;
const LOOKUPS: usize = 4_000_000;
const AT_ONCE: usize = 16;

struct Tables {
    shards: Vec<RwLock<TopicTable>>,
    hash: RandomState,
}

impl Tables {
    fn of(names: &[String]) -> Self {
        let tables = Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hash: RandomState::new(),
        };
        for name in names {
            let hash = tables.hash.hash_one(name.as_str());
            tables.shard(hash).write().unwrap().subscribe(hash, name, 1);
        }
        tables
    }

    fn shard(&self, hash: u64) -> &RwLock<TopicTable> {
        &self.shards[((hash >> 32) % SHARDS) as usize]
    }

    fn one_by_one(&self, names: &[&str]) -> usize {
        let mut found = 0;
        for name in names {
            let hash = self.hash.hash_one(*name);
            let shard = self.shard(hash).read().unwrap();
            found += shard.subscribers(hash, name).map_or(0, IdSet::len);
        }
        found
    }

    fn together(&self, names: &[&str]) -> usize {
        let mut found = 0;
        let mut hashes = Vec::with_capacity(AT_ONCE);
        for names in names.chunks(AT_ONCE) {
            hashes.clear();
            for name in names {
                let hash = self.hash.hash_one(*name);
                self.shard(hash).read().unwrap().prefetch(hash);
                hashes.push(hash);
            }
            for hash in &hashes {
                self.shard(*hash).read().unwrap().prefetch_topic(*hash);
            }
            for (name, hash) in names.iter().zip(&hashes) {
                let shard = self.shard(*hash).read().unwrap();
                found += shard.subscribers(*hash, name).map_or(0, IdSet::len);
            }
        }
        found
    }
}

fn main() {
    let mut counts: Vec<usize> = std::env::args()
        .skip(1)
        .map(|count| count.parse().unwrap())
        .collect();
    if counts.is_empty() {
        counts = vec![1000, 65_536, 2_097_152];
    }
    for count in counts {
        let names: Vec<String> = (0..count).map(|number| format!("topic {number}")).collect();
        let tables = Tables::of(&names);
        for (order, step) in [("in turn", 1), ("at random", 7_919_113)] {
            // The names are adjacent in memory, like those that a connection has read.
            let mut at = 0;
            let mut text = String::new();
            let mut ends = Vec::with_capacity(LOOKUPS);
            for _ in 0..LOOKUPS {
                text.push_str(&names[at % count]);
                ends.push(text.len());
                at += step;
            }
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let wanted: Vec<&str> = starts.zip(&ends).map(|(start, end)| &text[start..*end]).collect();
            for (way, look_up) in [
                ("one by one", Tables::one_by_one as fn(&Tables, &[&str]) -> usize),
                ("together", Tables::together),
            ] {
                let begun = Instant::now();
                assert_eq!(look_up(&tables, &wanted), LOOKUPS);
                let each = begun.elapsed().as_nanos() as f64 / LOOKUPS as f64;
                println!("{count:>8} topics, {order:>9}, {way:>10}: {each:6.1} ns");
            }
        }
    }
}
