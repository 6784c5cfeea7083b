//! Frames with a length before them:
//!
//! ```text
//! ┌──────────────────────┬─────────────────┐
//! │ length: i32, big end │ payload         │  payload has exactly `length` bytes
//! └──────────────────────┴─────────────────┘
//! ```
//!
//! - [`reader`]: takes frames out of a stream, within limits of bytes and time
//! - `scratch`: the read buffers, of which there is one per thread and none per connection

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

/// Bytes of the length before each frame.
pub const HEADER_BYTES: usize = 4;

/// One frame.
#[derive(Debug)]
pub struct Frame {
    /// Without the length. Small frames that arrived together are slices of one buffer, which lives as long
    /// as any of them: whoever keeps a small piece for long copies it.
    pub payload: Bytes,
    /// What the frame takes of the budget. Keep it as long as the request is worked on.
    pub permit: Permit,
}

/// What a reader accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLimits {
    /// The shortest payload that means anything.
    pub frame_bytes_min: u32,
    /// The longest payload. At most `i32::MAX` is meaningful.
    pub frame_bytes_max: u32,
    /// How many frames are returned together at most.
    pub frames_max: usize,
    /// A connection on which no frame begins for as long is closed.
    pub idle_timeout: Duration,
    /// How long a frame may take from its first byte to its last.
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

/// What came of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// At least one frame was added.
    Frames,
    /// The peer has ended its side, after a whole frame.
    Closed,
    /// The process drains: nothing more is read.
    Draining,
}

/// Why a connection cannot be read any further. Each of these ends the connection.
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
    /// One word of a fixed set, for metrics.
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
