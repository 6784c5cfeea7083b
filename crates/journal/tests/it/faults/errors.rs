//! Every change of the disk fails in turn: the journal copes, or it reports its failure and accepts no more.

use stafett_journal::simulated::{Effect, Fault, SimulatedDisk};
use stafett_journal::{Append, Frame, Journal, LogSpec, Outcome, Refusal, StateWait};

use super::ledger::{Failure, Ledger};
use super::power::changes;
use super::run::{Run, open};
use super::script;
use crate::support::more;

/// Plays the script on a disk that fails once, or permanently, and checks the rest.
fn fail_at(change: u64, effect: Effect) -> &'static str {
    let disk = SimulatedDisk::new();
    disk.set_fault(Some(Fault { change, effect }));
    let Ok(mut run) = Run::start(&disk) else {
        check(&disk, &Ledger::default(), false);
        return "did not open";
    };
    script::play(&mut run);
    run.check_live();
    script::end(&mut run);
    let failed = run.is_over();
    if failed {
        let first = run.journal.allocate(1);
        let frame = Frame::CreateLogs {
            first,
            count: 1,
            spec: LogSpec::default(),
        };
        let outcomes = run
            .journal
            .append(vec![Append::state([frame], StateWait::Synced)])
            .wait();
        assert_eq!(outcomes.as_slice(), [Outcome::Refused(Refusal::Closed)]);
        run.check_live();
    } else {
        assert_eq!(run.ledger.acknowledged(), run.ledger.steps());
    }
    let ledger = run.into_ledger();
    check(&disk, &ledger, !failed);
    if failed { "failed" } else { "coped" }
}

/// Checks the contents after a kill, and after losses of power.
fn check(disk: &SimulatedDisk, ledger: &Ledger, closed: bool) {
    for seed in 0..=more(2, 12) {
        let disk = disk.fork();
        let (failure, boots) = match seed {
            0 => {
                disk.kill();
                (if closed { Failure::None } else { Failure::Kill }, 1)
            }
            seed => {
                disk.lose_power(seed);
                (if closed { Failure::None } else { Failure::PowerLoss }, 2)
            }
        };
        let run = Run::recover(&disk, ledger.copy(), failure, boots);
        if seed == 1 {
            drop(run.go_on());
        }
    }
}

/// Fails every change from `first` on, or every n-th one.
fn every_change(effect: Effect, first: u64) {
    let mut counts = std::collections::BTreeMap::new();
    for change in (first..=changes()).step_by(more(2, 1)) {
        struct Place(u64);
        impl Drop for Place {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    eprintln!("at change {}", self.0);
                }
            }
        }
        let _place = Place(change);
        *counts.entry(fail_at(change, effect)).or_insert(0) += 1;
    }
    assert!(counts.len() > 1, "{counts:?}");
}

#[test]
fn nothing_acknowledged_is_lost_when_any_change_fails_once() {
    every_change(Effect::Error, 1);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_disk_is_full_for_a_moment() {
    every_change(Effect::Full, 2);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_disk_breaks_for_good() {
    every_change(Effect::Broken, 3);
}

/// A failed sync leaves pages that programs still see and that are never written: everything that a recovery
/// accepted from them has to be on the disk all the same.
#[test]
fn what_a_recovery_after_a_failed_sync_found_survives_a_loss_of_power() {
    let mut failed = 0;
    for change in (1..=changes()).step_by(more(2, 1)) {
        let disk = SimulatedDisk::new();
        let effect = Effect::Error;
        disk.set_fault(Some(Fault { change, effect }));
        let Ok(mut run) = Run::start(&disk) else { continue };
        script::play(&mut run);
        if !run.is_over() {
            continue;
        }
        failed += 1;
        let recovered = run.restart();
        for seed in 0..more(3, 12) {
            let disk = disk.fork();
            disk.lose_power(change * 1000 + seed);
            // The recovered contents are the beginning of this ledger: none of them may be missing.
            drop(Run::recover(
                &disk,
                recovered.ledger.copy(),
                Failure::PowerLoss,
                2,
            ));
        }
    }
    assert!(failed > 10, "{failed} runs ended by a failure");
}

#[test]
fn a_recovery_that_fails_can_be_tried_again() {
    let disk = SimulatedDisk::new();
    let mut run = Run::start(&disk).unwrap();
    script::play(&mut run);
    disk.kill();
    let ledger = run.into_ledger();
    for power in [false, true] {
        for effect in [Effect::Error, Effect::Full, Effect::Broken] {
            for steps in (1..).step_by(more(5, 1)) {
                let disk = disk.fork();
                let (failure, boots) = if power {
                    disk.lose_power(7);
                    (Failure::PowerLoss, 2)
                } else {
                    (Failure::Kill, 1)
                };
                let before = disk.changes();
                disk.set_fault(Some(Fault {
                    change: before + steps,
                    effect,
                }));
                drop(open(&disk, boots));
                let over = disk.changes() < before + steps;
                disk.kill();
                drop(Run::recover(&disk, ledger.copy(), failure, boots).go_on());
                if over {
                    break;
                }
            }
        }
    }
}
