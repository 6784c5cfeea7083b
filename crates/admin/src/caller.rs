//! The client for which a request is made.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use stafett_broker::Broker;
use stafett_http::{Code, Problem};
use stafett_messaging::queues::Queue;
use stafett_model::Namespace;

/// Header that names the client.
pub(crate) const CLIENT: &str = "stafett-client";
/// Prefix of the names of clients' queues.
const QUEUE_PREFIX: &str = "client.";
/// Bound on the bytes of a client's name.
pub(crate) const NAME_BYTES_MAX: usize = 248;

/// Client named by the header `Stafett-Client`. `None` for an operator.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller(pub(crate) Option<String>);

/// Mark of a request of an import that makes a thing and replaces none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnlyIfAbsent;

impl OnlyIfAbsent {
    pub(crate) fn is_in(request: &Request) -> bool {
        request.extensions().get::<Self>().is_some()
    }

    /// Refuses a thing that came to be meanwhile.
    pub(crate) fn check(is_new: bool) -> Result<(), Problem> {
        if is_new {
            return Ok(());
        }
        Err(Problem::new(
            Code::ExistsDifferently,
            "it was made meanwhile, and stays as it is",
        ))
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(value) = parts.headers.get(CLIENT) else {
            return Ok(Self(None));
        };
        let name = std::str::from_utf8(value.as_bytes())
            .ok()
            .filter(|name| !name.is_empty());
        let name =
            name.ok_or_else(|| Problem::bad_request("Stafett-Client is the name of a client, in UTF-8"))?;
        Ok(Self(Some(name.to_owned())))
    }
}

impl Caller {
    /// Returns the queue of the client.
    pub(crate) fn own_queue(&self, broker: &Broker, namespace: &Namespace) -> Result<Arc<Queue>, Problem> {
        let Some(name) = &self.0 else {
            let why = "this needs a client: Stafett-Client: NAME names one that PUT /v1/clients/NAME has registered";
            return Err(Problem::new(Code::NotRegistered, why));
        };
        find(broker, namespace, name).ok_or_else(|| {
            let why = format!("the client {name:?} is not registered: PUT /v1/clients/{name} does it");
            Problem::new(Code::NotRegistered, why)
        })
    }

    /// Refuses to read from the queue of another client.
    pub(crate) fn check_receives(&self, queue: &Queue) -> Result<(), Problem> {
        match &self.0 {
            Some(name) if queue.personal && *queue.name != *queue_name(name) => {
                let why = format!("the queue {:?} belongs to another client", &*queue.name);
                Err(Problem::new(Code::Forbidden, why))
            }
            Some(_) | None => Ok(()),
        }
    }
}

pub(crate) fn queue_name(client: &str) -> String {
    format!("{QUEUE_PREFIX}{client}")
}

/// Returns the name of the client of a personal queue.
pub(crate) fn client_name(queue: &Queue) -> &str {
    queue.name.strip_prefix(QUEUE_PREFIX).unwrap_or(&queue.name)
}

/// Returns the queue of a registered client.
pub(crate) fn find(broker: &Broker, namespace: &Namespace, client: &str) -> Option<Arc<Queue>> {
    let queue = broker.messaging().queues().get(namespace, &queue_name(client))?;
    Some(queue).filter(|queue| queue.personal)
}
