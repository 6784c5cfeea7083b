//! From every error of the core to its code. What ends is the request or a part of it, except where a function says
//! [`Close`]: then nobody knows what became of the request, and the connection ends without an answer.

use stafett_broker::broker::NotStored;
use stafett_broker::groups::ConsumerError;
use stafett_broker::groups::consumer::HeartbeatError;
use stafett_broker::{CreateError, DeleteError, GroupError, ReadError, Refusal};
use stafett_kafka_wire::ErrorCode;
use stafett_model::{BatchError, TopicNameError};

use crate::session::Close;

/// Why a batch was not taken, from what is wrong with it.
pub(crate) fn batch(error: &BatchError) -> ErrorCode {
    match error {
        BatchError::Truncated { .. } | BatchError::Length(_) | BatchError::Checksum { .. } => {
            ErrorCode::CorruptMessage
        }
        BatchError::Codec(_) | BatchError::Compression { .. } => ErrorCode::UnsupportedCompressionType,
        BatchError::Timestamps { .. } | BatchError::AppendTime => ErrorCode::InvalidTimestamp,
        BatchError::Oversized { .. } | BatchError::TooLarge { .. } => ErrorCode::MessageTooLarge,
        BatchError::Magic(_)
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

/// Why an append was refused.
pub(crate) fn refusal(refusal: &Refusal) -> ErrorCode {
    match refusal {
        Refusal::NoSuchLog(_) => ErrorCode::UnknownTopicOrPartition,
        Refusal::OutOfSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
        Refusal::StaleProducer { .. } => ErrorCode::InvalidProducerEpoch,
        Refusal::TooLarge { .. } => ErrorCode::MessageTooLarge,
        // Each may pass, by itself or with an operator's help: clients ask again.
        Refusal::Fenced { .. } | Refusal::OffsetsExhausted(_) | Refusal::DiskFull | Refusal::Closed => {
            ErrorCode::KafkaStorageError
        }
        // Only asked for by preconditions, which no request of Kafka's has.
        Refusal::NotAtOffset { .. } => ErrorCode::UnknownServerError,
    }
}

/// Why a partition was not read.
pub(crate) fn read(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::NoSuchLog(_) => ErrorCode::UnknownTopicOrPartition,
        ReadError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        ReadError::Damaged { .. } => ErrorCode::CorruptMessage,
        ReadError::Io { .. } => ErrorCode::KafkaStorageError,
    }
}

/// Why a change was not stored, with words for it.
pub(crate) fn not_stored(error: &NotStored) -> Result<(ErrorCode, String), Close> {
    match error {
        NotStored::Refused(why) => Ok((refusal(why), why.to_string())),
        NotStored::Unknown => Err(Close::OutcomeUnknown),
    }
}

/// Why a topic was not created, with words for it.
pub(crate) fn create(error: &CreateError) -> Result<(ErrorCode, String), Close> {
    let code = match error {
        CreateError::Exists | CreateError::Changing => ErrorCode::TopicAlreadyExists,
        CreateError::Collides(_) => ErrorCode::InvalidTopicException,
        CreateError::Name(why) => name(*why),
        CreateError::Partitions(_) => ErrorCode::InvalidPartitions,
        CreateError::NotStored(why) => return not_stored(why),
    };
    Ok((code, error.to_string()))
}

/// Why a topic was not deleted, with words for it.
pub(crate) fn delete(error: &DeleteError) -> Result<(ErrorCode, String), Close> {
    match error {
        DeleteError::NoSuchTopic => Ok((ErrorCode::UnknownTopicOrPartition, error.to_string())),
        DeleteError::NotStored(why) => not_stored(why),
    }
}

/// Why a group did not do what it was asked.
pub(crate) fn group(error: &GroupError) -> Result<ErrorCode, Close> {
    Ok(match error {
        GroupError::Name { .. } => ErrorCode::InvalidGroupId,
        GroupError::NoSuchGroup => ErrorCode::GroupIdNotFound,
        GroupError::TooManyGroups => ErrorCode::PolicyViolation,
        GroupError::NotEmpty => ErrorCode::NonEmptyGroup,
        GroupError::OtherKind | GroupError::NoCommonStrategy => ErrorCode::InconsistentGroupProtocol,
        GroupError::Full => ErrorCode::GroupMaxSizeReached,
        GroupError::UnknownMember => ErrorCode::UnknownMemberId,
        GroupError::MemberIdRequired => ErrorCode::MemberIdRequired,
        GroupError::FencedInstance => ErrorCode::FencedInstanceId,
        GroupError::OtherGeneration => ErrorCode::IllegalGeneration,
        GroupError::StaleEpoch => ErrorCode::StaleMemberEpoch,
        GroupError::Rebalancing => ErrorCode::RebalanceInProgress,
        GroupError::SessionTime { .. } => ErrorCode::InvalidSessionTimeout,
        GroupError::MemberTooLarge { .. } => ErrorCode::InvalidRequest,
        // Both may pass, and clients ask again.
        GroupError::Stopping | GroupError::NotStored(NotStored::Refused(_)) => {
            ErrorCode::CoordinatorNotAvailable
        }
        GroupError::NotStored(NotStored::Unknown) => return Err(Close::OutcomeUnknown),
    })
}

/// Why a member of a consumer group is not answered.
pub(crate) fn consumer(error: &ConsumerError) -> Result<ErrorCode, Close> {
    Ok(match error {
        // A group that is no consumer group is not there.
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

/// Why a text is not the name of a topic.
pub(crate) fn name(error: TopicNameError) -> ErrorCode {
    match error {
        TopicNameError::Empty
        | TopicNameError::TooLong { .. }
        | TopicNameError::Dots
        | TopicNameError::Character { .. } => ErrorCode::InvalidTopicException,
    }
}
