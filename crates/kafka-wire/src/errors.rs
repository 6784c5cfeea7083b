//! Why bytes are not a message, and why a message cannot be bytes.

use crate::generated::api_key::ApiKey;

/// Why a frame was not understood. `at` is the offset, from the frame's first byte behind its length prefix,
/// of the length, count or value that is at fault.
///
/// All of these are the sender's fault, and a retry of the same bytes is of no use. After one of them the
/// connection still stands at a frame boundary; [`DecodeError::UnsupportedVersion`] can be answered, the
/// others end it.
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

/// Why a message was not written. These are our own caller's mistakes.
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
