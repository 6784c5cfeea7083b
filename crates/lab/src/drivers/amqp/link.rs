//! A connection with one channel: its opening, and questions before the load begins.

use std::time::Duration;

use bytes::Bytes;
use stafett_amqp_wire::frame::PROTOCOL_HEADER;
use stafett_amqp_wire::methods::{
    BASIC, CHANNEL, CONNECTION, Channel as ChannelMethod, Connection, basic, channel, connection, name_of,
};
use stafett_amqp_wire::{ByteString, FrameKind, FrameRef, Method, ReplyCode, Table, TableBuilder, Value};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::socket::{Socket, SocketError};
use crate::drivers::DriverError;

/// The only channel of a connection.
pub(super) const CHANNEL_NUMBER: u16 = 1;
const OPEN_WITHIN: Duration = Duration::from_secs(10);
/// Time that the answer to a definition may take.
const ANSWER_WITHIN: Duration = Duration::from_mins(2);
const FRAME_BYTES_MAX: u32 = 128 << 10;
const CLOSE: u16 = 50;
const CHANNEL_CLOSE: u16 = 40;

/// An open connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: Socket,
    pub(super) server: Server,
}

/// Properties of the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Server {
    pub product: String,
    pub version: String,
}

impl Link {
    /// Opens a connection to the virtual host `/` as `guest`, and a channel.
    pub(super) async fn open(address: &str) -> Result<Self, DriverError> {
        match timeout(OPEN_WITHIN, Self::shake_hands(address)).await {
            Ok(opened) => opened,
            Err(_) => Err(DriverError::Failed(format!("{address} did not answer"))),
        }
    }

    async fn shake_hands(address: &str) -> Result<Self, DriverError> {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| DriverError::Failed(format!("{address}: {error}")))?;
        let socket = Socket::new(stream).map_err(SocketError::from)?;
        let mut link = Self {
            socket,
            server: Server::default(),
        };
        link.socket.output().extend_from_slice(&PROTOCOL_HEADER);
        let greeting = link.next().await?;
        let Method::Connection(Connection::Start(start)) = greeting else {
            return Err(unexpected(&greeting));
        };
        link.server = Server::of(&start.server_properties);
        let offer = link.ask(0, start_ok()).await?;
        let Method::Connection(Connection::Tune(tune)) = offer else {
            return Err(unexpected(&offer));
        };
        let frame_bytes_max = match tune.frame_max {
            0 => FRAME_BYTES_MAX,
            offered => offered.min(FRAME_BYTES_MAX),
        };
        let tune_ok = connection::TuneOk {
            channel_max: tune.channel_max,
            frame_max: frame_bytes_max,
            // Silence is no sign of death here: a dead peer closes its connections.
            heartbeat: 0,
        };
        Method::from(tune_ok).encode(0, link.socket.output());
        link.socket.agree_on(frame_bytes_max);
        let open = connection::Open {
            virtual_host: "/".into(),
            ..connection::Open::default()
        };
        link.ask(0, open).await?;
        link.call(channel::Open::default()).await?;
        Ok(link)
    }

    /// Writes a method that is not answered; it goes with the next that is, or with [`Link::write`].
    pub(super) fn tell(&mut self, method: impl Into<Method>) {
        method.into().encode(CHANNEL_NUMBER, self.socket.output());
    }

    pub(super) async fn write(&mut self) -> Result<(), DriverError> {
        Ok(self.socket.write().await?)
    }

    /// Asks on the channel, and waits for the answer.
    pub(super) async fn call(&mut self, method: impl Into<Method>) -> Result<Method, DriverError> {
        match timeout(ANSWER_WITHIN, self.ask(CHANNEL_NUMBER, method)).await {
            Ok(answered) => answered,
            Err(_) => Err(DriverError::Failed("a definition was not answered".to_owned())),
        }
    }

    /// Returns when everything that was told before has been done.
    pub(super) async fn barrier(&mut self) -> Result<(), DriverError> {
        self.call(basic::Qos::default()).await.map(|_| ())
    }

    async fn ask(&mut self, channel: u16, method: impl Into<Method>) -> Result<Method, DriverError> {
        let method = method.into();
        let (class, number) = method.id();
        method.encode(channel, self.socket.output());
        let answer = self.next().await?;
        // Every answer has the number behind its question's; that to `start-ok` is a question itself.
        let fits = answer.id() == (class, number + 1) || (class, number) == (CONNECTION, 11);
        if fits {
            Ok(answer)
        } else {
            Err(unexpected(&answer))
        }
    }

    /// The next method. Nothing else comes before the load begins.
    async fn next(&mut self) -> Result<Method, DriverError> {
        let mut found = None;
        loop {
            self.socket.frames(|frame, _| {
                if frame.kind == FrameKind::Method as u8 {
                    check(frame)?;
                    let method = Method::decode(Bytes::copy_from_slice(frame.payload));
                    found = Some(method.map_err(|error| DriverError::Failed(error.to_string()))?);
                }
                Ok::<(), DriverError>(())
            })?;
            if let Some(method) = found.take() {
                return Ok(method);
            }
            self.socket.read().await?;
        }
    }
}

impl Server {
    fn of(properties: &Table) -> Self {
        let text = |name| {
            let value = properties.get(name);
            value
                .as_ref()
                .and_then(Value::text)
                .unwrap_or_default()
                .to_owned()
        };
        Self {
            product: text("product"),
            version: text("version"),
        }
    }
}

fn start_ok() -> connection::StartOk {
    let mut capabilities = TableBuilder::new();
    for capability in [
        "publisher_confirms",
        "basic.nack",
        "consumer_cancel_notify",
        "authentication_failure_close",
    ] {
        capabilities.push(capability, &Value::Bool(true));
    }
    connection::StartOk {
        client_properties: TableBuilder::new()
            .with("product", "stafett-lab")
            .with("capabilities", capabilities.finish())
            .finish(),
        mechanism: "PLAIN".into(),
        response: Bytes::from_static(b"\0guest\0guest"),
        locale: "en_US".into(),
    }
}

/// Class and number of a method frame.
#[inline]
pub(super) fn id_of(payload: &[u8]) -> (u16, u16) {
    match payload.first_chunk::<4>() {
        Some(&[c0, c1, m0, m1]) => (u16::from_be_bytes([c0, c1]), u16::from_be_bytes([m0, m1])),
        None => (0, 0),
    }
}

/// An error if the method is the end of the channel or the connection.
pub(super) fn check(frame: FrameRef<'_>) -> Result<(), DriverError> {
    if !matches!(
        id_of(frame.payload),
        (CONNECTION, CLOSE) | (CHANNEL, CHANNEL_CLOSE) | (BASIC, 30)
    ) {
        return Ok(());
    }
    Err(match Method::decode(Bytes::copy_from_slice(frame.payload)) {
        Ok(Method::Connection(Connection::Close(close))) => {
            let about = name_of(close.class_id, close.method_id);
            ended(close.reply_code, &close.reply_text, about)
        }
        Ok(Method::Channel(ChannelMethod::Close(close))) => {
            let about = name_of(close.class_id, close.method_id);
            ended(close.reply_code, &close.reply_text, about)
        }
        Ok(Method::Basic(_)) => DriverError::Failed("a consumer was cancelled: its queue is gone".to_owned()),
        Ok(other) => unexpected(&other),
        Err(error) => DriverError::Failed(error.to_string()),
    })
}

/// A refusal of the system is told from everything else.
fn ended(code: u16, text: &ByteString, about: Option<&str>) -> DriverError {
    const REFUSALS: [ReplyCode; 6] = [
        ReplyCode::AccessRefused,
        ReplyCode::PreconditionFailed,
        ReplyCode::ResourceLocked,
        ReplyCode::NotAllowed,
        ReplyCode::NotImplemented,
        ReplyCode::CommandInvalid,
    ];
    let said = match about {
        Some(name) => format!("{name}: {text} ({code})"),
        None => format!("{text} ({code})"),
    };
    if REFUSALS.iter().any(|refusal| refusal.code() == code) {
        DriverError::Refused(said)
    } else {
        DriverError::Failed(said)
    }
}

fn unexpected(method: &Method) -> DriverError {
    DriverError::Failed(format!("{} came where it makes no sense", method.name()))
}

impl From<SocketError> for DriverError {
    fn from(error: SocketError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A number that was read at a place in a payload.
#[inline]
pub(super) fn u64_at(payload: &[u8], at: usize) -> Option<u64> {
    let bytes = payload.get(at..)?.first_chunk()?;
    Some(u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use stafett_amqp_wire::frame::first;

    use super::*;

    fn checked(method: impl Into<Method>) -> Result<(), DriverError> {
        let mut out = BytesMut::new();
        method.into().encode(1, &mut out);
        check(first(&out, 0).unwrap().unwrap())
    }

    #[test]
    fn a_refusal_is_told_from_an_end() {
        let refused = channel::Close {
            reply_code: ReplyCode::PreconditionFailed.code(),
            reply_text: "invalid arg".into(),
            class_id: 50,
            method_id: 10,
        };
        let Err(DriverError::Refused(said)) = checked(refused) else {
            panic!("it is a refusal");
        };
        assert_eq!(said, "queue.declare: invalid arg (406)");
        let ended = connection::Close {
            reply_code: ReplyCode::ConnectionForced.code(),
            reply_text: "shutdown".into(),
            ..connection::Close::default()
        };
        let Err(DriverError::Failed(said)) = checked(ended) else {
            panic!("it is no refusal");
        };
        assert_eq!(said, "shutdown (320)");
        assert!(checked(basic::QosOk {}).is_ok());
    }
}
