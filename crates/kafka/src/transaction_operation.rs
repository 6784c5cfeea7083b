//! Operations on transactional ids, and on their transactions.

use smallvec::SmallVec;
use stafett_kafka_wire::{ErrorCode, Str};
use stafett_model::TransactionEnd;
use stafett_topics::Outcome;
use stafett_transactions::{Instance, Parts, Place, TransactionError, Transactions};

use crate::call::Close;
use crate::cell_commits::CommittedWith;
use crate::cell_transactions::{Joining, NotPart};
use crate::context::RequestContext;
use crate::operation::{Step, Then, in_order};

/// Outcomes of batches.
pub(crate) type Outcomes = SmallVec<[Outcome; 2]>;

/// Operation on a transactional id.
pub(crate) enum TransactionOperation {
    /// Give the id to a new instance of its producer.
    BeginProducer {
        id: Str,
        timeout_ms: i32,
        given: Option<Instance>,
        then: Then<Result<Instance, TransactionError>>,
    },
    /// Have the coordinator keep commits until the end. Goes on with the code of the answer.
    CommitOffsets(Box<CommittedWith>, Then<ErrorCode>),
    /// Ask the coordinator for the partitions of groups whose commits wait. `None` if it does not answer.
    Pending(Vec<Str>, Then<Option<Vec<Vec<Place>>>>),
    End {
        id: Str,
        given: Instance,
        end: TransactionEnd,
        /// True if the end begins another epoch.
        bumps: bool,
        then: Then<Result<Instance, TransactionError>>,
    },
    /// Add partitions to transactions, one after the other, or check that they are part of them.
    AddParts(Vec<AddedParts>, Then<Vec<Result<(), TransactionError>>>),
    /// Append batches of a transaction whose coordinator is in another cell.
    Append(Box<Joining>, Then<Result<Outcomes, NotPart>>),
    /// Abort the transactions that producers have open in partitions, one after the other.
    Abort(Vec<(Parts, Instance)>, Then<Vec<Result<(), TransactionError>>>),
}

/// Partitions that are added to a transaction.
#[derive(Debug)]
pub(crate) struct AddedParts {
    pub id: Str,
    pub given: Instance,
    /// True if they are only checked to be part of it.
    pub is_checked: bool,
    pub parts: Parts,
}

impl AddedParts {
    async fn add(self, transactions: &Transactions) -> Result<(), TransactionError> {
        if self.is_checked {
            return transactions.check_parts(&self.id, self.given, &self.parts);
        }
        transactions.add_parts(&self.id, self.given, self.parts).await
    }
}

impl TransactionOperation {
    pub(crate) async fn perform(self, context: &RequestContext) -> Result<Step, Close> {
        let transactions = context.shared.broker.transactions();
        match self {
            Self::BeginProducer {
                id,
                timeout_ms,
                given,
                then,
            } => {
                // Before the producer begins: instances are answered in their order.
                let topic = &context.shared.transactions_topic;
                if !topic.is_there() {
                    topic.create(&context.shared.broker).await;
                }
                let begun = transactions.begin_producer(&id, timeout_ms, given).await;
                then.on_done(context, begun)
            }
            Self::CommitOffsets(asked, then) => then.on_done(context, asked.store(context).await?),
            Self::Pending(groups, then) => {
                then.on_done(context, context.shared.pending_elsewhere(&groups).await)
            }
            Self::End {
                id,
                given,
                end,
                bumps,
                then,
            } => then.on_done(context, transactions.end(&id, given, end, bumps).await),
            Self::AddParts(added, then) => {
                let added = added.into_iter().map(|added| added.add(transactions));
                then.on_done(context, in_order(added).await)
            }
            Self::Append(joining, then) => then.on_done(context, joining.append(&context.shared).await),
            Self::Abort(aborts, then) => {
                let aborts = aborts.into_iter();
                let aborted = aborts.map(|(parts, given)| transactions.abort(parts, given));
                then.on_done(context, in_order(aborted).await)
            }
        }
    }
}
