//! Frames with a length prefix:
//!
//! ```text
//! ┌──────────────────────┬─────────────────┐
//! │ length: i32, big end │ payload         │  payload has exactly `length` bytes
//! └──────────────────────┴─────────────────┘
//! ```
//!
//! - [`reader`]: reads frames from a stream, within limits of bytes and time
//! - `scratch`: the read buffers, one per thread and none per connection

pub mod reader;
mod scratch;
#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use bytes::Bytes;

use crate::budget::{BudgetError, Permit};
use crate::pace::Pace;

pub use reader::FrameReader;

/// Bytes of the length prefix of each frame.
pub const HEADER_BYTES: usize = 4;

/// One frame.
#[derive(Debug)]
pub struct Frame {
    /// Without the length prefix. Small frames that arrived together are slices of one buffer, which lives as
    /// long as any of them: copy a small piece that is kept for long.
    pub payload: Bytes,
    /// The frame's share of the budget. Keep it until the request is done.
    pub permit: Permit,
}

/// Limits of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLimits {
    /// Shortest valid payload.
    pub frame_bytes_min: u32,
    /// Longest payload accepted, at most `i32::MAX`.
    pub frame_bytes_max: u32,
    /// Maximum number of frames returned together.
    pub frames_max: usize,
    /// A connection on which no frame begins for this long is closed.
    pub idle_timeout: Duration,
    /// Time limit of a frame, from its first byte to its last.
    pub pace: Pace,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self {
            frame_bytes_min: 1,
            frame_bytes_max: 100 * 1024 * 1024,
            frames_max: 256,
            idle_timeout: Duration::from_mins(10),
            pace: Pace {
                grace: Duration::from_secs(30),
                bytes_per_second_min: 64 * 1024,
            },
        }
    }
}

/// Outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// At least one frame was added.
    Frames,
    /// The peer has closed its side, after a whole frame.
    Closed,
    /// The process is draining: nothing more is read.
    Draining,
}

/// Reasons why a connection cannot be read any further. Each of them ends the connection.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("a frame announces {given} bytes; {min} to {max} are allowed")]
    Length { given: i32, min: u32, max: u32 },
    #[error("the peer ended the connection after {received} of {expected} bytes of a frame")]
    Truncated { received: usize, expected: usize },
    #[error("the peer sent {received} of {expected} bytes of a frame in {allowed:?}")]
    Slow {
        received: usize,
        expected: usize,
        allowed: Duration,
    },
    #[error(
        "the request made way: {received} of {expected} bytes came, next to nothing in the last {window:?}, while others \
         waited for memory"
    )]
    GaveWay {
        received: usize,
        expected: usize,
        window: Duration,
    },
    #[error("no request in {after:?}")]
    Idle { after: Duration },
    #[error(transparent)]
    Budget(#[from] BudgetError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl FrameError {
    /// Returns the error's label in metrics: one of a fixed set of words.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Length { .. } => "frame_length",
            Self::Truncated { .. } => "frame_truncated",
            Self::Slow { .. } => "frame_slow",
            Self::GaveWay { .. } => "gave_way",
            Self::Idle { .. } => "idle",
            Self::Budget(_) => "budget",
            Self::Io(_) => "read",
        }
    }
}
