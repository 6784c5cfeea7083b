//! One connection: commands out, messages in.

use std::net::SocketAddr;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};

const HANDSHAKE: &str = "GET /live HTTP/1.1\r\nHost: load\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

pub(crate) struct Reader {
    socket: OwnedReadHalf,
    buffer: BytesMut,
}

pub(crate) struct Writer {
    pub(crate) socket: OwnedWriteHalf,
    buffer: BytesMut,
}

/// Connects. Beyond the ports of one address, the next address of the loopback network is used.
pub(crate) async fn connect(address: &str, index: usize) -> (Reader, Writer) {
    let address: SocketAddr = address.parse().expect("an address");
    let mut stream = if address.ip().is_loopback() && address.is_ipv4() {
        let socket = TcpSocket::new_v4().unwrap();
        let last = 1 + u8::try_from(index / 20_000).unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        socket.connect(address).await.unwrap()
    } else {
        TcpStream::connect(address).await.unwrap()
    };
    stream.set_nodelay(true).unwrap();
    stream.write_all(HANDSHAKE.as_bytes()).await.unwrap();
    let mut head = BytesMut::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = stream.read_u8().await.unwrap();
        head.extend_from_slice(&[byte]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{head:?}");
    let (reader, writer) = stream.into_split();
    (
        Reader {
            socket: reader,
            buffer: BytesMut::new(),
        },
        Writer {
            socket: writer,
            buffer: BytesMut::new(),
        },
    )
}

/// A text frame, under the mask of nothing but zeros.
pub(crate) fn put_frame(text: &str, out: &mut BytesMut) {
    out.extend_from_slice(&[0x81]);
    match text.len() {
        short @ 0..126 => out.extend_from_slice(&[0x80 | short as u8]),
        medium @ 126..0x1_0000 => {
            out.extend_from_slice(&[0xfe]);
            out.extend_from_slice(&(medium as u16).to_be_bytes());
        }
        long => {
            out.extend_from_slice(&[0xff]);
            out.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(text.as_bytes());
}

impl Writer {
    /// Puts a message behind what waits to be written.
    pub(crate) fn put(&mut self, text: &str) {
        put_frame(text, &mut self.buffer);
    }

    pub(crate) fn waiting(&self) -> usize {
        self.buffer.len()
    }

    pub(crate) async fn flush(&mut self) {
        self.socket.write_all(&self.buffer).await.unwrap();
        self.buffer.clear();
    }
}

impl Reader {
    /// Visits the messages that come with the next read.
    pub(crate) async fn read(&mut self, mut visit: impl FnMut(&[u8])) {
        self.buffer.reserve(4096);
        let count = self.socket.read_buf(&mut self.buffer).await.unwrap();
        assert!(count > 0, "the broker ended the connection");
        while let Some((start, end)) = frame(&self.buffer) {
            if self.buffer[0] == 0x81 {
                visit(&self.buffer[start..end]);
            }
            self.buffer.advance(end);
        }
        if self.buffer.is_empty() && self.buffer.capacity() > 1 << 20 {
            self.buffer = BytesMut::new();
        }
    }

    /// Reads until `count` answers have come, and checks that they say success.
    pub(crate) async fn answers(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            self.read(|message| {
                if !message.starts_with(b"{\"key\"") {
                    assert!(
                        message.starts_with(b"{\"result\""),
                        "{}",
                        String::from_utf8_lossy(message)
                    );
                    left -= 1;
                }
            })
            .await;
        }
    }
}

/// Where the payload of the first frame begins and ends, if all of it is there.
fn frame(bytes: &[u8]) -> Option<(usize, usize)> {
    let (start, length) = match *bytes.get(1)? {
        126 => (
            4,
            usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)),
        ),
        127 => (
            10,
            u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?) as usize,
        ),
        short => (2, usize::from(short)),
    };
    (bytes.len() >= start + length).then_some((start, start + length))
}
