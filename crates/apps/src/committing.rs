//! Commits of workers: of one claim, or of several at once.

use std::sync::Arc;

use stafett_store::Changing;
use stafett_topics::ReadEnd;
use tokio::sync::SemaphorePermit;

use crate::app::{App, Claim, Session};
use crate::commit::{CommitContext, Committed, NewCommit, Prepared};
use crate::entry::Position;
use crate::error::AppError;
use crate::machine::WorkerError;
use crate::slot::Slot;
use crate::state::TaskState;

/// Commits of one request.
const TOGETHER_MAX: usize = 1000;

impl App {
    /// Stores a commit of a claim; it completes whether or not its caller waits.
    pub fn commit(
        self: &Arc<Self>,
        session: Session<'_>,
        claim: Claim,
        commit: NewCommit,
    ) -> Changing<Committed, AppError> {
        let app = Arc::clone(self);
        let (worker, number) = (session.worker.to_owned(), session.number);
        self.parts.changes.begin(async move {
            let session = Session::new(&worker, number);
            let committed = app.commit_counted(session, vec![(claim, commit)]).await?;
            Ok(committed.into_iter().next().unwrap_or_default())
        })
    }

    /// Stores commits of several claims, all or nothing. The answers are in the order of the commits.
    pub fn commit_together(
        self: &Arc<Self>,
        session: Session<'_>,
        commits: Vec<(Claim, NewCommit)>,
    ) -> Changing<Vec<Committed>, AppError> {
        let app = Arc::clone(self);
        let (worker, number) = (session.worker.to_owned(), session.number);
        self.parts.changes.begin(async move {
            let session = Session::new(&worker, number);
            app.commit_counted(session, commits).await
        })
    }

    async fn commit_counted(
        &self,
        session: Session<'_>,
        commits: Vec<(Claim, NewCommit)>,
    ) -> Result<Vec<Committed>, AppError> {
        let committed = self.commit_here(session, commits).await;
        match &committed {
            Ok(_) => {}
            Err(AppError::Worker(WorkerError::LostClaim { .. })) => self.counts.fenced.inc(),
            Err(_) => self.counts.refused.inc(),
        }
        committed
    }

    async fn commit_here(
        &self,
        session: Session<'_>,
        mut commits: Vec<(Claim, NewCommit)>,
    ) -> Result<Vec<Committed>, AppError> {
        let order = order(&commits)?;
        let mut slots = Vec::with_capacity(order.len());
        for at in &order {
            if let Some((claim, _)) = commits.get(*at) {
                slots.push(self.claimed(session, *claim)?);
            }
        }
        // Turns are taken in the order of the tasks, here and in splits and merges, so all get theirs.
        let mut turns = Vec::with_capacity(slots.len());
        for slot in &slots {
            turns.push(slot.turn().await);
        }
        let (mut prepared, mut repeated) = (Vec::new(), Vec::new());
        for (slot, at) in slots.iter().zip(&order) {
            let Some((claim, commit)) = commits.get_mut(*at) else {
                continue;
            };
            // It may have ended while others had their turns.
            self.in_turn(session, *claim, slot).await?;
            match self.prepare(session, slot, *claim, commit).await? {
                Some(ready) => prepared.push((*at, slot, *claim, ready)),
                None => repeated.push((*claim, commit.seq)),
            }
        }
        if prepared.is_empty() {
            self.counts.repeated.inc_by(repeated.len() as u64);
            let again = |(_, commit): &(Claim, NewCommit)| Committed {
                seq: commit.seq,
                repeated: true,
                emitted: Vec::new(),
            };
            return Ok(commits.iter().map(again).collect());
        }
        if let Some((claim, seq)) = repeated.first() {
            // It was stored with other company.
            return Err(AppError::OutOfOrder {
                task: claim.task,
                expected: seq + 1,
                given: *seq,
            });
        }
        // Results of one topic are in the order of the commits.
        prepared.sort_unstable_by_key(|(at, ..)| *at);
        let prepared = prepared.into_iter();
        let parts = prepared.map(|(_, slot, claim, ready)| (&**slot, claim, ready));
        self.store_together(parts.collect()).await
    }

    /// Checks a commit in its task's turn. `None` if it was stored before.
    async fn prepare(
        &self,
        session: Session<'_>,
        slot: &Slot,
        claim: Claim,
        commit: &NewCommit,
    ) -> Result<Option<Prepared>, AppError> {
        let delivers = self.with_machine(|machine| machine.delivers_to(session.worker));
        let reached = self.reached(slot, delivers).await?;
        // It may have ended meanwhile.
        self.claimed(session, claim)?;
        self.prepare_in(slot, claim, &reached, |context, state| {
            if is_repeated(&state.position, claim, commit.seq)? {
                return Ok(None);
            }
            context.prepare(state, commit, None).map(Some)
        })
    }

    /// Prepares an append of a claim with its surroundings.
    pub(crate) fn prepare_in<T>(
        &self,
        slot: &Slot,
        claim: Claim,
        reached: &[u64],
        prepare: impl FnOnce(CommitContext<'_>, &TaskState) -> Result<T, AppError>,
    ) -> Result<T, AppError> {
        let stored = self.stored();
        let context = CommitContext {
            catalog: &self.parts.catalog,
            definition: &stored.definition,
            log: slot.log,
            slice: slot.task.slice(),
            epoch: claim.epoch,
            reached,
            delivery: &slot.delivery.lock().clone(),
            now_ms: self.parts.clock.wall_ms(),
        };
        slot.with_state(|state| prepare(context, state))
    }

    /// Waits for the turn of a claimed task. The claim may have ended meanwhile.
    pub(crate) async fn turn_of<'a>(
        &self,
        session: Session<'_>,
        claim: Claim,
        slot: &'a Slot,
    ) -> Result<SemaphorePermit<'a>, AppError> {
        let turn = slot.turn().await;
        self.in_turn(session, claim, slot).await?;
        Ok(turn)
    }

    /// Checks a claim in the turn of its task, and reads the state if it is not in memory.
    async fn in_turn(&self, session: Session<'_>, claim: Claim, slot: &Slot) -> Result<(), AppError> {
        self.claimed(session, claim)?;
        slot.load(&self.parts, &self.inputs()).await
    }

    /// Bounds of the offsets that a commit may name.
    pub(crate) async fn reached(&self, slot: &Slot, delivers: bool) -> Result<Vec<u64>, AppError> {
        if delivers {
            return Ok(slot.delivery.lock().reached.clone());
        }
        let mut ends = Vec::new();
        for topic in self.topics()? {
            let bounds = match topic.log(slot.task.partition) {
                Some(log) => self.parts.catalog.bounds_now(log).await,
                None => Ok(None),
            };
            let bounds = bounds.map_err(|why| AppError::Input(ReadEnd::Failed(why)))?;
            ends.push(bounds.map_or(0, |bounds| bounds.stable.0));
        }
        Ok(ends)
    }
}

/// Returns the places of commits in the order of their tasks. An error if a task stands there twice.
fn order(commits: &[(Claim, NewCommit)]) -> Result<Vec<usize>, AppError> {
    let bad = |why: &str| AppError::Bad {
        field: "tasks",
        why: why.to_owned(),
    };
    if commits.is_empty() || commits.len() > TOGETHER_MAX {
        return Err(bad("a request commits 1 to 1,000 tasks"));
    }
    let task = |at: &usize| commits.get(*at).map(|(claim, _)| claim.task);
    let mut order: Vec<usize> = (0..commits.len()).collect();
    order.sort_by_key(task);
    if order
        .windows(2)
        .any(|two| two.first().map(task) == two.last().map(task))
    {
        return Err(bad("a request commits a task once"));
    }
    Ok(order)
}

/// Compares the number of a commit with the last one. Returns true if this one was stored before.
pub(crate) fn is_repeated(position: &Position, claim: Claim, seq: u64) -> Result<bool, AppError> {
    if seq == position.seq && position.epoch == claim.epoch && seq > 0 {
        return Ok(true);
    }
    let expected = position.seq + 1;
    if seq == expected {
        return Ok(false);
    }
    Err(AppError::OutOfOrder {
        task: claim.task,
        expected,
        given: seq,
    })
}
