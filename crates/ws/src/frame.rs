//! Frames (RFC 6455, section 5.2):
//!
//! ```text
//! ┌─────┬─────┬────────┬──────┬─────────┬────────────────────┬─────────┬─────────┐
//! │ FIN │ RSV │ opcode │ MASK │ length  │ length, if 126/127 │ mask    │ payload │
//! │ 1 b │ 3 b │ 4 bits │ 1 b  │ 7 bits  │ u16 or u64         │ 4 bytes │         │
//! └─────┴─────┴────────┴──────┴─────────┴────────────────────┴─────────┴─────────┘
//! ```
//!
//! Frames from a client are masked, frames from a server are not. A message may be fragmented, with control
//! frames in between. Control frames are never fragmented and have at most 125 bytes of payload.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of the longest head.
pub const HEAD_BYTES_MAX: usize = 14;
/// Bytes of the longest head without a mask.
const SENT_HEAD_BYTES_MAX: usize = 10;
const CONTROL_BYTES_MAX: u64 = 125;

/// Reasons why a connection cannot continue. Each has a close code (RFC 6455, section 7.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame uses bits that no extension was agreed on for")]
    Reserved,
    #[error("a frame has the unknown opcode {0}")]
    Opcode(u8),
    #[error("a frame of a client is not masked")]
    Unmasked,
    #[error("a control frame is too long or in fragments")]
    Control,
    #[error("a message begins before the one before it has ended, or goes on without having begun")]
    Fragment,
    #[error("a close frame has a payload that it cannot have")]
    Close,
    #[error("a message has more than {max} bytes")]
    TooLarge { max: usize },
    #[error("a text message is not UTF-8")]
    NotUtf8,
}

impl FrameError {
    pub fn close_code(self) -> u16 {
        match self {
            Self::Reserved
            | Self::Opcode(_)
            | Self::Unmasked
            | Self::Control
            | Self::Fragment
            | Self::Close => 1002,
            Self::NotUtf8 => 1007,
            Self::TooLarge { .. } => 1009,
        }
    }
}

/// Meaning of a frame; for the last fragment, that of the whole message.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    Text(&'a str),
    Binary(&'a [u8]),
    Ping(&'a [u8]),
    Pong,
    /// With the close code, if there is one.
    Close(Option<u16>),
    /// A fragment of a message that is not complete yet.
    Fragment,
}

/// Result of decoding the front of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// No complete frame yet: at least this many bytes are needed in all.
    Incomplete(usize),
    Frame {
        bytes: usize,
        event: Event<'a>,
    },
}

/// Text messages taken from the front of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub struct Texts<'a> {
    /// Bytes of the frames taken.
    pub bytes: usize,
    /// Bytes behind these frames.
    pub rest: &'a mut [u8],
    /// Error of the last frame taken, if it is invalid.
    pub error: Option<FrameError>,
}

/// Decodes frames.
#[derive(Debug)]
pub struct Decoder {
    message_bytes_max: usize,
    /// Message whose fragments are arriving; true if it is text.
    partial: Option<(bool, BytesMut)>,
    /// Last message assembled from fragments; the decoded event borrows it.
    whole: BytesMut,
}

/// First byte of the frame of an unfragmented text message.
pub const WHOLE_TEXT: u8 = 0x81;

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

struct Head {
    is_last: bool,
    opcode: u8,
    mask: [u8; 4],
    /// Range of the payload.
    start: usize,
    end: usize,
}

impl Decoder {
    pub fn new(message_bytes_max: usize) -> Self {
        Self {
            message_bytes_max,
            partial: None,
            whole: BytesMut::new(),
        }
    }

    /// Returns true if a fragmented message has begun and not ended.
    pub fn is_in_message(&self) -> bool {
        self.partial.is_some()
    }

    /// Returns the bytes kept of a fragmented message.
    pub fn held_bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, |(_, bytes)| bytes.len())
    }

    /// Returns the length of the frame at the front of `bytes`, or, while its head is incomplete, the bytes
    /// that the head needs. `None` if the head is invalid.
    pub fn frame_bytes(&self, bytes: &[u8]) -> Option<usize> {
        match self.head(bytes) {
            Ok(Ok(head)) => Some(head.end),
            Ok(Err(needed)) => Some(needed),
            Err(_) => None,
        }
    }

    /// Decodes the frame at the front of `bytes`. Unmasks the payload in place: call it once per frame.
    pub fn decode<'a>(&'a mut self, bytes: &'a mut [u8]) -> Result<Decoded<'a>, FrameError> {
        self.whole = BytesMut::new();
        let head = match self.head(bytes)? {
            Ok(head) => head,
            Err(needed) => return Ok(Decoded::Incomplete(needed)),
        };
        let Some(payload) = bytes.get_mut(head.start..head.end) else {
            return Ok(Decoded::Incomplete(head.end));
        };
        unmask(payload, head.mask);
        let event = match head.opcode {
            CLOSE => Event::Close(close_code(payload)?),
            PING => Event::Ping(payload),
            PONG => Event::Pong,
            _ => self.data(&head, payload)?,
        };
        Ok(Decoded::Frame {
            bytes: head.end,
            event,
        })
    }

    /// Takes up to `max` unfragmented text messages from the front of `bytes` and unmasks each in place.
    /// Stops at the first other or incomplete frame, which is left to [`Decoder::decode`].
    pub fn texts<'a>(&self, bytes: &'a mut [u8], max: usize, texts: &mut Vec<&'a str>) -> Texts<'a> {
        let mut taken = Texts {
            bytes: 0,
            rest: bytes,
            error: None,
        };
        while texts.len() < max {
            let Ok(Ok(head)) = self.head(taken.rest) else {
                break;
            };
            if head.opcode != TEXT || !head.is_last || taken.rest.len() < head.end {
                break;
            }
            let (frame, rest) = std::mem::take(&mut taken.rest).split_at_mut(head.end);
            taken.rest = rest;
            taken.bytes += head.end;
            let payload = frame.get_mut(head.start..).unwrap_or_default();
            unmask(payload, head.mask);
            let Ok(text) = std::str::from_utf8(payload) else {
                taken.error = Some(FrameError::NotUtf8);
                break;
            };
            texts.push(text);
        }
        taken
    }

    fn data<'a>(&'a mut self, head: &Head, payload: &'a [u8]) -> Result<Event<'a>, FrameError> {
        if head.opcode != 0 {
            if head.is_last {
                return message(head.opcode == TEXT, payload);
            }
            self.partial = Some((head.opcode == TEXT, payload.into()));
            return Ok(Event::Fragment);
        }
        let Some((is_text, whole)) = &mut self.partial else {
            return Err(FrameError::Fragment);
        };
        if !head.is_last {
            whole.extend_from_slice(payload);
            return Ok(Event::Fragment);
        }
        let is_text = *is_text;
        whole.extend_from_slice(payload);
        self.whole = self.partial.take().map(|(_, whole)| whole).unwrap_or_default();
        message(is_text, &self.whole)
    }

    /// Reads the head at the front of `bytes`. `Ok(Err(needed))` if it needs `needed` bytes.
    fn head(&self, bytes: &[u8]) -> Result<Result<Head, usize>, FrameError> {
        let &[first, second, ref rest @ ..] = bytes else {
            return Ok(Err(2));
        };
        if first & 0x70 != 0 {
            return Err(FrameError::Reserved);
        }
        let (is_last, opcode) = (first & 0x80 != 0, first & 0x0f);
        let is_control = opcode >= CLOSE;
        match opcode {
            0 if self.partial.is_none() => return Err(FrameError::Fragment),
            TEXT | BINARY if self.partial.is_some() => return Err(FrameError::Fragment),
            0 | TEXT | BINARY | CLOSE | PING | PONG => {}
            unknown => return Err(FrameError::Opcode(unknown)),
        }
        if second & 0x80 == 0 {
            return Err(FrameError::Unmasked);
        }
        let (length, rest, head_bytes) = match second & 0x7f {
            126 => match rest.split_first_chunk() {
                Some((length, rest)) => (u64::from(u16::from_be_bytes(*length)), rest, 8),
                None => return Ok(Err(8)),
            },
            127 => match rest.split_first_chunk() {
                Some((length, rest)) => (u64::from_be_bytes(*length), rest, HEAD_BYTES_MAX),
                None => return Ok(Err(HEAD_BYTES_MAX)),
            },
            length => (u64::from(length), rest, 6),
        };
        if is_control && (length > CONTROL_BYTES_MAX || !is_last) {
            return Err(FrameError::Control);
        }
        let max = self.message_bytes_max;
        let left = max.saturating_sub(self.held_bytes());
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if !is_control && length > left {
            return Err(FrameError::TooLarge { max });
        }
        let Some(mask) = rest.first_chunk() else {
            return Ok(Err(head_bytes));
        };
        Ok(Ok(Head {
            is_last,
            opcode,
            mask: *mask,
            start: head_bytes,
            end: head_bytes + length,
        }))
    }
}

fn message(is_text: bool, payload: &[u8]) -> Result<Event<'_>, FrameError> {
    if is_text {
        let text = std::str::from_utf8(payload).map_err(|_| FrameError::NotUtf8)?;
        Ok(Event::Text(text))
    } else {
        Ok(Event::Binary(payload))
    }
}

fn close_code(payload: &[u8]) -> Result<Option<u16>, FrameError> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return if payload.is_empty() {
            Ok(None)
        } else {
            Err(FrameError::Close)
        };
    };
    let code = u16::from_be_bytes(*code);
    let may_be_sent = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
    if !may_be_sent {
        return Err(FrameError::Close);
    }
    std::str::from_utf8(reason).map_err(|_| FrameError::NotUtf8)?;
    Ok(Some(code))
}

fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    let wide = u32::from_ne_bytes(mask);
    let wide = (u64::from(wide) << 32) | u64::from(wide);
    let (words, rest) = payload.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// Builds the frame of a message, without a mask.
pub fn message_frame(is_text: bool, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEAD_BYTES_MAX + payload.len());
    put_head(if is_text { TEXT } else { BINARY }, payload.len(), &mut frame);
    frame.extend_from_slice(payload);
    frame.freeze()
}

/// Builds the frame of a text message, without a mask. `put` appends the payload, of about `bytes` bytes, to
/// the buffer.
pub fn text_frame(bytes: usize, put: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    // The length of the head depends on that of the payload: the head is written last, directly in front of
    // the payload.
    let mut frame = Vec::with_capacity(SENT_HEAD_BYTES_MAX + bytes);
    frame.resize(SENT_HEAD_BYTES_MAX, 0);
    put(&mut frame);
    let length = frame.len() - SENT_HEAD_BYTES_MAX;
    let start = match length {
        0..126 => 8,
        126..0x1_0000 => 6,
        _ => 0,
    };
    if let Some(mut head) = frame.get_mut(start..SENT_HEAD_BYTES_MAX) {
        put_head(TEXT, length, &mut head);
    }
    Bytes::from(frame).slice(start..)
}

/// Appends the frame of a text message to `out`.
pub fn put_text(payload: &[u8], out: &mut BytesMut) {
    put_head(TEXT, payload.len(), out);
    out.extend_from_slice(payload);
}

/// Appends the frame of a binary message to `out`.
pub fn put_binary(payload: &[u8], out: &mut BytesMut) {
    put_head(BINARY, payload.len(), out);
    out.extend_from_slice(payload);
}

pub fn put_ping(out: &mut BytesMut) {
    put_head(PING, 0, out);
}

/// Appends the answer to a ping, whose payload has at most 125 bytes.
pub fn put_pong(payload: &[u8], out: &mut BytesMut) {
    put_head(PONG, payload.len(), out);
    out.extend_from_slice(payload);
}

/// Bytes of the reason in a close frame, at most (RFC 6455, section 5.5.1).
const REASON_BYTES_MAX: usize = 123;

/// Appends a close frame: a code, and a reason, cut to [`REASON_BYTES_MAX`].
pub fn put_close(code: u16, reason: &str, out: &mut BytesMut) {
    let (reason, _) = reason.split_at(reason.floor_char_boundary(REASON_BYTES_MAX));
    put_head(CLOSE, 2 + reason.len(), out);
    out.put_u16(code);
    out.extend_from_slice(reason.as_bytes());
}

fn put_head(opcode: u8, length: usize, out: &mut impl BufMut) {
    out.put_u8(0x80 | opcode);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..126), _) => out.put_u8(short),
        (_, Ok(length)) => {
            out.put_u8(126);
            out.put_u16(length);
        }
        _ => {
            out.put_u8(127);
            out.put_u64(length as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encodes a frame as a client sends it.
    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut head = BytesMut::new();
        put_head(0, payload.len(), &mut head);
        head[0] = first;
        head[1] |= 0x80;
        let mask = [0x11, 0x22, 0xf3, 0x44];
        head.extend_from_slice(&mask);
        let body = payload
            .iter()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask);
        head.extend(body);
        head.to_vec()
    }

    fn refused(mut bytes: Vec<u8>) -> FrameError {
        Decoder::new(1000).decode(&mut bytes).unwrap_err()
    }

    #[test]
    fn a_long_reason_of_a_close_is_cut_between_characters() {
        for (reason, kept) in [
            ("a".repeat(200), 123),
            ("é".repeat(100), 122),
            ("short".into(), 5),
        ] {
            let mut out = BytesMut::new();
            put_close(1000, &reason, &mut out);
            assert_eq!(&out[4..], &reason.as_bytes()[..kept]);
        }
    }

    #[test]
    fn what_breaks_the_rules_is_refused_with_its_code() {
        for (bytes, code) in [
            (masked(0xc1, b""), 1002),
            (masked(0x83, b""), 1002),
            (vec![0x81, 0x01, b'x'], 1002),
            (masked(0x09, b""), 1002),
            (masked(0x89, &[0; 126]), 1002),
            (masked(0x80, b""), 1002),
            (masked(0x88, b"x"), 1002),
            (masked(0x88, &1005_u16.to_be_bytes()), 1002),
            (masked(0x81, &[0xff]), 1007),
            (masked(0x81, &[b'x'; 1001]), 1009),
        ] {
            assert_eq!(refused(bytes.clone()).close_code(), code, "{bytes:?}");
        }
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused_before_the_payload_comes() {
        let bytes = vec![0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(refused(bytes), FrameError::TooLarge { max: 1000 });
    }

    #[test]
    fn control_frames_may_come_between_fragments_and_their_sum_is_bounded() {
        let mut decoder = Decoder::new(1000);
        let mut next = |first, payload: &[u8]| {
            let mut bytes = masked(first, payload);
            match decoder.decode(&mut bytes)? {
                Decoded::Frame { event, .. } => Ok(format!("{event:?}")),
                Decoded::Incomplete(_) => panic!("it is whole"),
            }
        };
        assert_eq!(next(0x01, b"a").unwrap(), "Fragment");
        assert_eq!(next(0x89, b"p").unwrap(), "Ping([112])");
        assert_eq!(next(0x00, b"b").unwrap(), "Fragment");
        assert_eq!(next(0x80, b"c").unwrap(), r#"Text("abc")"#);
        assert_eq!(next(0x02, &[1; 600]).unwrap(), "Fragment");
        assert_eq!(next(0x80, &[1; 401]), Err(FrameError::TooLarge { max: 1000 }));
    }

    #[test]
    fn texts_are_taken_up_to_what_is_none() {
        let decoder = Decoder::new(1000);
        let one = masked(0x81, b"one");
        let fragment = masked(0x01, b"a");
        for behind in [&fragment[..], &masked(0x89, b"p"), &one[..5], b"", &[0xff, 0xff]] {
            let mut bytes = [&one, &masked(0x81, "é".as_bytes()), behind].concat();
            let mut texts = Vec::new();
            let taken = decoder.texts(&mut bytes, 10, &mut texts);
            assert_eq!((taken.bytes, taken.error), (one.len() * 2 - 1, None));
            assert_eq!(&*taken.rest, behind, "the rest is as it came");
            assert_eq!(texts, ["one", "é"]);
        }
        let mut bytes = [one.clone(), one.clone()].concat();
        assert_eq!(decoder.texts(&mut bytes, 1, &mut Vec::new()).bytes, one.len());
        let mut bytes = [one, masked(0x81, &[0xff])].concat();
        let mut texts = Vec::new();
        let taken = decoder.texts(&mut bytes, 10, &mut texts);
        assert_eq!(taken.error, Some(FrameError::NotUtf8));
        assert_eq!(texts, ["one"]);
    }

    #[test]
    fn a_frame_is_the_same_whether_its_length_was_known_before() {
        for length in [0, 1, 125, 126, 65_535, 65_536] {
            let payload = vec![b'x'; length];
            let expected = message_frame(true, &payload);
            let frame = text_frame(3, |out| out.extend_from_slice(&payload));
            assert!(frame == expected, "{length}");
        }
    }

    proptest! {
        #[test]
        fn a_message_comes_out_as_it_went_in_however_it_is_cut(
            text in ".{0,300}",
            cuts in proptest::collection::vec(0..600_usize, 0..5),
        ) {
            let bytes = masked(0x81, text.as_bytes());
            let mut decoder = Decoder::new(10_000);
            for cut in cuts.into_iter().filter(|cut| *cut < bytes.len()) {
                let mut part = bytes[..cut].to_vec();
                let Decoded::Incomplete(needed) = decoder.decode(&mut part).unwrap() else {
                    panic!("it is cut");
                };
                prop_assert!(needed > cut && needed <= bytes.len());
            }
            let mut all = [&bytes[..], b"next"].concat();
            let expected = Decoded::Frame { bytes: bytes.len(), event: Event::Text(&text) };
            prop_assert_eq!(decoder.decode(&mut all).unwrap(), expected);
        }

        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut decoder = Decoder::new(200);
            let mut rest = bytes.as_mut_slice();
            while let Ok(Decoded::Frame { bytes, .. }) = decoder.decode(rest) {
                rest = &mut rest[bytes..];
            }
        }
    }
}
