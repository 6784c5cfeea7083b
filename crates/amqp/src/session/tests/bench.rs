//! A bench for sessions: what the connection does with frames and operations, without a socket.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use prometheus_client::registry::Registry;
use stafett_amqp_wire::{ContentHeader, Encoder, Frame, FrameKind, frame};
use stafett_broker::{Broker, BrokerSettings};
use stafett_journal::ManualJournal;
use stafett_model::Namespace;
use stafett_net::{BudgetSettings, ByteBudget};
use stafett_topics::{NewTopic, TopicSettings};

use super::wire;
use crate::connection::bad_frame;
use crate::context::AmqpContext;
use crate::exception::Exception;
use crate::handshake::{self, Agreed, ClientProperties, Handshake, HandshakeAction};
use crate::metrics::Metrics;
use crate::operation::{Done, Operation};
use crate::output::Output;
use crate::session::replies::Addresses;
use crate::session::{ConnectionEnd, Session};
use crate::settings::AmqpSettings;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// A body of one repeated letter from this length on is shown as `LENGTH*LETTER`.
const LONG_BODY_BYTES: usize = 40;

/// The broker and its clients.
pub(super) struct Bench {
    journal: Arc<ManualJournal>,
    context: Arc<AmqpContext>,
    budget: Arc<ByteBudget>,
    clients: Vec<Client>,
    names: Names,
}

/// Generated names, by their beginning: scripts write `*` for the rest of the last one.
#[derive(Default)]
struct Names(HashMap<&'static str, String>);

struct Client {
    name: String,
    state: State,
    /// Bytes that arrive together.
    turns: VecDeque<BytesMut>,
    input: Option<BytesMut>,
    performing: Option<Performing>,
    seen: Vec<String>,
    content: Option<(String, Option<ContentHeader>, BytesMut)>,
}

/// An operation in progress.
struct Performing {
    name: String,
    future: Pin<Box<dyn Future<Output = Done>>>,
    has_begun: bool,
    /// It is in the script already.
    is_shown: bool,
}

enum State {
    Opening(Handshake),
    Open(Box<Session>),
    Ended,
}

impl Bench {
    pub(super) async fn start(options: &[String]) -> Self {
        let number = |name: &str| {
            let value = options
                .iter()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            value.map(|value| value.parse::<usize>().unwrap())
        };
        let journal = Arc::new(ManualJournal::default());
        let mut settings = BrokerSettings::default();
        crate::add_hooks(&mut settings.hooks);
        let broker = Broker::start(journal.clone(), settings).await.unwrap();
        let broker = Arc::new(broker);
        crate::exchange_kinds::predeclare(&broker, &Namespace::default());
        let settings = AmqpSettings {
            create_virtual_hosts: options.iter().any(|word| word == "create-vhosts"),
            message_bytes_max: number("message-max").unwrap_or(1 << 20) as u64,
            ..AmqpSettings::default()
        };
        let context = AmqpContext {
            broker,
            settings,
            metrics: Metrics::register(&mut Registry::default()),
            replies: Addresses::default(),
        };
        let bytes = number("budget").unwrap_or(64 << 20);
        Self {
            journal,
            context: Arc::new(context),
            budget: ByteBudget::new(BudgetSettings { bytes }),
            clients: Vec::new(),
            names: Names::default(),
        }
    }

    /// Performs a command. `more` are the other lines of frames that arrive together with it.
    pub(super) async fn perform(&mut self, line: &str, more: &[String]) {
        let mut words = split(line);
        let number = |words: &[String]| words.get(1).map_or(0, |word| word.parse().unwrap());
        match words[0].as_str() {
            "connect" | "knock" => self.connect(&words),
            "hold" => self.journal.hold(),
            "hold-batches" => self.journal.hold_batches(),
            "release" => self.journal.release(),
            "commit" => assert!(self.journal.commit(number(&words)), "{line}: nothing is held"),
            "refuse" => assert!(self.journal.refuse(number(&words)), "{line}: nothing is held"),
            "space-is-short" => self.journal.set_space_short(true),
            "space-is-enough" => self.journal.set_space_short(false),
            "disk-is-used-up" => self.journal.set_used_up(true),
            "disk-has-space" => self.journal.set_used_up(false),
            "wait" => tokio::time::sleep(Duration::from_millis(number(&words) as u64)).await,
            "topic" => {
                let topic = NewTopic {
                    name: words[1].as_str().into(),
                    partitions: Some(words[2].parse().unwrap()),
                    settings: TopicSettings::default(),
                };
                let created = self.context.broker.catalog().create(vec![topic]).await;
                assert!(created[0].is_ok(), "{created:?}");
            }
            "delete-vhost" => {
                let namespace = Namespace::new(&words[1]);
                self.context.broker.delete_namespace(&namespace).await.unwrap();
            }
            _ => {
                let name = client_name(&mut words);
                if name == "a" && self.clients.iter().all(|client| client.name != name) {
                    self.connect(&split("connect a"));
                }
                let mut bytes = BytesMut::new();
                for mut words in std::iter::once(words).chain(more.iter().map(|line| split(line))) {
                    client_name(&mut words);
                    for word in &mut words {
                        self.names.fill_in(word);
                    }
                    let client = self
                        .clients
                        .iter_mut()
                        .find(|client| client.name == name)
                        .unwrap();
                    client.send(&words, &mut bytes);
                }
                let client = self
                    .clients
                    .iter_mut()
                    .find(|client| client.name == name)
                    .unwrap();
                client.turns.extend((!bytes.is_empty()).then_some(bytes));
            }
        }
    }

    fn connect(&mut self, words: &[String]) {
        let option = |name: &str| {
            words[2..]
                .iter()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let state = if words[0] == "knock" {
            State::Opening(Handshake::default())
        } else {
            let mut client = ClientProperties::default();
            client.cancel_notify = option("without") != Some("cancel-notify");
            client.blocked = option("without") != Some("blocked");
            let agreed = Agreed {
                user: "guest".into(),
                client,
                channels_max: option("channels").map_or(10, |count| count.parse().unwrap()),
                frame_bytes_max: 131_072,
                heartbeat: Duration::ZERO,
                virtual_host: option("vhost").unwrap_or(Namespace::DEFAULT).to_owned().into(),
            };
            let vhost = self.context.open_virtual_host(&agreed.virtual_host);
            assert!(vhost.is_ok(), "{vhost:?}");
            State::Open(Box::new(self.session(agreed)))
        };
        self.clients.push(Client {
            name: words[1].clone(),
            state,
            turns: VecDeque::new(),
            input: None,
            performing: None,
            seen: Vec::new(),
            content: None,
        });
        if words[0] == "knock" {
            let mut out = BytesMut::new();
            handshake::start(PEER).encode(0, &mut out);
            self.clients.last_mut().unwrap().see(&out);
        }
    }

    fn session(&self, agreed: Agreed) -> Session {
        let budget = Arc::clone(&self.budget);
        Session::new(Arc::clone(&self.context), agreed, budget, Output::default())
    }

    /// Lets everything happen that does not wait for the script. Returns what clients see of it.
    pub(super) async fn settle(&mut self) -> Vec<String> {
        loop {
            // Time is paused: this sleeps until no task of the broker has anything to do.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let mut is_quiet = true;
            for at in 0..self.clients.len() {
                is_quiet &= !self.step(at).await;
            }
            if is_quiet {
                break;
            }
        }
        let mut lines = Vec::new();
        for client in &mut self.clients {
            for line in client.seen.drain(..) {
                let line = self.names.hide(&line);
                let name = if client.name == "a" { "" } else { &client.name };
                lines.push(format!("{name} {line}").trim_start().to_owned());
            }
        }
        lines
    }

    /// Lets a client's session do one thing. Returns false if there is nothing to do.
    async fn step(&mut self, at: usize) -> bool {
        let context = Arc::clone(&self.context);
        if let State::Opening(..) = self.clients[at].state {
            if let Some(agreed) = self.clients[at].open(&context) {
                self.clients[at].state = State::Open(Box::new(self.session(agreed)));
                return true;
            }
            return false;
        }
        let client = &mut self.clients[at];
        let State::Open(session) = &mut client.state else {
            return false;
        };
        let mut did = true;
        let stepped = if let Some(performing) = &mut client.performing {
            let future = &mut performing.future;
            match std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
                Poll::Ready(done) => {
                    client.performing = None;
                    session.on_done(done)
                }
                Poll::Pending => {
                    // The first time it begins, and may need tasks of the broker.
                    did = !std::mem::replace(&mut performing.has_begun, true);
                    Ok(())
                }
            }
        } else {
            match execute(session, &mut client.turns, &mut client.input) {
                Some(executed) => executed,
                None => after_event(session, &mut did),
            }
        };
        if let Some(operation) = session.next_operation() {
            client.performing = Some(Performing {
                name: describe(&operation),
                future: Box::pin(async move { operation.perform(&context).await }),
                has_begun: false,
                is_shown: false,
            });
        }
        let mut out = Vec::new();
        session.out.write_all(&mut out).await.unwrap();
        client.see(&out);
        if let Some(performing) = &mut client.performing
            && !did
            && !std::mem::replace(&mut performing.is_shown, true)
        {
            client.seen.push(format!("waits: {}", performing.name));
        }
        if let Err(end) = stepped {
            client.end(&end.to_string());
        }
        did
    }
}

/// Executes a frame, or ends a turn. `None` if there is nothing to execute.
fn execute(
    session: &mut Session,
    turns: &mut VecDeque<BytesMut>,
    input: &mut Option<BytesMut>,
) -> Option<Result<(), ConnectionEnd>> {
    if session.is_blocked() {
        if session.space.is_short() {
            return None;
        }
        session.unblock();
    }
    if input.is_none() {
        *input = turns.pop_front();
    }
    let buffer = input.as_mut()?;
    session.publish_again(buffer);
    Some(match frame::split(buffer, session.agreed.frame_bytes_max) {
        Ok(Some(frame)) => session.on_frame(frame),
        Ok(None) => {
            *input = None;
            session.finish_turn()
        }
        Err(error) => {
            let exception = bad_frame(error, buffer);
            *input = None;
            session.fail(0, exception)
        }
    })
}

fn after_event(session: &mut Session, did: &mut bool) -> Result<(), ConnectionEnd> {
    if session.namespace_closed.is_cancelled() && !session.is_closing() {
        session.on_namespace_closed()?;
    }
    session.look_at_arrivals()?;
    let before = session.out.len();
    session.resolve_ready()?;
    *did = session.deliver();
    session.end_without_namespace()?;
    *did |= session.out.len() > before;
    Ok(())
}

fn describe(operation: &Operation) -> String {
    match operation {
        Operation::AwaitPublished(_) => "messages are stored".to_owned(),
        Operation::AwaitStored(_) => "a change is stored".to_owned(),
        Operation::AwaitDeadLetters(_) => "rejected messages are dead-lettered".to_owned(),
        Operation::Declare(name, _) => format!("{name} is declared"),
        Operation::DeleteQueue { name, .. } => format!("{name} is deleted"),
        Operation::CreateTopic(topic) => format!("topic {} is created", topic.name),
        Operation::DeleteTopic(_) => "a topic is deleted".to_owned(),
        Operation::AwaitName(name) => format!("topic {name} is not being changed"),
        Operation::Reserve(_, bytes) => format!("memory for {bytes} bytes"),
        Operation::Grow(_) => "more memory".to_owned(),
        Operation::TakeOne { queue, .. } => format!("a message of {}", queue.name),
    }
}

impl Client {
    /// Encodes the frames of a line, or makes the session do something else.
    fn send(&mut self, words: &[String], out: &mut BytesMut) {
        match (&mut self.state, words[0].as_str()) {
            (State::Open(session), "stop") => session.stop().unwrap(),
            (State::Open(session), "leave") => {
                session.abandon();
                self.end("it has left");
            }
            (_, "bytes") => out.extend(words[1..].iter().map(|word| word.parse::<u8>().unwrap())),
            _ => encode_line(words, out),
        }
    }

    fn end(&mut self, why: &str) {
        self.seen.push(format!("ended: {why}"));
        (self.state, self.performing) = (State::Ended, None);
        self.turns.clear();
    }

    /// Executes the frames of an opening. Returns the result if the connection is to be opened.
    fn open(&mut self, context: &AmqpContext) -> Option<Agreed> {
        let mut input = self.turns.pop_front()?;
        while let State::Opening(handshake) = &mut self.state {
            let frame = frame::split(&mut input, 0).unwrap()?;
            let mut out = BytesMut::new();
            match handshake.on_frame(frame, &context.settings, PEER) {
                HandshakeAction::Nothing => {}
                HandshakeAction::Send(method) => method.encode(0, &mut out),
                HandshakeAction::Close(exception) => self.refuse(&exception),
                HandshakeAction::End { why } => self.end(&why),
                HandshakeAction::Closed => self.end("it has closed the connection"),
                HandshakeAction::Open(agreed) => match context.open_virtual_host(&agreed.virtual_host) {
                    Ok(()) => {
                        self.seen.push("0 connection.open-ok".to_owned());
                        return Some(agreed);
                    }
                    Err(exception) => self.refuse(&exception.caused_by((10, 40))),
                },
            }
            self.see(&out);
        }
        None
    }

    fn refuse(&mut self, exception: &Exception) {
        let mut out = BytesMut::new();
        exception.close().encode(0, &mut out);
        self.see(&out);
        self.end("it is refused");
    }

    /// Describes frames that the client receives.
    fn see(&mut self, bytes: &[u8]) {
        let mut bytes = BytesMut::from(bytes);
        while let Some(Frame {
            kind,
            channel,
            payload,
        }) = frame::split(&mut bytes, 0).unwrap()
        {
            match FrameKind::of(kind).unwrap() {
                FrameKind::Method => {
                    let line = format!("{channel} {}", wire::describe(payload));
                    if [" basic.deliver ", " basic.get-ok ", " basic.return "]
                        .iter()
                        .any(|name| line.contains(name))
                    {
                        self.content = Some((line, None, BytesMut::new()));
                    } else {
                        self.seen.push(line);
                    }
                }
                FrameKind::Header => {
                    self.content.as_mut().unwrap().1 = Some(ContentHeader::decode(payload).unwrap());
                }
                FrameKind::Body => self.content.as_mut().unwrap().2.extend_from_slice(&payload),
                FrameKind::Heartbeat => self.seen.push("heartbeat".to_owned()),
            }
            if let Some((line, Some(header), body)) = &self.content
                && body.len() as u64 == header.body_size
            {
                let properties = wire::describe_properties(&header.properties);
                let gap = if properties.is_empty() { "" } else { " " };
                self.seen
                    .push(format!("{line}{gap}{properties} = {}", shown_body(body)));
                self.content = None;
            }
        }
        assert!(bytes.is_empty(), "frames are written as a whole");
    }
}

/// Encodes the frames of a line.
fn encode_line(words: &[String], out: &mut BytesMut) {
    let channel: u16 = words[0].parse().unwrap_or_else(|_| panic!("{words:?}"));
    let header = |size: u64, words: &[String], out: &mut BytesMut| {
        let header = ContentHeader {
            body_size: size,
            properties: wire::properties(words.iter()),
        };
        Encoder::frame(out, FrameKind::Header, channel, |e| header.encode(e));
    };
    let body = |body: &[u8], out: &mut BytesMut| {
        for piece in body.chunks(131_072 - 8) {
            Encoder::frame(out, FrameKind::Body, channel, |e| e.raw(piece));
        }
    };
    match words[1].as_str() {
        "heartbeat" => Encoder::frame(out, FrameKind::Heartbeat, channel, |_| ()),
        "header" => header(words[2].parse().unwrap(), &words[3..], out),
        "body" => body(&body_of(&words[2]), out),
        "method" => {
            let octets: Vec<u8> = words[2..].iter().map(|word| word.parse().unwrap()).collect();
            Encoder::frame(out, FrameKind::Method, channel, |e| e.raw(&octets));
        }
        _ => {
            let at = words.iter().position(|word| word == "=").unwrap_or(words.len());
            let (method, content) = words[1..].split_at(at - 1);
            let (properties, method): (Vec<String>, Vec<String>) = method
                .iter()
                .cloned()
                .partition(|word| !content.is_empty() && word.contains('='));
            let payload = wire::encode(&method);
            Encoder::frame(out, FrameKind::Method, channel, |e| e.raw(&payload));
            if let Some(text) = content.get(1) {
                let bytes = body_of(text);
                header(bytes.len() as u64, &properties, out);
                body(&bytes, out);
            }
        }
    }
}

/// Returns a body: a text, or `LENGTH*LETTER`.
fn body_of(text: &str) -> Bytes {
    match text
        .split_once('*')
        .map(|(length, letter)| (length.parse(), letter))
    {
        Some((Ok(length), letter)) => letter.repeat(length).into(),
        _ => Bytes::copy_from_slice(text.as_bytes()),
    }
}

fn shown_body(body: &[u8]) -> String {
    match body.first() {
        None => "\"\"".to_owned(),
        Some(first) if body.len() >= LONG_BODY_BYTES && body.iter().all(|byte| byte == first) => {
            format!("{}*{}", body.len(), char::from(*first))
        }
        Some(_) => String::from_utf8_lossy(body).into_owned(),
    }
}

/// Removes the name of a client from the beginning of a line; `a` may be left out.
fn client_name(words: &mut Vec<String>) -> String {
    match words[0].as_str() {
        name if name.len() == 1 && name.starts_with(char::is_alphabetic) => words.remove(0),
        _ => "a".to_owned(),
    }
}

/// Splits a line into words; one in quotes may be empty or have spaces.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap(),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.replace("\\n", "\n"));
        rest = behind.trim_start();
    }
    words
}

impl Names {
    const BEGINNINGS: [&str; 3] = ["amq.gen-", "amq.ctag-", "amq.rabbitmq.reply-to."];
    /// Length of the generated part.
    const LENGTH: usize = 32;

    fn fill_in(&self, word: &mut String) {
        for (beginning, name) in &self.0 {
            *word = word.replace(&format!("{beginning}*"), name);
        }
    }

    fn hide(&mut self, line: &str) -> String {
        let mut line = line.to_owned();
        for beginning in Self::BEGINNINGS {
            let mut from = 0;
            while let Some(at) = line[from..].find(beginning).map(|at| from + at) {
                let (begin, end) = (at + beginning.len(), at + beginning.len() + Self::LENGTH);
                if line
                    .get(begin..end)
                    .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
                {
                    self.0.insert(beginning, line[at..end].to_owned());
                    line.replace_range(begin..end, "*");
                }
                from = begin;
            }
        }
        line
    }
}
