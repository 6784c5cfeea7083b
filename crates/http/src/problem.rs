//! Refusals in the form of RFC 9457, `application/problem+json`:
//!
//! ```json
//! {"type": "/v1/problems/no_such_queue", "title": "No such queue", "status": 404,
//!  "code": "no_such_queue", "detail": "there is no queue \"orders\" in namespace /"}
//! ```

use std::fmt::Display;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::answer;

/// Refusal of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub status: StatusCode,
    /// Word for programs, which stays the same: `no_such_queue`.
    pub code: &'static str,
    /// One line for people: the reason, and a request that would be accepted.
    pub detail: String,
}

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, detail: impl Display) -> Self {
        Self {
            status,
            code,
            detail: detail.to_string(),
        }
    }

    /// Refuses a request with a parameter that is missing, malformed or out of its bounds.
    pub fn bad_request(detail: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    /// Returns the code in words.
    fn title(&self) -> String {
        let mut words = self.code.replace('_', " ");
        if let Some(first) = words.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        words
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut text = json!({
            "type": format!("/v1/problems/{}", self.code),
            "title": self.title(),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        })
        .to_string();
        text.push('\n');
        answer::of_type("application/problem+json", self.status, text.into())
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::http::header;
    use serde_json::Value;

    use super::*;

    #[tokio::test]
    async fn a_refusal_is_problem_json_with_its_status() {
        let response = Problem::bad_request("\"a\"\nis none").into_response();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "application/problem+json"
        );
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
        let body = to_bytes(response.into_body(), 1000).await.unwrap();
        let expected = json!({
            "type": "/v1/problems/bad_request",
            "title": "Bad request",
            "status": 400,
            "code": "bad_request",
            "detail": "\"a\"\nis none",
        });
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), expected);
    }
}
