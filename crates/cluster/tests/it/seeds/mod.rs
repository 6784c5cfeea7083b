//! Many nodes at once, from seeds: they claim, append, rewrite, seal, sweep, pause in the middle of any call
//! and die in it; answers are lost, commits and puts land late or twice. Each owner finds all that counts.
//!
//! A node that pauses has the others go on within its call. Requests to the store that are made several at a
//! time draw from several threads, so a seed repeats in most steps, not in all. `STAFETT_SEEDS` is a number of
//! seeds, or a range such as `17..18`.

mod model;
mod world;

use std::ops::Range;

use self::world::World;
use crate::support::more;

/// Returns the seeds to run.
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("STAFETT_SEEDS") else {
        return 0..more(60, 5000);
    };
    match text.split_once("..") {
        Some((first, end)) => first.parse().unwrap()..end.parse().unwrap(),
        None => 0..text.parse().unwrap(),
    }
}

#[test]
fn nodes_that_pause_and_die_anywhere_lose_and_double_nothing() {
    let mut totals = world::Totals::default();
    for seed in seeds() {
        let counts = World::new(seed).run();
        totals.add(&counts.unwrap_or_else(|why| panic!("{why}")));
    }
    println!("{totals:?}");
    let all = [
        totals.claims,
        totals.acknowledged,
        totals.unknown,
        totals.pauses,
        totals.deaths,
        totals.fenced_appends,
        totals.late,
        totals.failed_openings,
        totals.deleted_objects,
    ];
    assert!(all.iter().all(|count| *count > 0), "{totals:?}");
}
