//! Errors in settings. Each message says where the value was given and what would be right.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::definition;

/// One error, in one sentence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("the settings in {} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{place}: this is not TOML: {message}")]
    NotToml { place: String, message: String },
    #[error("{place}: unknown setting {key}; the nearest known one is {nearest}")]
    UnknownKey {
        place: String,
        key: String,
        nearest: String,
    },
    #[error("unknown environment variable {name}; the nearest known one is {nearest}")]
    UnknownVariable { name: String, nearest: String },
    #[error("the environment variable {name} is not UTF-8")]
    NotUnicode { name: String },
    #[error("--set takes KEY=VALUE, not {given:?}")]
    NotAnAssignment { given: String },
    #[error("{place}: {key} takes one plain value, not {found}")]
    NotPlain {
        place: String,
        key: String,
        found: &'static str,
    },
    #[error("{place}: {key} cannot be {given:?}: {expected}")]
    Invalid {
        place: String,
        key: &'static str,
        given: String,
        expected: String,
    },
    #[error(
        "kafka.request_bytes_max ({request}) is more than a single request may take of request_memory_bytes ({max}): \
         lower the first or raise the second"
    )]
    RequestBeyondMemory { request: u64, max: u64 },
    #[error(
        "live.message_bytes_max ({message}) is more than a single request may take of request_memory_bytes ({max}): \
         lower the first or raise the second"
    )]
    LiveMessageBeyondMemory { message: u64, max: u64 },
    #[error(
        "kafka.message_bytes_max ({message}) is more than kafka.request_bytes_max ({request}): lower the first or \
         raise the second"
    )]
    MessageBeyondRequest { message: u64, request: u64 },
    #[error(
        "groups.session_ms_min ({min:?}) is more than groups.session_ms_max ({max:?}): lower the first or raise the \
         second"
    )]
    SessionTimes { min: Duration, max: Duration },
    #[error(
        "groups.consumer_heartbeat_ms ({heartbeat:?}) is not less than groups.consumer_session_ms ({session:?}): lower \
         the first or raise the second"
    )]
    HeartbeatBeyondSession { heartbeat: Duration, session: Duration },
    #[error("{key} = {address} is no address to listen on: {reason}")]
    Unresolved {
        key: &'static str,
        address: String,
        reason: String,
    },
    #[error(
        "{key} = {address} can be reached from other machines, and nobody has to authenticate there: listen on a \
         loopback address such as 127.0.0.1, set require_login = true and make users from this machine (stafett user \
         add), or set allow_unauthenticated = true if it is meant to be open"
    )]
    Unauthenticated { key: &'static str, address: String },
    #[error("{given} is set, and {missing} is not: a certificate and its key belong together")]
    HalfPair {
        given: &'static str,
        missing: &'static str,
    },
    #[error(
        "tls.clients asks for client certificates, and tls.client_ca does not say which authorities are trusted"
    )]
    NoClientAuthority,
    #[error("{key} is true, and there is no certificate: set tls.certificate and tls.key")]
    NoCertificate { key: &'static str },
    #[error(
        "neither http.listen nor http.tls_listen (with a certificate) is set: the node could not be reached"
    )]
    NoHttp,
    #[error(
        "cluster.listen = {address} can be reached from other machines, and cluster.secret does not say by which secret \
         nodes know each other: give all nodes the same, such as file:/etc/stafett/cluster-secret"
    )]
    NoClusterSecret { address: String },
    #[error(transparent)]
    Tls(#[from] stafett_net::TlsError),
}

impl ConfigError {
    /// Creates the error for an unknown key, with the most similar known one.
    pub(super) fn unknown_key(place: String, key: &str) -> Self {
        Self::UnknownKey {
            place,
            key: key.to_owned(),
            nearest: definition::nearest_key(key),
        }
    }
}
