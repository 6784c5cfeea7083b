//! A client's view of a cluster: connections by broker, opened on demand, and retries.
//!
//! Requests that any broker serves go to the first reachable one. Those for partitions go to their leaders,
//! those for groups to their coordinators. A connection that has ended is replaced at its next use.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use stafett_kafka_wire::messages::metadata::MetadataResponseBroker;
use stafett_kafka_wire::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use stafett_kafka_wire::{ApiKey, Request, Str};
use stafett_model::{Lock, LockGuard};
use tokio::time::{Instant, sleep};

use crate::connection::Connection;
use crate::error::ClientError;
use crate::options::Options;
use crate::refusal;

const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Kinds of coordinators (`FindCoordinatorRequest.key_type`).
const OF_GROUP: i8 = 0;
const OF_TRANSACTIONS: i8 = 1;

/// A client of one cluster. Cheap to clone; all clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: Options,
    servers: Vec<String>,
    known: Lock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// `HOST:PORT` by broker id.
    brokers: HashMap<i32, String>,
    connections: HashMap<String, Arc<Connection>>,
}

impl Client {
    /// Connects to the first of `servers` (`HOST:PORT`) that can be reached.
    pub async fn connect(servers: &[String], options: Options) -> Result<Self, ClientError> {
        let client = Self {
            shared: Arc::new(Shared {
                options,
                servers: servers.to_vec(),
                known: Lock::default(),
            }),
        };
        client.any().await?;
        Ok(client)
    }

    /// Returns a client of the same brokers with connections of its own, which open when they are used. A
    /// connection is answered in order, so that long polls hold up whatever is behind them.
    #[must_use]
    pub fn another(&self) -> Self {
        let known = Known {
            brokers: self.known().brokers.clone(),
            connections: HashMap::new(),
        };
        Self {
            shared: Arc::new(Shared {
                options: self.shared.options.clone(),
                servers: self.shared.servers.clone(),
                known: Lock::new(known),
            }),
        }
    }

    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    fn known(&self) -> LockGuard<'_, Known> {
        self.shared.known.lock()
    }

    /// Returns a connection to any broker.
    pub async fn any(&self) -> Result<Arc<Connection>, ClientError> {
        let mut failed = None;
        // The configured servers come first. Learned ones help if none of those is left.
        let learned: Vec<String> = self.known().brokers.values().cloned().collect();
        for server in self.shared.servers.iter().chain(&learned) {
            match self.at(server).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| ClientError::NoLeader {
            about: "the cluster, of which no server is given,".into(),
        }))
    }

    async fn at(&self, address: &str) -> Result<Arc<Connection>, ClientError> {
        let open = self.known().connections.get(address).cloned();
        if let Some(connection) = open.filter(|connection| !connection.is_closed()) {
            return Ok(connection);
        }
        let opened = Arc::new(Connection::open(address, &self.shared.options).await?);
        let mut known = self.known();
        // Another task may have been faster; its connection is used.
        if let Some(other) = known.connections.get(address).filter(|other| !other.is_closed()) {
            return Ok(Arc::clone(other));
        }
        known.connections.insert(address.to_owned(), Arc::clone(&opened));
        Ok(opened)
    }

    /// Returns a connection to the broker with this id, at its address in the latest metadata.
    pub async fn broker(&self, id: i32) -> Result<Arc<Connection>, ClientError> {
        let address = self.known().brokers.get(&id).cloned();
        match address {
            Some(address) => self.at(&address).await,
            None => Err(ClientError::NoLeader {
                about: format!("broker {id}").into(),
            }),
        }
    }

    /// Returns the ids of all brokers in the latest metadata, sorted.
    pub(crate) fn broker_ids(&self) -> Vec<i32> {
        let mut ids: Vec<_> = self.known().brokers.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Replaces the known brokers by those of new metadata, and forgets connections to others.
    pub(crate) fn learn(&self, brokers: &[MetadataResponseBroker]) {
        // A cluster has a broker: this answer says nothing about it.
        if brokers.is_empty() {
            return;
        }
        let row = |broker: &MetadataResponseBroker| (broker.node_id, address(&broker.host, broker.port));
        let mut known = self.known();
        let Known {
            brokers: now,
            connections,
        } = &mut *known;
        *now = brokers.iter().map(row).collect();
        let servers = &self.shared.servers;
        connections
            .retain(|address, _| servers.contains(address) || now.values().any(|broker| broker == address));
    }

    /// Returns a connection to the coordinator of a group.
    pub async fn coordinator(&self, group: &str) -> Result<Arc<Connection>, ClientError> {
        self.retrying(|| self.find_coordinator(group, OF_GROUP)).await
    }

    /// Returns a connection to the coordinator of a transactional id.
    pub(crate) async fn coordinator_of_transactions(&self, id: &str) -> Result<Arc<Connection>, ClientError> {
        self.retrying(|| self.find_coordinator(id, OF_TRANSACTIONS)).await
    }

    /// Opens new connections from now on. A broker answers the requests of a connection in order: a request
    /// that must not wait behind an abandoned one needs another connection.
    pub(crate) fn reconnect(&self) {
        self.known().connections.clear();
    }

    async fn find_coordinator(&self, name: &str, kind: i8) -> Result<Arc<Connection>, ClientError> {
        let connection = self.any().await?;
        let version = connection.version::<FindCoordinatorRequest>(i16::MAX)?;
        let request = FindCoordinatorRequest {
            key: if version < 4 {
                Str::copy_from(name)
            } else {
                Str::default()
            },
            key_type: kind,
            coordinator_keys: if version < 4 {
                Vec::new()
            } else {
                vec![Str::copy_from(name)]
            },
        };
        let answer: FindCoordinatorResponse =
            connection.send(&request, version, Duration::ZERO).await?.await?;
        let (code, message, host, port) = match answer.coordinators.first() {
            Some(row) => (row.error_code, row.error_message.as_ref(), &row.host, row.port),
            None => (
                answer.error_code,
                answer.error_message.as_ref(),
                &answer.host,
                answer.port,
            ),
        };
        refusal::check(
            connection.broker(),
            ApiKey::FindCoordinator,
            code,
            message,
            || match kind {
                OF_GROUP => format!("group `{name}`"),
                _ => format!("transactional id `{name}`"),
            },
        )?;
        self.at(&address(host, port)).await
    }

    /// Sends a request that any broker serves.
    pub async fn call<R: Request>(&self, request: &R) -> Result<(Arc<Connection>, R::Response), ClientError> {
        let connection = self.any().await?;
        let answer = connection.call(request).await?;
        Ok((connection, answer))
    }

    /// Runs `attempt` until it succeeds, fails with a lasting error, or has failed for
    /// [`Options::retry_for`].
    // Not an `AsyncFnMut`: futures of those are not known to be `Send`, and tasks await this.
    pub async fn retrying<T, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut backoff = Backoff::new(self.shared.options.retry_for);
        loop {
            match attempt().await {
                Err(error) if error.is_retriable() && backoff.wait().await => {}
                result => return result,
            }
        }
    }
}

/// Formats `HOST:PORT`, with brackets if the host is an IPv6 address.
fn address(host: &str, port: i32) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Growing waits, up to a deadline.
#[derive(Debug)]
pub(crate) struct Backoff {
    until: Instant,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            until: Instant::now() + patience,
            next: BACKOFF_MIN,
        }
    }

    /// Waits before the next attempt. Returns false at once if the wait would pass the deadline.
    pub(crate) async fn wait(&mut self) -> bool {
        if Instant::now() + self.next > self.until {
            return false;
        }
        sleep(self.next).await;
        self.next = (self.next * 2).min(BACKOFF_MAX);
        true
    }
}
