//! Errors of commands: the only place that maps errors to texts on the wire.

use stafett_http::Problem;
use stafett_live_topics::{ChangeError, FilterError, TooManyClients};

/// Error of a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("not a JSON object: {0}")]
    NotJson(String),
    #[error("Key '{0}' not specified")]
    Missing(&'static str),
    #[error("Key '{key}': expected {expected}")]
    Value {
        key: &'static str,
        expected: &'static str,
    },
    #[error("Key '{key}': expected at most {max} bytes")]
    TooLong { key: &'static str, max: usize },
    #[error("{0}")]
    Query(String),
    #[error("Keys '{0}' and '{1}' exclude each other")]
    Both(&'static str, &'static str),
    #[error("Key 'command': expected listen, leave, subscribe, unsubscribe, publish, list, presence or ping")]
    Command,
    #[error("a text message is expected; binary ones need the subprotocol stafett.live.msgpack")]
    Binary,
    #[error("Key 'from': listen on this connection first")]
    NotListening,
    #[error("no rule permits to {action} {}", shown(.topic))]
    Forbidden { action: &'static str, topic: String },
    #[error("more than the quota allows: it may go on in {seconds} s")]
    OverQuota { seconds: u64 },
    #[error("requests wait too long: try again later")]
    Overloaded,
    #[error("the message could not be stored")]
    NotStored,
    #[error("the broker failed before it was known whether the message is stored")]
    OutcomeUnknown,
    #[error("{max} clients may listen on one connection")]
    Crowded { max: usize },
    #[error("Key 'filter': {0}")]
    Filter(#[from] FilterError),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Clients(#[from] TooManyClients),
}

fn shown(topic: &str) -> String {
    if topic.is_empty() {
        "all live topics".to_owned()
    } else {
        format!("the live topic {topic:?}")
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        Self::Query(problem.detail)
    }
}

impl Fault {
    /// Returns the kind of error, as one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotJson(_) | Self::Binary => "bad_message",
            Self::Missing(_)
            | Self::Value { .. }
            | Self::TooLong { .. }
            | Self::Both(..)
            | Self::Query(_)
            | Self::Filter(FilterError::Bad(_))
            | Self::NotListening => "bad_state",
            Self::Filter(FilterError::TooMany { .. }) => "too_many_filters",
            Self::Command => "bad_command",
            Self::Forbidden { .. } => "forbidden",
            Self::OverQuota { .. } => "over_quota",
            Self::Change(ChangeError::TooManySubscriptions { .. } | ChangeError::TooManyPatterns { .. }) => {
                "too_many_subscriptions"
            }
            Self::Change(ChangeError::TooManyClients(_)) | Self::Clients(_) | Self::Crowded { .. } => {
                "too_many_clients"
            }
            Self::Overloaded => "overloaded",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Change(change) if change.is_outcome_unknown() => "outcome_unknown",
            Self::Change(ChangeError::NotStored(_)) | Self::NotStored => "not_stored",
        }
    }

    /// Returns the error in words, for people.
    pub fn message(&self) -> &'static str {
        match self {
            Self::NotJson(_) | Self::Binary => "The message could not be read",
            Self::Missing(_)
            | Self::Value { .. }
            | Self::TooLong { .. }
            | Self::Both(..)
            | Self::Query(_)
            | Self::Filter(_)
            | Self::NotListening => "Error",
            Self::Command => "There is no such command",
            Self::Forbidden { .. } | Self::OverQuota { .. } => {
                "The command was refused, and nothing of it was done"
            }
            Self::Overloaded | Self::NotStored => "The message was refused, and nothing of it was stored",
            Self::OutcomeUnknown => "The message may be stored or not",
            Self::Change(change) if change.is_outcome_unknown() => "The change may be stored or not",
            Self::Crowded { .. } => "It does not listen here",
            Self::Change(_) | Self::Clients(_) => "The change was refused, and nothing of it was stored",
        }
    }
}
