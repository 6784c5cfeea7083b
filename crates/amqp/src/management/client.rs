//! A session of one request: the client of AMQP behind a change, a publication or a taken message.
//!
//! Frames go through the session as they would from a socket, so rules and error texts are those of AMQP.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use stafett_access::Caller;
use stafett_amqp_wire::methods::{Basic, Channel, Connection, basic, channel};
use stafett_amqp_wire::{ContentHeader, Encoder, Frame, FrameKind, Method, Properties, frame};
use stafett_model::Namespace;
use stafett_net::{BudgetSettings, ByteBudget};
use tokio::time::timeout;

use super::call::Call;
use super::refusal::Refusal;
use crate::handshake::{Agreed, ClientProperties};
use crate::output::Output;
use crate::session::{ConnectionEnd, Session};

const CHANNEL: u16 = 1;
const FRAME_BYTES_MAX: u32 = 128 * 1024;
/// Time limit for space on the disk, as RabbitMQ has for a confirm.
const SPACE_TIMEOUT: Duration = Duration::from_secs(5);

/// Reason for which the session closed the channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Closed {
    pub(super) code: u16,
    /// Name of the code, and the reason.
    pub(super) text: String,
}

impl Closed {
    /// Returns the reason without the name of the code.
    pub(super) fn reason(&self) -> &str {
        self.text
            .split_once(" - ")
            .map_or(self.text.as_str(), |(_, reason)| reason)
    }
}

/// Error of an operation.
#[derive(Debug)]
pub(super) enum ClientError {
    Closed(Closed),
    /// The broker stops, or the outcome is unknown.
    Ended,
    /// There is no space on the disk.
    NoSpace,
}

impl From<ConnectionEnd> for ClientError {
    fn from(_: ConnectionEnd) -> Self {
        Self::Ended
    }
}

impl ClientError {
    fn refusal(self, of_closed: fn(&Closed) -> Refusal) -> Refusal {
        match self {
            Self::Closed(closed) => of_closed(&closed),
            Self::Ended | Self::NoSpace => self.unavailable(),
        }
    }

    /// Returns the refusal of a change.
    pub(super) fn of_change(self) -> Refusal {
        self.refusal(Refusal::of_change)
    }

    /// Returns the refusal to take messages from a queue.
    pub(super) fn of_taking(self) -> Refusal {
        self.refusal(Refusal::of_taking)
    }

    /// Returns the refusal of messages.
    pub(super) fn of_messages(self) -> Refusal {
        self.refusal(Refusal::of_messages)
    }

    /// Changes the text of a refusal.
    pub(super) fn with_reason(self, change: fn(&str) -> String) -> Self {
        match self {
            Self::Closed(Closed { code, text }) => {
                let text = change(&text);
                Self::Closed(Closed { code, text })
            }
            other @ (Self::Ended | Self::NoSpace) => other,
        }
    }

    fn unavailable(&self) -> Refusal {
        match self {
            Self::NoSpace => Refusal::unavailable("the disk is short of space"),
            Self::Closed(_) | Self::Ended => Refusal::starting(),
        }
    }
}

/// A message that was got.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) ok: basic::GetOk,
    pub(super) properties: Properties,
    pub(super) body: Bytes,
}

/// Outcome of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Routed,
    Unroutable,
    Refused,
}

/// Makes one change in a virtual host.
pub(super) async fn change(
    call: &Call,
    vhost: &Namespace,
    method: impl Into<Method>,
) -> Result<(), ClientError> {
    let mut client = Client::open(call, vhost, 0).await?;
    client.call(method).await.map(drop)
}

/// A session with one channel.
pub(super) struct Client {
    session: Session,
    received: BytesMut,
}

impl Client {
    /// Opens a channel in a virtual host. Bodies of up to `bytes` are published.
    pub(super) async fn open(call: &Call, vhost: &Namespace, bytes: usize) -> Result<Self, ClientError> {
        Self::open_as(call, Arc::clone(&call.user.caller), vhost, bytes).await
    }

    /// Opens a channel that may do everything in a virtual host, for an administrator.
    pub(super) async fn open_unrestricted(call: &Call, vhost: &Namespace) -> Result<Self, ClientError> {
        Self::open_as(call, Arc::new(Caller::internal()), vhost, 0).await
    }

    async fn open_as(
        call: &Call,
        caller: Arc<Caller>,
        vhost: &Namespace,
        bytes: usize,
    ) -> Result<Self, ClientError> {
        let agreed = Agreed {
            user: call.user.user.clone(),
            mechanism: ByteString::default(),
            client: ClientProperties::default(),
            channels_max: CHANNEL,
            frame_bytes_max: FRAME_BYTES_MAX,
            heartbeat: Duration::ZERO,
            virtual_host: vhost.as_str().into(),
            is_internal: true,
        };
        // The memory of the request is reserved already.
        let budget = ByteBudget::new(BudgetSettings {
            bytes: bytes.saturating_mul(4).max(4 << 20),
        });
        let session = Session::new(call.context.clone(), agreed, caller, budget, Output::default());
        let mut client = Self {
            session,
            received: BytesMut::new(),
        };
        client.call(channel::Open::default()).await?;
        Ok(client)
    }

    /// Sends a method and returns the answer.
    pub(super) async fn call(&mut self, method: impl Into<Method>) -> Result<Method, ClientError> {
        self.send(method).await?;
        self.end_turn().await?;
        self.answer().await
    }

    /// Publishes a message, and waits until it is confirmed.
    pub(super) async fn publish(
        &mut self,
        method: basic::Publish,
        properties: Properties,
        body: Bytes,
    ) -> Result<Outcome, ClientError> {
        self.send(method).await?;
        if self.session.is_blocked() {
            let space = self.session.space.clone();
            let has_space = timeout(SPACE_TIMEOUT, space.enough()).await.is_ok();
            if !has_space {
                return Err(ClientError::NoSpace);
            }
            self.session.unblock();
        }
        let header = ContentHeader {
            body_size: body.len() as u64,
            properties,
        };
        let mut out = BytesMut::new();
        Encoder::frame(&mut out, FrameKind::Header, CHANNEL, |e| header.encode(e));
        self.feed(&mut out).await?;
        for piece in body.chunks(FRAME_BYTES_MAX as usize - frame::FRAME_OVERHEAD) {
            Encoder::frame(&mut out, FrameKind::Body, CHANNEL, |e| e.raw(piece));
            self.feed(&mut out).await?;
        }
        self.end_turn().await?;
        let mut outcome = Outcome::Routed;
        loop {
            while let Some(method) = self.next_method().await? {
                if matches!(method, Method::Basic(Basic::Return(_))) {
                    outcome = Outcome::Unroutable;
                } else if matches!(method, Method::Basic(Basic::Ack(_))) {
                    return Ok(outcome);
                } else if matches!(method, Method::Basic(Basic::Nack(_))) {
                    return Ok(Outcome::Refused);
                }
            }
            let (confirms, ..) = self.session.parts();
            if confirms.is_empty() {
                return Err(ClientError::Ended);
            }
            poll_fn(|cx| confirms.poll_ready(cx)).await;
            self.session.resolve_ready()?;
        }
    }

    /// Takes a message. `None` if there is none.
    pub(super) async fn get(&mut self, queue: &str, no_ack: bool) -> Result<Option<Got>, ClientError> {
        let get = basic::Get {
            queue: queue.into(),
            no_ack,
            ..basic::Get::default()
        };
        let Method::Basic(Basic::GetOk(ok)) = self.call(get).await? else {
            return Ok(None);
        };
        let mut header = None;
        let mut body = BytesMut::new();
        while let Some(frame) = self.next_frame().await? {
            match FrameKind::of(frame.kind) {
                Some(FrameKind::Header) => header = ContentHeader::decode(frame.payload).ok(),
                Some(FrameKind::Body) => body.extend_from_slice(&frame.payload),
                Some(FrameKind::Method | FrameKind::Heartbeat) | None => {}
            }
        }
        Ok(Some(Got {
            ok,
            properties: header.map(|header| header.properties).unwrap_or_default(),
            body: body.freeze(),
        }))
    }

    /// Sends a method that has no answer, with everything that it causes.
    pub(super) async fn tell(&mut self, method: impl Into<Method>) -> Result<(), ClientError> {
        self.send(method).await?;
        self.end_turn().await?;
        while self.next_method().await?.is_some() {}
        Ok(())
    }

    async fn send(&mut self, method: impl Into<Method>) -> Result<(), ClientError> {
        let mut out = BytesMut::new();
        method.into().encode(CHANNEL, &mut out);
        self.feed(&mut out).await
    }

    /// Executes the frames of a buffer.
    async fn feed(&mut self, buffer: &mut BytesMut) -> Result<(), ClientError> {
        while let Ok(Some(frame)) = frame::split(buffer, FRAME_BYTES_MAX) {
            self.session.on_frame(frame)?;
            self.perform().await?;
        }
        Ok(())
    }

    async fn end_turn(&mut self) -> Result<(), ClientError> {
        self.session.finish_turn()?;
        self.perform().await
    }

    async fn perform(&mut self) -> Result<(), ClientError> {
        while let Some(operation) = self.session.next_operation() {
            let done = operation
                .perform(&self.session.context, &self.session.caller)
                .await;
            self.session.on_done(done)?;
        }
        Ok(())
    }

    async fn answer(&mut self) -> Result<Method, ClientError> {
        self.next_method().await?.ok_or(ClientError::Ended)
    }

    /// Returns the next method that the session has sent.
    async fn next_method(&mut self) -> Result<Option<Method>, ClientError> {
        while let Some(frame) = self.next_frame().await? {
            if FrameKind::of(frame.kind) != Some(FrameKind::Method) {
                continue;
            }
            let method = Method::decode(frame.payload).map_err(|_| ClientError::Ended)?;
            if let Method::Channel(Channel::Close(close)) = method {
                return Err(closed(close.reply_code, &close.reply_text));
            }
            if let Method::Connection(Connection::Close(close)) = method {
                return Err(closed(close.reply_code, &close.reply_text));
            }
            return Ok(Some(method));
        }
        Ok(None)
    }

    async fn next_frame(&mut self) -> Result<Option<Frame>, ClientError> {
        if !self.session.out.is_empty() {
            let mut written = Vec::new();
            let wrote = self.session.out.write_all(&mut written).await;
            wrote.map_err(|_| ClientError::Ended)?;
            self.received.extend_from_slice(&written);
        }
        frame::split(&mut self.received, FRAME_BYTES_MAX).map_err(|_| ClientError::Ended)
    }
}

fn closed(code: u16, text: &str) -> ClientError {
    let text = text.to_owned();
    ClientError::Closed(Closed { code, text })
}
