//! Requests to the broker's HTTP port: one connection, opened when it is needed.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Time for an answer, on top of the time that the request itself asks the broker to wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reason why a request has no useful answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    #[error("{address}: {why}")]
    Away { address: String, why: String },
    /// A refusal, with the broker's code and words.
    #[error("{detail} ({code})")]
    Refused {
        status: u16,
        code: String,
        detail: String,
    },
}

impl HttpError {
    /// Returns the code of a refusal.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            Self::Away { .. } => None,
        }
    }
}

/// A client of one broker.
#[derive(Debug)]
pub struct Http {
    address: String,
    /// Value of the header `Authorization`.
    login: Option<String>,
    connection: Option<Open>,
}

#[derive(Debug)]
struct Open {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    /// Ends with this.
    _task: JoinSet<()>,
}

impl Http {
    /// `address` is `HOST:PORT`; `token` that of a user, where the broker requires a login.
    pub fn new(address: &str, token: Option<&str>) -> Self {
        Self {
            address: address.to_owned(),
            login: token.map(|token| format!("Bearer {token}")),
            connection: None,
        }
    }

    /// Returns another client of the same broker, with a connection of its own.
    #[must_use]
    pub fn another(&self) -> Self {
        Self {
            address: self.address.clone(),
            login: self.login.clone(),
            connection: None,
        }
    }

    fn away(&self, why: impl Display) -> HttpError {
        HttpError::Away {
            address: self.address.clone(),
            why: why.to_string(),
        }
    }

    async fn open(&self) -> Result<Open, HttpError> {
        let stream = TcpStream::connect(&self.address)
            .await
            .map_err(|why| self.away(why))?;
        // An address and no name, because the broker refuses names (DNS rebinding).
        let host = stream.peer_addr().map_err(|why| self.away(why))?.to_string();
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|why| self.away(why))?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            // Its error is that of the request that fails.
            let _ = connection.await;
        });
        Ok(Open {
            sender,
            host,
            _task: task,
        })
    }

    /// Sends a request, with the token of a worker's session if there is one.
    pub async fn ask(
        &mut self,
        method: Method,
        path: &str,
        session: Option<&str>,
        body: Option<&Value>,
        wait: Duration,
    ) -> Result<Value, HttpError> {
        // A request that is given up leaves its connection behind.
        let open = match self.connection.take().filter(|open| !open.sender.is_closed()) {
            Some(open) => open,
            None => self.open().await?,
        };
        let exchange = self.exchange(open, method, path, session, body);
        match timeout(PATIENCE + wait, exchange).await {
            Ok(Ok((open, answer))) => {
                self.connection = Some(open);
                answer
            }
            Ok(Err(why)) => Err(why),
            Err(_) => Err(self.away("no answer in time")),
        }
    }

    async fn exchange(
        &self,
        mut open: Open,
        method: Method,
        path: &str,
        session: Option<&str>,
        body: Option<&Value>,
    ) -> Result<(Open, Result<Value, HttpError>), HttpError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &open.host)
            .header(CONTENT_TYPE, "application/json");
        if let Some(login) = &self.login {
            request = request.header(AUTHORIZATION, login);
        }
        if let Some(session) = session {
            request = request.header("stafett-worker", session);
        }
        let body = body.map_or_else(String::new, Value::to_string);
        let request = request
            .body(Full::new(body.into()))
            .map_err(|why| self.away(why))?;
        open.sender.ready().await.map_err(|why| self.away(why))?;
        let response = open
            .sender
            .send_request(request)
            .await
            .map_err(|why| self.away(why))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await;
        let body = body.map_err(|why| self.away(why))?.to_bytes();
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status.is_success() {
            return Ok((open, Ok(value)));
        }
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let refused = HttpError::Refused {
            status: status.as_u16(),
            code: text("code").unwrap_or_else(|| status.to_string()),
            detail: text("detail").unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned()),
        };
        Ok((open, Err(refused)))
    }
}
