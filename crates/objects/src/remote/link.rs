//! One connection, with or without TLS.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::address::{Address, Allowed};
use crate::RemoteError;

const CONNECT: Duration = Duration::from_secs(10);

/// An answer, as far as it is of use.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// An open connection.
pub struct Link {
    to: Address,
    sender: SendRequest<Full<Bytes>>,
    /// True once an answer was not read to its end.
    is_spent: bool,
    /// Ends with this.
    _task: JoinSet<()>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({})", self.to.authority())
    }
}

fn away(what: impl std::fmt::Display) -> RemoteError {
    RemoteError::Retry(format!("the receiver is away: {what}"))
}

impl Link {
    pub async fn open(
        to: &Address,
        allowed: &Allowed,
        ca: Option<&str>,
        patience: Duration,
    ) -> Result<Self, RemoteError> {
        let addresses = allowed.resolve(to).await?;
        let connected = timeout(CONNECT.min(patience), TcpStream::connect(&*addresses)).await;
        let stream = connected
            .map_err(|_| away("no connection in time"))?
            .map_err(away)?;
        // Small requests leave at once, or later: both are right.
        let _ = stream.set_nodelay(true);
        if !to.is_tls {
            return Self::over(stream, to).await;
        }
        let connector = stafett_trust::connector(ca).map_err(RemoteError::Stop)?;
        let secured = timeout(patience, stafett_trust::connect(&connector, stream, &to.host)).await;
        let secured = secured.map_err(|_| away("no TLS in time"))?;
        Self::over(secured.map_err(away)?, to).await
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        to: &Address,
    ) -> Result<Self, RemoteError> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(away)?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            // Its error is that of the request that fails.
            let _ = connection.await;
        });
        Ok(Self {
            to: to.clone(),
            sender,
            is_spent: false,
            _task: task,
        })
    }

    pub fn is_open(&self) -> bool {
        !self.is_spent && !self.sender.is_closed()
    }

    /// True if requests to an address may go this way.
    pub fn is_of(&self, to: &Address) -> bool {
        let host = |address: &Address| (address.is_tls, address.host.clone(), address.port);
        self.is_open() && host(&self.to) == host(to)
    }

    /// Sends a request. Of an answer that is longer than `bytes_max` the rest is not read.
    pub async fn ask(
        &mut self,
        method: Method,
        to: &Address,
        mut headers: HeaderMap,
        body: Bytes,
        patience: Duration,
        bytes_max: usize,
    ) -> Result<Answer, RemoteError> {
        let host = HeaderValue::try_from(to.authority()).map_err(|why| RemoteError::Stop(why.to_string()))?;
        headers.insert(HOST, host);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = to.target.parse().map_err(away)?;
        *request.headers_mut() = headers;
        let exchange = async {
            self.sender.ready().await.map_err(away)?;
            let response = self.sender.send_request(request).await.map_err(away)?;
            let (parts, body) = response.into_parts();
            let (body, is_cut) = read(body, bytes_max).await.map_err(away)?;
            self.is_spent = is_cut;
            Ok(Answer {
                status: parts.status,
                headers: parts.headers,
                body,
            })
        };
        let answered = timeout(patience, exchange).await;
        answered.unwrap_or_else(|_| Err(away("no answer in time")))
    }
}

/// Reads a body up to a number of bytes, and says if there are more.
async fn read(mut body: Incoming, bytes_max: usize) -> Result<(Bytes, bool), hyper::Error> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            let room = bytes_max - read.len();
            let is_cut = data.len() > room;
            read.extend_from_slice(data.get(..room).unwrap_or(&data));
            if is_cut {
                return Ok((read.freeze(), true));
            }
        }
    }
    Ok((read.freeze(), false))
}
