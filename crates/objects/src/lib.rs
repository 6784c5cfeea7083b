//! Objects of an S3-compatible store, and the HTTP client below.
//!
//! - [`bucket`]: whole objects by name: put, got, listed, deleted
//! - [`remote`]: addresses, which of them may be reached, and connections
//! - [`secret`]: texts that stand in the environment or a file
//!
//! This crate knows nothing of the stored bytes.

pub mod bucket;
pub mod remote;
pub mod secret;

/// Reason why a request has no useful answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// Away, slow, or the outcome is unknown: another attempt may succeed.
    #[error("{0}")]
    Retry(String),
    /// Another attempt would fail as well, until settings or rights are other ones.
    #[error("{0}")]
    Stop(String),
}
