//! Many nodes at once, from seeds: they claim, append, rewrite, seal, sweep, pause in the middle of any call
//! and die in it; answers are lost, commits and puts land late or twice, objects are lost for a while, and
//! lists are late. Each owner finds all that counts, and none takes a lost object for damage.
//!
//! A node that pauses has the others go on within its call. Each has random numbers of its own, and one
//! request at a time, so a seed takes one course. `STAFETT_SEEDS` is a number of seeds, or a range such as
//! `17..18`.

mod model;
mod weather;
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
        totals.lost_objects,
        totals.shut,
    ];
    assert!(all.iter().all(|count| *count > 0), "{totals:?}");
}

/// Returns a story without the nonces of owners and rows, which differ.
fn without_nonces(story: Vec<String>) -> Vec<String> {
    let is_nonce = |word: &&str| word.len() == 32 && word.chars().all(|c| c.is_ascii_hexdigit());
    let plain = |line: String| {
        let words: Vec<&str> = line.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let nonces: Vec<String> = words.into_iter().filter(is_nonce).map(str::to_owned).collect();
        nonces
            .iter()
            .fold(line, |line, nonce| line.replace(nonce.as_str(), "NONCE"))
    };
    story.into_iter().map(plain).collect()
}

#[test]
fn a_seed_takes_the_same_course_each_time() {
    for seed in 0..12 {
        let [one, other] = [(); 2].map(|()| {
            let world = World::new(seed);
            let _ = world.run();
            without_nonces(world.story())
        });
        let differs = one.iter().zip(&other).position(|(one, other)| one != other);
        let shown = differs.map(|at| (&one[..=at], &other[at]));
        assert_eq!(shown, None, "seed {seed}");
        assert_eq!(one.len(), other.len(), "seed {seed}");
    }
}
