//! Ledger of a run: its steps, and the contents required after a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use stafett_journal::ticket::Outcomes;
use stafett_journal::{Journal, Outcome, StateItem, StateSpace, Ticket};
use stafett_model::{Durability, LogId};

use super::named;
use crate::support::read_all;

/// State spaces used by the scripts.
pub const SPACES: [u16; 2] = [3, 4];

/// End of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    Kill,
    PowerLoss,
    /// It was closed, and everything has to survive.
    None,
}

/// Visible contents of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holding {
    pub logs: BTreeMap<LogId, HeldLog>,
    pub state: BTreeMap<(u16, String), Kept>,
}

/// Value of a key, and its later deltas.
pub type Kept = (Option<Rc<str>>, Vec<Rc<str>>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLog {
    pub level: Durability,
    pub start: u64,
    pub next: u64,
    pub owner: u64,
    pub records: Vec<(u64, Rc<str>)>,
}

/// A step of a run that changes what the journal holds.
#[derive(Clone)]
struct Step {
    acknowledged: bool,
    kind: Kind,
    /// Places of its records, if it is stored.
    places: Places,
    effect: Rc<dyn Fn(&mut Holding) -> Places>,
}

/// Records and their places.
pub type Places = Vec<(LogId, u64, Rc<str>)>;

/// Properties of a step that matter for later ones.
#[derive(Debug, Clone, Default)]
pub struct Kind {
    /// Strictest level of its contents.
    pub level: Durability,
    /// Logs that it appends to or changes.
    pub logs: BTreeSet<LogId>,
    /// True if it changes something besides batches.
    pub has_state: bool,
    /// True if its batches are written in chunks: steps that share nothing with it may be stored before it.
    pub is_cut: bool,
    /// Id under which it is stored.
    pub id: Option<u8>,
    /// Id and places of the first append, if it was sent before: then it changes nothing.
    pub again: Option<(u8, Rc<str>)>,
}

/// The steps of a run.
pub struct Ledger {
    /// Contents of the journal after each number of steps.
    after: Vec<Holding>,
    steps: Vec<Step>,
    /// Tickets of steps without an outcome.
    tickets: BTreeMap<usize, Ticket>,
    /// Logs of all runs, including deleted ones.
    logs: BTreeSet<LogId>,
    /// Acknowledged contents of offsets, of any run.
    told: BTreeMap<(LogId, u64), Rc<str>>,
    /// Ids used by an append in any run, with any outcome.
    ids: BTreeSet<u8>,
}

impl HeldLog {
    pub fn new(level: Durability) -> Self {
        Self {
            level,
            start: 0,
            next: 0,
            owner: 0,
            records: Vec::new(),
        }
    }

    /// Adds records; returns their offsets.
    pub fn push(&mut self, values: &[Rc<str>]) -> Vec<(u64, Rc<str>)> {
        let placed: Vec<_> = (self.next..).zip(values.iter().cloned()).collect();
        self.next += values.len() as u64;
        self.records.extend(placed.iter().cloned());
        placed
    }

    pub fn truncate(&mut self, before: u64) {
        self.start = self.start.max(before.min(self.next));
        self.records.retain(|(at, _)| *at >= self.start);
    }
}

impl Holding {
    /// Reads the contents of a journal. The levels of logs are not visible: they are taken from `like`.
    pub fn of(journal: &dyn Journal, logs: &BTreeSet<LogId>, like: &Self) -> Result<Self, String> {
        let mut holding = Self::logs_of(journal, logs, like)?;
        holding.state = Self::state_of(journal)?;
        Ok(holding)
    }

    pub fn state_of(journal: &dyn Journal) -> Result<BTreeMap<(u16, String), Kept>, String> {
        let mut state = BTreeMap::<_, Kept>::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for space in SPACES {
            let load = journal.load_state(StateSpace(space), &mut |item| match item {
                StateItem::Value { key, value } => {
                    state.entry((space, text(key))).or_default().0 = Some(text(value).into());
                }
                StateItem::Delta { key, delta } => {
                    state
                        .entry((space, text(key)))
                        .or_default()
                        .1
                        .push(text(delta).into());
                }
            });
            load.map_err(|error| error.to_string())?;
        }
        let load = journal.load_state(StateSpace(named::SPACE), &mut |item| match item {
            StateItem::Value { key, value } => {
                let (key, places) = named::row(key, value);
                state.insert(key, (Some(places), Vec::new()));
            }
            StateItem::Delta { .. } => panic!("ids have no deltas"),
        });
        load.map_err(|error| error.to_string())?;
        Ok(state)
    }

    /// Reads the contents without state, which is only visible right after a start.
    pub fn logs_of(journal: &dyn Journal, logs: &BTreeSet<LogId>, like: &Self) -> Result<Self, String> {
        let mut holding = Self::default();
        for id in logs {
            let Some(bounds) = journal.bounds(*id) else {
                continue;
            };
            let read = read_all(journal, *id, 3000).map_err(|error| error.to_string())?;
            let records = read
                .into_iter()
                .map(|(at, value)| (at, Rc::from(value)))
                .collect();
            let level = like.logs.get(id).map_or(Durability::Sync, |log| log.level);
            holding.logs.insert(
                *id,
                HeldLog {
                    level,
                    start: bounds.start.0,
                    next: bounds.end.0,
                    owner: journal.owner(*id).map_or(0, |owner| owner.0),
                    records,
                },
            );
        }
        Ok(holding)
    }

    /// Returns true if `seen` matches this: logs below `sync` may continue behind reserved offsets.
    fn is_seen_as(&self, seen: &Self) -> bool {
        self.state == seen.state
            && self.logs.len() == seen.logs.len()
            && self
                .logs
                .iter()
                .zip(&seen.logs)
                .all(|((id, mine), (seen_id, seen))| {
                    let jump = seen.next > mine.next;
                    id == seen_id
                        && mine.start == seen.start
                        && mine.owner == seen.owner
                        && mine.records == seen.records
                        && (mine.next == seen.next || jump)
                })
    }
}

impl Default for Ledger {
    /// Creates an empty ledger.
    fn default() -> Self {
        Self {
            after: vec![Holding::default()],
            steps: Vec::new(),
            tickets: BTreeMap::new(),
            logs: BTreeSet::new(),
            told: BTreeMap::new(),
            ids: BTreeSet::new(),
        }
    }
}

impl Ledger {
    /// Creates the ledger of a run that starts with the contents `holding`.
    pub fn starting_with(holding: Holding, before: Self) -> Self {
        Self {
            after: vec![holding],
            steps: Vec::new(),
            ..before
        }
    }

    pub fn now(&self) -> &Holding {
        self.after.last().unwrap()
    }

    pub fn logs(&self) -> &BTreeSet<LogId> {
        &self.logs
    }

    pub fn ids(&self) -> &BTreeSet<u8> {
        &self.ids
    }

    /// Records a staged step and its effect unless it was refused at once; returns true if it was not.
    pub fn note(
        &mut self,
        mut ticket: Ticket,
        kind: Kind,
        effect: impl Fn(&mut Holding) -> Places + 'static,
    ) -> bool {
        let ready = poll(&mut ticket);
        self.ids.extend(kind.id);
        if let Some([Outcome::Refused(_)]) = ready.as_deref() {
            return false;
        }
        let mut next = self.now().clone();
        let places = effect(&mut next);
        self.logs.extend(next.logs.keys());
        self.after.push(next);
        self.steps.push(Step {
            acknowledged: false,
            kind,
            places,
            effect: Rc::new(effect),
        });
        let step = self.steps.len() - 1;
        match ready {
            Some(outcomes) => self.resolve(step, &outcomes),
            None => drop(self.tickets.insert(step, ticket)),
        }
        true
    }

    /// Records the steps that have been acknowledged since.
    pub fn poll(&mut self) {
        for (step, mut ticket) in std::mem::take(&mut self.tickets) {
            match poll(&mut ticket) {
                Some(outcomes) => self.resolve(step, &outcomes),
                None => drop(self.tickets.insert(step, ticket)),
            }
        }
    }

    fn resolve(&mut self, step: usize, outcomes: &Outcomes) {
        self.steps[step].resolve(outcomes, &mut self.told);
        let Step {
            acknowledged: true,
            kind: Kind {
                again: Some((id, _)), ..
            },
            ..
        } = &self.steps[step]
        else {
            return;
        };
        // An acknowledgement of the second append also acknowledges the first.
        let id = *id;
        if let Some(first) = self.steps.iter_mut().find(|first| first.kind.id == Some(id)) {
            first.acknowledged = true;
        }
    }

    pub fn unresolved(&self) -> usize {
        self.tickets.len()
    }

    /// Copies the ledger. Every step has to have an outcome.
    pub fn copy(&self) -> Self {
        assert_eq!(self.unresolved(), 0, "a ticket was never resolved");
        Self {
            after: self.after.clone(),
            steps: self.steps.clone(),
            tickets: BTreeMap::new(),
            logs: self.logs.clone(),
            told: self.told.clone(),
            ids: self.ids.clone(),
        }
    }

    pub fn acknowledged(&self) -> usize {
        self.steps.iter().filter(|step| step.acknowledged).count()
    }

    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Returns the number of steps that have to survive a failure.
    pub fn safe(&self, failure: Failure) -> usize {
        let survives = |step: &Step| step.survives(failure);
        self.steps.iter().rposition(survives).map_or(0, |index| index + 1)
    }

    /// Returns the contents if appends in chunks and those that must follow them are missing, but other
    /// appends staged behind them are stored.
    fn overtaken(&self, seen: &Holding, failure: Failure) -> Option<Holding> {
        let cuts = (0..self.steps.len()).filter(|index| self.steps[*index].kind.is_cut);
        let cuts: Vec<_> = cuts
            .filter(|index| !self.steps[*index].survives(failure))
            .collect();
        (0..=self.steps.len())
            .rev()
            .flat_map(|end| {
                cuts.iter()
                    .filter(move |cut| **cut < end)
                    .map(move |cut| (end, *cut))
            })
            .filter_map(|(end, cut)| self.without(end, cut, failure))
            .find(|holding| holding.is_seen_as(seen))
    }

    /// Returns the contents after the first `end` steps without those in chunks, from `cut` on.
    fn without(&self, end: usize, cut: usize, failure: Failure) -> Option<Holding> {
        let mut holding = self.after[0].clone();
        let (mut logs, mut all) = (BTreeSet::new(), false);
        for (index, step) in self.steps.iter().enumerate() {
            let is_cut = step.kind.is_cut && index >= cut;
            if index >= end || all || is_cut || !logs.is_disjoint(&step.kind.logs) {
                if step.survives(failure) {
                    return None;
                }
                logs.extend(&step.kind.logs);
                all |= step.kind.has_state;
            } else {
                (step.effect)(&mut holding);
            }
        }
        Some(holding)
    }

    /// Checks the contents of a journal opened after a failure; returns the ledger for the run that
    /// continues.
    pub fn check(self, journal: &dyn Journal, failure: Failure) -> Self {
        let seen = Holding::of(journal, &self.logs, self.now()).unwrap();
        self.check_seen(seen, failure)
    }

    pub fn check_seen(mut self, seen: Holding, failure: Failure) -> Self {
        let safe = self.safe(failure);
        let in_order = (safe..self.after.len())
            .rev()
            .find(|steps| self.after[*steps].is_seen_as(&seen))
            .map(|steps| self.after[steps].clone());
        let Some(wanted) = in_order.or_else(|| self.overtaken(&seen, failure)) else {
            self.explain(&seen, safe, failure);
        };
        for (id, log) in &seen.logs {
            for (at, value) in &log.records {
                self.tell(*id, *at, value);
            }
            let told = self.told.range((*id, 0)..=(*id, u64::MAX)).next_back();
            if let Some(((_, last), value)) = told {
                assert!(
                    log.next > *last,
                    "{id} goes on at {} but {value:.20} was said to be at {last}",
                    log.next
                );
            }
        }
        let mut holding = seen;
        for (id, log) in &mut holding.logs {
            log.level = wanted.logs[id].level;
        }
        Self::starting_with(holding, self)
    }

    /// Checks the readable contents of a running journal, or of a failed one, which shows no more than
    /// before.
    pub fn check_live(&self, seen: &Holding, failed: bool) {
        for (id, mine) in &self.now().logs {
            // Its creation may have failed.
            let Some(seen) = seen.logs.get(id) else { continue };
            let wanted = mine
                .records
                .iter()
                .take(if failed { seen.records.len() } else { usize::MAX });
            assert!(
                seen.records.iter().eq(wanted),
                "{id} reads wrongly:\n{}",
                differences(
                    self.now(),
                    &Holding {
                        logs: BTreeMap::from([(*id, seen.clone())]),
                        state: BTreeMap::new(),
                    }
                )
            );
        }
    }

    fn tell(&mut self, log: LogId, at: u64, value: &Rc<str>) {
        let told = self.told.entry((log, at)).or_insert_with(|| Rc::clone(value));
        assert_eq!(told, value, "two records have offset {at} of {log}");
    }

    fn explain(&self, seen: &Holding, safe: usize, failure: Failure) -> ! {
        let all = self.after.len() - 1;
        let mut text = format!("after {failure:?}: not what {safe} to {all} steps lead to\n");
        for steps in [safe, all] {
            text += &format!(
                "against {steps} steps:\n{}",
                differences(&self.after[steps], seen)
            );
        }
        panic!("{text}");
    }
}

impl Step {
    /// Returns true if it has to survive a failure.
    fn survives(&self, failure: Failure) -> bool {
        match (self.kind.level, failure) {
            _ if !self.acknowledged => false,
            (_, Failure::None) | (Durability::Sync, _) => true,
            (Durability::Memory, _) => false,
            (Durability::Os | Durability::Interval { .. }, failure) => failure == Failure::Kill,
        }
    }

    fn resolve(&mut self, outcomes: &Outcomes, told: &mut BTreeMap<(LogId, u64), Rc<str>>) {
        let [outcome] = outcomes.as_slice() else {
            panic!("{outcomes:?}")
        };
        match outcome {
            Outcome::Committed(placed) => {
                self.acknowledged = true;
                if let Some((_, places)) = &self.kind.again {
                    assert!(placed.iter().all(|placed| placed.duplicate), "{placed:?}");
                    assert_eq!(named::places_of(placed), *places);
                    return;
                }
                let is_new = placed.iter().all(|placed| !placed.duplicate);
                assert!(is_new || self.kind.id.is_none(), "{placed:?}");
                for placed in placed {
                    let at = (placed.log, placed.base.0);
                    let is_mine = self
                        .places
                        .iter()
                        .any(|(log, at, _)| (*log, *at) == (placed.log, placed.base.0));
                    assert!(
                        is_mine || placed.duplicate,
                        "a batch went to {at:?}, not to {:?}",
                        self.places
                    );
                }
                for (log, at, value) in &self.places {
                    let known = told.entry((*log, *at)).or_insert_with(|| Rc::clone(value));
                    assert_eq!(known, value, "two records have offset {at} of {log}");
                }
            }
            Outcome::Unknown => {}
            Outcome::Refused(refusal) => panic!("staged, then refused: {refusal}"),
        }
    }
}

fn poll(ticket: &mut Ticket) -> Option<Outcomes> {
    match Pin::new(ticket).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcomes) => Some(outcomes),
        Poll::Pending => None,
    }
}

fn differences(wanted: &Holding, seen: &Holding) -> String {
    let mut text = String::new();
    let ids: BTreeSet<_> = wanted.logs.keys().chain(seen.logs.keys()).collect();
    let short = |log: &HeldLog| {
        let records: Vec<_> = log
            .records
            .iter()
            .map(|(at, value)| format!("{at}:{value:.8}"))
            .collect();
        format!("{} to {}: {}", log.start, log.next, records.join(" "))
    };
    for id in ids {
        let (wanted, seen) = (wanted.logs.get(id).map(short), seen.logs.get(id).map(short));
        if wanted != seen {
            text += &format!("  {id}\n    wanted {}\n", wanted.unwrap_or_default());
            text += &format!("    seen   {}\n", seen.unwrap_or_default());
        }
    }
    let keys: BTreeSet<_> = wanted.state.keys().chain(seen.state.keys()).collect();
    for key in keys {
        let (wanted, seen) = (wanted.state.get(key), seen.state.get(key));
        if wanted != seen {
            text += &format!("  state {key:?}: wanted {wanted:.80?}, seen {seen:.80?}\n");
        }
    }
    text
}
