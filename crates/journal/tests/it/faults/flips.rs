//! Single bits flip while the program is stopped. Everything read afterwards is right, or the damage is
//! reported.

use std::collections::BTreeSet;
use std::rc::Rc;

use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{Append, DiskJournal, Journal, Outcome, ReadError, Refusal};
use stafett_model::LogId;

use super::ledger::{Failure, Holding, Ledger};
use super::run::{Run, open};
use super::script;
use crate::support::{batch, more, read, seen};

/// End of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Closed,
    Killed,
}

pub(super) fn played(end: End) -> (SimulatedDisk, Ledger) {
    let disk = SimulatedDisk::new();
    let mut run = Run::start(&disk).unwrap();
    script::play(&mut run);
    match end {
        End::Closed => script::end(&mut run),
        End::Killed => disk.kill(),
    }
    let ledger = run.into_ledger();
    disk.kill();
    (disk, ledger)
}

/// Flips one bit in every `step` bytes of the files with `part` in their names; the bits differ.
fn flip(end: End, part: &str, step: usize, used_only: bool) {
    let (disk, ledger) = played(end);
    let names: Vec<_> = disk
        .names()
        .into_iter()
        .filter(|name| name.contains(part))
        .collect();
    assert!(!names.is_empty());
    let mut named = 0;
    let mut tried = 0;
    for name in names {
        let contents = disk.contents(&name).unwrap();
        let used = contents
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        let used = if used_only { used } else { contents.len() };
        for byte in (0..used).step_by(step) {
            let bit = 8 * byte as u64 + (byte as u64 / step as u64) % 8;
            struct Place<'a>(&'a str, u64, End);
            impl Drop for Place<'_> {
                fn drop(&mut self) {
                    if std::thread::panicking() {
                        eprintln!(
                            "at bit {} (byte {}) of {}, {:?}",
                            self.1,
                            self.1 / 8,
                            self.0,
                            self.2
                        );
                    }
                }
            }
            let _place = Place(&name, bit, end);
            let disk = disk.fork();
            assert!(disk.flip_bit(&name, bit));
            named += usize::from(check(&disk, &ledger, end));
            tried += 1;
        }
    }
    assert!(tried > 10, "{tried}");
    eprintln!("{end:?} {part}: {named} of {tried} were named");
}

/// Damage that a journal reports.
#[derive(Debug, Default)]
struct Named {
    /// Damage without a known log.
    something: bool,
    logs: BTreeSet<LogId>,
}

/// Opens a damaged journal twice; returns true if damage was reported.
fn check(disk: &SimulatedDisk, ledger: &Ledger, end: End) -> bool {
    let Ok(journal) = open(disk, 1) else { return true };
    let first = compare(&journal, ledger, end);
    disk.kill();
    drop(journal);
    let Ok(journal) = open(disk, 1) else {
        panic!("it could be opened once, and no more")
    };
    let second = look(&journal, ledger);
    for log in &first.logs {
        assert!(
            second.0.logs.contains(log),
            "the damage of {log} was forgotten by the next start"
        );
    }
    goes_on(&journal, ledger);
    first.something || !first.logs.is_empty()
}

/// Checks that logs take appends behind all assigned offsets, unless their ends are unknown.
pub(super) fn goes_on(journal: &DiskJournal, ledger: &Ledger) {
    for id in ledger.logs() {
        let Some(bounds) = journal.bounds(*id) else {
            continue;
        };
        let ticket = journal.append(vec![Append::batch(*id, batch(&["after"]))]);
        journal.pump();
        match &ticket.wait()[0] {
            Outcome::Committed(placed) => assert_eq!(placed[0].base, bounds.end),
            Outcome::Refused(Refusal::Fenced { .. }) => assert!(journal.report().fenced.contains(id)),
            other => panic!("{other:?}"),
        }
    }
}

/// Reads everything and compares it with the ledger.
fn compare(journal: &DiskJournal, ledger: &Ledger, end: End) -> Named {
    let (named, holding) = look(journal, ledger);
    let failure = match end {
        End::Closed => Failure::None,
        End::Killed => Failure::Kill,
    };
    if named.logs.is_empty() && !named.something {
        drop(ledger.copy().check_seen(holding, failure));
        return named;
    }
    // Everything not reported is unchanged, and nothing is made up.
    for (id, mine) in &ledger.now().logs {
        let Some(seen) = holding.logs.get(id) else {
            assert!(named.something, "{id} is gone");
            continue;
        };
        for record in &seen.records {
            assert!(
                mine.records.contains(record) || record.0 < mine.start,
                "{id} has {record:.20?}"
            );
        }
        if !named.logs.contains(id) && !named.something {
            assert_eq!(seen.records, mine.records, "{id} was not named");
        }
    }
    if !named.something {
        assert_eq!(holding.state, ledger.now().state);
    }
    named
}

/// Returns the reported damage and the readable contents.
fn look(journal: &DiskJournal, ledger: &Ledger) -> (Named, Holding) {
    let report = journal.report();
    let mut named = Named {
        something: report.torn || report.damaged_groups > 0 || !report.missing_segments.is_empty(),
        logs: BTreeSet::new(),
    };
    named.logs.extend(report.damaged.iter().map(|(log, _, _)| *log));
    named.logs.extend(report.fenced.iter().copied());
    let mut holding = Holding::default();
    let mut whole = Holding::default();
    for id in ledger.logs() {
        let only = BTreeSet::from([*id]);
        if let Ok(one) = Holding::logs_of(journal, &only, ledger.now()) {
            whole.logs.extend(one.logs);
            continue;
        }
        named.logs.insert(*id);
        holding.logs.extend(salvaged(journal, *id));
    }
    holding.logs.extend(whole.logs);
    match Holding::state_of(journal) {
        Ok(state) => holding.state = state,
        Err(_) => named.something = true,
    }
    (named, holding)
}

/// Returns the readable contents of a log around its damage.
pub(super) fn salvaged(journal: &DiskJournal, id: LogId) -> Option<(LogId, super::ledger::HeldLog)> {
    let bounds = journal.bounds(id)?;
    let mut log = super::ledger::HeldLog::new(stafett_model::Durability::Sync);
    (log.start, log.next) = (bounds.start.0, bounds.end.0);
    let mut at = bounds.start.0;
    while at < bounds.end.0 {
        match read(journal, id, at, 1000) {
            Ok(run) if run.pieces.is_empty() => break,
            Ok(run) => {
                let records = seen(&run).into_iter().filter(|(offset, _)| *offset >= at);
                log.records
                    .extend(records.map(|(offset, value)| (offset, Rc::from(value))));
                at = run.next.0;
            }
            Err(ReadError::Damaged { to, .. }) => {
                assert!(to.0 > at);
                at = to.0;
            }
            Err(_) => break,
        }
    }
    Some((id, log))
}

#[test]
fn bits_of_segments_behind_a_clean_stop() {
    flip(End::Closed, ".seg", more(127, 3), true);
}

#[test]
fn bits_of_segments_behind_a_kill() {
    flip(End::Killed, ".seg", more(127, 3), true);
}

#[test]
fn bits_of_sidecars() {
    flip(End::Closed, ".idx", more(1201, 11), false);
    flip(End::Killed, ".idx", more(1201, 11), false);
}

#[test]
fn bits_of_the_checkpoint() {
    flip(End::Closed, "checkpoint", more(1601, 101), false);
    flip(End::Killed, "checkpoint", more(1601, 101), false);
}
