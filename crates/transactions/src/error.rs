//! Reasons why a step of a transaction is refused.

use stafett_groups::GroupError;
use stafett_store::NotStored;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    #[error("the transactional id is empty or longer than {max} bytes")]
    Id { max: usize },
    #[error("the timeout of a transaction is between 1 and {max_ms} ms")]
    Timeout { max_ms: u32 },
    #[error("the producer id does not belong to this transactional id")]
    UnknownProducer,
    #[error("another producer with this transactional id has begun, or the transaction took too long")]
    Fenced,
    #[error("the end of the transaction is being stored")]
    Busy,
    #[error("there is no transaction to end")]
    NoTransaction,
    #[error("the partition is not part of the transaction")]
    NotAdded,
    #[error("a transaction commits at most {max} offsets, which fit into half a segment")]
    TooManyCommits { max: usize },
    #[error("a transaction appends to at most {max} partitions of other cells")]
    TooManyPartitions { max: usize },
    #[error("there are {max} transactional ids already")]
    TooManyIds { max: usize },
    #[error(transparent)]
    Group(#[from] GroupError),
    #[error(transparent)]
    NotStored(#[from] NotStored),
}
