//! Refusals in RabbitMQ's form: `{"error": "…", "reason": "…"}`.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use stafett_amqp_wire::ReplyCode;
use stafett_broker::LoginError;
use stafett_http::answer;

use super::client::Closed;

/// A refusal, or a response.
pub(super) type Answered = Result<Response, Refusal>;

/// Refusal of a request.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    /// `None` for an empty body.
    body: Option<Value>,
    /// Methods that are possible.
    allow: Option<String>,
    /// True if the answer asks for credentials.
    asks: bool,
    /// Seconds after which the request may be good.
    retry_after: Option<u64>,
}

impl Refusal {
    fn new(status: StatusCode, error: &str, reason: impl Into<Value>) -> Self {
        Self {
            status,
            body: Some(json!({ "error": error, "reason": reason.into() })),
            allow: None,
            asks: false,
            retry_after: None,
        }
    }

    fn empty(status: StatusCode) -> Self {
        Self {
            status,
            body: None,
            allow: None,
            asks: false,
            retry_after: None,
        }
    }

    /// Refuses a request without credentials.
    pub(super) fn no_credentials() -> Self {
        Self {
            asks: true,
            ..Self::not_authorized()
        }
    }

    /// Refuses wrong credentials.
    pub(super) fn not_authorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "not_authorized", "Not_Authorized")
    }

    /// Refuses a user without a tag of this API.
    pub(super) fn no_member() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "not_authorized", "Not management user")
    }

    /// Refuses a request that is malformed as HTTP.
    pub(super) fn malformed() -> Self {
        Self::empty(StatusCode::BAD_REQUEST)
    }

    pub(super) fn bad_request(reason: impl Into<Value>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", reason)
    }

    /// Refuses a request with another word than `bad_request`.
    pub(super) fn bad(error: &str, reason: impl Into<Value>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error, reason)
    }

    /// Refuses an operation that the caller may not do.
    pub(super) fn not_authorised(reason: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "not_authorised", reason)
    }

    /// Refuses a path without an object.
    pub(super) fn no_object() -> Self {
        Self::new(StatusCode::NOT_FOUND, "Object Not Found", "Not Found")
    }

    /// Refuses an operation whose object is missing.
    pub(super) fn not_found(reason: impl Into<Value>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", reason)
    }

    pub(super) fn no_vhost() -> Self {
        Self::not_found("vhost_not_found")
    }

    pub(super) fn wrong_method(allow: &str) -> Self {
        Self {
            allow: Some(allow.to_owned()),
            ..Self::empty(StatusCode::METHOD_NOT_ALLOWED)
        }
    }

    /// Answers `OPTIONS`.
    pub(super) fn options(allow: &str) -> Self {
        Self {
            allow: Some(allow.to_owned()),
            ..Self::empty(StatusCode::OK)
        }
    }

    pub(super) fn wrong_content_type() -> Self {
        Self::empty(StatusCode::UNSUPPORTED_MEDIA_TYPE)
    }

    pub(super) fn too_large(bytes_max: usize) -> Self {
        let reason = format!("the body is larger than {bytes_max} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "bad_request", reason)
    }

    pub(super) fn slow() -> Self {
        let reason = "the body took too long to come";
        Self::new(StatusCode::REQUEST_TIMEOUT, "bad_request", reason)
    }

    /// Refuses a request while the broker starts, stops, or cannot store anything.
    pub(super) fn unavailable(reason: impl Into<Value>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason)
    }

    /// Refuses a login for which there is no turn.
    pub(super) fn busy(why: LoginError) -> Self {
        Self {
            retry_after: Some(1),
            ..Self::unavailable(why.to_string())
        }
    }

    /// Refuses a request while there is a debt to a quota.
    pub(super) fn over_quota(debt: Duration) -> Self {
        let seconds = debt.as_secs() + u64::from(debt.subsec_nanos() > 0);
        let reason = format!("more than the quota allows: it may go on in {seconds} s");
        Self {
            retry_after: Some(seconds),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "over_quota", reason)
        }
    }

    pub(super) fn starting() -> Self {
        Self::unavailable("the broker is starting or stopping")
    }

    /// Reports a failed check, with further fields.
    pub(super) fn failed(reason: &str, fields: Map<String, Value>) -> Self {
        let mut body = json!({ "status": "failed", "reason": reason });
        if let Some(body) = body.as_object_mut() {
            body.extend(fields);
        }
        Self {
            body: Some(body),
            ..Self::empty(StatusCode::SERVICE_UNAVAILABLE)
        }
    }

    /// Names the item that is refused.
    pub(super) fn on(mut self, what: &str) -> Self {
        let reason = self.body.as_mut().and_then(|body| body.get_mut("reason"));
        if let Some(reason) = reason {
            *reason = match reason.as_str() {
                Some(text) => json!(format!("{what}: {text}")),
                None => json!([what, reason.take()]),
            };
        }
        self
    }

    /// Reports why a declaration or deletion was refused.
    pub(super) fn of_change(closed: &Closed) -> Self {
        match closed.code {
            code if code == ReplyCode::AccessRefused.code() => Self::not_authorised("Access refused."),
            code if code == ReplyCode::NotFound.code() => Self::not_found(closed.reason()),
            code if code == ReplyCode::InternalError.code() => Self::unavailable(closed.reason()),
            _ => Self::bad_request(closed.reason()),
        }
    }

    /// Reports why messages cannot be taken from a queue.
    pub(super) fn of_taking(closed: &Closed) -> Self {
        if closed.code == ReplyCode::AccessRefused.code() {
            return Self::not_authorised(&closed.text);
        }
        Self::of_messages(closed)
    }

    /// Reports why messages were refused: with code and name of the exception.
    pub(super) fn of_messages(closed: &Closed) -> Self {
        if closed.code == ReplyCode::InternalError.code() {
            return Self::unavailable(closed.reason());
        }
        // An exception that ends the connection has no name in RabbitMQ's answer.
        let has_name = closed.code < ReplyCode::FrameError.code();
        let text = if has_name { &closed.text } else { closed.reason() };
        Self::bad_request(format!("{} {text}", closed.code))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = match &self.body {
            Some(body) => answer::json(self.status, body.to_string()),
            None => (self.status, Body::empty()).into_response(),
        };
        let headers = response.headers_mut();
        if let Some(allow) = self.allow.and_then(|allow| HeaderValue::from_str(&allow).ok()) {
            headers.insert(header::ALLOW, allow);
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.asks {
            let asks = HeaderValue::from_static("Basic realm=\"RabbitMQ Management\"");
            headers.insert(header::WWW_AUTHENTICATE, asks);
        }
        response
    }
}
