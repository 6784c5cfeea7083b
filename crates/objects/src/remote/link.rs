//! One connection, with or without TLS. It has no task: it works while a request does.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
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
use tokio::time::timeout;

use super::address::{Address, Allowed};
use crate::RemoteError;

const CONNECT: Duration = Duration::from_secs(10);
/// Time for the body of a refusal of a large request.
const WORDS: Duration = Duration::from_secs(5);

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
    /// Sends and receives. `None` once it has ended.
    transfer: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
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
        stream: impl AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static,
        to: &Address,
    ) -> Result<Self, RemoteError> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(away)?;
        let transfer = async move {
            // Its error is that of the request that fails.
            let _ = connection.await;
        };
        Ok(Self {
            to: to.clone(),
            sender,
            is_spent: false,
            transfer: Some(Box::pin(transfer)),
        })
    }

    /// Returns true if another request may follow. The end of the connection is seen here, too.
    pub fn is_open(&mut self) -> bool {
        transfer(&mut self.transfer, &mut Context::from_waker(Waker::noop()));
        !self.is_spent && !self.sender.is_closed()
    }

    /// Takes a connection that is open, and leads to an address.
    pub fn take(from: &mut Option<Self>, to: &Address) -> Option<Self> {
        let host = |address: &Address| (address.is_tls, address.host.clone(), address.port);
        let mut link = from.take()?;
        (link.is_open() && host(&link.to) == host(to)).then_some(link)
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
            let (body, is_cut) = if parts.status == StatusCode::PAYLOAD_TOO_LARGE {
                // It says all, and often comes ahead of the end of the request, before the connection ends.
                let words = timeout(WORDS, read(body, bytes_max)).await;
                words.ok().and_then(Result::ok).unwrap_or((Bytes::new(), true))
            } else {
                read(body, bytes_max).await.map_err(away)?
            };
            self.is_spent = is_cut;
            Ok(Answer {
                status: parts.status,
                headers: parts.headers,
                body,
            })
        };
        let mut exchange = pin!(exchange);
        let answered = poll_fn(|context| {
            if let Poll::Ready(answer) = exchange.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            transfer(&mut self.transfer, context);
            exchange.as_mut().poll(context)
        });
        let answered = timeout(patience, answered).await;
        answered.unwrap_or_else(|_| Err(away("no answer in time")))
    }
}

/// Sends and receives what there is.
fn transfer(
    connection: &mut Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
    context: &mut Context<'_>,
) {
    if let Some(open) = connection
        && open.as_mut().poll(context).is_ready()
    {
        *connection = None;
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    /// Opens a link to a receiver that gives these answers, each to a request, and then ends the connection.
    async fn link_to(answers: &'static [&[u8]]) -> (Address, Link, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        let mut receiver = JoinSet::new();
        receiver.spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            for answer in answers {
                let mut bytes = Vec::new();
                while !bytes.ends_with(b"\r\n\r\nbody") {
                    assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
                }
                stream.write_all(answer).await.unwrap();
            }
        });
        let to = Address::parse(&url).unwrap();
        let allowed = Allowed::new(&["*".to_owned()]);
        let link = Link::open(&to, &allowed, None, MINUTE).await.unwrap();
        (to, link, receiver)
    }

    async fn ask(link: &mut Link, to: &Address) -> Answer {
        let headers = HeaderMap::new();
        let answer = link.ask(Method::POST, to, headers, "body".into(), MINUTE, 9);
        answer.await.unwrap()
    }

    #[tokio::test]
    async fn a_refusal_counts_also_if_its_body_is_cut() {
        let (to, mut link, _receiver) = link_to(&[b"HTTP/1.1 413 No\r\ncontent-length: 9\r\n\r\ntoo"]).await;
        let answer = ask(&mut link, &to).await;
        assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert!(!link.is_open());
    }

    #[tokio::test]
    async fn an_end_of_the_connection_between_two_requests_is_seen() {
        const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        let (to, link, _receiver) = link_to(&[OK, OK]).await;
        let mut pool = Some(link);
        for _ in 0..2 {
            let mut link = Link::take(&mut pool, &to).unwrap();
            assert_eq!(ask(&mut link, &to).await.body, "ok");
            pool = Some(link);
        }
        while pool.as_mut().is_some_and(Link::is_open) {
            tokio::task::yield_now().await;
        }
        assert!(Link::take(&mut pool, &to).is_none());
    }
}
