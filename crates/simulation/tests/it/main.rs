//! Some hundreds of seeds, and a check that a seed always gives the same run.

mod plants;

use std::path::Path;

use stafett_simulation::seeds::Runner;

/// Number of seeds that `make test` runs.
const SEEDS: u64 = 300;

fn runner() -> Runner {
    Runner::new(Path::new(env!("CARGO_BIN_EXE_stafett-simulate")))
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    let runner = runner();
    for seed in 1..20 {
        let first = runner.one(seed, None);
        assert_eq!(first, runner.one(seed, None), "seed {seed}");
    }
}

#[test]
fn nothing_acknowledged_is_lost_in_the_seeds_of_every_day() {
    let runner = runner();
    let failure = runner.run(1, 2, &|seed| seed <= SEEDS);
    assert!(failure.is_none(), "{}: {failure:#?}", runner.totals());
}
