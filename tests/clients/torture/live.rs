//! Live topics with a log: a publisher, a listener that resumes from its last offset, and a client whose
//! subscriptions change.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use serde_json::{Value, json};

use super::load::{Load, Sent, Work};
use super::{AHEAD, LIVE, PATIENCE, content};

const TOPIC: &str = "torture/live";
/// Read timeout, after which clients check for the end of the load.
const LOOK: Duration = Duration::from_millis(50);
/// Pause between two messages, since all of them stay on the disk.
const PAUSE: Duration = Duration::from_millis(5);
/// Topics that are subscribed to and unsubscribed from.
const TOPICS: u64 = 50;

/// Mask bit in the byte of the length.
const MASKED: u8 = 0x80;
const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A WebSocket, to the extent that a test needs.
struct Client {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Client {
    fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Self {
            stream,
            buffer: BytesMut::new(),
        };
        let ask = format!(
            "GET /live HTTP/1.1\r\nhost: {address}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dG9ydHVyZSB0b3J0dXJlIQ==\r\n\r\n"
        );
        client.stream.write_all(ask.as_bytes())?;
        loop {
            let end = client.buffer.windows(4).position(|four| four == b"\r\n\r\n");
            let Some(end) = end else {
                client.read_more()?;
                continue;
            };
            let head = client.buffer.split_to(end + 4);
            // The HTTP listener does not exist yet while the broker starts.
            return if head.starts_with(b"HTTP/1.1 101") {
                Ok(client)
            } else {
                Err(io::ErrorKind::NotConnected.into())
            };
        }
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut piece = vec![0; 64 << 10];
        let count = self.stream.read(&mut piece)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.buffer.extend_from_slice(&piece[..count]);
        Ok(())
    }

    /// Sends a frame, or the beginning of one whose stated length is larger. The mask is zero and changes no
    /// byte.
    fn write(&mut self, kind: u8, payload: &[u8], said: usize) -> io::Result<()> {
        let mut out = vec![0x80 | kind, MASKED + 127];
        out.extend_from_slice(&(said as u64).to_be_bytes());
        if said < 126 {
            out = vec![0x80 | kind, MASKED + u8::try_from(said).unwrap()];
        } else if let Ok(said) = u16::try_from(said) {
            out = vec![0x80 | kind, MASKED + 126];
            out.extend_from_slice(&said.to_be_bytes());
        }
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(payload);
        self.stream.write_all(&out)
    }

    fn send(&mut self, client: &str, command: &str, mut fields: Value) -> io::Result<()> {
        fields["command"] = command.into();
        fields["client_id"] = client.into();
        let text = fields.to_string();
        self.write(TEXT, text.as_bytes(), text.len())
    }

    /// The next frame, if all of it is there.
    fn split(&mut self) -> Option<(u8, BytesMut)> {
        let (kind, length) = (*self.buffer.first()?, *self.buffer.get(1)?);
        let (head, length) = match length {
            126 => {
                let length = self.buffer.get(2..4)?.try_into().unwrap();
                (4, u64::from(u16::from_be_bytes(length)))
            }
            127 => {
                let length = self.buffer.get(2..10)?.try_into().unwrap();
                (10, u64::from_be_bytes(length))
            }
            length => (2, u64::from(length)),
        };
        let length = usize::try_from(length).unwrap();
        if self.buffer.len() < head + length {
            return None;
        }
        self.buffer.advance(head);
        Some((kind & 0x0f, self.buffer.split_to(length)))
    }

    /// Returns the next message. After a read timeout the next call continues.
    fn receive(&mut self) -> io::Result<Value> {
        loop {
            match self.split() {
                None => self.read_more()?,
                Some((TEXT, text)) => return Ok(serde_json::from_slice(&text).unwrap()),
                Some((PING, payload)) => self.write(PONG, &payload, payload.len())?,
                Some((CLOSE, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some((kind, _)) => panic!("a frame of kind {kind}"),
            }
        }
    }

    fn ask(&mut self, client: &str, command: &str, fields: Value) -> io::Result<Value> {
        self.send(client, command, fields)?;
        self.receive()
    }
}

/// Announces a message and sends its first bytes.
pub(super) fn send_part(address: &str, bytes: usize, said: usize) -> io::Result<TcpStream> {
    let mut client = Client::open(address)?;
    client.write(TEXT, &vec![b' '; bytes], said)?;
    Ok(client.stream)
}

fn is_success(answer: &Value) -> bool {
    answer["result"] == "success"
}

/// Returns the content with a number as letters, behind the number.
fn text(number: u64) -> String {
    let bytes = content(number, &LIVE);
    let letters = bytes.iter().map(|byte| char::from(b'a' + byte % 26));
    format!("{number}:").chars().chain(letters).collect()
}

fn message(number: u64) -> Value {
    json!({ "topic": TOPIC, "payload": text(number), "ack": true })
}

/// Publishes to a topic, over one connection after another.
pub(super) fn publish(address: &str, load: &Load) -> Sent {
    let mut sent = Sent::default();
    while load.goes_on() {
        if Client::open(address)
            .and_then(|client| publish_on(client, load, &mut sent))
            .is_err()
        {
            thread::sleep(Duration::from_millis(5));
        }
    }
    sent
}

fn publish_on(mut client: Client, load: &Load, sent: &mut Sent) -> io::Result<()> {
    let mut waiting = VecDeque::new();
    while load.goes_on() || !waiting.is_empty() {
        if load.goes_on() && waiting.len() < AHEAD && load.has_room(Work::Live) {
            let number = sent.number();
            waiting.push_back(number);
            client.send("publisher", "publish", message(number))?;
            continue;
        }
        let Some(number) = waiting.pop_front() else {
            continue;
        };
        let answer = client.receive()?;
        if is_success(&answer) {
            assert_eq!(answer["stored"], 1, "{answer}");
            sent.acknowledge(number);
            load.done(Work::Live);
            thread::sleep(PAUSE);
        } else {
            let is_known = answer["error"] == "not_stored";
            assert!(is_known || answer["error"] == "outcome_unknown", "{answer}");
            thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Publishes a message that must be accepted.
pub(super) fn publish_one(address: &str, sent: &mut Sent) {
    let mut client = Client::open(address).unwrap();
    let number = sent.number();
    let answer = client.ask("publisher", "publish", message(number)).unwrap();
    assert!(is_success(&answer), "nothing more is taken: {answer}");
    sent.acknowledge(number);
}

/// Returns the number of a message.
fn number_of(said: &Value) -> u64 {
    let found = said["broadcast"].as_str().unwrap();
    found.split_once(':').unwrap().0.parse().unwrap()
}

/// Messages that a listener received.
#[derive(Debug, Default)]
pub(super) struct Heard {
    numbers: Vec<u64>,
    /// Offset behind the last message.
    offset: u64,
}

impl Heard {
    pub(super) fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Listens until every acknowledged message has arrived.
    pub(super) fn listen_to(&mut self, address: &str, sent: &Sent) {
        let last = sent.acknowledged().last().copied();
        let begun = Instant::now();
        while self.numbers.last().copied() < last {
            assert!(
                begun.elapsed() < PATIENCE,
                "{:?} of {last:?} are heard",
                self.numbers.last()
            );
            let Ok(mut client) = self.open(address) else {
                continue;
            };
            while self.numbers.last().copied() < last && self.hear(&mut client).is_ok() {}
        }
    }

    fn open(&mut self, address: &str) -> io::Result<Client> {
        let mut client = Client::open(address)?;
        client.send("listener", "listen", json!({ "outbox_bytes": 32 << 20 }))?;
        let fields = json!({ "topic": TOPIC, "from": self.offset });
        client.send("listener", "subscribe", fields)?;
        // Messages between the two commands are delivered at once, and again behind the answer.
        let mut answers = 0;
        while answers < 2 {
            let said = client.receive()?;
            if said.get("broadcast").is_none() {
                let is_known = is_success(&said) || said["error"] == "not_stored";
                assert!(is_known || said["error"] == "outcome_unknown", "{said}");
                if !is_success(&said) {
                    return Err(io::ErrorKind::Other.into());
                }
                answers += 1;
            }
        }
        client.stream.set_read_timeout(Some(LOOK))?;
        Ok(client)
    }

    /// Receives the next message.
    fn hear(&mut self, client: &mut Client) -> io::Result<()> {
        let said = client.receive()?;
        let Some(broadcast) = said.get("broadcast") else {
            assert_eq!(said["notice"], "dropped", "{said}");
            // A new connection resumes behind the last received message.
            return Err(io::ErrorKind::Other.into());
        };
        let offset = said["offset"].as_u64().unwrap();
        let number = number_of(&said);
        assert!(broadcast == &text(number), "live: {number} is not as it was sent");
        assert_eq!(offset, self.offset, "live: {number} comes behind a gap or again");
        self.numbers.push(number);
        self.offset = offset + 1;
        Ok(())
    }
}

/// Listens to a topic, over one connection after another.
pub(super) fn listen(address: &str, load: &Load) -> Heard {
    let mut heard = Heard::default();
    while load.goes_on() {
        let Ok(mut client) = heard.open(address) else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        while load.goes_on() {
            match heard.hear(&mut client) {
                Ok(()) => {
                    load.read(Work::Live);
                    load.done(Work::Hear);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => load.all_read(Work::Live),
                Err(_) => break,
            }
        }
    }
    heard
}

/// Subscriptions of a client by topic; `None` if the last change was not answered when the load stopped.
#[derive(Debug, Default)]
pub(super) struct Subscriptions(BTreeMap<String, Option<bool>>);

impl Subscriptions {
    pub(super) fn check(&self, address: &str) {
        let mut client = Client::open(address).unwrap();
        let answer = client
            .ask("subscriber", "list", json!({ "count": 10_000 }))
            .unwrap();
        let listed: Vec<&str> = answer["topics"]
            .as_array()
            .unwrap_or_else(|| panic!("{answer}"))
            .iter()
            .map(|topic| topic.as_str().unwrap())
            .collect();
        for (topic, is_there) in &self.0 {
            let found = listed.contains(&topic.as_str());
            assert!(
                is_there.is_none_or(|is_there| is_there == found),
                "{topic}: {is_there:?}, {listed:?}"
            );
        }
        assert!(
            listed.iter().all(|topic| self.0.contains_key(*topic)),
            "{listed:?}"
        );
    }
}

/// Subscribes to topics and unsubscribes again, one after another.
pub(super) fn subscribe(address: &str, load: &Load) -> Subscriptions {
    let mut subscriptions = Subscriptions::default();
    let mut number = 0_u64;
    while load.goes_on() {
        let Ok(mut client) = Client::open(address) else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        while load.goes_on() {
            let topic = format!("held/{}", number * 7 % TOPICS);
            let before = subscriptions.0.get(&topic).copied().flatten();
            let is_there = before.unwrap_or(false);
            let command = if is_there { "unsubscribe" } else { "subscribe" };
            subscriptions.0.insert(topic.clone(), None);
            let sent = Instant::now();
            let Ok(answer) = client.ask("subscriber", command, json!({ "topic": topic })) else {
                break;
            };
            number += 1;
            if is_success(&answer) {
                subscriptions.0.insert(topic, Some(!is_there));
                load.done(Work::Subscribe);
                load.stored(sent);
            } else if answer["error"] == "not_stored" {
                // An earlier change may still have an unknown outcome.
                subscriptions.0.insert(topic, before);
            } else {
                assert_eq!(answer["error"], "outcome_unknown", "{answer}");
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
    subscriptions
}
