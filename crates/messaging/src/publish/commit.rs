//! Transactions: messages and settlements that are stored as one append, or not at all.
//!
//! The append holds the messages and the settlement of completed ones. Messages that return to their queues,
//! or die, do so once it is stored.

use std::sync::Arc;

use bytestring::ByteString;
use stafett_journal::Refusal;
use stafett_model::Namespace;
use stafett_queue::DeliveryId;
use stafett_store::{Changing, NotStored};

use super::plan::Plan;
use super::{Publish, PublishRefusal};
use crate::exchanges::resolver::Resolver;
use crate::queues::{AppendTicket, AtomicPublishError, Publication};
use stafett_delivery::{Dispatcher, OpenMove, Settle, Source};

/// Messages and settlements that take effect together.
#[derive(Debug, Default)]
pub struct Transaction {
    /// Messages in their order, in runs to one exchange each.
    pub messages: Vec<(ByteString, Vec<Publish>)>,
    /// Settlements of messages in flight.
    pub settlements: Vec<SourceSettlements>,
}

/// Settlements of messages of one source.
type SourceSettlements = (Source, Vec<(DeliveryId, Settle)>);

/// Result of a committed transaction.
#[derive(Debug, Default)]
pub struct Committed {
    /// Messages without targets, with their indexes in the transaction.
    pub unroutable: Vec<(usize, Publish)>,
    /// Queues that now store dead letters of the transaction.
    pub dead_lettering: Vec<Arc<Dispatcher>>,
}

/// Error of a commit. Unless the outcome is unknown, nothing is stored, and the messages to be settled are
/// back in their queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error("there is no such namespace")]
    NoSuchNamespace,
    #[error(transparent)]
    Refused(PublishRefusal),
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Commits a transaction. Everything is staged when this returns; the commit completes even if its caller
/// stops waiting. Messages to exchanges that are gone have no targets.
pub(crate) fn commit(
    resolver: &Arc<Resolver>,
    namespace: &Namespace,
    transaction: Transaction,
) -> Changing<Committed, CommitError> {
    let Transaction {
        messages,
        settlements,
    } = transaction;
    let opened: Vec<OpenMove> = settlements.iter().filter_map(open).collect();
    let staged = stage(resolver, namespace, messages, &opened);
    let queues = Arc::clone(&resolver.queues);
    let work = async move {
        let stored = match staged {
            Ok((ticket, unroutable)) => ticket
                .together()
                .await
                .map(|()| unroutable)
                .map_err(CommitError::from),
            Err(why) => Err(why),
        };
        let known = match &stored {
            Ok(_) => Ok(()),
            Err(CommitError::NotStored(NotStored::Unknown)) => Err(NotStored::Unknown),
            Err(_) => Err(NotStored::Refused(Refusal::Closed)),
        };
        for open in opened {
            if known.is_ok() {
                open.count_completed(&queues.context);
            }
            open.end(&queues.context, known);
        }
        if known == Err(NotStored::Unknown) {
            return Err(NotStored::Unknown.into());
        }
        let dead_lettering = settle(settlements, known.is_ok());
        stored.map(|unroutable| Committed {
            unroutable,
            dead_lettering,
        })
    };
    Changing::of(resolver.queues.spawn(work))
}

/// Begins the settlement of the completed messages of a source.
fn open((source, settlements): &SourceSettlements) -> Option<OpenMove> {
    let Source::Dispatcher(dispatcher) = source else {
        return None;
    };
    let completed = settlements
        .iter()
        .filter(|(_, what)| what.is_completion(dispatcher));
    let ids: Vec<DeliveryId> = completed.map(|(id, _)| *id).collect();
    (!ids.is_empty()).then(|| OpenMove::begin(dispatcher, ids))
}

fn stage(
    resolver: &Resolver,
    namespace: &Namespace,
    messages: Vec<(ByteString, Vec<Publish>)>,
    opened: &[OpenMove],
) -> Result<(AppendTicket, Vec<(usize, Publish)>), CommitError> {
    let count = messages.iter().map(|(_, run)| run.len()).sum();
    let (exchanges, runs): (Vec<ByteString>, Vec<Vec<Publish>>) = messages.into_iter().unzip();
    let plan = Plan::new(resolver, namespace, Publication::whole(), count);
    let mut plan = plan.map_err(|_| CommitError::NoSuchNamespace)?;
    for (exchange, run) in exchanges.iter().zip(runs) {
        match plan.set_exchange(exchange) {
            Ok(()) => plan.add_all(run),
            Err(_) => run.into_iter().for_each(|publish| plan.add_unroutable(publish)),
        }
    }
    plan.store_together(opened).map_err(CommitError::Refused)
}

/// Settles the messages that the append did not; all return to their queues if it was refused. Consumers that
/// have room again go on. Returns the queues that now store dead letters.
fn settle(settlements: Vec<SourceSettlements>, is_stored: bool) -> Vec<Arc<Dispatcher>> {
    let mut dead_lettering = Vec::new();
    for (source, mut entries) in settlements {
        if !is_stored {
            for (_, what) in &mut entries {
                *what = Settle::Requeue;
            }
        } else if let Source::Dispatcher(dispatcher) = &source {
            entries.retain(|(_, what)| !what.is_completion(dispatcher));
        }
        dead_lettering.extend(source.settle(&entries).cloned());
    }
    dead_lettering
}

impl From<AtomicPublishError> for CommitError {
    fn from(why: AtomicPublishError) -> Self {
        match why {
            AtomicPublishError::Misfit { why, .. } => match PublishRefusal::of(why) {
                Some(why) => Self::Refused(why),
                None => Self::NotStored(NotStored::Refused(Refusal::Closed)),
            },
            AtomicPublishError::NotStored(NotStored::Refused(why)) => {
                Self::Refused(PublishRefusal::Journal(why))
            }
            AtomicPublishError::NotStored(NotStored::Unknown) => NotStored::Unknown.into(),
            AtomicPublishError::SourceGone => Self::NotStored(NotStored::Refused(Refusal::Closed)),
        }
    }
}
