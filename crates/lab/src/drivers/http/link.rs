//! A connection of HTTP/1.1 that is kept: a request, its answer, the next request.

use std::fmt::Write as _;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::drivers::DriverError;
use crate::drivers::websocket::{connect, head_end};

const HEAD_BYTES_MAX: usize = 16 << 10;
const BODY_BYTES_MAX: usize = 256 << 20;
const READ_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    host: String,
    inbound: BytesMut,
    outbound: BytesMut,
    head: String,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

impl Answer {
    /// Returns an error unless the request has been carried out.
    pub(super) fn checked(self) -> Result<Self, DriverError> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let reason = self.reason();
        Err(match self.status {
            400..=499 => DriverError::Refused(reason),
            _ => DriverError::Failed(reason),
        })
    }

    /// The words of a refusal (RFC 9457).
    pub(super) fn reason(&self) -> String {
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let text = |name: &str| problem.get(name).and_then(|it| it.as_str()).unwrap_or_default();
        format!("{} {}: {}", self.status, text("code"), text("detail"))
    }
}

impl Link {
    /// `number` is which connection of the load it is: loopback has more addresses than one has ports.
    pub(super) async fn open(address: &str, number: u32) -> Result<Self, DriverError> {
        let failed = |error: std::io::Error| DriverError::Failed(format!("{address}: {error}"));
        let stream = connect(address, number).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(Self {
            stream,
            host: address.to_owned(),
            inbound: BytesMut::new(),
            outbound: BytesMut::new(),
            head: String::new(),
        })
    }

    /// Adds a request to the output; `headers` are whole lines.
    pub(super) fn put(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) {
        self.head.clear();
        // Writing to a text does not fail.
        let _ = write!(
            self.head,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{headers}Content-Length: {}\r\n\r\n",
            self.host,
            body.len()
        );
        self.outbound.extend_from_slice(self.head.as_bytes());
        self.outbound.extend_from_slice(body);
    }

    /// Returns the next answer. Safe to drop: written and read bytes are kept.
    pub(super) async fn answer(&mut self) -> Result<Answer, DriverError> {
        let failed = |error: std::io::Error| DriverError::Failed(error.to_string());
        loop {
            while !self.outbound.is_empty() {
                self.stream.write_buf(&mut self.outbound).await.map_err(failed)?;
            }
            if let Some(answer) = take(&mut self.inbound)? {
                return Ok(answer);
            }
            self.inbound.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.inbound).await.map_err(failed)? == 0 {
                return Err(DriverError::Failed("the broker ended the connection".to_owned()));
            }
        }
    }

    /// Sends a request, and fails unless it is done.
    pub(super) async fn call(&mut self, method: &str, path: &str, body: &[u8]) -> Result<(), DriverError> {
        let headers = if body.is_empty() {
            ""
        } else {
            "Content-Type: application/json\r\n"
        };
        self.put(method, path, headers, body);
        self.answer().await?.checked().map(|_| ())
    }
}

/// Takes the answer at the front, if all of it is there.
fn take(inbound: &mut BytesMut) -> Result<Option<Answer>, DriverError> {
    let Some(end) = head_end(inbound) else {
        return match inbound.len() {
            0..=HEAD_BYTES_MAX => Ok(None),
            _ => Err(DriverError::Failed("it does not speak HTTP".to_owned())),
        };
    };
    let head = String::from_utf8_lossy(inbound.get(..end).unwrap_or_default());
    let (status, length) = read_head(&head).ok_or_else(|| {
        let first = head.lines().next().unwrap_or_default();
        DriverError::Failed(format!(
            "an answer without a length, or of another protocol: {first}"
        ))
    })?;
    if inbound.len() < end + length {
        return Ok(None);
    }
    let mut answer = inbound.split_to(end + length);
    let body = answer.split_off(end).freeze();
    Ok(Some(Answer { status, body }))
}

/// Returns the status and the length of the body.
fn read_head(head: &str) -> Option<(u16, usize)> {
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let mut headers = lines.filter_map(|line| line.split_once(':'));
    let length = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    match length {
        Some((_, length)) => Some((
            status,
            length.trim().parse().ok().filter(|it| *it <= BODY_BYTES_MAX)?,
        )),
        None => (status == 204).then_some((status, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_one_by_one_once_they_are_whole() {
        let bytes = b"HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\nbodyHTTP/1.1 204 No Content\r\n\r\n";
        for cut in 0..bytes.len() {
            let mut inbound = BytesMut::from(&bytes[..cut]);
            let first = take(&mut inbound).unwrap();
            assert_eq!(first.is_some(), cut >= 47, "{cut}");
        }
        let mut inbound = BytesMut::from(&bytes[..]);
        let first = take(&mut inbound).unwrap().unwrap();
        assert_eq!((first.status, &first.body[..]), (201, &b"body"[..]));
        let second = take(&mut inbound).unwrap().unwrap();
        assert_eq!((second.status, second.body.len(), inbound.len()), (204, 0, 0));
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for bytes in [
            &b"SSH-2.0-x\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
        ] {
            assert!(take(&mut BytesMut::from(bytes)).is_err());
        }
        let body = br#"{"code": "no_such_queue", "detail": "there is no queue `x`"}"#;
        let refused = Answer {
            status: 404,
            body: Bytes::from_static(body),
        };
        let error = refused.checked().unwrap_err();
        assert_eq!(
            error,
            DriverError::Refused("404 no_such_queue: there is no queue `x`".to_owned())
        );
    }
}
