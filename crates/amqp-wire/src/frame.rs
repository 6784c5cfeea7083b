//! Frames.
//!
//! ```text
//! 0      1         3         7                 7 + size
//! +------+---------+---------+-----------------+------+
//! | kind | channel |  size   |     payload     | 0xCE |
//! +------+---------+---------+-----------------+------+
//! ```
//!
//! Sources: AMQP 0-9-1 specification, sections 2.3 and 4.2.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes of a frame without its payload.
pub const FRAME_OVERHEAD: usize = 8;
const HEAD_BYTES: usize = 7;
/// The last byte of every frame.
pub const FRAME_END: u8 = 0xCE;
/// Smallest `frame_max` that a peer may ask for.
pub const FRAME_MAX_MIN: u32 = 4096;

/// First bytes from a client: the protocol and its version.
pub const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\0\0\x09\x01";
/// Accepted headers: 0-9-1, and those of AMQP 0-9 and 0-8, which RabbitMQ accepts as well.
const PROTOCOL_HEADERS_ACCEPTED: [[u8; 8]; 3] =
    [PROTOCOL_HEADER, *b"AMQP\x01\x01\0\x09", *b"AMQP\x01\x01\x08\0"];

/// Kind of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    Method = 1,
    Header = 2,
    Body = 3,
    Heartbeat = 8,
}

impl FrameKind {
    #[must_use]
    pub fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Method),
            2 => Some(Self::Header),
            3 => Some(Self::Body),
            8 => Some(Self::Heartbeat),
            _ => None,
        }
    }
}

/// One frame, without the bytes around its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// As received. An unknown kind is an error that depends on the state of the connection.
    pub kind: u8,
    pub channel: u16,
    pub payload: Bytes,
}

impl Frame {
    /// Writes the head of a frame whose payload is sent from its own buffer.
    pub fn put_head(out: &mut BytesMut, kind: FrameKind, channel: u16, size: usize) {
        out.put_u8(kind as u8);
        out.put_u16(channel);
        out.put_u32(u32::try_from(size).unwrap_or(u32::MAX));
    }

    /// Writes the end of such a frame.
    pub fn put_end(out: &mut BytesMut) {
        out.put_u8(FRAME_END);
    }
}

/// Reasons why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {size} bytes is larger than the {max} that were agreed on")]
    TooLarge {
        kind: u8,
        channel: u16,
        size: usize,
        max: usize,
    },
    #[error("a frame of kind {kind} ends with {found:#04x}")]
    BadEnd { kind: u8, channel: u16, found: u8 },
}

/// One frame, borrowed from the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRef<'a> {
    /// As received. An unknown kind is an error that depends on the state of the connection.
    pub kind: u8,
    pub channel: u16,
    pub payload: &'a [u8],
}

impl FrameRef<'_> {
    /// Returns the length of the frame, payload included.
    #[must_use]
    pub fn whole_bytes(&self) -> usize {
        self.payload.len() + FRAME_OVERHEAD
    }
}

/// Returns the first frame of `buffer`. `None` if it is incomplete. `frame_max` limits the whole frame; 0
/// means no limit.
///
/// A frame that is too large is refused as soon as its head has arrived.
///
/// # Errors
/// After an error, the bytes that follow cannot be decoded.
pub fn first(buffer: &[u8], frame_max: u32) -> Result<Option<FrameRef<'_>>, FrameError> {
    let Some((&[kind, channel_high, channel_low, s0, s1, s2, s3], behind)) =
        buffer.split_first_chunk::<HEAD_BYTES>()
    else {
        return Ok(None);
    };
    let channel = u16::from_be_bytes([channel_high, channel_low]);
    let size = usize::try_from(u32::from_be_bytes([s0, s1, s2, s3])).unwrap_or(usize::MAX);
    let max = usize::try_from(frame_max).unwrap_or(usize::MAX);
    if max != 0 && size > max - FRAME_OVERHEAD.min(max) {
        let max = max - FRAME_OVERHEAD.min(max);
        return Err(FrameError::TooLarge {
            kind,
            channel,
            size,
            max,
        });
    }
    let Some((payload, &[end, ..])) = behind.split_at_checked(size) else {
        return Ok(None);
    };
    if end != FRAME_END {
        return Err(FrameError::BadEnd {
            kind,
            channel,
            found: end,
        });
    }
    Ok(Some(FrameRef {
        kind,
        channel,
        payload,
    }))
}

/// Removes the first frame from `buffer`. `None` if it is incomplete: see [`first`].
///
/// # Errors
/// After an error, the bytes that follow cannot be decoded.
pub fn split(buffer: &mut BytesMut, frame_max: u32) -> Result<Option<Frame>, FrameError> {
    let Some(found) = first(buffer, frame_max)? else {
        return Ok(None);
    };
    let (kind, channel, size) = (found.kind, found.channel, found.payload.len());
    // The payload alone holds a reference to the buffer.
    buffer.advance(HEAD_BYTES);
    let payload = buffer.split_to(size).freeze();
    buffer.advance(FRAME_OVERHEAD - HEAD_BYTES);
    Ok(Some(Frame {
        kind,
        channel,
        payload,
    }))
}

/// Returns the length of the frame at the front of `buffer`. `None` if its head is incomplete.
#[must_use]
pub fn announced(buffer: &[u8]) -> Option<usize> {
    let (&[_, _, _, s0, s1, s2, s3], _) = buffer.split_first_chunk::<HEAD_BYTES>()?;
    let size = usize::try_from(u32::from_be_bytes([s0, s1, s2, s3])).ok()?;
    size.checked_add(FRAME_OVERHEAD)
}

/// Returns the payload of the frame at the front of `buffer`, as far as it has arrived.
#[must_use]
pub fn payload_of(buffer: &[u8]) -> &[u8] {
    let end = announced(buffer).map_or(HEAD_BYTES, |bytes| bytes - 1);
    buffer.get(HEAD_BYTES..end.min(buffer.len())).unwrap_or_default()
}

/// Removes the protocol header and returns true if it is accepted. `None` if it is incomplete.
pub fn split_protocol_header(buffer: &mut BytesMut) -> Option<bool> {
    let header: [u8; 8] = *buffer.first_chunk::<8>()?;
    let _ = buffer.split_to(8);
    Some(PROTOCOL_HEADERS_ACCEPTED.contains(&header))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_there_once_its_last_byte_is() {
        let bytes = [1, 0, 5, 0, 0, 0, 3, b'a', b'b', b'c', 0xCE, 8];
        for length in 0..11 {
            let mut buffer = BytesMut::from(&bytes[..length]);
            assert_eq!(split(&mut buffer, 4096), Ok(None), "{length} bytes");
        }
        let mut buffer = BytesMut::from(&bytes[..]);
        let frame = split(&mut buffer, 4096).unwrap().unwrap();
        assert_eq!((frame.kind, frame.channel), (1, 5));
        assert_eq!(frame.payload, "abc");
        assert_eq!(&buffer[..], [8]);
    }

    #[test]
    fn a_frame_beyond_the_limit_is_refused_by_its_head() {
        let mut buffer = BytesMut::from(&[1, 0, 0, 0, 0, 0x10, 0][..]);
        let error = split(&mut buffer, 4096).unwrap_err();
        assert!(matches!(
            error,
            FrameError::TooLarge {
                size: 4096,
                max: 4088,
                ..
            }
        ));
        let mut buffer = BytesMut::from(&[1, 0, 0, 0, 0, 0x0f, 0xf8][..]);
        assert_eq!(
            split(&mut buffer, 4096),
            Ok(None),
            "4,088 bytes and 8 around them"
        );
    }

    #[test]
    fn a_frame_without_its_end_is_no_frame() {
        let mut buffer = BytesMut::from(&[3, 0, 1, 0, 0, 0, 1, b'a', 0xCD][..]);
        assert!(matches!(
            split(&mut buffer, 0),
            Err(FrameError::BadEnd { found: 0xCD, .. })
        ));
    }
}
