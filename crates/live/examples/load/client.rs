//! One connection: commands out, messages in.

use std::io::ErrorKind;
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

/// Connections from one address of the loopback network.
const FROM_ONE_ADDRESS: usize = 20_000;
/// First port chosen by this program.
const FIRST_PORT: usize = 10_000;

/// Connects. Beyond what the ports of one address allow, the next address of the loopback network is used.
pub(crate) async fn connect(address: &str, index: usize) -> (Reader, Writer) {
    let address: SocketAddr = address.parse().expect("an address");
    let mut stream = if index >= FROM_ONE_ADDRESS && address.ip().is_loopback() && address.is_ipv4() {
        connect_from(address, index).await
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

/// Connects from another address than the first. The port is chosen here, because the system might choose one
/// that was just in use.
async fn connect_from(to: SocketAddr, index: usize) -> TcpStream {
    let last = 1 + u8::try_from(index / FROM_ONE_ADDRESS).expect("as many addresses as there are");
    for port in index % FROM_ONE_ADDRESS.. {
        let port = u16::try_from(FIRST_PORT + port).expect("a port that is free");
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        if socket.bind(SocketAddr::from(([127, 0, 0, last], port))).is_err() {
            continue;
        }
        match socket.connect(to).await {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {}
            connected => return connected.unwrap(),
        }
    }
    unreachable!("ports end")
}

/// Encodes a text frame with a mask of zeros.
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
    /// Appends a message to the bytes to be written.
    pub(crate) fn put(&mut self, text: &str) {
        put_frame(text, &mut self.buffer);
    }

    /// Appends a pong, as a sign of life.
    pub(crate) fn put_pong(&mut self) {
        self.buffer.extend_from_slice(&[0x8a, 0x80, 0, 0, 0, 0]);
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
    /// Visits the messages of the next read. False if the broker has closed the connection.
    pub(crate) async fn read(&mut self, mut visit: impl FnMut(&[u8])) -> bool {
        self.buffer.reserve(4096);
        if self.socket.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
            return false;
        }
        while let Some((start, end)) = frame(&self.buffer) {
            if self.buffer[0] == 0x81 {
                visit(&self.buffer[start..end]);
            }
            self.buffer.advance(end);
        }
        if self.buffer.is_empty() && self.buffer.capacity() > 1 << 20 {
            self.buffer = BytesMut::new();
        }
        true
    }

    /// Reads until `count` answers have arrived, and checks that they report success.
    pub(crate) async fn answers(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            let visit = |message: &[u8]| {
                if !message.starts_with(b"{\"key\"") {
                    assert!(
                        message.starts_with(b"{\"result\""),
                        "{}",
                        String::from_utf8_lossy(message)
                    );
                    left -= 1;
                }
            };
            assert!(self.read(visit).await, "the broker has ended the connection");
        }
    }
}

/// Returns the range of the first frame's payload. `None` if the frame is incomplete.
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
