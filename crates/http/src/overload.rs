//! Refusals of requests that wait too long, before their bodies are read.
//!
//! A request waits for a thread, and once it began, a write waits for its storage: a request is as late as
//! the oldest write of the listener that is not stored yet. Requests that take long on purpose, such as those
//! that wait for messages, say nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use stafett_net::Shedding;
use stafett_net::lock::lock;
use tokio::time::Instant;

use crate::code::Code;
use crate::problem::Problem;

/// Treatment of a request where a listener sheds load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It makes room, or an operator needs it: it is never refused.
    Exempt,
    New,
    /// New work that is answered when it is stored.
    Write,
}

/// Returns the kind of a request from its method and path.
pub type KindOf = fn(&Method, &str) -> Kind;

/// Writes of a listener that are not answered yet, in the order of their beginning.
#[derive(Debug, Default)]
pub(crate) struct Writes(Mutex<Begun>);

#[derive(Debug, Default)]
struct Begun {
    last: u64,
    since: BTreeMap<u64, Instant>,
}

/// Load shedding as a connection has it.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) kind_of: KindOf,
    pub(crate) shedding: Arc<Shedding>,
    pub(crate) writes: Arc<Writes>,
}

/// A request that began, until it is dropped. One that is never refused is not counted: it may wait for
/// messages as long as it likes.
#[derive(Debug)]
pub(crate) struct Counted {
    /// `None` if it is not counted.
    shedding: Option<Arc<Shedding>>,
    write: Option<(Arc<Writes>, u64)>,
}

impl Overload {
    /// Begins a request, or refuses it.
    pub(crate) fn begin(&self, method: &Method, path: &str) -> Result<Counted, Box<Response>> {
        let kind = (self.kind_of)(method, path);
        if kind == Kind::Exempt {
            return Ok(Counted {
                shedding: None,
                write: None,
            });
        }
        let now = Instant::now();
        let waited = self.writes.oldest().map(|oldest| now - oldest);
        if self.shedding.refuses(now, waited.unwrap_or_default()) {
            self.shedding.count("request", 1);
            return Err(Box::new(refusal()));
        }
        self.shedding.add_requests(1);
        let write = (kind == Kind::Write).then(|| (Arc::clone(&self.writes), self.writes.begin(now)));
        Ok(Counted {
            shedding: Some(Arc::clone(&self.shedding)),
            write,
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(shedding) = &self.shedding {
            shedding.add_requests(-1);
        }
        if let Some((writes, number)) = &self.write {
            writes.end(*number);
        }
    }
}

impl Writes {
    fn begin(&self, now: Instant) -> u64 {
        let mut begun = self.lock();
        begun.last += 1;
        let number = begun.last;
        begun.since.insert(number, now);
        number
    }

    fn end(&self, number: u64) {
        self.lock().since.remove(&number);
    }

    fn oldest(&self) -> Option<Instant> {
        self.lock().since.first_key_value().map(|(_, since)| *since)
    }

    fn lock(&self) -> MutexGuard<'_, Begun> {
        lock(&self.0)
    }
}

fn refusal() -> Response {
    let problem = Problem::new(Code::Overloaded, "requests wait too long: try again later");
    let mut response = problem.into_response();
    let second = HeaderValue::from_static("1");
    response.headers_mut().insert(header::RETRY_AFTER, second);
    response
}
