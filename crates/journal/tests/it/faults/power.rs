//! The power fails, or the program is killed, at every change of the disk.

use std::collections::BTreeSet;

use stafett_journal::Journal;
use stafett_journal::simulated::{Change, Effect, Fault, SimulatedDisk};

use super::ledger::{Failure, Ledger};
use super::run::{Run, open};
use super::script;
use crate::support::more;

/// Returns the number of changes that the whole script makes.
pub fn changes() -> u64 {
    let disk = SimulatedDisk::new();
    let mut run = Run::start(&disk).unwrap();
    script::play(&mut run);
    run.check_live();
    script::end(&mut run);
    assert_eq!(run.journal.failure(), None);
    assert_eq!(run.ledger.acknowledged(), run.ledger.steps());
    drop(run.into_ledger());
    disk.changes()
}

/// Plays the script until the disk stops at a change.
fn play_until(change: u64, effect: Effect) -> (SimulatedDisk, Ledger) {
    let disk = SimulatedDisk::new();
    disk.set_fault(Some(Fault { change, effect }));
    let ledger = Run::start(&disk).map(|mut run| {
        script::play(&mut run);
        script::end(&mut run);
        run.into_ledger()
    });
    (disk, ledger.unwrap_or_default())
}

/// Prints the place when a check fails.
struct Place<'a>(&'a SimulatedDisk, u64, u64);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "at change {}, {:?}, with seed {}",
                self.1,
                self.0.change(self.1),
                self.2
            );
        }
    }
}

#[test]
fn the_script_makes_every_kind_of_change() {
    let disk = SimulatedDisk::new();
    let mut run = Run::start(&disk).unwrap();
    script::play(&mut run);
    drop(run.into_ledger());
    drop(open(&disk, 1).unwrap());
    let names = disk.names();
    let count = |end: &str| names.iter().filter(|name| name.ends_with(end)).count();
    assert!(count(".seg") > 5 && count(".idx") > 3, "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("sorted")), "{names:?}");
    let kinds: BTreeSet<_> = (1..=disk.changes())
        .map(|number| disk.change(number).unwrap().0)
        .collect();
    for kind in [
        Change::Create,
        Change::Rename,
        Change::Remove,
        Change::SyncNames,
        Change::Write,
        Change::SetBytes,
        Change::Reserve,
        Change::Sync,
    ] {
        assert!(kinds.contains(&kind), "{kind:?}");
    }
}

#[test]
fn what_was_acknowledged_survives_a_loss_of_power_at_every_change() {
    for change in 1..=changes() {
        let (disk, ledger) = play_until(change, Effect::PowerLoss);
        for seed in 0..more(3, 40) {
            let seed = change * 1000 + seed;
            let disk = disk.fork();
            let _place = Place(&disk, change, seed);
            disk.lose_power(seed);
            let run = Run::recover(&disk, ledger.copy(), Failure::PowerLoss, 2);
            if seed % 4 == change % 4 {
                drop(run.restart().go_on());
            }
        }
    }
}

#[test]
fn what_was_written_survives_a_kill_at_every_change() {
    for change in 1..=changes() {
        for cut in 0..more(2, 20) {
            let seed = change * 1000 + cut;
            let (disk, ledger) = play_until(change, Effect::Kill { seed });
            let _place = Place(&disk, change, seed);
            disk.kill();
            let run = Run::recover(&disk, ledger, Failure::Kill, 1);
            assert!(!run.journal.report().is_damaged(), "{:?}", run.journal.report());
            if seed % 2 == 0 {
                drop(run.restart().go_on());
            }
        }
    }
}

/// Recovery itself is stopped again and again, by a loss of power or a kill.
#[test]
fn a_recovery_that_does_not_come_to_its_end_changes_nothing() {
    for change in (1..=changes()).step_by(more(29, 3)) {
        let (disk, ledger) = play_until(change, Effect::PowerLoss);
        for (first, second) in [(true, false), (false, true), (true, true)] {
            let disk = disk.fork();
            let _place = Place(&disk, change, change);
            let mut boots = 1;
            let mut stop = |disk: &SimulatedDisk, by_power: bool| {
                if by_power {
                    disk.lose_power(change);
                    boots += 1;
                } else {
                    disk.kill();
                }
                boots
            };
            let boots = stop(&disk, first);
            let mut steps = 0;
            loop {
                let disk = disk.fork();
                steps += more(7, 1);
                let fault = Fault {
                    change: disk.changes() + steps,
                    effect: Effect::PowerLoss,
                };
                disk.set_fault(Some(fault));
                let opened = open(&disk, boots).is_ok();
                if opened {
                    break;
                }
                let boots = if second {
                    disk.lose_power(steps);
                    boots + 1
                } else {
                    disk.kill();
                    boots
                };
                let failure = if first || second {
                    Failure::PowerLoss
                } else {
                    Failure::Kill
                };
                drop(Run::recover(&disk, ledger.copy(), failure, boots).go_on());
            }
        }
    }
}
