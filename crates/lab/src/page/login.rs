//! The login of the page: one name and password, by HTTP Basic (RFC 7617), for which browsers ask themselves.
//!
//! It gives the right to start programs, so there are no lesser rights. Without a login, all users of this
//! machine have that right.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use stafett_http::{Code, Problem};

/// Length of the shortest password.
const PASSWORD_BYTES_MIN: usize = 8;

/// The hash of `NAME:PASSWORD`. Neither is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Login([u8; 32]);

impl Login {
    /// Reads the first line of a file, `NAME:PASSWORD`.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        Self::of(text.lines().next().unwrap_or_default())
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
    }

    pub(crate) fn of(line: &str) -> Result<Self, String> {
        match line.trim().split_once(':') {
            Some((name, password)) if !name.is_empty() && password.len() >= PASSWORD_BYTES_MIN => {
                Ok(Self(Sha256::digest(line.trim()).into()))
            }
            _ => Err(format!(
                "a login is NAME:PASSWORD, with a password of {PASSWORD_BYTES_MIN} bytes at least"
            )),
        }
    }

    /// Compares hashes: the time of that says nothing of the password.
    fn is_proven(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let encoded = given.and_then(|given| {
            let (scheme, rest) = given.split_at_checked(6)?;
            scheme
                .eq_ignore_ascii_case(b"basic ")
                .then_some(rest.trim_ascii())
        });
        let pair = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
        pair.is_some_and(|pair| <[u8; 32]>::from(Sha256::digest(pair)) == self.0)
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

/// Guards all routes, if there is a login.
pub(super) fn guard(login: Option<Login>, routes: Router) -> Router {
    match login {
        Some(login) => routes.layer(middleware::from_fn_with_state(Arc::new(login), check)),
        None => routes,
    }
}

async fn check(State(login): State<Arc<Login>>, request: Request, next: Next) -> Response {
    if login.is_proven(request.headers()) {
        return next.run(request).await;
    }
    let why = "the lab wants a login: that of its --login-file, as Authorization: Basic";
    let mut refusal = Problem::new(Code::Unauthenticated, why).into_response();
    let asks = HeaderValue::from_static("Basic realm=\"Stafett lab\", charset=\"UTF-8\"");
    refusal.headers_mut().insert(header::WWW_AUTHENTICATE, asks);
    refusal
}
