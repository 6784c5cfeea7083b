//! A WebSocket from the client's side (RFC 6455), as much of it as a load generator needs.
//!
//! Frames are sent under a mask of zeros: a mask keeps proxies from being fooled, and there is none here.
//! Incomplete frames are kept, so a wait can be dropped.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::{Buf as _, BufMut as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream, lookup_host};

use crate::drivers::DriverError;
use crate::experiment::LiveFormat;

/// The key of the RFC's example: it proves nothing.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const HEAD_BYTES_MAX: usize = 8 << 10;
const FRAME_BYTES_MAX: usize = 64 << 20;
const READ_BYTES: usize = 4 << 10;
/// The same while a long message comes.
const LONG_READ_BYTES: usize = 64 << 10;
/// A buffer that grew beyond this is given back when it is empty.
const KEPT_BYTES: usize = 1 << 20;
/// Connections from one address of the loopback network.
const PORTS_OF_AN_ADDRESS: u32 = 20_000;

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;
/// Beside a length.
const MASKED: u8 = 0x80;

/// A connection. Its messages are texts, or binary as MessagePack is.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    inbound: BytesMut,
    outbound: BytesMut,
    pub(super) format: LiveFormat,
}

/// Kind of a frame, and the place of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame {
    kind: u8,
    start: usize,
    end: usize,
}

impl Link {
    /// Connects to the path with the name of a subprotocol, unless that is empty. `number` is which
    /// connection of the load it is: loopback has more addresses than one has ports.
    pub(super) async fn open(
        address: &str,
        number: u32,
        (path, protocol): (&str, &str),
        format: LiveFormat,
    ) -> Result<Self, DriverError> {
        let failed = |error: std::io::Error| DriverError::Failed(format!("{address}: {error}"));
        let mut stream = connect(address, number).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let protocol = match protocol {
            "" => String::new(),
            name => format!("Sec-WebSocket-Protocol: {name}\r\n"),
        };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{protocol}\r\n"
        );
        stream.write_all(request.as_bytes()).await.map_err(failed)?;
        let mut inbound = BytesMut::new();
        let end = loop {
            if let Some(end) = head_end(&inbound) {
                break end;
            }
            let is_over = inbound.len() > HEAD_BYTES_MAX || {
                inbound.reserve(READ_BYTES);
                stream.read_buf(&mut inbound).await.map_err(failed)? == 0
            };
            if is_over {
                return Err(DriverError::Failed(format!("{address} does not speak HTTP")));
            }
        };
        let head = inbound.split_to(end);
        if !head.starts_with(b"HTTP/1.1 101 ") {
            let first = <[u8]>::split(&head, |byte| *byte == b'\r')
                .next()
                .unwrap_or_default();
            return Err(DriverError::Failed(format!(
                "{address} opens no WebSocket: {}",
                String::from_utf8_lossy(first)
            )));
        }
        Ok(Self {
            stream,
            inbound,
            outbound: BytesMut::new(),
            format,
        })
    }

    /// Adds a message to the output.
    pub(super) fn put(&mut self, message: &[u8]) {
        let kind = match self.format {
            LiveFormat::Json => TEXT,
            LiveFormat::Msgpack => BINARY,
        };
        put_frame(kind, message, &mut self.outbound);
    }

    /// Writes the output. Reads meanwhile, as a broker whose answers are not read takes no more. Safe to
    /// drop: written bytes are gone from the buffer.
    pub(super) async fn flush(&mut self) -> Result<(), DriverError> {
        while !self.outbound.is_empty() {
            let room = self.read_room();
            let (mut from, mut to) = self.stream.split();
            tokio::select! {
                biased;
                written = to.write_buf(&mut self.outbound) => {
                    written.map_err(|error| DriverError::Failed(error.to_string()))?;
                }
                read = read(&mut from, &mut self.inbound, room) => read?,
            }
        }
        if self.outbound.capacity() > KEPT_BYTES {
            self.outbound = BytesMut::new();
        }
        Ok(())
    }

    /// Visits the messages that are there, and waits for one where there is none. Answers pings. Safe to
    /// drop.
    pub(super) async fn read(&mut self, mut visit: impl FnMut(&[u8])) -> Result<(), DriverError> {
        loop {
            let mut has_come = false;
            while let Some(frame) = frame(&self.inbound)? {
                let content = self.inbound.get(frame.start..frame.end).unwrap_or_default();
                match frame.kind {
                    TEXT | BINARY => {
                        visit(content);
                        has_come = true;
                    }
                    PING => put_frame(PONG, content, &mut self.outbound),
                    CLOSE => return Err(DriverError::Failed(closed(content))),
                    _ => {}
                }
                self.inbound.advance(frame.end);
            }
            if has_come {
                return Ok(());
            }
            self.flush().await?;
            if self.inbound.is_empty() && self.inbound.capacity() > KEPT_BYTES {
                self.inbound = BytesMut::new();
            }
            let room = self.read_room();
            read(&mut self.stream, &mut self.inbound, room).await?;
        }
    }

    /// Returns the bytes to read at once.
    fn read_room(&self) -> usize {
        self.inbound.len().clamp(READ_BYTES, LONG_READ_BYTES)
    }
}

/// Reads the bytes that have come. Safe to drop.
async fn read(
    from: &mut (impl AsyncRead + Unpin),
    inbound: &mut BytesMut,
    room: usize,
) -> Result<(), DriverError> {
    inbound.reserve(room);
    match from.read_buf(inbound).await {
        Ok(0) => Err(DriverError::Failed("the broker ended the connection".to_owned())),
        Ok(_) => Ok(()),
        Err(error) => Err(DriverError::Failed(error.to_string())),
    }
}

pub(super) async fn connect(address: &str, number: u32) -> std::io::Result<TcpStream> {
    let found = lookup_host(address).await?.next();
    let to = found.ok_or_else(|| std::io::Error::other("the name has no address"))?;
    match to.ip() {
        IpAddr::V4(ip) if ip.is_loopback() && number >= PORTS_OF_AN_ADDRESS => {
            let last = 1 + u8::try_from(number / PORTS_OF_AN_ADDRESS % 250).unwrap_or(0);
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)))?;
            socket.connect(to).await
        }
        IpAddr::V4(_) | IpAddr::V6(_) => TcpStream::connect(to).await,
    }
}

pub(super) fn head_end(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(end + 4)
}

fn closed(content: &[u8]) -> String {
    let code = content
        .first_chunk()
        .map_or(1005, |code| u16::from_be_bytes(*code));
    let reason = String::from_utf8_lossy(content.get(2..).unwrap_or_default()).into_owned();
    format!("the broker closed the connection: {code} {reason}")
}

fn put_frame(kind: u8, content: &[u8], out: &mut BytesMut) {
    out.reserve(content.len() + 14);
    out.put_u8(kind);
    match (u8::try_from(content.len()), u16::try_from(content.len())) {
        (Ok(short @ 0..126), _) => out.put_u8(MASKED | short),
        (_, Ok(length)) => {
            out.put_u8(MASKED | 0x7e);
            out.put_u16(length);
        }
        _ => {
            out.put_u8(MASKED | 0x7f);
            out.put_u64(content.len() as u64);
        }
    }
    out.put_u32(0);
    out.extend_from_slice(content);
}

/// The frame at the front, if all of it is there.
fn frame(bytes: &[u8]) -> Result<Option<Frame>, DriverError> {
    let Some([kind, second]) = bytes.first_chunk().copied() else {
        return Ok(None);
    };
    if !matches!(kind, TEXT | BINARY | CLOSE | PING | PONG) || second & MASKED != 0 {
        return Err(DriverError::Failed(format!(
            "a frame came that a server does not send: {kind:#04x} {second:#04x}"
        )));
    }
    let rest = bytes.get(2..).unwrap_or_default();
    let (start, length) = match second {
        126 => match rest.first_chunk() {
            Some(length) => (4, u64::from(u16::from_be_bytes(*length))),
            None => return Ok(None),
        },
        127 => match rest.first_chunk() {
            Some(length) => (10, u64::from_be_bytes(*length)),
            None => return Ok(None),
        },
        short => (2, u64::from(short)),
    };
    match usize::try_from(length) {
        Ok(length) if length <= FRAME_BYTES_MAX => {
            let end = start + length;
            Ok((bytes.len() >= end).then_some(Frame { kind, start, end }))
        }
        _ => Err(DriverError::Failed(format!(
            "a frame of {length} bytes came, and {FRAME_BYTES_MAX} are the most"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_every_length_are_found_once_they_are_whole() {
        for length in [0_usize, 1, 125, 126, 65_535, 65_536] {
            let mut masked = BytesMut::new();
            put_frame(TEXT, &vec![b'x'; length], &mut masked);
            // A server's frame is the same without the mask.
            let head = masked.len() - length - 4;
            let mut bytes = masked[..head].to_vec();
            bytes[1] &= 0x7f;
            bytes.extend(vec![b'x'; length]);
            for cut in [0, 1, head, bytes.len() - 1] {
                if cut < bytes.len() {
                    assert_eq!(frame(&bytes[..cut]).unwrap(), None);
                }
            }
            bytes.extend_from_slice(b"next");
            let found = frame(&bytes).unwrap().unwrap();
            assert_eq!((found.kind, found.end - found.start), (TEXT, length));
        }
    }

    #[test]
    fn what_no_server_sends_is_an_error_and_takes_no_memory() {
        for bytes in [
            &[0x01, 0][..],
            &[0x81, 0x80, 0, 0, 0, 0],
            &[0xc1, 0],
            &[0x82, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert!(frame(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(
            closed(b"\x03\xf9slow"),
            "the broker closed the connection: 1017 slow"
        );
    }
}
