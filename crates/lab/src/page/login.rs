//! The logins of the page: names and passwords, by HTTP Basic (RFC 7617), for which browsers ask themselves.
//!
//! Those of one file may run experiments, which starts programs; those of the other may look. Without any
//! login, all users of this machine may run.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};
use stafett_http::api::get;
use stafett_http::{Api, Code, Problem};

use super::Lab;

/// Length of the shortest password.
const PASSWORD_BYTES_MIN: usize = 8;

/// Users of the page.
const LOGINS_MAX: usize = 1000;

/// Routes that change nothing and take a body.
const LOOKS: [&str; 5] = [
    "/lab/v1/check",
    "/lab/v1/edit",
    "/lab/v1/analyze",
    "/lab/v1/models",
    "/lab/v1/models/closed",
];

/// Hashes of `NAME:PASSWORD` of all users. Neither is kept.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Logins {
    /// Of those that may run experiments.
    run: Vec<[u8; 32]>,
    look: Vec<[u8; 32]>,
}

/// Right of a request's caller to run experiments.
#[derive(Debug, Clone, Copy)]
struct MayRun(bool);

#[derive(Debug, Serialize, JsonSchema)]
struct Whoami {
    /// True if the caller may run experiments; others look.
    may_run: bool,
}

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    api.route(
        get("/lab/v1/whoami", "Shows what the caller may do.").answers::<Whoami>(200),
        whoami,
    )
}

async fn whoami(State(_): State<Lab>, request: Request) -> Json<Whoami> {
    let may = request.extensions().get::<MayRun>();
    Json(Whoami {
        may_run: may.is_none_or(|may| may.0),
    })
}

impl Logins {
    /// Reads the files of those that may run experiments, and of those that may look. At least one is there.
    pub fn read_all(run: Option<&Path>, look: Option<&Path>) -> io::Result<Option<Self>> {
        if run.is_none() && look.is_none() {
            return Ok(None);
        }
        let runs = run.map(Self::read).transpose()?.unwrap_or_default();
        let looks = look.map(Self::read).transpose()?.unwrap_or_default();
        Ok(Some(runs.with_lookers(looks)))
    }

    /// Adds the logins of others, which may look.
    #[must_use]
    pub(crate) fn with_lookers(mut self, others: Self) -> Self {
        self.look = others.run;
        self
    }

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
        Ok(Self {
            run: hashes,
            look: Vec::new(),
        })
    }

    /// Returns the right of a caller; `None` without a known login. Compares hashes: the time of that says
    /// nothing of the password.
    fn right(&self, headers: &HeaderMap) -> Option<MayRun> {
        let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let encoded = given.and_then(|given| {
            let (scheme, rest) = given.split_at_checked(6)?;
            scheme
                .eq_ignore_ascii_case(b"basic ")
                .then_some(rest.trim_ascii())
        });
        let pair = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
        let hash: [u8; 32] = Sha256::digest(pair?).into();
        if self.run.contains(&hash) {
            return Some(MayRun(true));
        }
        self.look.contains(&hash).then_some(MayRun(false))
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

async fn check(State(login): State<Arc<Logins>>, mut request: Request, next: Next) -> Response {
    if let Some(right) = login.right(request.headers()) {
        let looks = request.method().is_safe() || LOOKS.contains(&request.uri().path());
        if !right.0 && !looks {
            let why = "this login may look; those of --login-file may run experiments";
            return Problem::new(Code::Forbidden, why).into_response();
        }
        request.extensions_mut().insert(right);
        return next.run(request).await;
    }
    let why = "the lab wants a login: one of its --login-file, as Authorization: Basic";
    let mut refusal = Problem::new(Code::Unauthenticated, why).into_response();
    let asks = HeaderValue::from_static("Basic realm=\"Stafett lab\", charset=\"UTF-8\"");
    refusal.headers_mut().insert(header::WWW_AUTHENTICATE, asks);
    refusal
}
