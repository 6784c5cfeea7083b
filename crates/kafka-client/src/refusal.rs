//! Conversion of error codes to results, and of errors to words.

use std::sync::Arc;

use stafett_kafka_wire::{ApiKey, ErrorCode, Str};

use crate::error::ClientError;

/// Returns an error if `code` is not 0. `about` names the requested thing.
pub(crate) fn check(
    broker: &Arc<str>,
    api: ApiKey,
    code: i16,
    message: Option<&Str>,
    about: impl FnOnce() -> String,
) -> Result<(), ClientError> {
    if code == 0 {
        return Ok(());
    }
    Err(ClientError::Refused {
        broker: Arc::clone(broker),
        api,
        about: about().into(),
        code,
        message: message
            .filter(|text| !text.is_empty())
            .map(|text| Box::from(text.as_str())),
    })
}

/// Describes an error by the broker's message, else by the code's meaning.
pub(crate) fn words(code: i16, message: Option<&str>) -> String {
    let Ok(error) = ErrorCode::try_from(code) else {
        return message.map_or_else(
            || format!("error {code}"),
            |text| format!("{text} (error {code})"),
        );
    };
    let name = error.name();
    match message.or_else(|| meaning(error)) {
        Some(text) => format!("{} [{name}]", text.trim_end_matches('.')),
        None => name.to_lowercase().replace('_', " "),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the names of the others say enough"
)]
fn meaning(error: ErrorCode) -> Option<&'static str> {
    Some(match error {
        ErrorCode::UnknownServerError => "the broker failed, and its log says why",
        ErrorCode::OffsetOutOfRange => "the offset is not there (any more, or yet)",
        ErrorCode::CorruptMessage => "the broker found the batch damaged",
        ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId => "it does not exist",
        ErrorCode::LeaderNotAvailable => "it has no leader at the moment",
        ErrorCode::NotLeaderOrFollower => "the broker does not lead it",
        ErrorCode::RequestTimedOut => "the broker gave up waiting",
        ErrorCode::MessageTooLarge => "it is larger than max.message.bytes allows",
        ErrorCode::CoordinatorLoadInProgress => "the group's coordinator is starting",
        ErrorCode::CoordinatorNotAvailable => "the broker has no coordinator for groups",
        ErrorCode::NotCoordinator => "the broker is not the group's coordinator",
        ErrorCode::InvalidTopicException => "that is not a legal topic name",
        ErrorCode::InvalidRequiredAcks => "acks can be 0, 1 or all",
        ErrorCode::InvalidGroupId => "that is not a legal group id",
        ErrorCode::UnknownMemberId => "the group does not know the member (any more)",
        ErrorCode::IllegalGeneration => "the group has moved on to another generation",
        ErrorCode::RebalanceInProgress => "the group is rebalancing",
        ErrorCode::InconsistentGroupProtocol => "the group's members use another protocol or other assignors",
        ErrorCode::TopicAuthorizationFailed => "access to the topic is denied",
        ErrorCode::GroupAuthorizationFailed => "access to the group is denied",
        ErrorCode::ClusterAuthorizationFailed => "access to the cluster is denied",
        ErrorCode::TopicAlreadyExists => "it exists already",
        ErrorCode::InvalidPartitions => "that number of partitions is not possible",
        ErrorCode::InvalidReplicationFactor => "there are not enough brokers for that replication factor",
        ErrorCode::InvalidConfig => "a setting is not valid",
        ErrorCode::InvalidRequest => "the broker finds the request invalid",
        ErrorCode::PolicyViolation => "the broker's policy forbids it",
        ErrorCode::KafkaStorageError => "the broker's disk failed",
        ErrorCode::NonEmptyGroup => "the group has members",
        ErrorCode::GroupIdNotFound => "the group does not exist",
        ErrorCode::GroupSubscribedToTopic => "the group is subscribed to the topic",
        ErrorCode::GroupMaxSizeReached => "the group has as many members as it may have",
        ErrorCode::FencedInstanceId => "another member took over this instance id",
        ErrorCode::InvalidRecord => "a record breaks the topic's rules",
        ErrorCode::OutOfOrderSequenceNumber => "batches arrived out of order",
        ErrorCode::UnsupportedVersion => "the broker does not support this version of the request",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_said_in_words() {
        assert_eq!(words(36, None), "it exists already [TOPIC_ALREADY_EXISTS]");
        assert_eq!(
            words(40, Some("retention.ms is x.")),
            "retention.ms is x [INVALID_CONFIG]"
        );
        assert_eq!(words(47, None), "invalid producer epoch");
        assert_eq!(words(9999, None), "error 9999");
    }
}
