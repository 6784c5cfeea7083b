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
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::target::TargetError;

const CHANNEL: u16 = 1;
const FRAME_BYTES_MAX: u32 = 128 << 10;
const READ_BYTES: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(10);
const PORT: u16 = 5672;
const PORT_TLS: u16 = 5671;
/// Idle time before the system asks whether the peer is there, and the interval of its questions.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(5));
const KEEPALIVE_COUNT: u32 = 3;
const CONTENT_TOO_LARGE: u16 = 311;
const PRECONDITION_FAILED: u16 = 406;
/// Words of RabbitMQ, and of this broker, in front of the limit that a message exceeds.
const MAX_SIZE: &str = "larger than configured max size";

/// Parts of `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or of `amqps://…` with TLS.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    is_tls: bool,
    host: String,
    port: u16,
    user: String,
    password: String,
    virtual_host: String,
}

/// A connection, with or without TLS.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send + Sync + std::fmt::Debug {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync + std::fmt::Debug> Wire for T {}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Link {
    stream: Box<dyn Wire>,
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
        let (is_tls, rest) = match url.split_once("://").ok_or_else(bad)? {
            ("amqp", rest) => (false, rest),
            ("amqps", rest) => (true, rest),
            _ => return Err(bad()),
        };
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
            _ => (place, if is_tls { PORT_TLS } else { PORT }),
        };
        if host.is_empty() {
            return Err(bad());
        }
        Ok(Self {
            is_tls,
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
    /// Opens a connection and a channel. `ca` is the PEM file of the authorities to trust. The interval of
    /// heartbeats, in seconds, is that or a shorter one of the broker; 0 is without heartbeats.
    pub(crate) async fn open(to: &Address, ca: Option<&str>, heartbeat: u16) -> Result<Self, TargetError> {
        let opened = timeout(PATIENCE, async {
            let stream = connect(to, ca).await?;
            Self::shake_hands(stream, to, heartbeat).await
        });
        opened.await.unwrap_or_else(|_| Err(away("it does not answer")))
    }

    async fn shake_hands(stream: Box<dyn Wire>, to: &Address, heartbeat: u16) -> Result<Self, TargetError> {
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
        self.stream.write_all_buf(&mut self.output).await.map_err(away)?;
        self.stream.flush().await.map_err(away)
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

async fn connect(to: &Address, ca: Option<&str>) -> Result<Box<dyn Wire>, TargetError> {
    let stream = TcpStream::connect((to.host.as_str(), to.port))
        .await
        .map_err(away)?;
    stream.set_nodelay(true).map_err(away)?;
    keep_alive(&stream).map_err(away)?;
    if !to.is_tls {
        return match ca {
            None => Ok(Box::new(stream)),
            Some(_) => Err(TargetError::Stop(
                "authorities (ca) belong to an address amqps://…".to_owned(),
            )),
        };
    }
    let connector = stafett_trust::connector(ca).map_err(TargetError::Stop)?;
    let secured = stafett_trust::connect(&connector, stream, &to.host).await;
    Ok(Box::new(secured.map_err(away)?))
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

fn too_large(text: String) -> TargetError {
    let class = "size".to_owned();
    TargetError::Poison { class, text }
}

/// Returns the size of a body that the broker takes at most, as its refusal of a larger one says.
pub(crate) fn size_limit(refusal: &str) -> Option<u64> {
    let (_, rest) = refusal.split_once(MAX_SIZE)?;
    let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit()).next();
    digits?.parse().ok()
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
        CONTENT_TOO_LARGE => too_large(text),
        PRECONDITION_FAILED if text.contains(MAX_SIZE) => too_large(text),
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
    fn a_message_that_is_too_large_is_poison_and_tells_the_limit() {
        let closed = |code, text: &str| {
            let close = channel::Close {
                reply_code: code,
                reply_text: text.into(),
                ..channel::Close::default()
            };
            let mut frame = BytesMut::new();
            Method::from(close).encode(CHANNEL, &mut frame);
            let frame = frame::split(&mut frame, 0).unwrap().unwrap();
            method_of(frame.payload).unwrap_err()
        };
        let rabbit =
            "PRECONDITION_FAILED - message size 20000000 is larger than configured max size 16777216";
        let TargetError::Poison { class, text } = closed(406, rabbit) else {
            panic!("it is poison");
        };
        assert_eq!((&*class, size_limit(&text)), ("size", Some(16_777_216)));
        let refused = closed(311, "CONTENT_TOO_LARGE");
        assert!(matches!(&refused, TargetError::Poison { text, .. } if size_limit(text).is_none()));
        assert!(matches!(
            closed(406, "PRECONDITION_FAILED - unknown"),
            TargetError::Stop(_)
        ));
    }

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
        let address = Address::parse("amqps://h.example/v").unwrap();
        assert!(address.is_tls && address.port == 5671);
        for bad in ["h", "http://h", "amqp://", "amqp://h:x"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }
}
