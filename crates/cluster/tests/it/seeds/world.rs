//! Nodes over one fake database, and the steps that they take.
//!
//! Length: steps and their checks share the state of a seed.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use stafett_cluster::fake::{Call, FakeDatabase, FakeNode, Fate};
use stafett_cluster::{
    Candidate, Claim, Clock, Database, Look, Objects, Settings, SharedStorage, agreement, nonce,
};
use stafett_journal::disk::Clock as JournalClock;
use stafett_journal::{
    Append, DiskJournal, Frame, Journal, LogSpec, Metrics, Outcome, Settings as JournalSettings, StateWait,
};
use stafett_model::{Durability, LogId, Offset};

use super::model::Known;
use super::weather::NodeWeather;
use crate::node::{NO_LEASE, quick, storage_with, with_objects};
use crate::support::{batch, read_all, rewriting};

/// Nodes that are there at a time.
const NODES_MAX: usize = 5;
/// Nodes that pause within each other.
const DEPTH_MAX: u32 = 3;
/// Bytes from which segments are merged.
const MERGED_BYTES: u64 = 100 << 10;

/// Counts of a run.
#[derive(Debug, Default, Clone)]
pub(super) struct Totals {
    pub(super) claims: u64,
    pub(super) acknowledged: u64,
    pub(super) unknown: u64,
    pub(super) pauses: u64,
    pub(super) deaths: u64,
    /// Appends of former owners, which have no outcome.
    pub(super) fenced_appends: u64,
    pub(super) late: u64,
    pub(super) failed_openings: u64,
    pub(super) deleted_objects: u64,
    pub(super) lost_objects: u64,
    /// Openings and reads that failed for a lost object.
    pub(super) shut: u64,
}

impl Totals {
    pub(super) fn add(&mut self, other: &Self) {
        let Self {
            claims,
            acknowledged,
            unknown,
            pauses,
            deaths,
            fenced_appends,
            late,
            failed_openings,
            deleted_objects,
            lost_objects,
            shut,
        } = other;
        self.claims += claims;
        self.acknowledged += acknowledged;
        self.unknown += unknown;
        self.pauses += pauses;
        self.deaths += deaths;
        self.fenced_appends += fenced_appends;
        self.late += late;
        self.failed_openings += failed_openings;
        self.deleted_objects += deleted_objects;
        self.lost_objects += lost_objects;
        self.shut += shut;
    }
}

/// A node that opened the journal, and may be a former owner.
struct Node {
    number: usize,
    fake: Arc<FakeNode>,
    claim: Claim,
    storage: Arc<SharedStorage>,
    journal: DiskJournal,
}

struct State {
    random: SmallRng,
    /// Nodes that do nothing now.
    idle: Vec<Node>,
    /// Their processes; of busy nodes too.
    processes: Vec<(usize, Arc<FakeNode>)>,
    next_node: usize,
    depth: u32,
    /// Newest epoch with a fence.
    fenced: u64,
    known: Known,
    totals: Totals,
    story: Vec<String>,
    /// The first thing that must not be.
    failure: Option<String>,
}

/// Everything of one seed.
pub(super) struct World {
    seed: u64,
    database: FakeDatabase,
    state: Mutex<State>,
    is_calm: AtomicBool,
    /// Largest commit in the database; `None`: there are no objects.
    inline_bytes_max: Option<usize>,
    garbage_after: Duration,
    this: Weak<Self>,
}

impl World {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        let mut random = SmallRng::seed_from_u64(seed);
        let inline_bytes_max = [None, Some(0), Some(8 << 10)][random.random_range(0..3)];
        let garbage_after = Duration::from_secs([0, 60, 600][random.random_range(0..3)]);
        let database = FakeDatabase::default();
        if random.random_range(0..2) == 0 {
            database.list_late();
        }
        let state = State {
            random,
            idle: Vec::new(),
            processes: Vec::new(),
            next_node: 1,
            depth: 0,
            fenced: 0,
            known: Known::default(),
            totals: Totals::default(),
            story: Vec::new(),
            failure: None,
        };
        Arc::new_cyclic(|this| Self {
            seed,
            database,
            state: Mutex::new(state),
            is_calm: AtomicBool::new(false),
            inline_bytes_max,
            garbage_after,
            this: Weak::clone(this),
        })
    }

    /// Runs the seed to its end.
    pub(super) fn run(&self) -> Result<Totals, String> {
        for _ in 0..self.draw(40..120) {
            self.step();
        }
        self.calm_down();
        let state = self.state();
        let Some(failure) = &state.failure else {
            return Ok(state.totals.clone());
        };
        Err(format!(
            "{}\nseed {}: {failure}",
            state.story.join("\n"),
            self.seed
        ))
    }

    /// Returns the steps so far.
    pub(super) fn story(&self) -> Vec<String> {
        self.state().story.clone()
    }

    /// Notes what must not be. The rest is calm: nothing unwinds through a node that pauses.
    fn fail(&self, why: String) {
        self.is_calm.store(true, Ordering::Relaxed);
        self.state().failure.get_or_insert(why);
    }

    fn has_failed(&self) -> bool {
        self.state().failure.is_some()
    }

    fn check(&self, holds: bool, why: impl FnOnce() -> String) {
        if !holds {
            self.fail(why());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn draw(&self, range: std::ops::Range<u64>) -> u64 {
        self.state().random.random_range(range)
    }

    /// True in one of `count` cases.
    fn is_one_in(&self, count: u64) -> bool {
        self.draw(0..count) == 0
    }

    fn tell(&self, text: impl fmt::Display) {
        let mut state = self.state();
        let depth = usize::try_from(state.depth).unwrap();
        state.story.push(format!("{}{text}", "  ".repeat(depth)));
    }

    fn check_violations(&self) {
        let violations = self.database.violations();
        self.check(violations.is_empty(), || format!("{violations:?}"));
    }

    /// Has the others go on in the middle of a call, now and then.
    pub(super) fn pause(&self, node: &NodeWeather, call: Call) {
        let number = node.number;
        if self.is_calm.load(Ordering::Relaxed) {
            return;
        }
        let odds = match call {
            Call::Commit | Call::Publish | Call::Put | Call::Claim => 12,
            Call::Delete | Call::Other => 60,
        };
        if node.draw(0..odds) != 0 {
            return;
        }
        {
            let mut state = self.state();
            if state.depth == DEPTH_MAX {
                return;
            }
            state.totals.pauses += 1;
        }
        self.tell(format_args!("node {number} pauses in {call:?}"));
        self.state().depth += 1;
        let steps = node.draw(1..8);
        // It holds no locks of the one that pauses.
        let took = std::thread::scope(|scope| scope.spawn(|| (0..steps).for_each(|_| self.step())).join());
        self.check(took.is_ok(), || "a step panicked".to_owned());
        self.state().depth -= 1;
        self.tell(format_args!("node {number} goes on"));
    }

    pub(super) fn fate(&self, node: &NodeWeather, call: Call) -> Fate {
        if self.is_calm.load(Ordering::Relaxed) {
            return Fate::Answered;
        }
        let (number, fate) = (node.number, node.course(call));
        if fate == Fate::Answered {
            return fate;
        }
        self.tell(format_args!("node {number}: {call:?} is {fate:?}"));
        let mut state = self.state();
        match fate {
            Fate::Death { .. } => state.totals.deaths += 1,
            Fate::Late | Fate::Twice => state.totals.late += 1,
            Fate::Answered | Fate::Unanswered { .. } => {}
        }
        fate
    }

    /// Does one thing.
    fn step(&self) {
        self.check_violations();
        if self.has_failed() {
            return;
        }
        self.database.advance(Duration::from_secs(self.draw(0..30)));
        match self.draw(0..100) {
            0..12 => self.take_over(),
            12..16 => self.kill(),
            16..19 => self.close(),
            19..26 => {
                let late = self.database.late_commits() as u64;
                if late > 0 {
                    let index = self.draw(0..late);
                    self.tell(format_args!("a late commit lands"));
                    self.database.land_late_commit(usize::try_from(index).unwrap());
                }
            }
            26..30 => self.database.land_puts(),
            30..33 => self.lose(),
            33..36 => self.bring_back(),
            36..39 => self.database.catch_up(false),
            _ => self.work(),
        }
    }

    /// Loses an object for a while.
    fn lose(&self) {
        let index = usize::try_from(self.draw(0..1 << 20)).unwrap();
        if let Some(name) = self.database.lose(index) {
            self.tell(format_args!("{name} is lost"));
            self.state().totals.lost_objects += 1;
        }
    }

    /// Returns the number of objects that are lost, and of all that were.
    fn losses(&self) -> (usize, u64) {
        (self.database.lost(), self.state().totals.lost_objects)
    }

    /// Returns true if an object was lost at some time since `before`.
    fn has_lost_since(&self, before: (usize, u64)) -> bool {
        before.0 > 0 || self.losses().1 > before.1
    }

    fn bring_back(&self) {
        let count = self.database.bring_back();
        self.tell(format_args!("{count} lost objects are back"));
    }

    /// Ends a process, which may be in the middle of a call.
    fn kill(&self) {
        let mut state = self.state();
        if state.processes.is_empty() {
            return;
        }
        let count = state.processes.len();
        let index = state.random.random_range(0..count);
        let (number, fake) = state.processes.swap_remove(index);
        fake.die();
        let gone = state.idle.iter().position(|node| node.number == number);
        let gone = gone.map(|index| state.idle.swap_remove(index));
        state.totals.deaths += 1;
        drop(state);
        self.tell(format_args!("node {number} is killed"));
        drop(gone);
    }

    fn take_idle(&self) -> Option<Node> {
        let mut state = self.state();
        let count = state.idle.len();
        if count == 0 {
            return None;
        }
        let index = state.random.random_range(0..count);
        Some(state.idle.swap_remove(index))
    }

    /// Gives a node back, unless its process has ended.
    fn put_back(&self, node: Node) {
        if node.fake.is_dead() || node.journal.failure().is_some() {
            self.tell(format_args!("node {} ends", node.number));
            self.forget(node.number);
        } else {
            self.state().idle.push(node);
        }
    }

    fn forget(&self, number: usize) {
        self.state().processes.retain(|(it, _)| *it != number);
    }

    /// Ends a node as it should.
    fn close(&self) {
        let Some(node) = self.take_idle() else { return };
        self.tell(format_args!("node {} is told to stop", node.number));
        node.journal.close();
        let epoch = node.claim.epoch;
        self.forget(node.number);
        drop(node.journal);
        let _ = node.fake.release(epoch);
    }

    fn settings(&self, node: &Arc<FakeNode>) -> Settings {
        let objects: Arc<dyn Objects> = Arc::<FakeNode>::clone(node);
        match self.inline_bytes_max {
            None => quick(),
            Some(bytes) => Settings {
                garbage_after: self.garbage_after,
                // One after the other: a seed takes one course.
                requests_max: 1,
                clock: self.clock(),
                ..with_objects(objects, bytes)
            },
        }
    }

    fn clock(&self) -> Clock {
        let database = self.database.clone();
        Clock::new(move || database.now())
    }

    fn journal_settings(&self) -> JournalSettings {
        let database = self.database.clone();
        let now_ms = move || 1_700_000_000_000 + i64::try_from(database.now().as_millis()).unwrap();
        JournalSettings {
            clock: JournalClock::new(now_ms),
            ..rewriting(MERGED_BYTES)
        }
    }

    /// Has a new node take over, whether or not the owner lives: leases and clocks do not count.
    fn take_over(&self) {
        let number = {
            let mut state = self.state();
            if state.processes.len() >= NODES_MAX {
                return;
            }
            state.next_node += 1;
            state.next_node
        };
        let seed = self.seed << 16 | number as u64;
        let weather = NodeWeather::new(Weak::clone(&self.this), number, seed);
        let fake = self.database.node_in(Arc::new(weather));
        self.state().processes.push((number, Arc::clone(&fake)));
        let Some(node) = self.open(number, &fake) else {
            self.state().totals.failed_openings += 1;
            self.forget(number);
            return;
        };
        self.read(&node);
        self.put_back(node);
    }

    fn open(&self, number: usize, fake: &Arc<FakeNode>) -> Option<Node> {
        let database: Arc<dyn Database> = Arc::<FakeNode>::clone(fake);
        let mut candidate =
            Candidate::new(Arc::clone(&database), nonce(), NO_LEASE).with_store(self.settings(fake).objects);
        let clock = Duration::from_secs(self.draw(0..1000));
        let claimed = (0..4).find_map(|_| match candidate.look(|| clock) {
            Ok(Look::Claimed(claim)) => Some(claim),
            Ok(Look::Owned) | Err(_) => None,
        });
        let claim = claimed?;
        {
            let mut state = self.state();
            state.fenced = state.fenced.max(claim.epoch);
            state.totals.claims += 1;
        }
        self.tell(format_args!("node {number} owns the cell, epoch {}", claim.epoch));
        let before = self.losses();
        let opened = storage_with(&database, claim, self.settings(fake)).map(Arc::new);
        let opened = opened.map_err(|error| error.to_string()).and_then(|storage| {
            let shared = Arc::<SharedStorage>::clone(&storage);
            storage.fetch_begins().map_err(|error| error.to_string())?;
            let journal = DiskJournal::open_on(shared, self.journal_settings(), Metrics::new());
            Ok((storage, journal.map_err(|error| error.to_string())?))
        });
        let is_owner = !fake.is_dead() && self.is_owner(claim);
        let has_all = !self.has_lost_since(before);
        match opened {
            Ok((storage, journal)) => {
                let report = journal.report();
                self.check(!report.is_damaged(), || format!("node {number}: {report:?}"));
                self.tell(format_args!("node {number} has opened the journal"));
                Some(Node {
                    number,
                    fake: Arc::clone(fake),
                    claim,
                    storage,
                    journal,
                })
            }
            Err(why) => {
                self.tell(format_args!("node {number} did not open the journal: {why}"));
                // A lost object keeps the cell shut.
                self.check(!is_owner || !has_all, || format!("node {number}: {why}"));
                self.state().totals.shut += u64::from(is_owner);
                None
            }
        }
    }

    /// Returns true if no other node has claimed the cell.
    fn is_owner(&self, claim: Claim) -> bool {
        self.database.node().owner().unwrap().epoch == claim.epoch
    }

    /// Has a node do something, though it may be a former owner.
    fn work(&self) {
        let Some(node) = self.take_idle() else { return };
        let number = node.number;
        let done: std::io::Result<usize> = match self.draw(0..20) {
            0..11 => Ok(self.append(&node)),
            11..13 => Ok(self.read(&node)),
            13 => {
                self.tell(format_args!("node {number} checkpoints"));
                node.journal.checkpoint();
                Ok(0)
            }
            14 => {
                self.tell(format_args!("node {number} rewrites"));
                Ok(node.journal.rewrite())
            }
            15..17 => self.told(number, "seals", node.storage.seal()),
            17 => self.told(number, "deletes garbage", node.storage.delete_garbage()),
            18 => self.told(number, "sweeps", node.storage.sweep()),
            _ => Ok(self.cut(&node)),
        };
        drop(done);
        node.journal.pump();
        self.put_back(node);
    }

    fn told(&self, number: usize, what: &str, done: std::io::Result<usize>) -> std::io::Result<usize> {
        self.tell(format_args!("node {number} {what}: {done:?}"));
        if what != "seals" {
            self.state().totals.deleted_objects += done.as_ref().copied().unwrap_or_default() as u64;
        }
        done
    }

    /// Returns one of the logs. There are some more or less.
    fn log(&self, node: &Node) -> Option<LogId> {
        let logs = self.state().known.logs();
        if logs.len() < 3 && (logs.is_empty() || self.is_one_in(10)) {
            let first = node.journal.allocate(1);
            let spec = LogSpec {
                durability: Durability::Sync,
                ..LogSpec::default()
            };
            let count = 1;
            let frame = Frame::CreateLogs { first, count, spec };
            let created = self.outcome(node, vec![Append::state([frame], StateWait::Synced)]);
            if !matches!(created.first(), Some(Outcome::Committed(_))) {
                return None;
            }
            self.state().known.add_log(first);
            return Some(first);
        }
        let index = self.draw(0..logs.len() as u64);
        Some(logs[usize::try_from(index).unwrap()])
    }

    /// Appends, does the work of the threads, and returns the outcomes.
    fn outcome(&self, node: &Node, appends: Vec<Append>) -> Vec<Outcome> {
        let was_fenced = node.claim.epoch < self.state().fenced;
        let ticket = node.journal.append(appends);
        node.journal.pump();
        let outcomes = ticket.wait();
        let is_committed = |outcome: &Outcome| matches!(outcome, Outcome::Committed(_));
        if outcomes.iter().any(is_committed) {
            self.check(!was_fenced, || {
                format!("node {} commits behind its fence", node.number)
            });
        } else {
            // A former owner does not know the logs of later ones.
            let is_over = node.journal.failure().is_some() || !self.is_owner(node.claim);
            self.check(is_over, || format!("node {} goes on: {outcomes:?}", node.number));
            let mut state = self.state();
            state.totals.unknown += 1;
            state.totals.fenced_appends += u64::from(was_fenced);
        }
        outcomes.into_vec()
    }

    /// Appends batches to a log.
    fn append(&self, node: &Node) -> usize {
        let Some(log) = self.log(node) else { return 0 };
        let count = self.draw(1..4);
        let mut values = Vec::new();
        for _ in 0..count {
            let bytes = [20, 3000, 9000, 30_000][usize::try_from(self.draw(0..4)).unwrap()];
            values.push(self.state().known.send(log, node.number, bytes));
        }
        let appends = values.iter().map(|value| Append::batch(log, batch(&[value])));
        let outcomes = self.outcome(node, appends.collect());
        self.tell(format_args!(
            "node {} appends {count} to {log:?}: {outcomes:?}",
            node.number
        ));
        for (value, outcome) in values.iter().zip(outcomes) {
            if let Outcome::Committed(placed) = outcome {
                let mut state = self.state();
                state.totals.acknowledged += 1;
                let settled = state.known.settle(log, placed[0].base.0, value);
                drop(state);
                self.check(settled.is_ok(), || format!("node {}: {settled:?}", node.number));
            }
        }
        values.len()
    }

    /// Cuts the begin of a log.
    fn cut(&self, node: &Node) -> usize {
        let Some(log) = self.log(node) else { return 0 };
        let end = self.state().known.end(log);
        let Some(bounds) = node.journal.bounds(log) else {
            return 0;
        };
        let before = self.draw(0..end + 1).min(bounds.end.0);
        self.state().known.ask_for_begin(log, before);
        let frame = Frame::Truncate {
            log,
            before: Offset(before),
        };
        let outcomes = self.outcome(node, vec![Append::state([frame], StateWait::Synced)]);
        self.tell(format_args!(
            "node {} cuts {log:?} at {before}: {outcomes:?}",
            node.number
        ));
        if matches!(outcomes.first(), Some(Outcome::Committed(_))) {
            self.state().known.begins_at(log, before);
        }
        1
    }

    /// Reads all logs. A former owner may get errors, and nothing wrong.
    fn read(&self, node: &Node) -> usize {
        let logs = self.state().known.logs();
        for log in logs {
            let (was_complete, before) = (self.is_owner(node.claim), self.losses());
            let start = node.journal.bounds(log).map(|bounds| bounds.start.0);
            let found = read_all(&node.journal, log, 1 << 20);
            let is_current = was_complete
                && self.is_owner(node.claim)
                && !node.fake.is_dead()
                && node.journal.failure().is_none();
            match found {
                Err(error) if self.has_lost_since(before) => {
                    self.tell(format_args!(
                        "node {} does not read {log:?}: {error}",
                        node.number
                    ));
                    self.state().totals.shut += 1;
                }
                Ok(found) => {
                    let checked = self.state().known.check(log, start.unwrap(), &found, is_current);
                    self.check(checked.is_ok(), || format!("node {}: {checked:?}", node.number));
                }
                Err(error) => self.check(!is_current, || format!("node {}: {error}", node.number)),
            }
        }
        1
    }

    /// Ends all nodes but a last one, which finds everything, and leaves nothing behind.
    fn calm_down(&self) {
        self.check_violations();
        if self.has_failed() {
            return;
        }
        self.tell("all is calm");
        self.is_calm.store(true, Ordering::Relaxed);
        let idle = std::mem::take(&mut self.state().idle);
        drop(idle);
        self.state().processes.clear();
        while self.database.late_commits() > 0 {
            self.database.land_late_commit(0);
        }
        self.database.land_puts();
        self.bring_back();
        self.database.catch_up(true);
        self.check_violations();
        for number in 1..3 {
            let fake = self.database.node();
            let Some(node) = self.open(number, &fake) else {
                return;
            };
            self.read(&node);
            self.append(&node);
            node.journal.checkpoint();
            node.journal.rewrite();
            node.journal.pump();
            let mut kept = vec![node.storage.seal()];
            for _ in 0..2 {
                kept.extend([node.storage.delete_garbage(), node.storage.sweep()]);
                self.database.advance(self.garbage_after);
            }
            self.check(kept.iter().all(Result::is_ok), || format!("{kept:?}"));
            self.read(&node);
            let failure = node.journal.failure();
            self.check(failure.is_none(), || format!("{failure:?}"));
            let agreed = agreement(&*fake, &*fake).unwrap();
            // A late copy of a row that was removed may name an object that is deleted: it has no reader.
            let mut missing = agreed.missing_names.iter();
            let is_missing = missing.any(|object| self.database.needs(object));
            let left = (is_missing, agreed.garbage, agreed.unknown);
            self.check(left == (false, 0, 0), || format!("{agreed:?}"));
            self.check_violations();
        }
    }
}
