//! The body of a request, within the bounds that hold for a message: its bytes are taken from the budget of the process before they
//! are read, and it has to come in time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use stafett_net::{ByteBudget, Permit};
use tokio::time::timeout;

/// For all of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A body, and what it takes of the budget.
pub(crate) struct Posted {
    body: Bytes,
    _permit: Option<Permit>,
}

impl Posted {
    pub(crate) fn text(&self) -> Result<&str, (StatusCode, &'static str)> {
        std::str::from_utf8(&self.body).map_err(|_| (StatusCode::BAD_REQUEST, "the body is not UTF-8\n"))
    }
}

/// Reads a body of at most `max` bytes.
pub(crate) async fn read(request: Request, max: usize) -> Result<Posted, (StatusCode, &'static str)> {
    let too_large = (
        StatusCode::PAYLOAD_TOO_LARGE,
        "the body is larger than live.message_bytes_max\n",
    );
    // Of one in chunks it is not known before.
    let announced = announced(request.headers()).unwrap_or(max);
    if announced > max {
        return Err(too_large);
    }
    let budget = request.extensions().get::<Arc<ByteBudget>>().cloned();
    let permit = match budget {
        Some(budget) => Some(budget.reserve(announced).await.map_err(|_| too_large)?),
        None => None,
    };
    match timeout(BODY_TIMEOUT, to_bytes(request.into_body(), max)).await {
        Ok(Ok(body)) => Ok(Posted {
            body,
            _permit: permit,
        }),
        Ok(Err(_)) => Err(too_large),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body took too long to come\n")),
    }
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
