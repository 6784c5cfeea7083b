//! Opening of a connection, as a state machine without I/O.
//!
//! ```text
//! client                                     server
//!   AMQP 0 0 9 1          ─────────────▶  Header
//!                         ◀─────────────    connection.start        ▶ Start
//!   connection.start-ok   ─────────────▶    credentials
//!                         ◀─────────────    connection.tune         ▶ Tune
//!   connection.tune-ok    ─────────────▶    agreed limits           ▶ Open
//!   connection.open       ─────────────▶    virtual host
//!                         ◀─────────────    connection.open-ok      ▶ done
//! ```
//!
//! Before authentication, RabbitMQ closes the connection silently if it cannot trust the client; so does this
//! handshake: [`HandshakeAction::End`].

use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use stafett_amqp_wire::frame::FRAME_MAX_MIN;
use stafett_amqp_wire::methods::{Connection, connection};
use stafett_amqp_wire::{Frame, FrameKind, Method, ReplyCode, Table, TableBuilder, Value};

use crate::auth::{self, AuthError, Credentials};
use crate::exception::{Exception, Scope};
use crate::settings::AmqpSettings;

/// Broker and version whose behaviour is followed: clients choose features by them.
const FOLLOWED: (&str, &str) = ("RabbitMQ", "4.0.5");

/// Largest frame before the connection is open.
pub(crate) const FRAME_BYTES_BEFORE: u32 = 64 * 1024;

/// Limits and properties agreed between client and server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub user: ByteString,
    /// Mechanism of authentication.
    pub mechanism: ByteString,
    pub client: ClientProperties,
    pub channels_max: u16,
    pub frame_bytes_max: u32,
    /// Zero means no heartbeats.
    pub heartbeat: Duration,
    pub virtual_host: ByteString,
    /// True for a session of one request, which counts towards no limit.
    pub is_internal: bool,
}

/// Capabilities of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClientProperties {
    pub table: Table,
    pub cancel_notify: bool,
    pub blocked: bool,
    authentication_failure_close: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Handshake {
    state: HandshakeState,
    user: ByteString,
    mechanism: ByteString,
    client: ClientProperties,
    channels_max: u16,
    frame_bytes_max: u32,
    heartbeat: Duration,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum HandshakeState {
    #[default]
    Start,
    Tune,
    Open,
}

/// Result of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HandshakeAction {
    Send(Method),
    /// Check the credentials; the outcome goes to [`Handshake::on_login`].
    LogIn(Credentials),
    /// Take the user of the client's certificate; the outcome goes to [`Handshake::on_login`].
    Trust,
    /// Answer with `connection.open-ok` if the virtual host exists.
    Open(Agreed),
    /// Send the exception, then end the connection.
    Close(Exception),
    /// End the connection without an answer.
    End {
        why: String,
    },
    /// No answer is needed, as after a heartbeat.
    Nothing,
    /// The client closes the connection.
    Closed,
}

/// Builds `connection.start`, with the properties of the server.
pub(crate) fn start(mechanisms: &'static str) -> Method {
    let capable = [
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    ];
    let mut capabilities = TableBuilder::new();
    for capability in capable {
        capabilities.push(capability, &Value::Bool(true));
    }
    let server_properties = TableBuilder::new()
        .with("capabilities", capabilities.finish())
        .with("cluster_name", "stafett")
        .with("product", FOLLOWED.0)
        .with("version", FOLLOWED.1)
        .with("server_product", "Stafett")
        .with("server_version", env!("CARGO_PKG_VERSION"))
        .with("platform", "Rust")
        .with(
            "information",
            "Stafett: one broker for logs, queues and live topics",
        )
        .finish();
    connection::Start {
        version_major: 0,
        version_minor: 9,
        server_properties,
        mechanisms: Bytes::from_static(mechanisms.as_bytes()),
        locales: Bytes::from_static(b"en_US"),
    }
    .into()
}

impl Handshake {
    pub(crate) fn on_frame(&mut self, frame: Frame, settings: &AmqpSettings) -> HandshakeAction {
        if frame.kind == FrameKind::Heartbeat as u8 {
            return HandshakeAction::Nothing;
        }
        if frame.kind != FrameKind::Method as u8 || frame.channel != 0 {
            return end("a frame that does not belong into the opening of a connection");
        }
        let method = match Method::decode(frame.payload) {
            Ok(method) => method,
            Err(error) => return end(error.to_string()),
        };
        match (method, &self.state) {
            (Method::Connection(Connection::StartOk(method)), HandshakeState::Start) => {
                self.on_start_ok(&method)
            }
            (Method::Connection(Connection::TuneOk(method)), HandshakeState::Tune) => {
                self.on_tune_ok(&method, settings)
            }
            (Method::Connection(Connection::Open(method)), HandshakeState::Open) => {
                HandshakeAction::Open(Agreed {
                    user: self.user.clone(),
                    mechanism: self.mechanism.clone(),
                    client: self.client.clone(),
                    channels_max: self.channels_max,
                    frame_bytes_max: self.frame_bytes_max,
                    heartbeat: self.heartbeat,
                    virtual_host: owned(&method.virtual_host),
                    is_internal: false,
                })
            }
            (Method::Connection(Connection::Close(_)), _) => HandshakeAction::Closed,
            (method, state) => end(format!("{} while {state:?} is expected", method.name())),
        }
    }

    fn on_start_ok(&mut self, method: &connection::StartOk) -> HandshakeAction {
        self.client = ClientProperties::read(&method.client_properties);
        self.mechanism = owned(&method.mechanism);
        // The response is a name to act for, which RabbitMQ does not read.
        if &*method.mechanism == auth::EXTERNAL {
            return HandshakeAction::Trust;
        }
        match auth::credentials(&method.mechanism, &method.response) {
            Ok(credentials) => HandshakeAction::LogIn(credentials),
            Err(refused) => self.refuse(&refused),
        }
    }

    /// Goes on with the user that has logged in.
    pub(crate) fn on_login(
        &mut self,
        user: Result<ByteString, AuthError>,
        settings: &AmqpSettings,
    ) -> HandshakeAction {
        match user {
            Ok(user) => {
                self.user = owned(&user);
                self.state = HandshakeState::Tune;
                let tune = connection::Tune {
                    channel_max: settings.channels_max,
                    frame_max: settings.frame_bytes_max,
                    heartbeat: u16::try_from(settings.heartbeat.as_secs()).unwrap_or(u16::MAX),
                };
                HandshakeAction::Send(tune.into())
            }
            Err(refused) => self.refuse(&refused),
        }
    }

    fn refuse(&self, refused: &AuthError) -> HandshakeAction {
        // A connection that merely ends is taken for wrong credentials.
        if self.client.authentication_failure_close || *refused == AuthError::Busy {
            HandshakeAction::Close(refused.tell(&self.mechanism))
        } else {
            end(format!("not let in: {refused:?}"))
        }
    }

    fn on_tune_ok(&mut self, method: &connection::TuneOk, settings: &AmqpSettings) -> HandshakeAction {
        let channels = check(
            "channel_max",
            1,
            method.channel_max.into(),
            settings.channels_max.into(),
        );
        let frame = check(
            "frame_max",
            FRAME_MAX_MIN,
            method.frame_max,
            settings.frame_bytes_max,
        );
        if let Err(exception) = channels.and(frame) {
            return HandshakeAction::Close(exception);
        }
        self.channels_max = method.channel_max;
        self.frame_bytes_max = method.frame_max;
        self.heartbeat = Duration::from_secs(method.heartbeat.into());
        self.state = HandshakeState::Open;
        HandshakeAction::Nothing
    }
}

impl ClientProperties {
    pub(crate) fn read(table: &Table) -> Self {
        let bytes = Bytes::copy_from_slice(table.as_bytes());
        let table = Table::decode(bytes).unwrap_or_default();
        let capabilities = match table.get("capabilities") {
            Some(Value::Table(capabilities)) => capabilities,
            _ => Table::default(),
        };
        let can = |name| capabilities.get(name) == Some(Value::Bool(true));
        Self {
            cancel_notify: can("consumer_cancel_notify"),
            blocked: can("connection.blocked"),
            authentication_failure_close: can("authentication_failure_close"),
            table,
        }
    }
}

impl AuthError {
    fn tell(&self, mechanism: &str) -> Exception {
        let text = match self {
            Self::UnknownMechanism => {
                let text = format!("unknown authentication mechanism '{mechanism}'");
                return Exception::new(ReplyCode::CommandInvalid, text);
            }
            Self::Busy => {
                let text = "too many logins are waiting; try again";
                return Exception::new(ReplyCode::ConnectionForced, text).ending(Scope::Connection);
            }
            Self::Malformed => format!("the response is none of the authentication mechanism {mechanism}"),
            Self::WrongCredentials { .. } => {
                format!("Login was refused using authentication mechanism {mechanism}.")
            }
            Self::NotFromHere { user } => {
                format!("Login was refused: user '{user}' can only connect from this machine.")
            }
        };
        Exception::refused(text)
            .ending(Scope::Connection)
            .caused_by((0, 0))
    }
}

/// Copies a text: a slice would keep the buffer of a whole read as long as the connection is open.
fn owned(text: &ByteString) -> ByteString {
    ByteString::from(&**text)
}

fn end(why: impl Into<String>) -> HandshakeAction {
    HandshakeAction::End { why: why.into() }
}

/// Checks a client's value against the offered one; 0 means no limit.
fn check(what: &str, min: u32, wanted: u32, offered: u32) -> Result<(), Exception> {
    let problem = if wanted != 0 && wanted < min {
        Some(("lower", "minimum", min))
    } else if offered != 0 && (wanted == 0 || wanted > offered) {
        Some(("higher", "maximum", offered))
    } else {
        None
    };
    let Some((than, bound, limit)) = problem else {
        return Ok(());
    };
    Err(Exception::not_allowed(format!(
        "negotiated {what} = {wanted} is {than} than the {bound} allowed value ({limit})"
    ))
    .caused_by((10, 30)))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use bytes::BytesMut;
    use stafett_amqp_wire::frame;

    use super::*;

    fn frame(method: impl Into<Method>) -> Frame {
        let mut out = BytesMut::new();
        method.into().encode(0, &mut out);
        frame::split(&mut out, 0).unwrap().unwrap()
    }

    fn step(handshake: &mut Handshake, method: impl Into<Method>) -> HandshakeAction {
        let settings = AmqpSettings::default();
        let action = handshake.on_frame(frame(method), &settings);
        let HandshakeAction::LogIn(credentials) = &action else {
            return action;
        };
        let user = auth::guest(credentials, IpAddr::V4(Ipv4Addr::LOCALHOST));
        handshake.on_login(user, &settings)
    }

    fn start_ok(response: &'static [u8], tells: bool) -> connection::StartOk {
        let capabilities = TableBuilder::new()
            .with("authentication_failure_close", Value::Bool(tells))
            .finish();
        connection::StartOk {
            client_properties: TableBuilder::new().with("capabilities", capabilities).finish(),
            mechanism: "PLAIN".into(),
            response: Bytes::from_static(response),
            locale: "en_US".into(),
        }
    }

    fn tune_ok(channel_max: u16, frame_max: u32) -> connection::TuneOk {
        connection::TuneOk {
            channel_max,
            frame_max,
            heartbeat: 5,
        }
    }

    #[test]
    fn a_client_comes_to_an_open_connection_in_three_steps() {
        let mut handshake = Handshake::default();
        let tune = step(&mut handshake, start_ok(b"\0guest\0guest", true));
        assert!(matches!(
            tune,
            HandshakeAction::Send(Method::Connection(Connection::Tune(_)))
        ));
        assert_eq!(
            step(&mut handshake, tune_ok(2047, 131_072)),
            HandshakeAction::Nothing
        );
        let open = connection::Open {
            virtual_host: "/".into(),
            ..connection::Open::default()
        };
        let HandshakeAction::Open(agreed) = step(&mut handshake, open) else {
            panic!("it is open");
        };
        assert_eq!((agreed.channels_max, agreed.frame_bytes_max), (2047, 131_072));
        assert_eq!(agreed.heartbeat, Duration::from_secs(5));
    }

    #[test]
    fn a_wrong_password_is_told_to_clients_that_want_to_know() {
        let told = step(&mut Handshake::default(), start_ok(b"\0guest\0wrong", true));
        let HandshakeAction::Close(exception) = told else {
            panic!("it is told");
        };
        assert_eq!(
            (exception.code, exception.scope),
            (ReplyCode::AccessRefused, Scope::Connection)
        );
        let silent = step(&mut Handshake::default(), start_ok(b"\0guest\0wrong", false));
        assert!(matches!(silent, HandshakeAction::End { .. }));
    }

    #[test]
    fn limits_beyond_the_offered_ones_are_not_allowed() {
        for (channels, frame, wrong) in [
            (
                4000,
                131_072,
                "negotiated channel_max = 4000 is higher than the maximum allowed value (2047)",
            ),
            (
                0,
                131_072,
                "negotiated channel_max = 0 is higher than the maximum allowed value (2047)",
            ),
            (
                2047,
                100,
                "negotiated frame_max = 100 is lower than the minimum allowed value (4096)",
            ),
            (
                2047,
                0,
                "negotiated frame_max = 0 is higher than the maximum allowed value (131072)",
            ),
        ] {
            let mut handshake = Handshake::default();
            step(&mut handshake, start_ok(b"\0guest\0guest", true));
            let HandshakeAction::Close(exception) = step(&mut handshake, tune_ok(channels, frame)) else {
                panic!("{wrong}");
            };
            assert_eq!(
                (exception.code, exception.text.as_str()),
                (ReplyCode::NotAllowed, wrong)
            );
        }
    }

    #[test]
    fn what_comes_out_of_turn_ends_the_connection_without_a_word() {
        let early = step(&mut Handshake::default(), connection::Open::default());
        assert!(matches!(early, HandshakeAction::End { .. }));
        let mut handshake = Handshake::default();
        let body = Frame {
            kind: FrameKind::Body as u8,
            channel: 0,
            payload: Bytes::new(),
        };
        let step = handshake.on_frame(body, &AmqpSettings::default());
        assert!(matches!(step, HandshakeAction::End { .. }));
    }
}
