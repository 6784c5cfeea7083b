//! The logins of the page: names and passwords, by HTTP Basic (RFC 7617), for which browsers ask themselves.
//!
//! Each gives the right to start programs, so there are no lesser rights. Without a login, all users of this
//! machine have that right.

use std::collections::BTreeSet;
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

/// Users of the page.
const LOGINS_MAX: usize = 1000;

/// Hashes of `NAME:PASSWORD` of all users. Neither is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Logins(Vec<[u8; 32]>);

impl Logins {
    /// Reads a file with `NAME:PASSWORD` in each line. Empty lines and those that begin with `#` are passed
    /// over.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        Self::of(&text).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
    }

    pub(crate) fn of(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (mut names, mut hashes) = (BTreeSet::new(), Vec::new());
        for line in lines {
            match line.split_once(':') {
                Some((name, password)) if !name.is_empty() && password.len() >= PASSWORD_BYTES_MIN => {
                    if !names.insert(name) {
                        return Err(format!("the name {name:?} stands there twice"));
                    }
                    hashes.push(Sha256::digest(line).into());
                }
                _ => {
                    return Err(format!(
                        "a login is NAME:PASSWORD, with a password of {PASSWORD_BYTES_MIN} bytes at least"
                    ));
                }
            }
        }
        if hashes.is_empty() || hashes.len() > LOGINS_MAX {
            return Err(format!("the page has 1 to {LOGINS_MAX} logins, one in each line"));
        }
        Ok(Self(hashes))
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
        pair.is_some_and(|pair| self.0.contains(&Sha256::digest(pair).into()))
    }
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Logins")
    }
}

/// Guards all routes, if there is a login.
pub(super) fn guard(login: Option<Logins>, routes: Router) -> Router {
    match login {
        Some(login) => routes.layer(middleware::from_fn_with_state(Arc::new(login), check)),
        None => routes,
    }
}

async fn check(State(login): State<Arc<Logins>>, request: Request, next: Next) -> Response {
    if login.is_proven(request.headers()) {
        return next.run(request).await;
    }
    let why = "the lab wants a login: one of its --login-file, as Authorization: Basic";
    let mut refusal = Problem::new(Code::Unauthenticated, why).into_response();
    let asks = HeaderValue::from_static("Basic realm=\"Stafett lab\", charset=\"UTF-8\"");
    refusal.headers_mut().insert(header::WWW_AUTHENTICATE, asks);
    refusal
}
