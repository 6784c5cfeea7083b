//! The lab's own bytes at the front of a message, all big-endian:
//!
//! ```text
//!  0  u32 stream     its sender
//!  4  u32 reply      destination of the answer; 0: none
//!  8  u64 sequence   number within the stream
//! 16  u64 intended   intended moment of sending, in nanoseconds since the load began
//! ```

/// Bytes of the lab's own; a message is never smaller.
pub const HEADER_BYTES: usize = 24;

/// A message that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Message {
    pub stream: u32,
    pub reply: u32,
    pub sequence: u64,
    /// Nanoseconds since the load began.
    pub intended: u64,
    /// Destination, by its place.
    pub topic: u32,
    /// Bytes in all.
    pub size: u32,
    /// Of a message of a queue.
    pub priority: u8,
}

/// A message that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Received {
    pub stream: u32,
    pub reply: u32,
    pub sequence: u64,
    pub intended: u64,
    /// Bytes in all.
    pub size: u32,
}

impl Message {
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let parts = self
            .stream
            .to_be_bytes()
            .into_iter()
            .chain(self.reply.to_be_bytes())
            .chain(self.sequence.to_be_bytes())
            .chain(self.intended.to_be_bytes());
        for (slot, byte) in bytes.iter_mut().zip(parts) {
            *slot = byte;
        }
        bytes
    }
}

impl Received {
    /// Reads the front of a message; `None` if it is none of the lab's.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (stream, rest) = bytes.split_first_chunk()?;
        let (reply, rest) = rest.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let intended = rest.first_chunk()?;
        Some(Self {
            stream: u32::from_be_bytes(*stream),
            reply: u32::from_be_bytes(*reply),
            sequence: u64::from_be_bytes(*sequence),
            intended: u64::from_be_bytes(*intended),
            size: u32::try_from(bytes.len()).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_as_written() {
        let message = Message {
            stream: 7,
            reply: 8,
            sequence: 1 << 40,
            intended: 3,
            topic: 1,
            size: 100,
            priority: 0,
        };
        let mut bytes = message.header().to_vec();
        bytes.resize(100, b'x');
        let read = Received::read(&bytes).unwrap();
        assert_eq!((read.stream, read.reply, read.sequence), (7, 8, 1 << 40));
        assert_eq!((read.intended, read.size), (3, 100));
        assert_eq!(Received::read(&bytes[..HEADER_BYTES - 1]), None);
    }
}
