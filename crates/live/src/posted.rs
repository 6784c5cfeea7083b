//! The body of a request, within the bounds that hold for a message: its bytes are taken from the budget of the process before they
//! are read, and it has to come in time.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::BodyDataStream;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use stafett_net::{ByteBudget, Permit};
use tokio::time::timeout;

/// For all of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Of a body that is refused, so much is read at most, and for so long.
const DISCARDED_MAX: usize = 4 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// A body, and what it takes of the budget.
pub(crate) struct Posted {
    body: Bytes,
    _permit: Option<Permit>,
}

impl Posted {
    pub(crate) fn text(&self) -> Result<&str, Refused> {
        std::str::from_utf8(&self.body).map_err(|_| (StatusCode::BAD_REQUEST, "the body is not UTF-8\n"))
    }
}

/// Why a body was not read, for its sender.
type Refused = (StatusCode, &'static str);

const TOO_LARGE: Refused = (
    StatusCode::PAYLOAD_TOO_LARGE,
    "the body is larger than live.message_bytes_max\n",
);
const BROKEN: Refused = (StatusCode::BAD_REQUEST, "the body is malformed or was cut off\n");
const SLOW: Refused = (StatusCode::REQUEST_TIMEOUT, "the body took too long to come\n");

/// Reads a body of at most `max` bytes.
pub(crate) async fn read(request: Request, max: usize) -> Result<Posted, Refused> {
    // Of one in chunks it is not known before.
    let announced = announced(request.headers()).unwrap_or(max);
    let budget = request.extensions().get::<Arc<ByteBudget>>().cloned();
    let mut body = request.into_body().into_data_stream();
    if announced > max {
        discard(&mut body).await;
        return Err(TOO_LARGE);
    }
    let permit = match budget {
        Some(budget) => Some(budget.reserve(announced).await.map_err(|_| TOO_LARGE)?),
        None => None,
    };
    let collected = timeout(BODY_TIMEOUT, collect(&mut body, max)).await;
    let body = collected.unwrap_or(Err(SLOW))?;
    Ok(Posted {
        body,
        _permit: permit,
    })
}

async fn collect(body: &mut BodyDataStream, max: usize) -> Result<Bytes, Refused> {
    let mut whole = BytesMut::new();
    while let Some(part) = next(body).await {
        let part = part.map_err(|_| BROKEN)?;
        if whole.len() + part.len() > max {
            discard(body).await;
            return Err(TOO_LARGE);
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}

/// Reads on for a while: who sends too much is still sending, and would not see the answer on a connection that is reset.
async fn discard(body: &mut BodyDataStream) {
    let all = async {
        let mut left = DISCARDED_MAX;
        while let Some(Ok(part)) = next(body).await {
            left = left.saturating_sub(part.len());
            if left == 0 {
                return;
            }
        }
    };
    drop(timeout(DISCARD_TIMEOUT, all).await);
}

async fn next(body: &mut BodyDataStream) -> Option<Result<Bytes, axum::Error>> {
    poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
