//! Errors of a broker in four classes: fenced, poison, stop, try again.

use stafett_kafka_client::{ClientError, ErrorCode};

use crate::target::{Place, TargetError};

/// Sorts an error. `place` is that of a write, which another writer may have taken over.
pub(crate) fn failed(why: &ClientError, place: Option<&Place>) -> TargetError {
    let text = why.to_string();
    if why.is_unsupported() {
        return TargetError::Stop(text);
    }
    let Some(code) = why.code() else {
        // That is how brokers refuse the first request of a stranger.
        let hint = if why.is_closed_at_once() {
            "; the broker may require a login (login = \"env:NAME\")"
        } else {
            ""
        };
        return TargetError::Retry(format!("{text}{hint}"));
    };
    if let (Some(place), ErrorCode::ProducerFenced | ErrorCode::InvalidProducerEpoch) = (place, code) {
        return TargetError::Fenced(place.clone());
    }
    if is_poison(code) {
        let class = code.name().to_owned();
        return TargetError::Poison { class, text };
    }
    if is_lasting(code) {
        TargetError::Stop(text)
    } else {
        TargetError::Retry(text)
    }
}

/// True for a record that will never be taken.
fn is_poison(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::MessageTooLarge
            | ErrorCode::RecordListTooLarge
            | ErrorCode::InvalidRecord
            | ErrorCode::InvalidTimestamp
    )
}

/// True for a refusal that lasts until rights, settings or topics are other ones.
fn is_lasting(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::TopicAuthorizationFailed
            | ErrorCode::GroupAuthorizationFailed
            | ErrorCode::ClusterAuthorizationFailed
            | ErrorCode::TransactionalIdAuthorizationFailed
            | ErrorCode::SaslAuthenticationFailed
            | ErrorCode::UnsupportedSaslMechanism
            | ErrorCode::IllegalSaslState
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::InvalidTopicException
            | ErrorCode::InvalidTransactionTimeout
            | ErrorCode::InvalidPartitions
            | ErrorCode::InvalidReplicationFactor
            | ErrorCode::PolicyViolation
    )
}
