//! From every error of the core to its code. What ends is the request or a part of it, except where a
//! function says
//! [`Close`]: then nobody knows what became of the request, and the connection ends without an answer.

use stafett_groups::consumer::HeartbeatError;
use stafett_groups::{ConsumerError, GroupError};
use stafett_kafka_wire::ErrorCode;
use stafett_model::{BatchError, TOPIC_NAME_BYTES_MAX, TopicNameError};
use stafett_store::NotStored;
use stafett_topics::{AlterError, CreateError, DeleteError, GrowError, ReadError, Refusal};

use crate::configs::BadConfig;
use crate::session::Close;

/// Why a batch was not taken, from what is wrong with it.
pub(crate) fn batch(error: &BatchError) -> ErrorCode {
    match error {
        // Clients send it again.
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
        // Only asked for by preconditions and owners, which no request of Kafka's has.
        Refusal::NotAtOffset { .. } | Refusal::StaleOwner { .. } => ErrorCode::UnknownServerError,
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
        CreateError::NotStored(why) => return not_stored(why),
    })
}

const EXCESSIVE: &str = "Excessively large number of partitions per request.";

/// Why a topic did not get more partitions, with words for it.
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
        GrowError::TooMany(_) => (ErrorCode::InvalidPartitions, Some(error.to_string())),
        GrowError::NotStored(why) => not_stored(why).map(|(code, message)| (code, Some(message)))?,
    })
}

/// Why settings were not changed, with words for it.
pub(crate) fn alter(error: &AlterError<BadConfig>) -> Result<(ErrorCode, String), Close> {
    Ok(match error {
        AlterError::NoSuchTopic => (ErrorCode::UnknownTopicOrPartition, String::new()),
        AlterError::TooMany => (ErrorCode::PolicyViolation, error.to_string()),
        AlterError::Unwanted(bad) => (config(bad), bad.to_string()),
        AlterError::NotStored(why) => return not_stored(why),
    })
}

/// Why a setting cannot be.
pub(crate) fn config(bad: &BadConfig) -> ErrorCode {
    match bad {
        BadConfig::Unknown { .. }
        | BadConfig::Value { .. }
        | BadConfig::Compaction(_)
        | BadConfig::NotAList { .. }
        | BadConfig::TooLong { .. } => ErrorCode::InvalidConfig,
        BadConfig::Null { .. } | BadConfig::Fixed { .. } | BadConfig::Operation(_) => {
            ErrorCode::InvalidRequest
        }
    }
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
        GroupError::Full | GroupError::NoMemory => ErrorCode::GroupMaxSizeReached,
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

/// The words for a text that is not the name of a topic.
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
