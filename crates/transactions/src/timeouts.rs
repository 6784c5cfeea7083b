//! Transactions that take too long are aborted, and transactional ids that are not used are forgotten.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use stafett_model::TransactionEnd;
use stafett_store::{FRAMES_MAX, only_outcome, spaces};
use tokio_util::sync::CancellationToken;

use crate::cells::{Parts, StoredEnd};
use crate::end::Next;
use crate::error::TransactionError;
use crate::producer::{Instance, Producer, Status};
use crate::registry::{Entry, Transactions};

/// Time between two looks for overdue transactions.
const LOOK: Duration = Duration::from_secs(1);
/// Looks until unused ids are looked for.
const LOOKS_PER_SWEEP: u32 = 600;

pub(crate) async fn run(transactions: Weak<Transactions>, stop: CancellationToken) {
    let (mut looks, mut all_are_known) = (0_u32, false);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let Some(transactions) = transactions.upgrade() else {
            return;
        };
        // Coordinators are in the first cell.
        let is_first = transactions.catalog.cells().own == 0;
        all_are_known = all_are_known || !is_first || transactions.abort_unknown().await;
        looks = looks.wrapping_add(1);
        if transactions.metrics.open.get() > 0 {
            transactions.abort_overdue().await;
        }
        if looks % LOOKS_PER_SWEEP == 0 {
            transactions.forget_unused().await;
        }
    }
}

impl Transactions {
    /// Aborts overdue transactions, and fences their producers.
    pub(crate) async fn abort_overdue(&self) {
        let now = self.clock.elapsed_ms();
        let mut aborts = Vec::new();
        for (id, entry) in self.open_entries() {
            if !entry.lock().is_overdue(now) {
                continue;
            }
            let Ok(fresh) = self.fresh(&entry).await else {
                continue;
            };
            let mut producer = entry.lock();
            if !producer.is_overdue(now) {
                continue;
            }
            tracing::info!(%id, timeout_ms = producer.timeout_ms, "a transaction takes too long: it is aborted");
            self.metrics.overdue.inc();
            let overdue = Some(producer.instance);
            let Some(stored) = self.fence(&id, &entry, &mut producer, fresh, overdue) else {
                continue;
            };
            drop(producer);
            aborts.push((id, stored));
        }
        for (id, abort) in aborts {
            if let Err(error) = abort.await {
                tracing::warn!(%id, %error, "a transaction that takes too long is not aborted yet");
            }
        }
    }

    /// Aborts the open transaction of a producer, and fences it. `None` if its epochs are used up and there
    /// is no `fresh` one.
    pub(crate) fn fence(
        &self,
        id: &str,
        entry: &Entry,
        producer: &mut Producer,
        fresh: Option<Instance>,
        overdue: Option<Instance>,
    ) -> Option<impl Future<Output = Result<StoredEnd, TransactionError>> + use<>> {
        let next = Next {
            end: TransactionEnd::Abort,
            instance: producer.instance.next().or(fresh)?,
            before: None,
            status: Status::Ended(TransactionEnd::Abort),
            timeout_ms: producer.timeout_ms,
            overdue,
        };
        Some(self.store_end(id, entry, producer, next))
    }

    /// Aborts the whole transaction that `given` has open in a partition, and fences its producer. Nothing
    /// happens if it has none there.
    pub async fn abort(&self, parts: Parts, given: Instance) -> Result<(), TransactionError> {
        let is_meant = |producer: &Producer| {
            producer.instance.producer == given.producer
                && (parts.logs.iter().any(|log| producer.logs.contains(log))
                    || parts
                        .elsewhere
                        .iter()
                        .any(|place| producer.elsewhere.contains_key(place)))
        };
        let mut open = self.open_entries();
        open.retain(|(_, entry)| is_meant(&entry.lock()));
        let Some((id, entry)) = open.first() else {
            return Ok(());
        };
        let fresh = self.fresh(entry).await?;
        let stored = {
            let mut producer = entry.lock();
            if !is_meant(&producer) {
                return Ok(());
            }
            producer.check(given)?;
            if producer.status != Status::Ongoing {
                return Err(TransactionError::Busy);
            }
            tracing::info!(%id, "a transaction is aborted on request");
            self.fence(id, entry, &mut producer, fresh, None)
        };
        stored.ok_or(TransactionError::Busy)?.await?;
        Ok(())
    }

    /// Forgets transactional ids that have not been used for long.
    pub(crate) async fn forget_unused(&self) {
        let kept = i64::try_from(self.settings.id_kept.as_millis()).unwrap_or(i64::MAX);
        let now = self.clock.now_ms();
        let retire = |(id, entry): (Arc<str>, Entry)| {
            let before = self.retire(&mut entry.lock(), now.saturating_sub(kept))?;
            Some((id, entry, before))
        };
        let unused: Vec<_> = self.entries().into_iter().filter_map(retire).collect();
        for part in unused.chunks(FRAMES_MAX) {
            let delete =
                |(id, ..): &(Arc<str>, Entry, Status)| spaces::TRANSACTIONS.delete(id.as_bytes().to_vec());
            let deleted = self.append_state(part.iter().map(delete)).await;
            let is_stored = only_outcome(deleted.first()).is_ok();
            for (id, entry, before) in part {
                if is_stored {
                    self.forget(id);
                } else {
                    entry.lock().status = *before;
                }
            }
        }
    }

    /// Takes a producer out of service if it has not been used since `since`. Returns its status before.
    fn retire(&self, producer: &mut Producer, since: i64) -> Option<Status> {
        let is_idle = matches!(producer.status, Status::Empty | Status::Ended(_));
        let is_unused = is_idle && producer.changed_at > 0;
        (is_unused && self.clock.steady_date(producer.changed_at) < since)
            .then(|| std::mem::replace(&mut producer.status, Status::Gone))
    }
}
