//! Refusals in the form of RFC 9457, `application/problem+json`:
//!
//! ```json
//! {"type": "/v1/problems/no_such_queue", "title": "No such queue", "status": 404,
//!  "code": "no_such_queue", "detail": "there is no queue \"orders\" in namespace /"}
//! ```
//!
//! Some codes have further fields, such as `field` and `expected`.

use std::fmt::Display;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::answer;
use crate::code::Code;

/// Refusal of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub code: Code,
    /// One line for people: the reason, and a request that would be accepted.
    pub detail: String,
    /// Further fields for programs.
    pub fields: Map<String, Value>,
}

impl Problem {
    pub fn new(code: Code, detail: impl Display) -> Self {
        Self {
            code,
            detail: detail.to_string(),
            fields: Map::new(),
        }
    }

    /// Adds a field for programs.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(field.to_owned(), value.into());
        self
    }

    /// Refuses a request with a parameter that is missing, malformed or out of its bounds.
    pub fn bad_request(detail: impl Display) -> Self {
        Self::new(Code::BadRequest, detail)
    }

    /// Refuses a parameter or field that does not exist.
    pub fn unknown_field(field: &str, expected: &[&str]) -> Self {
        let detail = if expected.is_empty() {
            format!("{field} is not known; nothing is expected here")
        } else {
            format!("{field} is not known; expected {}", expected.join(", "))
        };
        Self::new(Code::UnknownField, detail)
            .with("field", field)
            .with("expected", expected)
    }

    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.code.status()
    }

    /// Returns the refusal as JSON.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut value = json!({
            "type": format!("/v1/problems/{}", self.code.word()),
            "title": self.code.title(),
            "status": self.status().as_u16(),
            "code": self.code.word(),
            "detail": self.detail,
        });
        if let Some(value) = value.as_object_mut() {
            value.extend(self.fields.clone());
        }
        value
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut text = self.to_value().to_string();
        text.push('\n');
        answer::of_type("application/problem+json", self.status(), text.into())
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::http::header;

    use super::*;

    #[tokio::test]
    async fn a_refusal_is_problem_json_with_its_status() {
        let response = Problem::bad_request("\"a\"\nis none")
            .with("field", "a")
            .into_response();
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
            "field": "a",
        });
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), expected);
    }
}
