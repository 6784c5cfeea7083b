//! Appends of a task, stored in its turn and applied to its state.

use stafett_journal::{Append, Outcome, Refusal};
use stafett_store::NotStored;

use crate::app::{App, Claim, Session};
use crate::commit::{Build, Committed, Emitted, Prepared};
use crate::delivery::Fetched;
use crate::entry::{POSITION, Position};
use crate::error::AppError;
use crate::slot::Slot;
use crate::state::Applied;

impl App {
    pub(crate) async fn store(
        &self,
        slot: &Slot,
        claim: Claim,
        mut prepared: Prepared,
    ) -> Result<Committed, AppError> {
        let emitted = std::mem::take(&mut prepared.emitted);
        let queued = prepared.messages.len() as u64;
        let Position {
            seq, time, ref next, ..
        } = prepared.position;
        let next = next.clone();
        let before = slot.known().map(|known| known.position.next).unwrap_or_default();
        let passed = next
            .iter()
            .zip(&before)
            .map(|(next, was)| next.saturating_sub(*was))
            .sum();
        let began = tokio::time::Instant::now();
        let bases = match self.store_prepared(slot, prepared).await {
            Err(AppError::NotStored(NotStored::Refused(Refusal::StaleOwner { .. }))) => {
                let reason = "fenced";
                self.step(|machine, now, effects| {
                    machine.lose(claim.task, claim.epoch, reason, now, effects);
                });
                return Err(self.lost(claim));
            }
            bases => bases?,
        };
        let mut delivery = slot.delivery.lock();
        if delivery.epoch == claim.epoch {
            delivery.on_commit(&next, time);
        }
        drop(delivery);
        let results = emitted.into_iter().zip(bases);
        let emitted: Vec<Emitted> = results
            .map(|((topic, partition, count), base)| Emitted {
                topic,
                partition,
                base,
                count,
            })
            .collect();
        let results = queued + emitted.iter().map(|it| u64::from(it.count)).sum::<u64>();
        self.counts.on_commit(began.elapsed(), passed, results);
        Ok(Committed {
            seq,
            repeated: false,
            emitted,
        })
    }

    /// Stores an append of a task in its turn, and applies it to the state. Returns the bases of the results'
    /// batches.
    pub(crate) async fn store_prepared(&self, slot: &Slot, prepared: Prepared) -> Result<Vec<u64>, AppError> {
        let Prepared { append, messages, .. } = prepared;
        let placed = if messages.is_empty() {
            self.append(append).await
        } else {
            let queues = self.parts.queues.get();
            let none = || {
                AppError::NoSuchQueue(
                    messages
                        .first()
                        .map(|(queue, _)| queue.clone())
                        .unwrap_or_default(),
                )
            };
            let queues = queues.ok_or_else(none)?;
            queues.append(append, messages).await.map_err(AppError::from)
        };
        let placed = placed.inspect_err(|why| {
            if *why == AppError::NotStored(NotStored::Unknown) {
                *slot.state.lock() = None;
            }
        })?;
        let base = placed.first().copied().unwrap_or(0);
        slot.with_state(|state| {
            state.apply(base, prepared.position, prepared.changes);
            Ok(())
        })?;
        self.note_expiry(slot);
        Ok(placed.into_iter().skip(1).collect())
    }

    async fn append(&self, append: Append) -> Result<Vec<u64>, AppError> {
        match self.parts.catalog.append(vec![append]).await.pop() {
            Some(Outcome::Committed(placed)) => Ok(placed.iter().map(|batch| batch.base.0).collect()),
            Some(Outcome::Refused(why)) => Err(NotStored::Refused(why).into()),
            Some(Outcome::Unknown) | None => Err(NotStored::Unknown.into()),
        }
    }

    /// Stores the place behind a delivery before its worker has it, for an app that does nothing twice.
    /// Returns false if the task has moved on meanwhile.
    pub(crate) async fn pass(
        &self,
        session: Session<'_>,
        claim: Claim,
        fetched: &Fetched,
    ) -> Result<bool, AppError> {
        let slot = self.claimed(session, claim)?;
        let _turn = slot.turn().await;
        self.claimed(session, claim)?;
        let rules = self.stored().definition.time;
        let time = slot.delivery.lock().time_at(rules, &fetched.next);
        let now_ms = self.parts.clock.wall_ms();
        let prepared = slot.with_state(|state| {
            if state.position.next != fetched.base {
                return Ok(None);
            }
            let mut position = state.position.clone();
            position.next.clone_from(&fetched.next);
            position.safe.clone_from(&fetched.next);
            position.time = position.time.max(time);
            position.drop_reached();
            let mut build = Build::new(now_ms);
            build.push(POSITION, Some(&position.encode()), Applied::Position)?;
            let (append, changes) = build.finish(slot.log, claim.epoch)?;
            Ok(Some(Prepared {
                append,
                position,
                changes,
                emitted: Vec::new(),
                messages: Vec::new(),
            }))
        })?;
        let Some(prepared) = prepared else {
            return Ok(false);
        };
        self.store(&slot, claim, prepared).await?;
        Ok(true)
    }
}
