//! The WebSocket of the API against the real binary: kills, ends in mid-delivery, peers that do not read.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Folder, Running, connect, serve};

pub(crate) struct Socket {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Socket {
    fn open(address: SocketAddr) -> Self {
        Self::open_as(address, "x-login: none")
    }

    /// Opens a WebSocket with a header for the login.
    pub(crate) fn open_as(address: SocketAddr, login: &str) -> Self {
        Self::open_at(address, "/v1/ws", "stafett.v1.json", login)
    }

    /// Opens a WebSocket of live topics with a header for the login.
    pub(crate) fn live(address: SocketAddr, login: &str) -> Self {
        Self::open_at(address, "/live", "stafett.live.json", login)
    }

    fn open_at(address: SocketAddr, path: &str, protocol: &str, login: &str) -> Self {
        let (socket, head) = Self::ask_for(address, path, protocol, login);
        assert!(
            head.starts_with("http/1.1 101") && head.contains(protocol),
            "{head}"
        );
        socket
    }

    /// Returns the head of the answer to a client of live topics, in small letters.
    pub(crate) fn head_of_live(address: SocketAddr, login: &str) -> String {
        Self::ask_for(address, "/live", "stafett.live.json", login).1
    }

    fn ask_for(address: SocketAddr, path: &str, protocol: &str, login: &str) -> (Self, String) {
        let mut writer = connect(address);
        write!(
            writer,
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: {protocol}\r\n{login}\r\n\r\n"
        )
        .unwrap();
        let mut reader = BufReader::new(writer.try_clone().unwrap());
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            reader.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        (Self { reader, writer }, head)
    }

    /// Reads a message. `None` if the connection has ended.
    pub(crate) fn read(&mut self) -> Option<Value> {
        let mut head = [0; 2];
        self.reader.read_exact(&mut head).ok()?;
        let mut long = [0; 8];
        let length = match head[1] {
            126 => {
                self.reader.read_exact(&mut long[6..]).ok()?;
                u64::from_be_bytes(long)
            }
            127 => {
                self.reader.read_exact(&mut long).ok()?;
                u64::from_be_bytes(long)
            }
            length => length.into(),
        };
        let mut message = vec![0; usize::try_from(length).unwrap()];
        self.reader.read_exact(&mut message).ok()?;
        serde_json::from_slice(&message).ok()
    }

    pub(crate) fn ask(&mut self, command: &Value) -> Value {
        self.writer.write_all(&frame(command)).unwrap();
        self.read().unwrap()
    }
}

fn frame(command: &Value) -> Vec<u8> {
    let text = command.to_string();
    let mut frame = vec![0x81, 0xfe];
    frame.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    frame
}

fn ask(address: SocketAddr, request: &str) -> Value {
    ask_with(address, request, "")
}

fn ask_with(address: SocketAddr, request: &str, body: &str) -> Value {
    let mut stream = connect(address);
    let head = format!(
        "connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    write!(stream, "{request} HTTP/1.1\r\nhost: {address}\r\n{head}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

fn sends(count: usize) -> Vec<u8> {
    let sends =
        (0..count).map(|id| frame(&json!({"op": "send", "id": id, "to": {"queues": ["q"]}, "content": "x"})));
    sends.flatten().collect()
}

#[test]
fn acknowledged_messages_survive_a_kill_while_others_are_on_their_way() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    ask(http, "PUT /v1/queues/q");
    let mut socket = Socket::open(http);
    let mut writer = socket.writer.try_clone().unwrap();
    let writing = std::thread::spawn(move || drop(writer.write_all(&sends(20_000))));
    let mut acknowledged = 0;
    while let Some(answer) = socket.read() {
        assert_eq!(answer["id"], acknowledged, "in order");
        assert!(answer["ok"]["message_id"].is_string(), "{answer}");
        acknowledged += 1;
        if acknowledged == 700 {
            running.signal(Signal::KILL);
        }
    }
    drop(running.end());
    writing.join().unwrap();
    let running = Running::start(serve(&folder));
    let queue = ask(running.address("http"), "GET /v1/queues/q");
    assert!(
        queue["ready"].as_u64().unwrap() >= acknowledged,
        "{queue} {acknowledged}"
    );
}

#[test]
fn a_consumer_that_is_cut_off_in_mid_delivery_leaves_nothing_in_flight() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    ask(http, "PUT /v1/queues/q");
    let mut other = Socket::open(http);
    other.writer.write_all(&sends(3000)).unwrap();
    for _ in 0..3000 {
        other.read().unwrap();
    }
    for round in 0..5 {
        let mut socket = Socket::open(http);
        socket.ask(&json!({"op": "consume", "queue": "q", "credit": 1000}));
        for _ in 0..round * 100 {
            socket.read().unwrap();
        }
        drop(socket);
    }
    let begun = Instant::now();
    loop {
        let queue = ask(http, "GET /v1/queues/q");
        if queue["in_flight"] == 0 && queue["consumers"] == 0 {
            assert_eq!(queue["ready"], 3000);
            break;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "{queue}");
    }
}

#[test]
fn the_expiry_of_a_queue_is_an_event_and_events_are_watched() {
    // One word for the core and for listeners, which do not know each other.
    assert_eq!(stafett_model::EVENTS, stafett_net::EVENTS);
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    let mut socket = Socket::open(http);
    let watched = socket.ask(&json!({
        "op": "watch", "every_ms": 1000, "what": [{"list": "events", "query": "kind=queue.deleted"}],
    }));
    assert_eq!(watched["ok"]["watch"], 1, "{watched}");
    assert_eq!(socket.read().unwrap()["items"][0]["items"], json!([]));
    ask_with(http, "PUT /v1/queues/short", r#"{"expires_ms": 100}"#);
    let begun = Instant::now();
    let event = loop {
        let state = socket.read().unwrap();
        let first = &state["items"][0]["items"][0];
        if first.is_object() {
            break first.clone();
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "{state}");
    };
    assert_eq!(
        event["on"],
        json!({ "queue": "short", "namespace": "/" }),
        "{event}"
    );
    assert_eq!(event["by"], Value::Null, "{event}");
    assert!(
        event["text"]
            .as_str()
            .unwrap()
            .starts_with("expired with 0 messages"),
        "{event}"
    );
}

#[test]
fn a_peer_that_does_not_read_is_held_back_and_gets_all_answers_in_order() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let mut socket = Socket::open(running.address("http"));
    socket
        .writer
        .set_write_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let (mut written, mut left) = (0, Vec::new());
    loop {
        let some: Vec<u8> = (0..100)
            .flat_map(|at| frame(&json!({"op": "ping", "id": written + at})))
            .collect();
        written += 100;
        let mut rest = some.as_slice();
        let stopped = loop {
            match socket.writer.write(rest) {
                Ok(count) => rest = rest.get(count..).unwrap(),
                Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break true,
                Err(why) => assert_eq!(why.kind(), ErrorKind::Interrupted),
            }
            if rest.is_empty() {
                break false;
            }
        };
        if stopped {
            left.extend(rest);
            break;
        }
        assert!(written < 10_000_000, "it is never held back");
    }
    let mut writer = socket.writer.try_clone().unwrap();
    writer.set_write_timeout(None).unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&left).unwrap());
    for id in 0..written {
        assert_eq!(socket.read().unwrap(), json!({"id": id, "ok": {}}));
    }
    writing.join().unwrap();
}

#[test]
fn definitions_are_events_and_lines_of_the_log() {
    let folder = Folder::new();
    let mut running = Running::start(serve(&folder));
    let http = running.address("http");
    ask(http, "PUT /v1/queues/a%2Fb");
    ask(http, "PUT /v1/queues/a%2Fb");
    ask(http, "DELETE /v1/queues/a%2Fb");
    ask(http, "DELETE /v1/queues/a%2Fb");
    let events = ask(http, "GET /v1/events?kind=queue");
    let items = events["items"].as_array().unwrap();
    let kinds: Vec<_> = items.iter().map(|it| &it["kind"]).collect();
    assert_eq!(kinds, [&json!("queue.deleted"), &json!("queue.made")], "{events}");
    assert_eq!(items[0]["on"], json!({"queue": "a/b", "namespace": "/"}));
    assert_eq!(
        (&items[0]["by"], &items[0]["via"]),
        (&json!("operator"), &json!("http"))
    );
    assert_eq!(
        ask(http, "GET /v1/events?kind=node.ready")["items"][0]["on"]["durability"],
        "sync"
    );
    let opened = ask(http, "GET /v1/events?kind=connection.opened");
    assert!(
        opened["items"].as_array().is_some_and(|items| !items.is_empty()),
        "{opened}"
    );
    running.logged("queue.deleted");
    let mut stream = connect(http);
    write!(
        stream,
        "GET /v1/node/log?lines=1000&level=info HTTP/1.1\r\nhost: {http}\r\n\r\n"
    )
    .unwrap();
    let (mut text, mut some) = (String::new(), [0; 4096]);
    while !text.contains("queue.deleted") {
        let count = stream.read(&mut some).unwrap();
        assert!(count > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&some[..count]));
    }
}
