//! A connection to a broker of AMQP 0-9-1, with one channel.
//!
//! Frames are read whole; a frame, and the content of a message, are bounded. Output waits in a buffer
//! until the next [`Link::write`].

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use percent_encoding::percent_decode_str;
use rustix::net::sockopt;
use stafett_amqp_wire::frame::{self, FRAME_OVERHEAD, Frame, PROTOCOL_HEADER};
use stafett_amqp_wire::methods::{Channel, Connection, basic, channel, connection};
use stafett_amqp_wire::{ContentHeader, Encoder, FrameKind, Method, PropertiesBuilder, TableBuilder, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::target::TargetError;

const CHANNEL: u16 = 1;
const FRAME_BYTES_MAX: u32 = 128 << 10;
const READ_BYTES: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(10);
const PORT: u16 = 5672;
/// Idle time before the system asks whether the peer is there, and the interval of its questions.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(5));
const KEEPALIVE_COUNT: u32 = 3;

/// Parts of `amqp://USER:PASSWORD@HOST:PORT/VHOST`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    host: String,
    port: u16,
    user: String,
    password: String,
    virtual_host: String,
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
    frame_bytes_max: u32,
    heartbeat: Duration,
}

pub(crate) fn away(why: impl std::fmt::Display) -> TargetError {
    TargetError::Retry(format!("the broker of the queue is away: {why}"))
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, TargetError> {
        // The address may hold a password, and is not shown.
        let bad = || TargetError::Stop("the address is not amqp://USER:PASSWORD@HOST:PORT/VHOST".to_owned());
        let rest = url.strip_prefix("amqp://").ok_or_else(bad)?;
        let (authority, path) = rest
            .split_once('/')
            .map_or((rest, None), |(one, other)| (one, Some(other)));
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, authority),
        };
        let decoded = |text: &str| {
            percent_decode_str(text)
                .decode_utf8()
                .map(std::borrow::Cow::into_owned)
        };
        let (user, password) = login.map_or(("guest", "guest"), |login| {
            login.split_once(':').unwrap_or((login, ""))
        });
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| bad())?),
            _ => (place, PORT),
        };
        if host.is_empty() {
            return Err(bad());
        }
        Ok(Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            user: decoded(user).map_err(|_| bad())?,
            password: decoded(password).map_err(|_| bad())?,
            virtual_host: match path {
                None | Some("") => "/".to_owned(),
                Some(path) => decoded(path).map_err(|_| bad())?,
            },
        })
    }
}

impl Link {
    /// Opens a connection and a channel. The interval of heartbeats, in seconds, is that or a shorter one of
    /// the broker; 0 is without heartbeats.
    pub(crate) async fn open(to: &Address, heartbeat: u16) -> Result<Self, TargetError> {
        let opened = timeout(PATIENCE, Self::shake_hands(to, heartbeat)).await;
        opened.unwrap_or_else(|_| Err(away("it does not answer")))
    }

    async fn shake_hands(to: &Address, heartbeat: u16) -> Result<Self, TargetError> {
        let stream = TcpStream::connect((to.host.as_str(), to.port))
            .await
            .map_err(away)?;
        stream.set_nodelay(true).map_err(away)?;
        keep_alive(&stream).map_err(away)?;
        let mut link = Self {
            stream,
            input: BytesMut::new(),
            output: BytesMut::from(&PROTOCOL_HEADER[..]),
            frame_bytes_max: 0,
            heartbeat: Duration::ZERO,
        };
        let Method::Connection(Connection::Start(_)) = link.method().await? else {
            return Err(away("it does not speak AMQP 0-9-1"));
        };
        let mut capabilities = TableBuilder::new();
        for capability in ["publisher_confirms", "basic.nack", "consumer_cancel_notify"] {
            capabilities.push(capability, &Value::Bool(true));
        }
        let start_ok = connection::StartOk {
            client_properties: TableBuilder::new()
                .with("product", "stafett-sink")
                .with("capabilities", capabilities.finish())
                .finish(),
            mechanism: "PLAIN".into(),
            response: Bytes::from(format!("\0{}\0{}", to.user, to.password)),
            locale: "en_US".into(),
        };
        Method::from(start_ok).encode(0, &mut link.output);
        // A broker that refuses a login may end the connection without a word.
        let Method::Connection(Connection::Tune(tune)) = link.method().await? else {
            return Err(TargetError::Stop(
                "the login at the broker of the queue is refused".to_owned(),
            ));
        };
        link.frame_bytes_max = match tune.frame_max {
            0 => FRAME_BYTES_MAX,
            offered => offered.min(FRAME_BYTES_MAX),
        };
        let tune_ok = connection::TuneOk {
            channel_max: tune.channel_max,
            frame_max: link.frame_bytes_max,
            heartbeat: heartbeat.min(tune.heartbeat),
        };
        link.heartbeat = Duration::from_secs(tune_ok.heartbeat.into());
        Method::from(tune_ok).encode(0, &mut link.output);
        let open = connection::Open {
            virtual_host: to.virtual_host.as_str().into(),
            ..connection::Open::default()
        };
        Method::from(open).encode(0, &mut link.output);
        link.method().await?;
        link.call(channel::Open::default()).await?;
        Ok(link)
    }

    /// Returns the interval within which each side sends something; zero is without heartbeats.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.heartbeat
    }

    /// Adds a heartbeat to the output.
    pub(crate) fn beat(&mut self) {
        Frame::put_head(&mut self.output, FrameKind::Heartbeat, 0, 0);
        Frame::put_end(&mut self.output);
    }

    /// Adds a method to the output.
    pub(crate) fn tell(&mut self, method: impl Into<Method>) {
        method.into().encode(CHANNEL, &mut self.output);
    }

    /// Adds a message to the output.
    pub(crate) fn publish(&mut self, method: basic::Publish, properties: &PropertiesBuilder, body: &[u8]) {
        self.tell(method);
        let content = ContentHeader {
            body_size: body.len() as u64,
            properties: properties.finish(),
        };
        Encoder::frame(&mut self.output, FrameKind::Header, CHANNEL, |e| {
            content.encode(e);
        });
        let agreed = usize::try_from(self.frame_bytes_max).unwrap_or(usize::MAX);
        for piece in body.chunks(agreed.saturating_sub(FRAME_OVERHEAD).max(1)) {
            Frame::put_head(&mut self.output, FrameKind::Body, CHANNEL, piece.len());
            self.output.extend_from_slice(piece);
            Frame::put_end(&mut self.output);
        }
    }

    /// Adds a method about the connection itself.
    pub(crate) fn tell_connection(&mut self, method: impl Into<Method>) {
        method.into().encode(0, &mut self.output);
    }

    pub(crate) async fn write(&mut self) -> Result<(), TargetError> {
        self.stream.write_all_buf(&mut self.output).await.map_err(away)
    }

    /// Asks on the channel, and waits for the answer.
    pub(crate) async fn call(&mut self, method: impl Into<Method>) -> Result<Method, TargetError> {
        self.tell(method);
        let answered = timeout(PATIENCE, self.method()).await;
        answered.unwrap_or_else(|_| Err(away("it does not answer")))
    }

    /// Returns the next method.
    async fn method(&mut self) -> Result<Method, TargetError> {
        self.write().await?;
        loop {
            let frame = self.frame().await?;
            if frame.kind == FrameKind::Method as u8 {
                return method_of(frame.payload);
            }
        }
    }

    /// Returns the next frame. Safe to drop.
    pub(crate) async fn frame(&mut self) -> Result<Frame, TargetError> {
        loop {
            if let Some(frame) = self.waiting_frame()? {
                return Ok(frame);
            }
            self.input.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.input).await.map_err(away)? == 0 {
                return Err(away("the connection was closed"));
            }
        }
    }

    /// Returns the next frame if it has come whole.
    pub(crate) fn waiting_frame(&mut self) -> Result<Option<Frame>, TargetError> {
        frame::split(&mut self.input, self.frame_bytes_max).map_err(away)
    }
}

/// Has the system end a connection whose peer is gone without a word.
fn keep_alive(stream: &TcpStream) -> std::io::Result<()> {
    let (idle, interval) = KEEPALIVE;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, idle)?;
    sockopt::set_tcp_keepintvl(stream, interval)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)?;
    Ok(())
}

/// Reads a method. The end of a channel or connection is an error.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others are answers")]
pub(crate) fn method_of(payload: Bytes) -> Result<Method, TargetError> {
    let method = Method::decode(payload).map_err(away)?;
    let (code, text) = match &method {
        Method::Connection(Connection::Close(close)) => (close.reply_code, close.reply_text.to_string()),
        Method::Channel(Channel::Close(close)) => (close.reply_code, close.reply_text.to_string()),
        _ => return Ok(method),
    };
    let text = format!("the broker of the queue refused: {text} ({code})");
    Err(match code {
        // Another consumer has the queue, which may end.
        403 if text.contains("exclusive") => TargetError::Retry(text),
        402..=404 | 406 | 530 | 540 => TargetError::Stop(text),
        _ => TargetError::Retry(text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_parts() {
        let address = Address::parse("amqp://me:p%40ss@[::1]:5673/a%2Fb").unwrap();
        assert_eq!((&*address.host, address.port), ("::1", 5673));
        assert_eq!(
            (&*address.user, &*address.password, &*address.virtual_host),
            ("me", "p@ss", "a/b")
        );
        let address = Address::parse("amqp://h.example").unwrap();
        assert_eq!(
            (&*address.host, address.port, &*address.virtual_host),
            ("h.example", 5672, "/")
        );
        assert_eq!((&*address.user, &*address.password), ("guest", "guest"));
        for bad in ["h", "http://h", "amqp://", "amqp://h:x"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }
}
