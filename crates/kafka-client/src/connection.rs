//! One connection: pipelined requests, answers in their order.
//!
//! Two tasks own the two halves of the socket, so a broker that stops reading until its answers are taken
//! cannot block it. The writer queues each request's waiter right before it writes the request; the reader
//! hands each answer to the front waiter. The first error ends the connection and fails all waiters.
//!
//! Invariants: an answer longer than the bound in [`Options`] is not read; an unexpected correlation id ends
//! the connection; the front waiter's deadline is checked twice a second, which costs nothing per request.

use std::collections::VecDeque;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use rustls::pki_types::ServerName;
use stafett_kafka_wire::messages::{
    ApiVersionsRequest, ApiVersionsResponse, SaslAuthenticateRequest, SaslHandshakeRequest,
};
use stafett_kafka_wire::{
    ApiKey, DecodeLimits, Encoded, ErrorCode, Message as _, Request, Str, VersionRange, frame,
};
use stafett_model::{Lock, LockGuard};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsConnector;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::error::ClientError;
use crate::options::{Login, Options};

/// Maximum requests that wait for the writer.
const QUEUE_MAX: usize = 64;
const LENGTH_BYTES: usize = 4;
const READ_BYTES: usize = 64 * 1024;
const DEADLINE_CHECK: Duration = Duration::from_millis(500);

/// An open connection. Dropping it closes the socket; pending answers fail.
#[derive(Debug)]
pub struct Connection {
    broker: Arc<str>,
    client_id: Str,
    request_timeout: Duration,
    limits: DecodeLimits,
    versions: Vec<(i16, VersionRange)>,
    next_id: AtomicI32,
    outgoing: mpsc::Sender<Outgoing>,
    waiting: Arc<Lock<Waiting>>,
    _end: DropGuard,
}

#[derive(Debug)]
struct Outgoing {
    frame: Encoded,
    /// `None` if the broker does not answer.
    waiter: Option<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    id: i32,
    deadline: Instant,
    answer: oneshot::Sender<Result<Bytes, Ended>>,
}

#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<Waiter>,
    ended: Option<Ended>,
}

/// Reason why a connection ended.
#[derive(Debug, Clone)]
enum Ended {
    Timeout,
    Because(Arc<str>),
}

/// A pending answer. Dropping it does not cancel the request; its answer is discarded.
#[derive(Debug)]
#[must_use]
pub struct Answer<R: Request> {
    receiver: oneshot::Receiver<Result<Bytes, Ended>>,
    version: i16,
    broker: Arc<str>,
    limits: DecodeLimits,
    patience: Duration,
    request: PhantomData<fn() -> R>,
}

impl<R: Request> Future for Answer<R> {
    type Output = Result<R::Response, ClientError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let received = ready!(Pin::new(&mut self.receiver).poll(context));
        let broker = &self.broker;
        let ended = match received {
            Ok(Ok(frame)) => {
                let read = frame::read_response::<R>(frame, self.version, self.limits);
                return Poll::Ready(read.map(|(_, response)| response).map_err(|error| {
                    ClientError::Malformed {
                        broker: Arc::clone(broker),
                        api: R::KEY,
                        error,
                    }
                }));
            }
            Ok(Err(ended)) => ended,
            Err(_) => Ended::Because("it was closed here".into()),
        };
        Poll::Ready(Err(ended.into_error(broker, R::KEY, self.patience)))
    }
}

impl Ended {
    fn into_error(self, broker: &Arc<str>, api: ApiKey, after: Duration) -> ClientError {
        let broker = Arc::clone(broker);
        match self {
            Self::Timeout => ClientError::Timeout { broker, api, after },
            Self::Because(reason) => ClientError::Closed { broker, api, reason },
        }
    }
}

impl Connection {
    /// Connects to `HOST:PORT`, fetches the broker's versions, and logs in.
    pub async fn open(address: &str, options: &Options) -> Result<Self, ClientError> {
        let broker: Arc<str> = address.into();
        let connected = timeout(options.connect_timeout, Self::connect(address, options)).await;
        let connected = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let mut connection = connected.map_err(|error| ClientError::connect(&broker, &error))?;
        connection.versions = connection.agree().await?;
        if let Some(login) = &options.login {
            connection.log_in(login).await?;
        }
        Ok(connection)
    }

    async fn connect(address: &str, options: &Options) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &options.tls else {
            let (read, write) = stream.into_split();
            return Ok(Self::over(read, write, address.into(), options));
        };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(std::io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?;
        let (read, write) = tokio::io::split(stream);
        Ok(Self::over(read, write, address.into(), options))
    }

    fn over(
        read: impl AsyncRead + Unpin + Send + 'static,
        write: impl AsyncWrite + Unpin + Send + 'static,
        broker: Arc<str>,
        options: &Options,
    ) -> Self {
        let (outgoing, requests) = mpsc::channel(QUEUE_MAX);
        let waiting = Arc::new(Lock::new(Waiting::default()));
        let end = CancellationToken::new();
        let tasks = TaskTracker::new();
        let (of_reader, of_writer) = (Arc::clone(&waiting), Arc::clone(&waiting));
        let (end_reading, end_writing) = (end.clone(), end.clone());
        let bytes_max = options.response_bytes_max;
        tasks.spawn(async move {
            let ended = end_reading
                .run_until_cancelled(read_answers(read, &of_reader, bytes_max))
                .await;
            fail_all(
                &of_reader,
                &ended.unwrap_or_else(|| Ended::Because("it was closed here".into())),
            );
            end_reading.cancel();
        });
        tasks.spawn(async move {
            let written = end_writing
                .run_until_cancelled(write_requests(write, requests, &of_writer))
                .await;
            if let Some(Err(error)) = written {
                fail_all(&of_writer, &Ended::Because(error.to_string().into()));
                end_writing.cancel();
            }
        });
        Self {
            broker,
            client_id: Str::copy_from(&options.client_id),
            request_timeout: options.request_timeout,
            limits: DecodeLimits {
                memory_bytes: options.decode_bytes_max,
            },
            versions: Vec::new(),
            next_id: AtomicI32::new(0),
            outgoing,
            waiting,
            _end: end.drop_guard(),
        }
    }

    /// Returns the address of the broker.
    pub fn broker(&self) -> &Arc<str> {
        &self.broker
    }

    pub fn is_closed(&self) -> bool {
        lock(&self.waiting).ended.is_some()
    }

    /// Returns the newest version of `R` that both sides know, `at_most` that one.
    pub fn version<R: Request>(&self, at_most: i16) -> Result<i16, ClientError> {
        let theirs = self
            .versions
            .iter()
            .find(|(key, _)| *key == R::KEY.code())
            .map(|(_, range)| *range);
        let ours = R::VERSIONS;
        theirs
            .map(|theirs| (theirs.max.min(ours.max).min(at_most), theirs.min.max(ours.min)))
            .filter(|(version, min)| version >= min)
            .map(|(version, _)| version)
            .ok_or_else(|| ClientError::Unsupported {
                broker: Arc::clone(&self.broker),
                api: R::KEY,
                ours,
                theirs,
            })
    }

    /// Sends a request in the newest version and waits for the answer.
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        let version = self.version::<R>(i16::MAX)?;
        self.send(request, version, Duration::ZERO).await?.await
    }

    /// Sends a request. The answer can be awaited later, while others are sent. `wait` is the time that the
    /// request itself allows the broker to hold the answer back.
    pub async fn send<R: Request>(
        &self,
        request: &R,
        version: i16,
        wait: Duration,
    ) -> Result<Answer<R>, ClientError> {
        let patience = self.request_timeout + wait;
        let (answer, receiver) = oneshot::channel();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let waiter = Waiter {
            id,
            deadline: Instant::now() + patience,
            answer,
        };
        self.enqueue(request, version, id, Some(waiter)).await?;
        Ok(Answer {
            receiver,
            version,
            broker: Arc::clone(&self.broker),
            limits: self.limits,
            patience,
            request: PhantomData,
        })
    }

    /// Sends a request that the broker does not answer (produce with acks 0).
    pub async fn send_unanswered<R: Request>(&self, request: &R, version: i16) -> Result<(), ClientError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.enqueue(request, version, id, None).await
    }

    async fn enqueue<R: Request>(
        &self,
        request: &R,
        version: i16,
        id: i32,
        waiter: Option<Waiter>,
    ) -> Result<(), ClientError> {
        let frame = frame::write_request(version, id, Some(self.client_id.clone()), request)
            .map_err(|error| ClientError::Encode { api: R::KEY, error })?;
        if self.outgoing.send(Outgoing { frame, waiter }).await.is_err() {
            let ended = lock(&self.waiting).ended.clone();
            let ended = ended.unwrap_or_else(|| Ended::Because("it was closed".into()));
            return Err(ended.into_error(&self.broker, R::KEY, self.request_timeout));
        }
        Ok(())
    }

    /// Asks for the versions of the broker. A broker that does not know ours answers in version 0 (KIP-511).
    async fn agree(&self) -> Result<Vec<(i16, VersionRange)>, ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: Str::from_static("stafett"),
            client_software_version: Str::from_static(env!("CARGO_PKG_VERSION")),
        };
        let newest = ApiVersionsRequest::VERSIONS.max.min(3);
        let response: ApiVersionsResponse = match self.send(&request, newest, Duration::ZERO).await?.await {
            Ok(response) if response.error_code == ErrorCode::None.code() => response,
            // An answer in version 0 reads as malformed, or as one with an error.
            Ok(_) | Err(ClientError::Malformed { .. }) => {
                self.send(&request, 0, Duration::ZERO).await?.await?
            }
            Err(error) => return Err(error),
        };
        crate::refusal::check(
            &self.broker,
            ApiKey::ApiVersions,
            response.error_code,
            None,
            || "the versions of the broker".to_owned(),
        )?;
        let range = |row: &stafett_kafka_wire::messages::api_versions::ApiVersion| {
            (row.api_key, VersionRange::new(row.min_version, row.max_version))
        };
        Ok(response.api_keys.iter().map(range).collect())
    }

    /// Logs in by the mechanism PLAIN (RFC 4616).
    async fn log_in(&self, login: &Login) -> Result<(), ClientError> {
        let about = || format!("the login of {:?}", login.user);
        let handshake = SaslHandshakeRequest {
            mechanism: Str::from_static("PLAIN"),
        };
        let answer = self.call(&handshake).await?;
        // A broker that knows no users takes no login, and needs none.
        if answer.error_code == ErrorCode::IllegalSaslState.code() {
            return Ok(());
        }
        crate::refusal::check(
            &self.broker,
            ApiKey::SaslHandshake,
            answer.error_code,
            None,
            about,
        )?;
        let Login { user, password } = login;
        let proof = SaslAuthenticateRequest {
            auth_bytes: format!("\0{user}\0{password}").into(),
        };
        let answer = self.call(&proof).await?;
        let (code, message) = (answer.error_code, answer.error_message.as_ref());
        crate::refusal::check(&self.broker, ApiKey::SaslAuthenticate, code, message, about)
    }
}

fn lock(waiting: &Lock<Waiting>) -> LockGuard<'_, Waiting> {
    waiting.lock()
}

fn fail_all(waiting: &Lock<Waiting>, ended: &Ended) {
    let queue = {
        let mut waiting = lock(waiting);
        waiting.ended.get_or_insert_with(|| ended.clone());
        std::mem::take(&mut waiting.queue)
    };
    for waiter in queue {
        // The send fails if the answer was dropped.
        let _ = waiter.answer.send(Err(ended.clone()));
    }
}

async fn write_requests(
    mut socket: impl AsyncWrite + Unpin,
    mut requests: mpsc::Receiver<Outgoing>,
    waiting: &Lock<Waiting>,
) -> std::io::Result<()> {
    while let Some(Outgoing { mut frame, waiter }) = requests.recv().await {
        if let Some(waiter) = waiter {
            let mut waiting = lock(waiting);
            if let Some(ended) = waiting.ended.clone() {
                drop(waiting);
                let _ = waiter.answer.send(Err(ended));
                continue;
            }
            waiting.queue.push_back(waiter);
        }
        socket.write_all_buf(&mut frame).await?;
        // Encrypted bytes may wait for more.
        socket.flush().await?;
    }
    Ok(())
}

/// Hands answers to their waiters until the connection ends. Returns the reason.
async fn read_answers(
    mut socket: impl AsyncRead + Unpin,
    waiting: &Lock<Waiting>,
    bytes_max: usize,
) -> Ended {
    let mut buffer = BytesMut::new();
    let mut check = interval(DEADLINE_CHECK);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            frame = next_frame(&mut socket, &mut buffer, bytes_max) => match frame {
                Err(ended) => return ended,
                Ok(frame) => if let Err(ended) = give(frame, waiting) { return ended },
            },
            _ = check.tick() => {
                let now = Instant::now();
                if lock(waiting).queue.front().is_some_and(|front| front.deadline < now) {
                    return Ended::Timeout;
                }
            }
        }
    }
}

fn give(frame: Bytes, waiting: &Lock<Waiting>) -> Result<(), Ended> {
    let front = lock(waiting).queue.pop_front();
    let id = frame::correlation_id(&frame);
    match front {
        Some(waiter) if Some(waiter.id) == id => {
            let _ = waiter.answer.send(Ok(frame));
            Ok(())
        }
        Some(waiter) => {
            let ended = Ended::Because(format!("answer {id:?} came where {} was due", waiter.id).into());
            let _ = waiter.answer.send(Err(ended.clone()));
            Err(ended)
        }
        None => Err(Ended::Because("an answer came that nobody asked for".into())),
    }
}

/// Returns the reason to refuse an answer of `length` bytes: the start of another protocol means a wrong
/// port.
fn too_long(begins: &[u8], length: usize, bytes_max: usize) -> Arc<str> {
    let other = match begins {
        [b'A', b'M', b'Q', b'P', ..] => "AMQP",
        [b'H', b'T', b'T', b'P', ..] => "HTTP",
        // An alert, or a handshake (RFC 8446, section 5.1).
        [0x15 | 0x16, 3, ..] => "TLS",
        _ => return format!("an answer of {length} bytes is announced, {bytes_max} is the limit").into(),
    };
    format!("{other} is spoken there, not Kafka's protocol").into()
}

/// Reads the next answer, without its length. Safe to cancel: bytes that were read stay in `buffer`.
async fn next_frame(
    socket: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    bytes_max: usize,
) -> Result<Bytes, Ended> {
    loop {
        let mut missing = 1;
        if let Some(length) = buffer.first_chunk::<LENGTH_BYTES>() {
            let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            if length > bytes_max {
                return Err(Ended::Because(too_long(buffer, length, bytes_max)));
            }
            let whole = LENGTH_BYTES + length;
            if buffer.len() >= whole {
                buffer.advance(LENGTH_BYTES);
                return Ok(buffer.split_to(length).freeze());
            }
            missing = whole - buffer.len();
        }
        if buffer.capacity() - buffer.len() < missing.max(READ_BYTES / 4) {
            buffer.reserve(missing.max(READ_BYTES));
        }
        match socket.read_buf(buffer).await {
            Ok(0) => return Err(Ended::Because("the broker closed it".into())),
            Ok(_) => {}
            Err(error) => return Err(Ended::Because(error.to_string().into())),
        }
    }
}
