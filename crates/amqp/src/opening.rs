//! Opening of a connection: reads frames for the handshake, and writes its answers.

use std::net::IpAddr;
use std::sync::Arc;

use stafett_access::Caller;
use stafett_amqp_wire::methods::connection::{CloseOk, OpenOk};
use stafett_amqp_wire::{Frame, frame};
use stafett_broker::AccessControl;
use stafett_net::tls::{is_hello, warn_of_tls};
use stafett_net::{Connection, ConnectionEntry, TlsSession, WriteHalf};
use tokio::task::yield_now;

use crate::auth;
use crate::connection::Ended;
use crate::context::AmqpContext;
use crate::exception::Exception;
use crate::handshake::{self, Agreed, FRAME_BYTES_BEFORE, Handshake, HandshakeAction};
use crate::input::Input;
use crate::limits::Admitted;
use crate::output::Output;
use crate::session::{ConnectionEnd, rights};

/// Agreement, caller and place of an opened connection.
pub(crate) type Opened = (Agreed, Arc<Caller>, Admitted);

/// A connection that is not authenticated and opened yet.
#[derive(Default)]
pub(crate) struct Opening {
    pub(crate) input: Input,
    pub(crate) output: Output,
}

impl Opening {
    pub(crate) async fn run(
        &mut self,
        context: &AmqpContext,
        connection: &mut Connection,
    ) -> Result<Opened, Ended> {
        let peer = connection.entry.peer.ip();
        let entry = Arc::clone(&connection.entry);
        let budget = Arc::clone(&connection.budget);
        let drain = connection.drain.clone();
        let (mut read, mut write) = connection.stream.split();
        let mut handshake = Handshake::default();
        let mut caller = None;
        let access = context.broker.access();
        let trusted = trusted(access, &entry);
        let mut began = false;
        loop {
            let read = drain
                .run_until_cancelled(self.input.read(&mut read, &budget, &entry))
                .await;
            let Some(read) = read else {
                return Err(ConnectionEnd::Stopping.into());
            };
            let permit = read?.ok_or(Ended::Left)?;
            entry.on_received(permit.bytes());
            if !began {
                let is_tls = is_hello(&self.input.buffer);
                let Some(is_spoken) = frame::split_protocol_header(&mut self.input.buffer) else {
                    continue;
                };
                if !is_spoken {
                    if is_tls {
                        warn_of_tls(&entry);
                    }
                    return Err(self.refuse_protocol(&mut write).await);
                }
                began = true;
                let known = auth::mechanisms(peer, access.is_open(), trusted.is_some());
                self.output.send(0, handshake::start(known));
            }
            while let Some(frame) = self.next_frame()? {
                let proved = (trusted.as_ref(), peer);
                let action = act(&mut handshake, frame, context, proved, &mut caller).await;
                context.check_tenure()?;
                match action {
                    HandshakeAction::Nothing | HandshakeAction::LogIn(_) | HandshakeAction::Trust => {}
                    HandshakeAction::Send(method) => self.output.send(0, method),
                    HandshakeAction::Open(agreed) => {
                        let caller = caller.unwrap_or_else(|| access.anonymous(peer));
                        return self.open(context, agreed, caller, &mut write).await;
                    }
                    HandshakeAction::Close(exception) => {
                        return Err(self.refuse(&exception, &mut write).await);
                    }
                    HandshakeAction::End { why } => {
                        self.output.write_all(&mut write).await?;
                        return Err(Ended::NotOpened(why));
                    }
                    HandshakeAction::Closed => {
                        self.output.send(0, CloseOk {});
                        self.output.write_all(&mut write).await?;
                        return Err(Ended::Left);
                    }
                }
            }
            drop(permit);
            // Others have their turn, however fast it sends.
            yield_now().await;
            self.output.write_all(&mut write).await?;
        }
    }

    /// Answers with the header of the protocol that is spoken here.
    async fn refuse_protocol(&mut self, write: &mut WriteHalf<'_>) -> Ended {
        self.output.tail().extend_from_slice(&frame::PROTOCOL_HEADER);
        match self.output.write_all(write).await {
            Ok(()) => Ended::NotOpened("another protocol, or another version".to_owned()),
            Err(error) => error.into(),
        }
    }

    fn next_frame(&mut self) -> Result<Option<Frame>, Ended> {
        frame::split(&mut self.input.buffer, FRAME_BYTES_BEFORE)
            .map_err(|error| Ended::NotOpened(error.to_string()))
    }

    /// Answers the last step of the opening, unless another broker keeps the virtual host: that one does.
    pub(crate) async fn open(
        &mut self,
        context: &AmqpContext,
        agreed: Agreed,
        caller: Arc<Caller>,
        write: &mut WriteHalf<'_>,
    ) -> Result<Opened, Ended> {
        let may_enter = rights::check_virtual_host(&caller, &agreed);
        let is_elsewhere = context.is_elsewhere(&agreed.virtual_host);
        let opened = may_enter.and_then(|()| {
            if is_elsewhere {
                return Ok(());
            }
            context.open_virtual_host(&agreed.virtual_host)
        });
        let admitted = match opened.and_then(|()| context.admit(&agreed)) {
            Ok(admitted) => admitted,
            Err(exception) => return Err(self.refuse(&exception.caused_by((10, 40)), write).await),
        };
        if !is_elsewhere {
            self.output.send(0, OpenOk::default());
        }
        Ok((agreed, caller, admitted))
    }

    /// Sends the exception, then ends the connection.
    pub(crate) async fn refuse(&mut self, exception: &Exception, write: &mut WriteHalf<'_>) -> Ended {
        self.output.send(0, exception.close());
        match self.output.write_all(write).await {
            Ok(()) => Ended::NotOpened(exception.reply_text()),
            Err(error) => error.into(),
        }
    }
}

/// Returns the user of the client's certificate, if there is one.
fn trusted(access: &AccessControl, entry: &ConnectionEntry) -> Option<Arc<Caller>> {
    let tls = entry.tls();
    let user = tls.as_deref().and_then(TlsSession::user)?;
    access.trusted(user, entry.peer.ip())
}

/// Takes a frame, and checks the credentials in it. `proved`: the user of the certificate, and the address.
async fn act(
    handshake: &mut Handshake,
    frame: Frame,
    context: &AmqpContext,
    proved: (Option<&Arc<Caller>>, IpAddr),
    caller: &mut Option<Arc<Caller>>,
) -> HandshakeAction {
    let action = handshake.on_frame(frame, &context.settings);
    let (trusted, peer) = proved;
    let logged_in = if let HandshakeAction::LogIn(credentials) = &action {
        auth::log_in(context.broker.access(), credentials, peer).await
    } else if action == HandshakeAction::Trust {
        auth::trust(trusted)
    } else {
        return action;
    };
    let user = logged_in.map(|logged_in| {
        *caller = Some(logged_in.caller);
        logged_in.user
    });
    handshake.on_login(user, &context.settings)
}
