//! Requests that go on after their rights were checked: waits, streams and web sockets. They end at once when
//! the right is gone, the user is deleted or the token is revoked.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody};
use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::response::Response;
use bytes::Bytes;
use futures_core::Stream;
use stafett_access::{Action, Caller, Kind, Resource, Tallied, TokenHash};
use stafett_broker::Broker;
use stafett_http::{Code, Problem, Upgrade, sse};
use stafett_model::{Lock, Tenure};
use stafett_net::{Handover, Next};
use stafett_store::wall_ms;
use tokio::time::timeout;

use super::rights;

/// Rights on names in a body or query that are checked again; those beyond are checked once.
const CHECKED_MAX: usize = 64;
/// Time in which a connection closes by its protocol.
const CLOSING: Duration = Duration::from_secs(5);

/// A request with its caller, and the rights that it was given.
pub(crate) struct Standing {
    broker: Arc<Broker>,
    pub(crate) caller: Arc<Caller>,
    method: Method,
    /// Copies: slices would keep the buffer of the request's head while the request waits.
    path: Box<str>,
    query: Option<Box<str>>,
    route: Option<MatchedPath>,
    /// True for a WebSocket at the root path.
    is_live: bool,
    token: Option<TokenHash>,
    /// Rights that the handler has checked.
    checked: Lock<Vec<Checked>>,
}

struct Checked {
    action: Action,
    kind: Kind,
    namespace: Box<str>,
    name: Box<str>,
}

impl Standing {
    pub(crate) fn new(
        broker: Arc<Broker>,
        caller: Arc<Caller>,
        token: Option<TokenHash>,
        request: &Request,
    ) -> Self {
        Self {
            broker,
            caller,
            method: request.method().clone(),
            path: request.uri().path().into(),
            query: request.uri().query().map(Into::into),
            route: request.extensions().get::<MatchedPath>().cloned(),
            is_live: Upgrade::is_wanted(request.headers()),
            token,
            checked: Lock::default(),
        }
    }

    fn template(&self) -> &str {
        let route = self.route.as_ref().map_or("", MatchedPath::as_str);
        if self.is_live && route == "/" {
            "/live"
        } else {
            route
        }
    }

    /// Checks the right of the route, and those that the handler has checked so far.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let directory = self.broker.access().directory();
        let is_revoked = |hash: TokenHash| directory.token(hash, wall_ms()).is_none();
        if self.token.is_some_and(is_revoked) {
            return Err(Problem::new(
                Code::Unauthenticated,
                "the token is revoked or expired",
            ));
        }
        if self.caller.is_expired(wall_ms()) {
            return Err(Problem::new(Code::Unauthenticated, "the token has expired"));
        }
        if self.caller.is_unrestricted() {
            return Ok(());
        }
        let (path, query) = (&*self.path, self.query.as_deref());
        rights::check_path(&self.caller, &self.method, self.template(), path, query)?;
        rights::check_shown_queue(&self.broker, &self.caller, &self.method, self.template(), path)?;
        self.checked.lock().iter().try_for_each(|one| {
            let resource = Resource {
                kind: one.kind,
                namespace: &one.namespace,
                name: &one.name,
            };
            rights::check_thing(&self.broker, &self.caller, one.action, &resource)
        })
    }

    /// Notes a right that the handler has checked.
    pub(super) fn note(&self, action: Action, resource: &Resource<'_>) {
        if self.caller.is_unrestricted() {
            return;
        }
        let mut checked = self.checked.lock();
        if checked.len() < CHECKED_MAX {
            checked.push(Checked {
                action,
                kind: resource.kind,
                namespace: resource.namespace.into(),
                name: resource.name.into(),
            });
        }
    }

    /// Returns the time at which the proof of the caller ends. `None` if it lasts.
    fn expires_ms(&self) -> Option<i64> {
        let directory = self.broker.access().directory();
        let of_token = |hash| directory.token(hash, wall_ms())?.0.expires_ms;
        self.caller.expires_ms().or_else(|| self.token.and_then(of_token))
    }

    /// Waits until one of the rights is gone.
    pub(super) async fn revoked(&self) -> Problem {
        let mut changes = self.broker.access().changes();
        loop {
            if let Err(problem) = self.check() {
                return problem;
            }
            let expired = async {
                match self.expires_ms() {
                    Some(expiry) => {
                        let left = u64::try_from(expiry - wall_ms()).unwrap_or(0);
                        tokio::time::sleep(Duration::from_millis(left + 1)).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                notified = changes.changed() => {
                    if notified.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
                () = expired => {}
            }
        }
    }

    /// Returns false if another node may have taken over meanwhile: the answer may be of old state. Orders to
    /// the cluster end the tenure of a cell themselves.
    pub(super) fn may_answer(&self) -> bool {
        self.broker.tenure().holds() || self.template().starts_with("/v1/cluster")
    }

    /// Returns true if an answer may be awaited in vain: the request changes no users or rules itself.
    pub(super) fn may_be_cut(&self) -> bool {
        let own = [
            "/v1/users",
            "/v1/tokens",
            "/v1/rules",
            "/v1/log",
            "/v1/definitions",
        ];
        !own.iter().any(|path| self.template().starts_with(path))
    }
}

/// Ends a connection that goes on as another protocol when its right is gone. It counts until its end.
pub(super) fn ended_by(standing: Arc<Standing>, next: Next, counted: Option<Tallied>) -> Next {
    Box::new(move |connection, received| {
        Box::pin(async move {
            let _counted = counted;
            let entry = Arc::clone(&connection.entry);
            let mut served = next(connection, received);
            tokio::select! {
                biased;
                () = &mut served => return,
                _ = standing.revoked() => {}
            }
            entry.begin_ending("a right was revoked");
            // Dropped if it does not close in time.
            let _ = timeout(CLOSING, served).await;
        })
    })
}

/// Puts a slot of its own into a request, so that [`ended_by`] can stand between the protocols.
pub(super) fn intercept(request: &mut Request) -> Option<(Handover, Handover)> {
    let outer = request.extensions().get::<Handover>().cloned()?;
    let own = Handover::new();
    request.extensions_mut().insert(own.clone());
    Some((outer, own))
}

/// Ends the body of an answer that goes on when its right is gone.
pub(super) fn revocable(standing: Arc<Standing>, response: Response) -> Response {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    let endless = sse::Form::of_answer(response.headers());
    let tenure = standing.broker.tenure().clone();
    response.map(|body| {
        Body::from_stream(Pieces {
            inner: Some(body.into_data_stream()),
            tenure,
            revoked: Box::pin(async move { standing.revoked().await }),
            endless,
        })
    })
}

struct Pieces {
    /// `None` behind the end.
    inner: Option<BodyDataStream>,
    tenure: Tenure,
    revoked: Pin<Box<dyn Future<Output = Problem> + Send>>,
    /// Form of events, the last of which tells the reason. Another answer is cut off with an error.
    endless: Option<sse::Form>,
}

impl Stream for Pieces {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(inner) = &mut self.inner else {
            return Poll::Ready(None);
        };
        let piece = Pin::new(inner).poll_next(context);
        if piece.is_ready() && !self.tenure.holds() {
            self.inner = None;
            let cut = std::io::Error::other("another node may have taken over meanwhile");
            return Poll::Ready(Some(Err(axum::Error::new(cut))));
        }
        let Poll::Ready(why) = self.revoked.as_mut().poll(context) else {
            return piece;
        };
        self.inner = None;
        if let Some(form) = self.endless {
            let mut end = String::new();
            form.put(&mut end, None, "end", &why.to_value().to_string());
            return Poll::Ready(Some(Ok(end.into())));
        }
        let cut = std::io::Error::other("the right to read on was revoked");
        Poll::Ready(Some(Err(axum::Error::new(cut))))
    }
}
