//! One client of the stub: its connection and its channels. Definitions are all granted.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use stafett_amqp_wire::methods::{
    CHANNEL, CONNECTION, Channel as ChannelMethod, Connection, channel, connection,
};
use stafett_amqp_wire::{DecodeError, FrameKind, FrameRef, Method, Table};

use super::channel::Channel;
use super::samples::Samples;
use crate::drivers::amqp::link::id_of;
use crate::drivers::amqp::socket::SocketError;

const FRAME_BYTES_MAX: u32 = 128 << 10;
const CHANNELS_MAX: u16 = 2047;
/// Methods that open and close a channel (AMQP 0-9-1, section 1.5).
const OPEN: u16 = 10;
const CLOSE: u16 = 40;

/// Reason why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("another protocol is spoken")]
    NotSpoken,
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("{0} is not served")]
    NotServed(&'static str),
    #[error("channel {0} is not open")]
    NotOpen(u16),
}

/// One client.
#[derive(Debug)]
pub(super) struct Session {
    samples: Arc<Samples>,
    channels: Vec<Channel>,
    /// The place of the channel that spoke last: most speak again.
    last: usize,
    /// Place of the channel that is served next.
    turn: usize,
    ended: bool,
}

impl Session {
    pub(super) fn new(samples: Arc<Samples>) -> Self {
        Self {
            samples,
            channels: Vec::new(),
            last: 0,
            turn: 0,
            ended: false,
        }
    }

    /// Writes the first method to a client.
    pub(super) fn greet(out: &mut BytesMut) {
        let start = connection::Start {
            version_minor: 9,
            server_properties: Table::default(),
            mechanisms: Bytes::from_static(b"PLAIN"),
            locales: Bytes::from_static(b"en_US"),
            ..connection::Start::default()
        };
        Method::from(start).encode(0, out);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// It may give something out, and has nothing.
    pub(super) fn looks_out(&self) -> bool {
        self.channels.iter().any(Channel::waits) && !self.delivers()
    }

    /// It has something to give out, and may.
    pub(super) fn delivers(&self) -> bool {
        self.channels.iter().any(Channel::delivers)
    }

    fn channel(&mut self, number: u16) -> Result<&mut Channel, Ended> {
        let is_it = |channel: &Channel| channel.number == number;
        if !self.channels.get(self.last).is_some_and(is_it) {
            self.last = self
                .channels
                .iter()
                .position(is_it)
                .ok_or(Ended::NotOpen(number))?;
        }
        self.channels.get_mut(self.last).ok_or(Ended::NotOpen(number))
    }

    pub(super) fn on_frame(&mut self, frame: FrameRef<'_>, out: &mut BytesMut) -> Result<(), Ended> {
        match FrameKind::of(frame.kind) {
            Some(FrameKind::Method) => self.on_method(frame, out),
            Some(FrameKind::Header) => {
                self.channel(frame.channel)?.on_header(frame.payload);
                Ok(())
            }
            Some(FrameKind::Body) => {
                self.channel(frame.channel)?.on_body(frame.payload);
                Ok(())
            }
            Some(FrameKind::Heartbeat) | None => Ok(()),
        }
    }

    fn on_method(&mut self, frame: FrameRef<'_>, out: &mut BytesMut) -> Result<(), Ended> {
        let answer = match id_of(frame.payload) {
            (CONNECTION, _) => {
                let method = Method::decode(Bytes::copy_from_slice(frame.payload))?;
                self.on_connection(method)?
            }
            (CHANNEL, OPEN | CLOSE) => {
                let method = Method::decode(Bytes::copy_from_slice(frame.payload))?;
                self.on_channel(frame.channel, &method)?
            }
            // An answer to a method that the stub never sends.
            (CHANNEL, _) => None,
            _ => return self.channel(frame.channel)?.on_method(frame, out),
        };
        if let Some(answer) = answer {
            answer.encode(frame.channel, out);
        }
        Ok(())
    }

    fn on_channel(&mut self, number: u16, method: &Method) -> Result<Option<Method>, Ended> {
        self.channels.retain(|channel| channel.number != number);
        #[expect(clippy::wildcard_enum_match_arm, reason = "what is not there is not served")]
        match method {
            Method::Channel(ChannelMethod::Open(_)) => {
                self.channels
                    .push(Channel::new(number, Arc::clone(&self.samples)));
                Ok(Some(channel::OpenOk::default().into()))
            }
            Method::Channel(ChannelMethod::Close(_)) => Ok(Some(channel::CloseOk {}.into())),
            other => Err(Ended::NotServed(other.name())),
        }
    }

    fn on_connection(&mut self, method: Method) -> Result<Option<Method>, Ended> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "what is not there is not served")]
        Ok(match method {
            Method::Connection(Connection::StartOk(_)) => Some(
                connection::Tune {
                    channel_max: CHANNELS_MAX,
                    frame_max: FRAME_BYTES_MAX,
                    heartbeat: 0,
                }
                .into(),
            ),
            Method::Connection(Connection::TuneOk(_)) => None,
            Method::Connection(Connection::Open(_)) => Some(connection::OpenOk::default().into()),
            Method::Connection(Connection::Close(_)) => {
                self.ended = true;
                Some(connection::CloseOk {}.into())
            }
            other => return Err(Ended::NotServed(other.name())),
        })
    }

    /// Confirms everything that has come, at once.
    pub(super) fn confirm(&mut self, out: &mut BytesMut) {
        for channel in &mut self.channels {
            channel.confirm(out);
        }
    }

    /// Gives out until enough waits to be written; another channel begins each time.
    pub(super) fn deliver(&mut self, out: &mut BytesMut, bytes_max: usize) {
        let count = self.channels.len();
        self.turn = self.turn.wrapping_add(1) % count.max(1);
        let (before, behind) = self.channels.split_at_mut(self.turn.min(count));
        for channel in behind.iter_mut().chain(before) {
            channel.deliver(out, bytes_max);
        }
    }
}
