//! Transactions that take too long are aborted, and transactional ids that are not used are forgotten.

use std::sync::Weak;
use std::time::Duration;

use stafett_model::TransactionEnd;
use stafett_store::{only_outcome, spaces};
use tokio_util::sync::CancellationToken;

use crate::end::Next;
use crate::producer::{Instance, Status};
use crate::registry::{Entry, Transactions};

/// Time between two looks for overdue transactions.
const LOOK: Duration = Duration::from_secs(1);
/// Looks until unused ids are looked for.
const LOOKS_PER_SWEEP: u32 = 600;

pub(crate) async fn run(transactions: Weak<Transactions>, stop: CancellationToken) {
    let mut looks = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let Some(transactions) = transactions.upgrade() else {
            return;
        };
        if looks == 0 {
            transactions.abort_unknown();
        }
        looks += 1;
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
        for (id, entry) in self.entries() {
            let fenced = {
                let producer = entry.lock();
                producer.is_overdue(now).then_some(producer.instance)
            };
            let Some(instance) = fenced else { continue };
            let fresh = match instance.next() {
                Some(_) => None,
                None => match self.catalog.new_producer_id().await {
                    Ok(producer) => Some(Instance { producer, epoch: 0 }),
                    Err(_) => continue,
                },
            };
            let mut producer = entry.lock();
            let next = producer.instance.next().or(fresh);
            let Some(instance) = next.filter(|_| producer.is_overdue(now)) else {
                continue;
            };
            tracing::info!(%id, timeout_ms = producer.timeout_ms, "a transaction takes too long: it is aborted");
            self.metrics.overdue.inc();
            let next = Next {
                end: TransactionEnd::Abort,
                instance,
                before: None,
                status: Status::Ended(TransactionEnd::Abort),
                timeout_ms: producer.timeout_ms,
            };
            let overdue = producer.instance;
            let stored = self.store_end(&id, &entry, &mut producer, next);
            drop(producer);
            aborts.push((id, entry, overdue, stored));
        }
        for (id, entry, overdue, abort) in aborts {
            match abort.await {
                Ok(instance) => {
                    let mut producer = entry.lock();
                    if producer.instance == instance
                        && producer.status == Status::Ended(TransactionEnd::Abort)
                    {
                        producer.overdue = Some(overdue);
                    }
                }
                Err(error) => {
                    tracing::warn!(%id, %error, "a transaction that takes too long is not aborted yet");
                }
            }
        }
    }

    /// Forgets transactional ids that have not been used for long.
    pub(crate) async fn forget_unused(&self) {
        let kept = i64::try_from(self.settings.id_kept.as_millis()).unwrap_or(i64::MAX);
        let now = self.clock.now_ms();
        for (id, entry) in self.entries() {
            if !self.is_unused(&entry, now.saturating_sub(kept)) {
                continue;
            }
            let before = std::mem::replace(&mut entry.lock().status, Status::Gone);
            let deletion = self.append_state([spaces::TRANSACTIONS.delete(id.as_bytes().to_vec())]);
            match only_outcome(deletion.await.first()) {
                Ok(()) => self.forget(&id),
                Err(_) => entry.lock().status = before,
            }
        }
    }

    fn is_unused(&self, entry: &Entry, since: i64) -> bool {
        let producer = entry.lock();
        let is_idle = matches!(producer.status, Status::Empty | Status::Ended(_));
        is_idle && producer.changed_at > 0 && self.clock.steady_date(producer.changed_at) < since
    }
}
