//! Errors of reading and writing messages.

use crate::generated::api_key::ApiKey;

/// Reason why a frame was not understood. `at` is the offset of the faulty length, count or value, counted
/// from the first byte behind the frame's length prefix.
///
/// All of these are the sender's fault, and a retry of the same bytes is of no use. After one of them the
/// connection still stands at a frame boundary. [`DecodeError::UnsupportedVersion`] can be answered; the
/// others end the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("at byte {at}: {wanted} more bytes are needed, {left} are left")]
    Truncated { at: usize, wanted: usize, left: usize },
    #[error("at byte {at}: {length} is not a length")]
    Length { at: usize, length: i64 },
    #[error("at byte {at}: {count} elements need more than the {left} bytes that are left")]
    Count { at: usize, count: i64, left: usize },
    #[error("at byte {at}: null is not allowed here")]
    Null { at: usize },
    #[error("at byte {at}: the string is not UTF-8")]
    Utf8 { at: usize },
    #[error("at byte {at}: a variable-length integer does not fit 32 bits")]
    Varint { at: usize },
    #[error("at byte {at}: tagged field {tag} ends {left} bytes before its stated length")]
    Tag { at: usize, tag: u32, left: usize },
    #[error("at byte {at}: {left} bytes follow the end of the message")]
    Trailing { at: usize, left: usize },
    #[error("at byte {at}: the message takes more memory than its budget of {budget} bytes")]
    Budget { at: usize, budget: usize },
    #[error("no API has the key {key}")]
    UnknownApi { key: i16 },
    #[error("{api:?} has no version {version}")]
    UnsupportedVersion { api: ApiKey, version: i16 },
    #[error("the data has no version {version}")]
    UnsupportedData { version: i16 },
}

/// Reason why a message was not written. These are mistakes of our own code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    #[error("{field} is set, but version {version} of the message does not have it")]
    Unsupported { field: &'static str, version: i16 },
    #[error("{field} is null, which version {version} of the message does not allow")]
    Null { field: &'static str, version: i16 },
    #[error("{bytes} bytes or elements are too long for the protocol")]
    TooLong { bytes: usize },
    #[error("{message} has no version {version}")]
    Version { message: &'static str, version: i16 },
}
