//! Client end of a WebSocket (RFC 6455): text messages both ways.

use crate::wire::Socket;

const REQUEST: &[u8] =
    b"GET /live HTTP/1.1\r\nHost: 127.0.0.1:7070\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;
/// Length code: the length follows in two bytes.
const TWO_BYTES: u8 = 0x7e;
const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

#[derive(Debug, Clone)]
pub(super) struct WebSocket {
    socket: Socket,
    is_open: bool,
    /// Bytes to send once it is open.
    later: Vec<u8>,
    is_closed: bool,
}

impl WebSocket {
    pub(super) fn open(mut socket: Socket) -> Self {
        socket.send(REQUEST);
        Self {
            socket,
            is_open: false,
            later: Vec::new(),
            is_closed: false,
        }
    }

    pub(super) fn send(&mut self, text: &[u8]) {
        self.send_frame(TEXT, text);
    }

    fn send_frame(&mut self, kind: u8, payload: &[u8]) {
        let mut frame = vec![FINAL | kind];
        if let Ok(short @ 0..126) = u8::try_from(payload.len()) {
            frame.push(MASKED | short);
        } else {
            frame.push(MASKED | TWO_BYTES);
            frame.extend(u16::try_from(payload.len()).unwrap_or(u16::MAX).to_be_bytes());
        }
        // A mask of zeros leaves the payload unchanged.
        frame.extend([0; 4]);
        frame.extend(payload);
        if self.is_open {
            self.socket.send(&frame);
        } else {
            self.later.extend(frame);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_closed || !self.socket.is_open
    }

    /// Returns the next text message.
    pub(super) fn next(&mut self) -> Option<String> {
        self.socket.turn();
        if !self.is_open {
            let head = self.socket.input.windows(4).position(|end| end == b"\r\n\r\n")?;
            let head = self.socket.input.split_to(head + 4);
            if !head.starts_with(b"HTTP/1.1 101 ") {
                self.is_closed = true;
                return None;
            }
            self.is_open = true;
            let later = std::mem::take(&mut self.later);
            self.socket.send(&later);
        }
        loop {
            let (kind, payload) = self.frame()?;
            match kind & 0x0f {
                TEXT => return Some(String::from_utf8_lossy(&payload).into_owned()),
                PING => self.send_frame(PONG, &payload),
                CLOSE => self.is_closed = true,
                _ => {}
            }
        }
    }

    /// Returns the next frame if it is complete. Frames of a server are not masked.
    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let input = &mut self.socket.input;
        let (kind, length) = (*input.first()?, *input.get(1)? & 0x7f);
        let (head, length) = match length {
            126 => {
                let length = input.get(2..4)?.try_into().ok()?;
                (4, usize::from(u16::from_be_bytes(length)))
            }
            127 => {
                let length = input.get(2..10)?.try_into().ok()?;
                (10, usize::try_from(u64::from_be_bytes(length)).ok()?)
            }
            short => (2, usize::from(short)),
        };
        if input.len() < head + length {
            return None;
        }
        let frame = input.split_to(head + length);
        Some((kind, frame.get(head..)?.to_vec()))
    }
}
