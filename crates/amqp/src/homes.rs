//! Virtual hosts that another broker of the cluster keeps: a connection is authenticated here, and passed on
//! whole at `connection.open`.
//!
//! ```text
//! client ◀─ handshake ─▶ this broker ── u32 bytes │ table │ bytes that came ahead ─▶ home
//! client ◀────────────── bytes, both ways (`passing.rs`) ──────────────────────────▶ home, from open-ok on
//! ```
//!
//! The table ([`Passed`]) has the user that was found and the agreement. The home trusts it: it comes from
//! another node. Rights are checked here to enter, and by the home for everything else; it waits until its
//! copy of users and rights is as new as the one here.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use bytestring::ByteString;
use stafett_access::{Caller, Who};
use stafett_amqp_wire::{ReplyCode, Table, TableBuilder, Value};
use stafett_net::{Connection, Duplex, Protocol};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::connection::{self, Ended};
use crate::context::AmqpContext;
use crate::exception::Exception;
use crate::handshake::{Agreed, ClientProperties};
use crate::opening::{Opened, Opening};
use crate::passing::{Over, carry, last_word};
use crate::session::ConnectionEnd;

/// Largest table of a connection that is passed on.
const TABLE_BYTES_MAX: usize = 256 << 10;
/// Time for the home to have the users and rights with which a connection was opened.
const COPY_MAX: Duration = Duration::from_secs(5);

/// Version of users and rights: epoch of the broker that keeps them, and generation there.
pub type AccessVersion = (u64, u64);

/// Text for clients whose node stops.
const STOPPED: &str = "broker forced connection closure with reason 'shutdown'";

/// A connection to the home of a virtual host.
pub struct Home {
    pub stream: Box<dyn Duplex>,
    /// Done once the home cannot be counted on any more, with the reason in words about the virtual host.
    pub lost: Pin<Box<dyn Future<Output = &'static str> + Send>>,
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Home")
    }
}

/// The way to the home of a virtual host.
pub type Reached<'a> = Pin<Box<dyn Future<Output = Option<Home>> + Send + 'a>>;

/// The way to brokers that keep other virtual hosts.
pub trait Homes: Send + Sync + fmt::Debug {
    /// Returns the version of users and rights that are in force here.
    fn version(&self) -> AccessVersion;

    /// Connects to the broker that keeps a virtual host, for a client. `None` if there is none in time.
    fn reach<'a>(&'a self, virtual_host: &'a str, client: SocketAddr) -> Reached<'a>;
}

/// An opened connection, as one broker tells another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passed {
    agreed: Agreed,
    /// Name of the caller, if it has one.
    caller: Option<ByteString>,
    /// It is a program of the broker's own.
    is_internal: bool,
    expires_ms: Option<i64>,
    version: AccessVersion,
}

impl Passed {
    fn write(&self) -> Vec<u8> {
        let Agreed {
            user,
            mechanism,
            client,
            channels_max,
            frame_bytes_max,
            heartbeat,
            virtual_host,
            is_internal: _,
        } = &self.agreed;
        let text = |text: &ByteString| Value::LongString(text.clone().into_bytes());
        let number = |number: u64| Value::I64(i64::try_from(number).unwrap_or(i64::MAX));
        let mut table = TableBuilder::new()
            .with("user", text(user))
            .with("mechanism", text(mechanism))
            .with("client", client.table.clone())
            .with("channels", Value::U16(*channels_max))
            .with("frame", Value::U32(*frame_bytes_max))
            .with("heartbeat", number(heartbeat.as_secs()))
            .with("host", text(virtual_host))
            .with("epoch", number(self.version.0))
            .with("generation", number(self.version.1));
        if let Some(caller) = &self.caller {
            table.push("caller", &text(caller));
        }
        if self.is_internal {
            table.push("internal", &Value::Bool(true));
        }
        if let Some(expires_ms) = self.expires_ms {
            table.push("expires", &Value::I64(expires_ms));
        }
        let table = table.finish();
        let bytes = table.as_bytes();
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        [length.to_be_bytes().as_slice(), bytes].concat()
    }

    /// Takes the table from the front of received bytes. `None` if it is not there as a whole.
    fn take(buffer: &mut BytesMut) -> Result<Option<Self>, &'static str> {
        let Some((length, rest)) = buffer.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > TABLE_BYTES_MAX {
            return Err("a connection that was passed on has a table that is too long");
        }
        if rest.len() < length {
            return Ok(None);
        }
        buffer.advance(4);
        let table = buffer.split_to(length).freeze();
        Self::read(table)
            .map(Some)
            .ok_or("a connection that was passed on has a malformed table")
    }

    fn read(table: Bytes) -> Option<Self> {
        let table = Table::decode(table).ok()?;
        let text = |name: &str| {
            let Some(Value::LongString(text)) = table.get(name) else {
                return None;
            };
            // A slice would keep the buffer of a whole read.
            Some(ByteString::from(std::str::from_utf8(&text).ok()?))
        };
        let number = |name: &str| {
            let Some(Value::I64(number)) = table.get(name) else {
                return None;
            };
            Some(number)
        };
        let count = |name: &str| u64::try_from(number(name)?).ok();
        let (Some(Value::Table(client)), Some(Value::U16(channels_max)), Some(Value::U32(frame_bytes_max))) =
            (table.get("client"), table.get("channels"), table.get("frame"))
        else {
            return None;
        };
        Some(Self {
            agreed: Agreed {
                user: text("user")?,
                mechanism: text("mechanism")?,
                client: ClientProperties::read(&client),
                channels_max,
                frame_bytes_max,
                heartbeat: Duration::from_secs(count("heartbeat")?),
                virtual_host: text("host")?,
                is_internal: false,
            },
            caller: text("caller"),
            is_internal: table.get("internal") == Some(Value::Bool(true)),
            expires_ms: number("expires"),
            version: (count("epoch")?, count("generation")?),
        })
    }
}

/// Passes an opened connection on to the home of its virtual host, until one side ends.
pub(crate) async fn pass(
    context: &AmqpContext,
    connection: &mut Connection,
    mut opening: Opening,
    opened: Opened,
) -> Ended {
    // Counted until the connection ends.
    let (agreed, caller, _admitted) = opened;
    let drain = connection.drain.clone();
    let reaching = async {
        match context.homes.get() {
            Some(homes) => homes.reach(&agreed.virtual_host, connection.entry.peer).await,
            None => None,
        }
    };
    let Some(reached) = drain.run_until_cancelled(reaching).await else {
        let reason = connection.entry.reason();
        let reason = reason.as_deref().unwrap_or(STOPPED);
        let exception = Exception::new(ReplyCode::ConnectionForced, reason);
        let (_, mut write) = connection.stream.split();
        return opening.refuse(&exception, &mut write).await;
    };
    let (vhost, user) = (agreed.virtual_host.clone(), agreed.user.clone());
    let Some(mut home) = reached else {
        let text = format!("access to vhost '{vhost}' refused for user '{user}': vhost '{vhost}' is down");
        let exception = Exception::new(ReplyCode::InternalError, text).caused_by((10, 40));
        let (_, mut write) = connection.stream.split();
        return opening.refuse(&exception, &mut write).await;
    };
    let passed = Passed {
        agreed,
        caller: caller.name().map(ByteString::from),
        is_internal: *caller.who() == Who::Internal,
        expires_ms: caller.expires_ms(),
        version: context
            .homes
            .get()
            .map(|homes| homes.version())
            .unwrap_or_default(),
    };
    let begun = async {
        opening.output.write_all(&mut connection.stream.split().1).await?;
        let ahead = std::mem::take(&mut opening.input.buffer);
        let begin = [passed.write().as_slice(), &ahead].concat();
        home.stream.write_all(&begin).await?;
        home.stream.flush().await
    };
    match drain.run_until_cancelled(begun).await {
        Some(Ok(())) => {}
        Some(Err(error)) => return error.into(),
        None => return ConnectionEnd::Stopping.into(),
    }
    drop((opening, passed));
    let (over, may_speak) = carry(&mut connection.stream, home, &connection.entry, &drain).await;
    let (reason, ended) = match over {
        Over::Left => return Ended::Left,
        Over::Lost(why) => (format!("vhost '{vhost}' {why}"), Ended::HomeLost(why)),
        Over::Drain => {
            let reason = connection.entry.reason();
            let reason = reason.as_deref().unwrap_or(STOPPED);
            (reason.to_owned(), ConnectionEnd::Stopping.into())
        }
    };
    if may_speak && let Err(error) = last_word(&mut connection.stream, &reason).await {
        return error.into();
    }
    ended
}

/// Connections that were opened by another broker of the cluster.
#[derive(Debug)]
pub struct PassedConnections {
    context: Arc<AmqpContext>,
    /// Version of the users and rights that are in force here.
    versions: watch::Receiver<AccessVersion>,
}

impl PassedConnections {
    pub(crate) fn new(context: Arc<AmqpContext>, versions: watch::Receiver<AccessVersion>) -> Self {
        Self { context, versions }
    }
}

impl Opening {
    /// Opens a connection that another broker passed on.
    pub(crate) async fn adopt(
        &mut self,
        context: &AmqpContext,
        versions: &watch::Receiver<AccessVersion>,
        connection: &mut Connection,
    ) -> Result<Opened, Ended> {
        let (entry, budget) = (Arc::clone(&connection.entry), Arc::clone(&connection.budget));
        let drain = connection.drain.clone();
        let (mut read, mut write) = connection.stream.split();
        let passed = loop {
            let read = drain
                .run_until_cancelled(self.input.read(&mut read, &budget, &entry))
                .await;
            let Some(read) = read else {
                return Err(ConnectionEnd::Stopping.into());
            };
            let permit = read?.ok_or(Ended::Left)?;
            entry.on_received(permit.bytes());
            yield_now().await;
            let taken = Passed::take(&mut self.input.buffer);
            if let Some(passed) = taken.map_err(|why| Ended::NotOpened(why.to_owned()))? {
                break passed;
            }
        };
        let mut versions = versions.clone();
        let is_new = |known: &AccessVersion| *known >= passed.version;
        let is_copied = {
            let copied = timeout(COPY_MAX, versions.wait_for(is_new)).await;
            matches!(copied, Ok(Ok(_)))
        };
        if !is_copied {
            let why = "the users and rights of a connection that was passed on are not here yet";
            return Err(Ended::NotOpened(why.to_owned()));
        }
        // It checked the login by users and rights that may have changed since.
        if versions.borrow().0 > passed.version.0 {
            let why = "a former owner of the users and rights passed the connection on";
            return Err(Ended::NotOpened(why.to_owned()));
        }
        let (agreed, caller) = passed.open(context, entry.peer.ip());
        self.open(context, agreed, caller, &mut write).await
    }
}

impl Passed {
    /// Returns the agreement, and the caller.
    fn open(self, context: &AmqpContext, peer: IpAddr) -> (Agreed, Arc<Caller>) {
        let directory = context.broker.access().directory();
        let mut caller = match &self.caller {
            Some(name) => Caller::user(directory, name, peer),
            None if self.is_internal => Caller::internal().at(peer),
            None => Caller::anonymous(directory, peer),
        };
        if let Some(expires_ms) = self.expires_ms {
            caller = caller.until(expires_ms);
        }
        (self.agreed, Arc::new(caller))
    }
}

impl Protocol for PassedConnections {
    async fn connection(&self, connection: Connection) {
        Box::pin(connection::serve_passed(
            &self.context,
            &self.versions,
            connection,
        ))
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed() -> Passed {
        let capabilities = TableBuilder::new().with("basic.nack", Value::Bool(true)).finish();
        let table = TableBuilder::new().with("capabilities", capabilities).finish();
        Passed {
            agreed: Agreed {
                user: "anna".into(),
                mechanism: "PLAIN".into(),
                client: ClientProperties::read(&table),
                channels_max: 2047,
                frame_bytes_max: 131_072,
                heartbeat: Duration::from_mins(1),
                virtual_host: "shop".into(),
                is_internal: false,
            },
            caller: Some("anna".into()),
            is_internal: false,
            expires_ms: Some(1_700_000_000_000),
            version: (7, 42),
        }
    }

    #[test]
    fn a_connection_is_read_as_it_was_written() {
        let without_name = Passed {
            caller: None,
            expires_ms: None,
            ..passed()
        };
        let own = Passed {
            is_internal: true,
            ..without_name.clone()
        };
        for passed in [passed(), without_name, own] {
            let mut buffer = BytesMut::from(&*passed.write());
            buffer.extend_from_slice(b"ahead");
            assert_eq!(Passed::take(&mut buffer), Ok(Some(passed)));
            assert_eq!(&*buffer, b"ahead");
        }
    }

    #[test]
    fn a_part_is_waited_for_and_other_bytes_are_refused() {
        let whole = passed().write();
        for bytes in 0..whole.len() {
            let mut buffer = BytesMut::from(&whole[..bytes]);
            assert_eq!(Passed::take(&mut buffer), Ok(None), "{bytes}");
        }
        let mut long = BytesMut::from(&[0xff; 4][..]);
        assert!(Passed::take(&mut long).is_err());
        let mut empty = BytesMut::from(&[0; 4][..]);
        assert!(Passed::take(&mut empty).is_err(), "nothing is agreed");
    }
}
