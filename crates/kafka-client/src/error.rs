//! Errors of the client. Each names the broker, the API and the reason, and tells if a retry is of use.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use stafett_kafka_wire::{ApiKey, DecodeError, EncodeError, ErrorCode, VersionRange};
use stafett_model::BatchError;

use crate::refusal;

/// Reason why a request has no useful answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    #[error("cannot connect to {broker}: {reason}")]
    Connect { broker: Arc<str>, reason: Arc<str> },
    #[error("the connection to {broker} ended before {api:?} was answered: {reason}")]
    Closed {
        broker: Arc<str>,
        api: ApiKey,
        reason: Arc<str>,
    },
    #[error("{broker} did not answer {api:?} within {after:?}")]
    Timeout {
        broker: Arc<str>,
        api: ApiKey,
        after: Duration,
    },
    #[error("{broker} does not offer {api:?}{}", offer(*.ours, *.theirs))]
    Unsupported {
        broker: Arc<str>,
        api: ApiKey,
        ours: VersionRange,
        theirs: Option<VersionRange>,
    },
    #[error("{broker} sent an answer to {api:?} that cannot be read: {error}")]
    Malformed {
        broker: Arc<str>,
        api: ApiKey,
        error: DecodeError,
    },
    #[error("{broker} left {what} out of its answer to {api:?}")]
    Missing {
        broker: Arc<str>,
        api: ApiKey,
        what: Box<str>,
    },
    #[error("{api:?} cannot be sent: {error}")]
    Encode { api: ApiKey, error: EncodeError },
    #[error("{about}: {} ({broker}, {api:?})", refusal::words(*.code, .message.as_deref()))]
    Refused {
        broker: Arc<str>,
        api: ApiKey,
        /// The refused thing, such as a topic; never empty.
        about: Box<str>,
        code: i16,
        message: Option<Box<str>>,
    },
    #[error("{about}: no broker leads it at the moment")]
    NoLeader { about: Box<str> },
    #[error("{about} holds a batch that cannot be read: {error}")]
    Batch { about: Box<str>, error: BatchError },
    #[error("not sent, because an earlier batch of its partition failed")]
    Behind,
}

fn offer(ours: VersionRange, theirs: Option<VersionRange>) -> String {
    theirs.map_or_else(String::new, |theirs| {
        format!(" in versions {ours}; it has {theirs}")
    })
}

impl ClientError {
    pub(crate) fn connect(broker: &Arc<str>, error: &io::Error) -> Self {
        let kind = error.kind();
        let reason = if kind == io::ErrorKind::ConnectionRefused {
            "nothing listens there".into()
        } else if kind == io::ErrorKind::TimedOut {
            "it does not answer".into()
        } else {
            error.to_string().into()
        };
        Self::Connect {
            broker: Arc::clone(broker),
            reason,
        }
    }

    /// Returns the protocol's error code, if it is a refusal with a known code.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { code, .. } => ErrorCode::try_from(*code).ok(),
            Self::Connect { .. }
            | Self::Closed { .. }
            | Self::Timeout { .. }
            | Self::Unsupported { .. }
            | Self::Malformed { .. }
            | Self::Missing { .. }
            | Self::Encode { .. }
            | Self::NoLeader { .. }
            | Self::Batch { .. }
            | Self::Behind => None,
        }
    }

    /// True if a connection ended before its first request was answered, that for metadata.
    pub fn is_closed_at_once(&self) -> bool {
        matches!(self, Self::Closed { api, .. } if *api == ApiKey::Metadata)
    }

    /// True if the same request may succeed later.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Closed { .. } | Self::Timeout { .. } | Self::NoLeader { .. } => true,
            Self::Refused { .. } => self.code().is_some_and(ErrorCode::is_retriable),
            Self::Unsupported { .. }
            | Self::Malformed { .. }
            | Self::Missing { .. }
            | Self::Encode { .. }
            | Self::Batch { .. }
            | Self::Behind => false,
        }
    }

    /// True if the broker lacks the API or all our versions of it.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Unsupported { .. })
    }
}
