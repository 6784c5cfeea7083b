//! From frames to methods, one function per class.

use bytes::Bytes;
use stafett_access::Rate;
use stafett_amqp_wire::methods::{Basic, name_of};
use stafett_amqp_wire::{ContentHeader, Frame, FrameKind, Method, ReplyCode};

use super::arriving::Memory;
use super::assembly::{Assembly, Content};
use super::channel::Channel;
use super::held::{Flow, Held};
use super::{
    ConnectionEnd, LARGE_BODY_BYTES, MethodError, Session, connection_class, pending_changes, settle,
};
use crate::exception::{Exception, octets};

impl Session {
    /// Executes a frame. An exception closes a channel or the connection, and is sent to the client.
    pub(crate) fn on_frame(&mut self, frame: Frame) -> Result<(), ConnectionEnd> {
        if !self.pending_changes.is_empty()
            && !pending_changes::is_bind(&frame)
            && let Some(operation) = self.await_changes()
        {
            self.hold(operation, Held::Frame(frame));
            return Ok(());
        }
        let channel = frame.channel;
        let executed = self.take(frame);
        self.conclude(channel, executed)
    }

    /// Closes a channel or the connection after an exception.
    pub(super) fn conclude(
        &mut self,
        channel: u16,
        executed: Result<(), MethodError>,
    ) -> Result<(), ConnectionEnd> {
        match executed {
            Ok(()) => Ok(()),
            Err(MethodError::End(end)) => Err(end),
            Err(MethodError::Exception(exception)) => match self.await_changes() {
                Some(operation) => {
                    self.hold(operation, Held::Exception(channel, exception));
                    Ok(())
                }
                None => self.fail(channel, exception),
            },
        }
    }

    fn take(&mut self, frame: Frame) -> Result<(), MethodError> {
        let kind = FrameKind::of(frame.kind);
        if self.closing {
            return self.take_while_closing(kind, frame);
        }
        match (kind, frame.channel) {
            (None, _) => Err(Exception::new(
                ReplyCode::FrameError,
                format!(
                    "type {}, all octets = {}: unknown_frame",
                    frame.kind,
                    octets(&frame.payload)
                ),
            )
            .into()),
            (Some(FrameKind::Heartbeat), 0) => Ok(()),
            (Some(FrameKind::Method), 0) => {
                let id = method_id(&frame.payload);
                let method = Method::decode(frame.payload).map_err(Exception::from)?;
                if matches!(method, Method::Connection(_)) {
                    self.on_method(0, method)
                } else {
                    Err(connection_class::unexpected_method().caused_by(id))
                }
            }
            (Some(FrameKind::Header | FrameKind::Body), 0) => Err(unexpected(&frame)),
            (Some(kind), number) => self.take_on_channel(kind, number, frame),
        }
    }

    fn take_while_closing(&mut self, kind: Option<FrameKind>, frame: Frame) -> Result<(), MethodError> {
        if kind == Some(FrameKind::Method) && frame.channel == 0 {
            return self.on_method_while_closing(frame.payload);
        }
        Ok(())
    }

    fn take_on_channel(&mut self, kind: FrameKind, number: u16, frame: Frame) -> Result<(), MethodError> {
        let Some(channel) = self.channels.get_mut(&number) else {
            return self.take_on_unopened_channel(kind, number, frame.payload);
        };
        if channel.closing {
            self.take_on_closing_channel(kind, number, frame.payload);
            return Ok(());
        }
        match kind {
            FrameKind::Heartbeat => Err(unexpected(&frame)),
            FrameKind::Header => {
                if !matches!(channel.assembly, Assembly::Header(_)) {
                    return Err(unexpected_content(channel));
                }
                let header = ContentHeader::decode(frame.payload)
                    .map_err(|error| Exception::from(error).caused_by((60, 40)))?;
                self.on_header(number, header)
            }
            FrameKind::Body => {
                if !matches!(channel.assembly, Assembly::Body(_)) {
                    return Err(unexpected_content(channel));
                }
                if channel.assembly.lacks_memory(frame.payload.len()) {
                    return self.on_body(number, frame.payload);
                }
                match channel.assembly.on_body(frame.payload)? {
                    Some(content) => self.on_content(number, content),
                    None => Ok(()),
                }
            }
            FrameKind::Method => {
                if channel.assembly.is_busy() {
                    return Err(unexpected_content(channel));
                }
                let id = method_id(&frame.payload);
                let method =
                    Method::decode(frame.payload).map_err(|error| Exception::from(error).caused_by(id))?;
                self.on_method(number, method)
            }
        }
    }

    pub(super) fn on_method(&mut self, number: u16, method: Method) -> Result<(), MethodError> {
        if let Method::Basic(Basic::Publish(publish)) = method {
            self.channel(number)?.assembly.begin(publish);
            self.wait_for_space();
            return Ok(());
        }
        self.is_waited_for = true;
        if !self.agreed.is_internal {
            self.charge(Rate::Requests, 1);
        }
        let executed = self
            .check_rights(number, &method)
            .and_then(|()| self.execute(number, &method));
        match executed {
            Ok(Flow::Continue) => Ok(()),
            Ok(Flow::Hold(operation)) => {
                self.hold(operation, Held::Method(number, method));
                Ok(())
            }
            Err(error) => Err(error.caused_by(method.id())),
        }
    }

    fn execute(&mut self, number: u16, method: &Method) -> Result<Flow, MethodError> {
        match method {
            Method::Basic(method) => self.on_basic(number, method),
            Method::Exchange(method) => self.on_exchange(number, method),
            Method::Queue(method) => self.on_queue(number, method),
            Method::Channel(method) => self.on_channel_method(number, method),
            Method::Confirm(method) => self.on_confirm(number, method),
            Method::Tx(method) => self.on_tx(number, method),
            Method::Access(method) => self.on_access(number, method),
            Method::Connection(method) if number == 0 => self.on_connection_method(method),
            Method::Connection(_) => Err(not_for_servers()),
        }
    }

    fn on_basic(&mut self, number: u16, method: &Basic) -> Result<Flow, MethodError> {
        match method {
            Basic::Qos(method) => self.on_qos(number, method)?,
            Basic::Consume(method) => self.on_consume(number, method)?,
            Basic::Cancel(method) => self.on_cancel(number, method)?,
            Basic::Get(method) => return self.on_get(number, method),
            Basic::Ack(method) => self.on_settlement(number, settle::ack(method))?,
            Basic::Nack(method) => self.on_settlement(number, settle::nack(method))?,
            Basic::Reject(method) => self.on_settlement(number, settle::reject(method))?,
            Basic::Recover(method) => self.on_recover(number, method.requeue, true)?,
            Basic::RecoverAsync(method) => self.on_recover(number, method.requeue, false)?,
            Basic::CancelOk(_) => {}
            Basic::Publish(_)
            | Basic::QosOk(_)
            | Basic::ConsumeOk(_)
            | Basic::Return(_)
            | Basic::Deliver(_)
            | Basic::GetOk(_)
            | Basic::GetEmpty(_)
            | Basic::RecoverOk(_) => return Err(not_for_servers()),
        }
        Ok(Flow::Continue)
    }

    /// Takes a content header. Memory for a large body is reserved in steps, before it arrives.
    pub(super) fn on_header(&mut self, number: u16, header: ContentHeader) -> Result<(), MethodError> {
        let max = self.context.settings.message_bytes_max;
        if header.body_size > max {
            let text = format!(
                "message size {} is larger than configured max size {max}",
                header.body_size
            );
            return Err(Exception::precondition(text).caused_by((60, 40)).into());
        }
        let memory = if header.body_size > LARGE_BODY_BYTES {
            match self.begin_arrival(number, header.body_size)? {
                Memory::Reserved(memory) => Some(memory),
                Memory::Wait(operation) => {
                    self.hold(operation, Held::Header(number, header));
                    return Ok(());
                }
            }
        } else {
            None
        };
        match self.channel(number)?.assembly.on_header(header, memory) {
            Some(content) => self.on_content(number, content),
            None => Ok(()),
        }
    }

    /// Takes a piece of a large body that needs more memory.
    pub(super) fn on_body(&mut self, number: u16, piece: Bytes) -> Result<(), MethodError> {
        if let Some(operation) = self.grow_arrival(number, piece.len())? {
            self.hold(operation, Held::Body(number, piece));
            return Ok(());
        }
        match self.channel(number)?.assembly.on_body(piece)? {
            Some(content) => self.on_content(number, content),
            None => Ok(()),
        }
    }

    fn on_content(&mut self, number: u16, content: Content) -> Result<(), MethodError> {
        self.on_published(number, content)
            .map_err(|trouble| trouble.caused_by((60, 40)))
    }
}

pub(super) fn method_id(payload: &Bytes) -> (u16, u16) {
    match payload.first_chunk::<4>() {
        Some(&[c0, c1, m0, m1]) => {
            let id = (u16::from_be_bytes([c0, c1]), u16::from_be_bytes([m0, m1]));
            name_of(id.0, id.1).map_or((0, 0), |_| id)
        }
        None => (0, 0),
    }
}

fn unexpected(frame: &Frame) -> MethodError {
    let text = format!("type {}, all octets = {}", frame.kind, octets(&frame.payload));
    Exception::new(ReplyCode::UnexpectedFrame, text).into()
}

fn unexpected_content(channel: &Channel) -> MethodError {
    let id = if channel.assembly.is_busy() {
        (60, 40)
    } else {
        (0, 0)
    };
    let text = if channel.assembly.is_busy() {
        channel.assembly.expected().to_owned()
    } else {
        "expected method frame, got non method frame instead".to_owned()
    };
    Exception::new(ReplyCode::UnexpectedFrame, text)
        .caused_by(id)
        .into()
}

/// Refuses a method that only servers send, or that belongs elsewhere.
pub(super) fn not_for_servers() -> MethodError {
    Exception::new(ReplyCode::CommandInvalid, "unimplemented method").into()
}
