//! A connection over MongoDB's wire protocol: one command at a time (`OP_MSG`), after a login.
//!
//! ```text
//! header     length i32 · request i32 · response to i32 · operation i32 (2013)
//! OP_MSG     flags u32 · 0 · command · [1 · length i32 · name, ends with 0 · documents]
//! ```

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::address::{Address, Host};
use super::answer::{Answer, Bson};
use super::bson::{self, Fields, patch_length};
use super::errors::{away, sorted};
use super::scram;
use crate::target::TargetError;

const OP_MSG: i32 = 2013;
const HEADER_BYTES: usize = 16;
const ANSWER_BYTES_MAX: usize = 48 << 20;
const CONNECT: Duration = Duration::from_secs(10);
/// Servers that a search for the primary asks, at most.
const HOSTS_MAX: usize = 16;
/// Oldest version of the protocol: that of MongoDB 3.6, the first with `OP_MSG`.
const WIRE_VERSION: i64 = 6;
const MECHANISM: &str = "SCRAM-SHA-256";

trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// An open connection to the server that takes writes.
pub(super) struct Link {
    stream: Box<dyn Stream>,
    request: i32,
    patience: Duration,
}

/// A command that is being written, perhaps with documents behind it.
pub(super) struct Message {
    bytes: Vec<u8>,
    section: Option<usize>,
}

impl Message {
    /// Begins a command to a database.
    pub(super) fn new(database: &str, fill: impl FnOnce(&mut Fields<'_>)) -> Self {
        let mut bytes = vec![0; HEADER_BYTES + 5];
        let written: Result<(), ()> = bson::document(&mut bytes, |fields| {
            fill(fields);
            fields.text("$db", database);
            Ok(())
        });
        debug_assert!(written.is_ok(), "nothing fails");
        Self { bytes, section: None }
    }

    /// Begins the documents of a command.
    #[must_use]
    pub(super) fn with_documents(mut self, name: &str) -> Self {
        self.bytes.push(1);
        self.section = Some(self.bytes.len());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self
    }

    /// Adds a document. If it fails, nothing is added.
    pub(super) fn push<E>(
        &mut self,
        fill: impl FnOnce(&mut Fields<'_>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let before = self.bytes.len();
        if let Err(why) = bson::document(&mut self.bytes, fill) {
            self.bytes.truncate(before);
            return Err(why);
        }
        Ok(self.bytes.len() - before)
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn finish(mut self, request: i32) -> Vec<u8> {
        if let Some(at) = self.section {
            patch_length(&mut self.bytes, at);
        }
        patch_length(&mut self.bytes, 0);
        let head = [request, 0, OP_MSG].map(i32::to_le_bytes).concat();
        if let Some(place) = self.bytes.get_mut(4..HEADER_BYTES) {
            place.copy_from_slice(&head);
        }
        self.bytes
    }
}

impl Link {
    /// Connects to the server that takes writes: the primary, where there are several.
    pub(super) async fn open(
        to: &Address,
        ca: Option<&str>,
        patience: Duration,
    ) -> Result<Self, TargetError> {
        let mut ahead: Vec<Host> = to.hosts.clone();
        ahead.reverse();
        let mut why = away("no server takes writes");
        for _ in 0..HOSTS_MAX {
            let Some(host) = ahead.pop() else { break };
            match Self::to_host(to, &host, ca, patience).await {
                Ok((link, None)) => return link.logged_in(to).await,
                Ok((_, Some(primary))) => ahead.extend(primary),
                Err(failed @ TargetError::Stop(_)) => return Err(failed),
                Err(failed) => why = failed,
            }
        }
        Err(why)
    }

    /// Connects, and says where the primary is if it is another one.
    async fn to_host(
        to: &Address,
        host: &Host,
        ca: Option<&str>,
        patience: Duration,
    ) -> Result<(Self, Option<Option<Host>>), TargetError> {
        let connected = timeout(
            CONNECT.min(patience),
            TcpStream::connect((&*host.name, host.port)),
        )
        .await;
        let stream = connected
            .map_err(|_| away("no connection in time"))?
            .map_err(away)?;
        // Requests leave at once, or later: both are right.
        let _ = stream.set_nodelay(true);
        let stream: Box<dyn Stream> = if to.is_tls {
            let connector = stafett_trust::connector(ca).map_err(TargetError::Stop)?;
            let secured = timeout(patience, stafett_trust::connect(&connector, stream, &host.name)).await;
            Box::new(secured.map_err(|_| away("no TLS in time"))?.map_err(away)?)
        } else {
            Box::new(stream)
        };
        let mut link = Self {
            stream,
            request: 0,
            patience,
        };
        let hello = link
            .ask(Message::new("admin", |fields| fields.int("hello", 1)))
            .await;
        // Servers before 5.0 know the command by its former name.
        let hello = match hello {
            Err(TargetError::Stop(_)) => {
                let former = Message::new("admin", |fields| fields.int("isMaster", 1));
                link.ask(former).await?
            }
            hello => hello?,
        };
        if hello.integer("maxWireVersion").unwrap_or(0) < WIRE_VERSION {
            return Err(TargetError::Stop(
                "the server is older than MongoDB 3.6".to_owned(),
            ));
        }
        if hello.is("isWritablePrimary") || hello.is("ismaster") {
            return Ok((link, None));
        }
        let primary = hello.text("primary").and_then(Host::parse);
        Ok((link, Some(primary)))
    }

    async fn logged_in(mut self, to: &Address) -> Result<Self, TargetError> {
        let Some((user, password)) = &to.login else {
            return Ok(self);
        };
        let nonce: [u8; 24] = rand::random();
        let client = scram::Client::new(user, password, &STANDARD.encode(nonce));
        let wrong = || TargetError::Stop("the server's side of the login cannot be read".to_owned());
        let begun = self
            .ask(Message::new(&to.auth_source, |fields| {
                fields.int("saslStart", 1);
                fields.text("mechanism", MECHANISM);
                fields.binary("payload", bson::GENERIC, client.first().as_bytes());
            }))
            .await?;
        let conversation = begun.integer("conversationId").unwrap_or(1);
        let proof = payload(&begun)
            .and_then(|text| client.proof(text))
            .ok_or_else(wrong)?;
        let go_on = |bytes: &str| {
            Message::new(&to.auth_source, |fields| {
                fields.int("saslContinue", 1);
                fields.int("conversationId", i32::try_from(conversation).unwrap_or(1));
                fields.binary("payload", bson::GENERIC, bytes.as_bytes());
            })
        };
        let mut answer = self.ask(go_on(&proof.message)).await?;
        if !payload(&answer).is_some_and(|text| proof.accepts(text)) {
            return Err(TargetError::Stop(
                "the server does not know the password".to_owned(),
            ));
        }
        if !answer.is("done") {
            answer = self.ask(go_on("")).await?;
        }
        if answer.is("done") { Ok(self) } else { Err(wrong()) }
    }

    /// Sends a command, and returns its answer. After an error the connection is of no use.
    pub(super) async fn ask(&mut self, message: Message) -> Result<Answer, TargetError> {
        self.request = self.request.wrapping_add(1);
        let request = self.request;
        let exchange = async {
            self.stream
                .write_all(&message.finish(request))
                .await
                .map_err(away)?;
            self.stream.flush().await.map_err(away)?;
            let mut header = [0; HEADER_BYTES];
            self.stream.read_exact(&mut header).await.map_err(away)?;
            let number = |at: usize| {
                let bytes = header.get(at..at + 4).and_then(|four| four.try_into().ok());
                i32::from_le_bytes(bytes.unwrap_or_default())
            };
            let length = usize::try_from(number(0)).unwrap_or(0);
            if !(HEADER_BYTES + 5..=ANSWER_BYTES_MAX).contains(&length) || number(12) != OP_MSG {
                return Err(away("it does not speak MongoDB's protocol"));
            }
            if number(8) != request {
                return Err(away("an answer to another request"));
            }
            let mut body = vec![0; length - HEADER_BYTES];
            self.stream.read_exact(&mut body).await.map_err(away)?;
            Ok(body)
        };
        let answered = timeout(self.patience, exchange).await;
        let body = answered.map_err(|_| away("no answer in time"))??;
        let document = body
            .split_at_checked(4)
            .and_then(|(_, rest)| rest.strip_prefix(&[0]));
        let answer = document.and_then(Answer::parse);
        let answer = answer.ok_or_else(|| away("an answer that cannot be read"))?;
        sorted(&answer)?;
        Ok(answer)
    }
}

fn payload(answer: &Answer) -> Option<&str> {
    if let Bson::Bytes(bytes) = answer.get("payload")? {
        std::str::from_utf8(bytes).ok()
    } else {
        None
    }
}
