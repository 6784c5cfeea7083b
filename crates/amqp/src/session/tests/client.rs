//! A client of the bench: its lines become frames, and frames that it receives become lines.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use stafett_amqp_wire::{ContentHeader, Encoder, Frame, FrameKind, frame};

use super::wire;
use crate::auth;
use crate::context::AmqpContext;
use crate::exception::Exception;
use crate::handshake::{self, Agreed, Handshake, HandshakeAction};
use crate::operation::Done;
use crate::session::Session;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// A body of one repeated letter from this length on is shown as `LENGTH*LETTER`.
const LONG_BODY_BYTES: usize = 40;

pub(super) struct Client {
    pub name: String,
    pub state: State,
    /// Bytes that arrive together.
    pub turns: VecDeque<BytesMut>,
    pub input: Option<BytesMut>,
    pub performing: Option<Performing>,
    pub seen: Vec<String>,
    pub content: Option<(String, Option<ContentHeader>, BytesMut)>,
}

/// An operation in progress.
pub(super) struct Performing {
    pub name: String,
    pub future: Pin<Box<dyn Future<Output = Done>>>,
    pub has_begun: bool,
    /// It is in the script already.
    pub is_shown: bool,
}

pub(super) enum State {
    Opening(Handshake),
    Open(Box<Session>),
    Ended,
}

impl Client {
    pub(super) fn new(name: &str, state: State) -> Self {
        let mut client = Self {
            name: name.to_owned(),
            state,
            turns: VecDeque::new(),
            input: None,
            performing: None,
            seen: Vec::new(),
            content: None,
        };
        if let State::Opening(_) = client.state {
            let mut out = BytesMut::new();
            handshake::start(auth::mechanisms(PEER, true, false)).encode(0, &mut out);
            client.see(&out);
        }
        client
    }

    /// Encodes the frames of a line, or makes the session do something else.
    pub(super) fn send(&mut self, words: &[String], out: &mut BytesMut) {
        match (&mut self.state, words[0].as_str()) {
            (State::Open(session), "stop") => session.stop(None).unwrap(),
            (State::Open(session), "leave") => {
                session.abandon();
                self.end("it has left");
            }
            (_, "bytes") => out.extend(words[1..].iter().map(|word| word.parse::<u8>().unwrap())),
            _ => encode_line(words, out),
        }
    }

    pub(super) fn end(&mut self, why: &str) {
        self.seen.push(format!("ended: {why}"));
        (self.state, self.performing) = (State::Ended, None);
        self.turns.clear();
    }

    /// Executes the frames of an opening. Returns the result if the connection is to be opened.
    pub(super) fn open(&mut self, context: &AmqpContext) -> Option<Agreed> {
        let mut input = self.turns.pop_front()?;
        while let State::Opening(handshake) = &mut self.state {
            let frame = frame::split(&mut input, 0).unwrap()?;
            let mut out = BytesMut::new();
            let mut action = handshake.on_frame(frame, &context.settings);
            if let HandshakeAction::LogIn(credentials) = &action {
                action = handshake.on_login(auth::guest(credentials, PEER), &context.settings);
            } else if action == HandshakeAction::Trust {
                // No certificate was shown.
                let user = auth::trust(None).map(|logged_in| logged_in.user);
                action = handshake.on_login(user, &context.settings);
            }
            match action {
                HandshakeAction::LogIn(_) | HandshakeAction::Trust => self.end("it logs in twice"),
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
    pub(super) fn see(&mut self, bytes: &[u8]) {
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
