//! One WebSocket: messages are sent ahead and come back to a consumer.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::http::make_queue;

/// Messages that are sent and have not come back, at most.
const AHEAD: u64 = 20_000;
/// Messages that are settled at once.
const SETTLED_TOGETHER: usize = 200;
/// Commands that are written at once.
const TOGETHER: u64 = 250;

const HANDSHAKE: &str = "GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Protocol: stafett.v1.json\r\n\r\n";

/// A WebSocket; frames have a mask of zeros.
pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
    read: usize,
}

impl Socket {
    pub(crate) async fn open(address: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(HANDSHAKE.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        assert!(
            head.starts_with(b"HTTP/1.1 101 "),
            "{}",
            String::from_utf8_lossy(&head)
        );
        Self {
            stream,
            received: Vec::with_capacity(1 << 20),
            read: 0,
        }
    }

    /// Returns the next message that has arrived whole.
    fn next(&mut self) -> Option<&[u8]> {
        let bytes = self.received.get(self.read..)?;
        let (head, length) = match bytes.get(1)? {
            126 => (
                4,
                usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?])),
            ),
            127 => (
                10,
                usize::try_from(u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?)).unwrap(),
            ),
            length => (2, usize::from(*length)),
        };
        let start = self.read + head;
        let message = self.received.get(start..start + length)?;
        self.read = start + length;
        Some(message)
    }
}

pub(crate) fn put_frame(text: &str, out: &mut Vec<u8>) {
    out.push(0x81);
    match text.len() {
        length @ 0..126 => out.push(0x80 | u8::try_from(length).unwrap()),
        length => {
            out.push(0x80 | 0x7e);
            out.extend_from_slice(&u16::try_from(length).expect("a short message").to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(text.as_bytes());
}

/// Sends and consumes on one connection, and prints the rates of both.
pub(crate) async fn run(address: &str, time: Duration, bytes: usize, durability: &str) {
    make_queue(address, "load", durability).await;
    let mut socket = Socket::open(address).await;
    let mut out = Vec::new();
    put_frame(r#"{"op":"consume","queue":"load","credit":5000}"#, &mut out);
    let content = "x".repeat(bytes);
    let mut counts = Counts::default();
    let mut ids: Vec<String> = Vec::new();
    let begun = Instant::now();
    let mut printed = Instant::now();
    while begun.elapsed() < time {
        while counts.sent - counts.delivered < AHEAD && out.len() < 64 << 10 {
            for _ in 0..TOGETHER {
                counts.sent += 1;
                let text = format!(
                    r#"{{"op":"send","id":{},"to":{{"queues":["load"]}},"content":"{content}"}}"#,
                    counts.sent
                );
                put_frame(&text, &mut out);
            }
        }
        let (mut reader, mut writer) = socket.stream.split();
        socket.received.drain(..std::mem::take(&mut socket.read));
        tokio::select! {
            written = writer.write(&out), if !out.is_empty() => drop(out.drain(..written.unwrap())),
            read = reader.read_buf(&mut socket.received) => assert!(read.unwrap() > 0, "the broker closed"),
        }
        while let Some(message) = socket.next() {
            counts.add(message, &mut ids);
        }
        for some in ids.chunks_exact(SETTLED_TOGETHER) {
            let text = format!(
                r#"{{"op":"settle","id":"s","consumer":1,"complete":["{}"]}}"#,
                some.join("\",\"")
            );
            put_frame(&text, &mut out);
        }
        ids.drain(..ids.len() / SETTLED_TOGETHER * SETTLED_TOGETHER);
        if printed.elapsed() > Duration::from_secs(1) {
            printed = Instant::now();
            counts.print(begun.elapsed());
        }
    }
    counts.print(begun.elapsed());
}

#[derive(Default)]
struct Counts {
    sent: u64,
    acknowledged: u64,
    delivered: u64,
}

impl Counts {
    fn add(&mut self, message: &[u8], ids: &mut Vec<String>) {
        if message.starts_with(b"{\"consumer\"") {
            self.delivered += 1;
            let text = std::str::from_utf8(message.get(..100).unwrap_or(message)).unwrap();
            let id = text.split("\"id\":\"").nth(1).unwrap().split('"').next().unwrap();
            ids.push(id.to_owned());
        } else if message.starts_with(b"{\"id\":\"s\"") {
            assert!(
                message.ends_with(b"\"unknown\":[]}}"),
                "{}",
                String::from_utf8_lossy(message)
            );
        } else {
            let text = std::str::from_utf8(message).unwrap();
            assert!(text.contains("\"ok\":"), "{text}");
            self.acknowledged += 1;
        }
    }

    fn print(&self, time: Duration) {
        let per_second = |count: u64| count as f64 / time.as_secs_f64();
        println!(
            "{:.1} s: acknowledged {:.0}/s, delivered {:.0}/s",
            time.as_secs_f64(),
            per_second(self.acknowledged),
            per_second(self.delivered)
        );
    }
}
