//! Results outside of commits, of an app that does each record at least once.
//!
//! They are stored at once, under the claim of their worker, so one that has lost its task adds none. The
//! position does not move: the next worker emits again whatever was not committed.

use std::sync::Arc;

use stafett_journal::{Append, Frame, OwnerEpoch};
use stafett_store::Changing;
use stafett_topics::NewRecord;

use crate::app::{App, Claim, Session};
use crate::commit::{Emitted, push_results};
use crate::definition::Guarantee;
use crate::error::AppError;
use crate::queues::QueueMessages;

impl App {
    /// Stores results of a claim, all or none; it completes whether or not its caller waits. A repetition
    /// stores them again.
    pub fn emit(
        self: &Arc<Self>,
        session: Session<'_>,
        claim: Claim,
        results: Vec<(Box<str>, NewRecord)>,
        messages: QueueMessages,
    ) -> Changing<Vec<Emitted>, AppError> {
        let app = Arc::clone(self);
        let (worker, number) = (session.worker.to_owned(), session.number);
        self.parts.changes.begin(async move {
            let session = Session::new(&worker, number);
            app.emit_here(session, claim, &results, messages).await
        })
    }

    async fn emit_here(
        &self,
        session: Session<'_>,
        claim: Claim,
        results: &[(Box<str>, NewRecord)],
        messages: QueueMessages,
    ) -> Result<Vec<Emitted>, AppError> {
        let slot = self.claimed(session, claim)?;
        if self.stored().definition.guarantee != Guarantee::AtLeastOnce {
            return Err(AppError::Bad {
                field: "guarantee",
                why: "results go within commits, unless the app is declared as at-least-once".to_owned(),
            });
        }
        let _turn = self.turn_of(session, claim, &slot).await?;
        let (log, owner) = (slot.log, OwnerEpoch(claim.epoch));
        let mut append = Append::default();
        append.frames.push(Frame::Claim { log, owner });
        let catalog = &self.parts.catalog;
        let keyless = self.counts.results();
        let emitted = push_results(catalog, results, keyless, self.parts.clock.wall_ms(), &mut append)?;
        let queued = messages.len() as u64;
        let placed = match self.place(append, messages).await {
            Ok(placed) => placed,
            Err(why) => return Err(self.fenced(&[(slot.log, claim)], why)),
        };
        let emitted = Emitted::at(emitted, placed);
        let count = emitted.iter().map(|it| u64::from(it.count)).sum::<u64>();
        self.counts.emitted.inc_by(queued + count);
        Ok(emitted)
    }
}
