//! Reasons why a connection ends.

use stafett_kafka_wire::{ApiKey, DecodeError, EncodeError};

/// Reason why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Close {
    #[error("a request cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("{} is not served", .0.name())]
    NotServed(ApiKey),
    #[error("an answer cannot be written: {0}")]
    Encode(#[from] EncodeError),
    #[error("a produce request that wants no answer failed")]
    SilentFailure,
    #[error("the journal cannot tell whether a batch was stored")]
    OutcomeUnknown,
}

impl Close {
    /// Returns one word of a fixed set, for metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Decode(DecodeError::UnknownApi { .. }) => "unknown_api",
            Self::Decode(DecodeError::UnsupportedVersion { .. }) => "unsupported_version",
            Self::Decode(_) => "malformed_request",
            Self::NotServed(_) => "unserved_api",
            Self::Encode(_) => "unwritable_answer",
            Self::SilentFailure => "unanswered_produce_failed",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }
}
