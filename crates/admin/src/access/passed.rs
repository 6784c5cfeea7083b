//! The caller of a request that a node of a cluster passes on to another one.
//!
//! The node that the request came to checks the login; the other one trusts it, as requests come to it from
//! nodes alone, and decides by its own copy of users and rights, once that is as new. So sessions, tokens
//! that were just made, and the broker's own programs count at both. Requests below `/api` keep their login,
//! which has rules of its own.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use stafett_access::{Caller, Who};
use stafett_broker::Broker;
use stafett_http::{Slot, server, slot};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::caller::OnlyIfAbsent;

/// Name of the header. It means nothing in a request of a client, which loses it ([`forget`]).
const HEADER: &str = "stafett-passed";
/// Time for the users and rights of a request to arrive.
const COPY_MAX: Duration = Duration::from_secs(5);

/// Version of users and rights: epoch of the broker that keeps them, and generation there.
type Version = (u64, u64);

/// Caller of a passed request, in the header as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Passed {
    /// `None`: the request's own proofs count.
    user: Option<String>,
    /// It is a program of the broker's own.
    is_internal: bool,
    expires_ms: Option<i64>,
    /// It makes a thing and replaces none.
    #[serde(default)]
    only_if_absent: bool,
    version: Version,
}

/// Removes the header from a request that a client sent.
pub fn forget(headers: &mut HeaderMap) {
    headers.remove(HEADER);
}

/// Returns the address of the client that a request of the broker's own is made for.
pub fn client(request: &Request) -> Option<IpAddr> {
    let caller = request.extensions().get::<Arc<Caller>>();
    caller.map(|caller| caller.peer())
}

/// Notes the caller of a request that goes to another node. `epoch` is that of this broker.
pub async fn note(broker: &Slot<Broker>, epoch: u64, request: &mut Request) {
    forget(request.headers_mut());
    let Ok(broker) = broker.get() else { return };
    let access = broker.access();
    let mut passed = Passed::default();
    if !request.uri().path().starts_with("/api") {
        // Requests that the broker makes itself have a caller.
        let known = request.extensions().get::<Arc<Caller>>().cloned();
        let caller = match known {
            Some(caller) => Ok(caller),
            None => super::Proofs::of(request).caller(access).await,
        };
        // A refusal is that of the other node, with a form of its own.
        if let Ok(caller) = caller {
            passed.user = caller.name().map(str::to_owned);
            passed.is_internal = *caller.who() == Who::Internal;
            passed.expires_ms = caller.expires_ms();
        }
    }
    passed.only_if_absent = OnlyIfAbsent::is_in(request);
    passed.version = (epoch, access.directory().generation());
    let header = serde_json::to_vec(&passed).ok();
    let header = header.and_then(|header| HeaderValue::from_bytes(&header).ok());
    if let Some(header) = header {
        request.headers_mut().insert(HEADER, header);
    }
}

/// Has routes take the callers that other nodes noted. `versions` are those of users and rights here.
pub fn adopting(broker: Slot<Broker>, versions: watch::Receiver<Version>, routes: Router) -> Router {
    routes.layer(middleware::from_fn_with_state((broker, versions), adopt))
}

type Adopting = (Slot<Broker>, watch::Receiver<Version>);

async fn adopt(State((broker, mut versions)): State<Adopting>, mut request: Request, next: Next) -> Response {
    let noted = request.headers_mut().remove(HEADER);
    let Some(noted) = noted.and_then(|noted| serde_json::from_slice::<Passed>(noted.as_bytes()).ok()) else {
        return next.run(request).await;
    };
    let is_new = |known: &Version| *known >= noted.version;
    let is_copied = {
        let copied = timeout(COPY_MAX, versions.wait_for(is_new)).await;
        matches!(copied, Ok(Ok(_)))
    };
    if !is_copied {
        let why = "the users and rights of a request that was passed on are not here yet";
        return slot::not_serving(why).into_response();
    }
    // It checked the login by users and rights that may have changed since.
    if versions.borrow().0 > noted.version.0 {
        let why = "a former owner of the users and rights passed the request on";
        return slot::not_serving(why).into_response();
    }
    let broker = match broker.get() {
        Ok(broker) => broker,
        Err(problem) => return problem.into_response(),
    };
    let peer = server::peer(&request).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    if let Some(caller) = noted.caller(&broker, peer) {
        request.extensions_mut().insert(Arc::new(caller));
    }
    if noted.only_if_absent {
        request.extensions_mut().insert(OnlyIfAbsent);
    }
    next.run(request).await
}

impl Passed {
    fn caller(&self, broker: &Broker, peer: IpAddr) -> Option<Caller> {
        if self.is_internal {
            return Some(Caller::internal().at(peer));
        }
        let caller = Caller::user(broker.access().directory(), self.user.as_deref()?, peer);
        Some(match self.expires_ms {
            Some(expires_ms) => caller.until(expires_ms),
            None => caller,
        })
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::StatusCode;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;
    use crate::tests::World;

    /// Asks a node, whose users and rights are of a version, for the caller of a request.
    async fn asked(here: Version, broker: &Slot<Broker>, passed: Option<&Passed>) -> (StatusCode, String) {
        let caller = |request: Request| async move {
            let caller = request.extensions().get::<Arc<Caller>>();
            caller.map_or_else(String::new, |caller| format!("{:?}", caller.who()))
        };
        let routes = Router::new().route("/", get(caller));
        // No later version comes.
        let versions = watch::channel(here).1;
        let mut request = Request::new(Body::empty());
        if let Some(passed) = passed {
            let text = serde_json::to_vec(passed).unwrap();
            let header = HeaderValue::from_bytes(&text).unwrap();
            request.headers_mut().insert(HEADER, header);
        }
        let answer = adopting(broker.clone(), versions, routes).oneshot(request);
        let answer = answer.await.unwrap();
        let (status, body) = (answer.status(), answer.into_body());
        let body = to_bytes(body, 1 << 16).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_caller_is_taken_of_a_node_whose_users_are_in_force() {
        let world = World::new().await;
        let broker = &world.backend.broker;
        let of = |version: Version| Passed {
            user: Some("anna".to_owned()),
            version,
            ..Passed::default()
        };
        let anna = (StatusCode::OK, "User(\"anna\")".to_owned());
        for version in [(7, 3), (7, 2), (7, 0)] {
            assert_eq!(asked((7, 3), broker, Some(&of(version))).await, anna);
        }
        for (version, why) in [
            ((7, 4), "are not here yet"),
            ((8, 0), "are not here yet"),
            ((6, 9), "a former owner"),
        ] {
            let (status, text) = asked((7, 3), broker, Some(&of(version))).await;
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
            assert!(text.contains(why), "{text}");
        }
        let own = Passed {
            is_internal: true,
            version: (7, 3),
            ..Passed::default()
        };
        let internal = (StatusCode::OK, "Internal".to_owned());
        assert_eq!(asked((7, 3), broker, Some(&own)).await, internal);
        assert_eq!(asked((7, 3), broker, None).await, (StatusCode::OK, String::new()));
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let passed = Passed {
            user: Some("Ä \"user\"\n".to_owned()),
            is_internal: false,
            expires_ms: Some(7),
            only_if_absent: true,
            version: (3, u64::MAX),
        };
        for passed in [passed, Passed::default()] {
            let text = serde_json::to_vec(&passed).unwrap();
            let header = HeaderValue::from_bytes(&text).unwrap();
            let read: Passed = serde_json::from_slice(header.as_bytes()).unwrap();
            assert_eq!(read, passed);
        }
    }
}
