//! Conversion of core errors to error codes. An error ends the request or a part of it. The exception is
//! [`Close`]: the request's outcome is unknown, and the connection ends without an answer.

use stafett_groups::consumer::HeartbeatError;
use stafett_groups::{ConsumerError, GroupError};
use stafett_kafka_wire::ErrorCode;
use stafett_model::{BatchError, LogId, TOPIC_NAME_BYTES_MAX, TopicNameError};
use stafett_store::NotStored;
use stafett_topics::{
    AdmitError, AlterError, CreateError, DeleteError, GrowError, ReadError, Refusal, cell_of,
};
use stafett_transactions::TransactionError;

use crate::call::Close;
use crate::configs::BadConfig;

/// Maps the reason why a batch is not admitted to its topic.
pub(crate) fn admission(error: &AdmitError) -> ErrorCode {
    match error {
        AdmitError::NoSuchPartition => ErrorCode::UnknownTopicOrPartition,
        AdmitError::NoBatch | AdmitError::WithoutKey { .. } => ErrorCode::InvalidRecord,
        AdmitError::Batch(why) => batch(why),
        AdmitError::Times { .. } => ErrorCode::InvalidTimestamp,
    }
}

/// Maps the reason why a batch is invalid.
pub(crate) fn batch(error: &BatchError) -> ErrorCode {
    match error {
        // Clients retry this error.
        BatchError::Length(_) | BatchError::Checksum { .. } => ErrorCode::CorruptMessage,
        BatchError::Codec(_) | BatchError::Compression { .. } => ErrorCode::UnsupportedCompressionType,
        BatchError::Timestamps { .. } | BatchError::AppendTime => ErrorCode::InvalidTimestamp,
        BatchError::Oversized { .. } | BatchError::TooLarge { .. } => ErrorCode::MessageTooLarge,
        BatchError::Truncated { .. }
        | BatchError::Magic(_)
        | BatchError::Counts { .. }
        | BatchError::Record { .. }
        | BatchError::Decompression { .. }
        | BatchError::TooManyRecords { .. }
        | BatchError::Implausible { .. }
        | BatchError::Trailing { .. }
        | BatchError::BaseOffset(_)
        | BatchError::Producer { .. }
        | BatchError::Control => ErrorCode::InvalidRecord,
    }
}

/// Maps the reason why an append was refused.
pub(crate) fn refusal(refusal: &Refusal) -> ErrorCode {
    match refusal {
        Refusal::NoSuchLog(log) => missing(*log),
        Refusal::OutOfSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
        Refusal::StaleProducer { .. } => ErrorCode::InvalidProducerEpoch,
        Refusal::OutsideTransaction { .. } => ErrorCode::InvalidTxnState,
        Refusal::TooLarge { .. } => ErrorCode::MessageTooLarge,
        // Each may pass, by itself or with an operator's help: clients retry.
        Refusal::Fenced { .. } | Refusal::OffsetsExhausted(_) | Refusal::DiskFull | Refusal::Closed => {
            ErrorCode::KafkaStorageError
        }
        // Only for appends with a precondition or an owner, which Kafka's requests do not have.
        Refusal::NotAtOffset { .. } | Refusal::StaleOwner { .. } => ErrorCode::UnknownServerError,
    }
}

/// Returns the error for a log that is not here: another broker leads it, or there is none.
pub(crate) fn missing(log: LogId) -> ErrorCode {
    match cell_of(log) {
        Some(_) => ErrorCode::NotLeaderOrFollower,
        None => ErrorCode::UnknownTopicOrPartition,
    }
}

/// Maps the reason why a partition was not read.
pub(crate) fn read(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::NoSuchLog(log) => missing(*log),
        ReadError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        ReadError::Damaged { .. } => ErrorCode::CorruptMessage,
        ReadError::Io { .. } => ErrorCode::KafkaStorageError,
    }
}

/// Maps the reason why a change was not stored, and adds a message.
pub(crate) fn not_stored(error: &NotStored) -> Result<(ErrorCode, String), Close> {
    match error {
        NotStored::Refused(why) => Ok((refusal(why), why.to_string())),
        NotStored::Unknown => Err(Close::OutcomeUnknown),
    }
}

/// Maps the reason why a step of a transaction was refused. `PRODUCER_FENCED` is a code of later versions.
pub(crate) fn transaction(error: &TransactionError, knows_fenced: bool) -> Result<ErrorCode, Close> {
    Ok(match error {
        TransactionError::Id { .. } => ErrorCode::InvalidRequest,
        TransactionError::Timeout { .. } => ErrorCode::InvalidTransactionTimeout,
        TransactionError::UnknownProducer => ErrorCode::InvalidProducerIdMapping,
        TransactionError::Fenced if knows_fenced => ErrorCode::ProducerFenced,
        TransactionError::Fenced => ErrorCode::InvalidProducerEpoch,
        TransactionError::Busy => ErrorCode::ConcurrentTransactions,
        TransactionError::NoTransaction | TransactionError::NotAdded => ErrorCode::InvalidTxnState,
        TransactionError::TooManyCommits { .. } => ErrorCode::InvalidCommitOffsetSize,
        TransactionError::TooManyIds { .. } | TransactionError::TooManyPartitions { .. } => {
            ErrorCode::PolicyViolation
        }
        TransactionError::Group(why) => return group(why),
        TransactionError::NotStored(NotStored::Unknown) => return Err(Close::OutcomeUnknown),
        // Clients look for the coordinator and try again.
        TransactionError::NotStored(NotStored::Refused(_)) => ErrorCode::CoordinatorNotAvailable,
    })
}

/// Like [`transaction`], for requests whose clients abort a transaction that has no such part, and go on.
pub(crate) fn abortable_transaction(error: &TransactionError) -> Result<ErrorCode, Close> {
    let is_no_part = matches!(
        error,
        TransactionError::NoTransaction | TransactionError::NotAdded
    );
    if is_no_part {
        return Ok(ErrorCode::TransactionAbortable);
    }
    transaction(error, false)
}

/// Version of `TxnOffsetCommit` whose clients abort a transaction that the group was not added to, and go on.
const ABORTABLE_IN: i16 = 4;

/// Maps the reason why commits did not join a transaction: groups answer with other codes than its
/// coordinator does.
pub(crate) fn transactional_commit(error: &TransactionError, version: i16) -> Result<ErrorCode, Close> {
    if version == ABORTABLE_IN {
        return abortable_transaction(error);
    }
    if let TransactionError::Group(GroupError::NoSuchGroup | GroupError::StaleEpoch) = error {
        return Ok(ErrorCode::IllegalGeneration);
    }
    transaction(error, false)
}

/// Maps the reason why a topic was not created, and adds a message.
pub(crate) fn create(name: &str, error: &CreateError) -> Result<(ErrorCode, String), Close> {
    Ok(match error {
        CreateError::Exists | CreateError::Changing => (
            ErrorCode::TopicAlreadyExists,
            format!("Topic '{name}' already exists."),
        ),
        CreateError::Collides(other) => {
            let message = format!("Topic '{name}' collides with existing topic: {other}");
            (ErrorCode::InvalidTopicException, message)
        }
        CreateError::Name(why) => (self::name(*why), name_text(name, *why)),
        CreateError::Partitions(0) => (ErrorCode::InvalidPartitions, error.to_string()),
        CreateError::Partitions(_) => (ErrorCode::PolicyViolation, EXCESSIVE.to_owned()),
        CreateError::TooMany { .. } | CreateError::Spread => (ErrorCode::PolicyViolation, error.to_string()),
        CreateError::NotStored(why) => return not_stored(why),
    })
}

const EXCESSIVE: &str = "Excessively large number of partitions per request.";

/// Maps the reason why a topic got no more partitions, and adds a message.
pub(crate) fn grow(name: &str, error: &GrowError) -> Result<(ErrorCode, Option<String>), Close> {
    Ok(match error {
        GrowError::NoSuchTopic => (ErrorCode::UnknownTopicOrPartition, None),
        GrowError::NotMore { has, wanted } if has == wanted => {
            let message = format!("Topic already has {has} partition(s).");
            (ErrorCode::InvalidPartitions, Some(message))
        }
        GrowError::NotMore { has, wanted } => {
            let message = format!(
                "The topic {name} currently has {has} partition(s); {wanted} would not be an increase."
            );
            (ErrorCode::InvalidPartitions, Some(message))
        }
        GrowError::TooMany(_) | GrowError::HasApps => (ErrorCode::InvalidPartitions, Some(error.to_string())),
        GrowError::NotStored(why) => not_stored(why).map(|(code, message)| (code, Some(message)))?,
    })
}

/// Maps the reason why settings were not changed, and adds a message.
pub(crate) fn alter(error: &AlterError<BadConfig>) -> Result<(ErrorCode, String), Close> {
    Ok(match error {
        AlterError::NoSuchTopic => (ErrorCode::UnknownTopicOrPartition, String::new()),
        AlterError::TooMany => (ErrorCode::PolicyViolation, error.to_string()),
        AlterError::Unwanted(bad) => (config(bad), bad.to_string()),
        AlterError::NotStored(why) => return not_stored(why),
    })
}

/// Maps the reason why a setting is invalid.
pub(crate) fn config(bad: &BadConfig) -> ErrorCode {
    match bad {
        BadConfig::Unknown { .. }
        | BadConfig::Value { .. }
        | BadConfig::NotAList { .. }
        | BadConfig::TooLong { .. } => ErrorCode::InvalidConfig,
        BadConfig::Null { .. } | BadConfig::Fixed { .. } | BadConfig::Operation(_) => {
            ErrorCode::InvalidRequest
        }
    }
}

/// Maps the reason why a topic was not deleted, and adds a message.
pub(crate) fn delete(error: &DeleteError) -> Result<(ErrorCode, String), Close> {
    match error {
        DeleteError::NoSuchTopic => Ok((ErrorCode::UnknownTopicOrPartition, error.to_string())),
        DeleteError::NotStored(why) => not_stored(why),
    }
}

/// Maps the reason why a group refused a request.
pub(crate) fn group(error: &GroupError) -> Result<ErrorCode, Close> {
    Ok(match error {
        GroupError::Name { .. } | GroupError::Elsewhere => ErrorCode::InvalidGroupId,
        GroupError::NoSuchGroup => ErrorCode::GroupIdNotFound,
        GroupError::TooManyGroups => ErrorCode::PolicyViolation,
        GroupError::NotEmpty => ErrorCode::NonEmptyGroup,
        GroupError::OtherKind | GroupError::NoCommonStrategy => ErrorCode::InconsistentGroupProtocol,
        GroupError::Full | GroupError::NoMemory => ErrorCode::GroupMaxSizeReached,
        GroupError::UnknownMember => ErrorCode::UnknownMemberId,
        GroupError::MemberIdRequired => ErrorCode::MemberIdRequired,
        GroupError::FencedInstance => ErrorCode::FencedInstanceId,
        GroupError::OtherGeneration => ErrorCode::IllegalGeneration,
        GroupError::StaleEpoch => ErrorCode::StaleMemberEpoch,
        GroupError::Rebalancing => ErrorCode::RebalanceInProgress,
        GroupError::SessionTime { .. } => ErrorCode::InvalidSessionTimeout,
        GroupError::MemberTooLarge { .. } => ErrorCode::InvalidRequest,
        // Both may pass: clients retry.
        GroupError::Stopping | GroupError::NotStored(NotStored::Refused(_)) => {
            ErrorCode::CoordinatorNotAvailable
        }
        GroupError::NotStored(NotStored::Unknown) => return Err(Close::OutcomeUnknown),
    })
}

/// Maps the reason why a consumer group refused a heartbeat.
pub(crate) fn consumer(error: &ConsumerError) -> Result<ErrorCode, Close> {
    Ok(match error {
        // A group of another kind counts as missing.
        ConsumerError::Group(GroupError::OtherKind) => ErrorCode::GroupIdNotFound,
        ConsumerError::Group(error) => group(error)?,
        ConsumerError::Heartbeat(error) => match error {
            HeartbeatError::UnknownMember(_) | HeartbeatError::UnknownInstance(_) => {
                ErrorCode::UnknownMemberId
            }
            HeartbeatError::FencedEpoch { .. } => ErrorCode::FencedMemberEpoch,
            HeartbeatError::FencedInstance { .. } => ErrorCode::FencedInstanceId,
            HeartbeatError::UnreleasedInstance { .. } => ErrorCode::UnreleasedInstanceId,
            HeartbeatError::Full(_) => ErrorCode::GroupMaxSizeReached,
            HeartbeatError::Pattern(_) => ErrorCode::InvalidRegularExpression,
        },
    })
}

/// Maps the reason why a topic name is invalid.
pub(crate) fn name(error: TopicNameError) -> ErrorCode {
    match error {
        TopicNameError::Empty
        | TopicNameError::TooLong { .. }
        | TopicNameError::Dots
        | TopicNameError::Character { .. } => ErrorCode::InvalidTopicException,
    }
}

/// Returns the message for an invalid topic name.
pub(crate) fn name_text(text: &str, error: TopicNameError) -> String {
    let why = match error {
        TopicNameError::Empty => "the empty string is not allowed".to_owned(),
        TopicNameError::TooLong { .. } => {
            format!("the length of '{text}' is longer than the max allowed length {TOPIC_NAME_BYTES_MAX}")
        }
        TopicNameError::Dots => format!("'{text}' is not allowed"),
        TopicNameError::Character { .. } => {
            format!(
                "'{text}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
            )
        }
    };
    format!("Topic name is invalid: {why}")
}
