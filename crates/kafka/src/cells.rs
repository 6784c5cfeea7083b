//! Cells of a cluster: each is a broker of its own to clients. The first one keeps topics, transactions and
//! most groups, and other cells have requests about these executed there.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stafett_access::Caller;
use stafett_broker::Broker;
use stafett_kafka_wire::messages::{DescribeTopicPartitionsRequest, MetadataRequest};
use stafett_kafka_wire::{ApiKey, Decoder, Encoded};
use stafett_model::{Lock, LogId};
use stafett_net::{Connection, Duplex, Protocol, Reached, ToCell};
use stafett_topics::{Bounds, Topic, TopicCatalog, TopicId, TopicSettings, cell_of};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::call::{Call, Close};
use crate::connection;
use crate::context::{KafkaContext, RequestContext};
use crate::front_end::Kafka;
use crate::group_cells;
use crate::leader_epoch::leader_epoch;
use crate::operation::Step;

/// Largest answer of the first cell that is passed on.
const ANSWER_BYTES_MAX: u32 = 256 << 20;
/// Largest description of a client.
const CLIENT_BYTES_MAX: usize = 64 << 10;

/// The way from another cell to the first one.
pub trait FirstCell: Debug + Send + Sync {
    /// Id of the cluster.
    fn cluster_id(&self) -> u128;
    /// Leader epoch of the first cell's partitions; -1 if it is unknown.
    fn leader_epoch(&self) -> i32;
    /// Connects for a client, with an address for its entry in lists.
    fn reach(&self, client: SocketAddr) -> Reached<'_>;
}

/// The ways between cells, for messages about transactions.
pub trait Cells: Debug + Send + Sync {
    /// Epoch of this cell: each of its owners has a larger one.
    fn epoch(&self) -> i32;
    /// Returns true if this node owns this cell still.
    fn is_owner(&self) -> bool;
    /// Epoch of the first cell, as far as this node has heard.
    fn epoch_of_first(&self) -> i32;
    /// Connects to a [`crate::TransactionDoor`].
    fn reach(&self, cell: u32) -> Reached<'_>;
}

/// Requests that a cell executes itself: about its partitions, its connections, and the brokers.
const OWN: &[ApiKey] = &[
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::DeleteRecords,
    ApiKey::DescribeProducers,
    ApiKey::DescribeLogDirs,
    ApiKey::ApiVersions,
    ApiKey::SaslHandshake,
    ApiKey::SaslAuthenticate,
    ApiKey::FindCoordinator,
    ApiKey::DescribeCluster,
    ApiKey::GetTelemetrySubscriptions,
    ApiKey::PushTelemetry,
    // As far as the topics are known here.
    ApiKey::Metadata,
    ApiKey::DescribeTopicPartitions,
    // Clients gather the lists of all brokers.
    ApiKey::ListGroups,
    ApiKey::ListTransactions,
];

/// Place where a request is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Here,
    /// The first cell, to which it is passed on.
    First,
    /// Another cell, which its client has to look for.
    OtherCoordinator,
}

/// Returns the place of a request.
pub(crate) fn place(context: &RequestContext, call: Call, body: &Decoder) -> Result<Place, Close> {
    if let Some(place) = group_cells::place(&context.shared, call, body)? {
        return Ok(place);
    }
    let is_of_first = is_of_first(context, call, body)?;
    Ok(if is_of_first { Place::First } else { Place::Here })
}

/// Returns true if the first cell is to execute a request that is not about groups. It knows each topic
/// first, and makes those that there are not.
fn is_of_first(context: &RequestContext, call: Call, body: &Decoder) -> Result<bool, Close> {
    let shared = &context.shared;
    if !shared.is_further_cell() {
        return Ok(false);
    }
    let topics = shared.broker.topics();
    let is_new = |name: &str| !topics.named(name).is_some_and(|topic| shared.shows(&topic));
    if call.api == ApiKey::Metadata {
        let request: MetadataRequest = call.read(body.clone())?;
        return Ok(request.topics.iter().flatten().any(|topic| match &topic.name {
            Some(name) => is_new(name),
            None => topics.with_id(TopicId(topic.topic_id.into())).is_none(),
        }));
    }
    if call.api == ApiKey::DescribeTopicPartitions {
        let request: DescribeTopicPartitionsRequest = call.read(body.clone())?;
        return Ok(request.topics.iter().any(|topic| is_new(&topic.name)));
    }
    Ok(!OWN.contains(&call.api))
}

/// Connection to the first cell for the requests of one client, made when the first of them comes. They go
/// one by one.
#[derive(Debug, Default)]
pub(crate) struct Upstream(Lock<Option<(Client, ToCell)>>);

/// The client that requests are passed on for, as JSON behind its length as u32.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Client {
    /// `None`: it has not logged in.
    user: Option<String>,
    expires_ms: Option<i64>,
    is_tls: bool,
}

/// A client of another cell, whose login was checked there.
#[derive(Debug)]
pub(crate) struct PassedClient {
    pub caller: Arc<Caller>,
    pub is_tls: bool,
}

impl Client {
    fn of(context: &RequestContext) -> Self {
        let caller = context.caller();
        Self {
            user: caller.name().map(str::to_owned),
            expires_ms: caller.expires_ms(),
            is_tls: context.is_tls,
        }
    }
}

impl Upstream {
    /// Has the first cell execute a request, and returns the answer. Nothing of a request is known once the
    /// connection has ended within it.
    async fn execute(
        &self,
        context: &RequestContext,
        first: &dyn FirstCell,
        request: &[u8],
    ) -> io::Result<Bytes> {
        let client = Client::of(context);
        let mut first = match self.kept(&client).await {
            Some(kept) => kept,
            None => connect(context.entry.peer, &client, first).await?,
        };
        let answered = tokio::select! {
            answered = ask(&mut first.stream, request) => answered?,
            () = &mut first.lost => return Err(io::Error::other("the first cell has lost its node")),
        };
        *self.0.lock() = Some((client, first));
        Ok(answered)
    }

    /// Returns the connection of earlier requests, if it is for this client and has not ended.
    async fn kept(&self, client: &Client) -> Option<ToCell> {
        let kept = self.0.lock().take();
        let (_, mut first) = kept.filter(|(of, _)| of == client)?;
        // Nothing comes unasked.
        let ended = timeout(Duration::ZERO, first.stream.read_u8()).await;
        ended.is_err().then_some(first)
    }
}

/// Sends a request, and returns its answer.
async fn ask(stream: &mut Box<dyn Duplex>, request: &[u8]) -> io::Result<Bytes> {
    stream.write_u32(length(request)?).await?;
    stream.write_all(request).await?;
    stream.flush().await?;
    let bytes = stream.read_u32().await?;
    if bytes > ANSWER_BYTES_MAX {
        return Err(io::Error::other("an answer of the first cell is too long"));
    }
    let mut answer = bytes.to_be_bytes().to_vec();
    let read = stream.take(bytes.into()).read_to_end(&mut answer).await?;
    if read as u64 != u64::from(bytes) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(answer.into())
}

async fn connect(peer: SocketAddr, client: &Client, first: &dyn FirstCell) -> io::Result<ToCell> {
    let reached = first.reach(peer).await;
    let mut first = reached.ok_or_else(|| io::Error::other("the first cell has no owner"))?;
    let client = serde_json::to_vec(client)?;
    first.stream.write_u32(length(&client)?).await?;
    first.stream.write_all(&client).await?;
    Ok(first)
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

impl RequestContext {
    /// Has the first cell execute a request. The connection ends if there is no answer: the client asks
    /// again.
    pub(crate) async fn ask_first_cell(&self, request: Bytes) -> Result<Step, Close> {
        let first = self.shared.settings.first_cell.as_deref();
        let first = first.ok_or(Close::NoFirstCell)?;
        let answered = tokio::select! {
            answered = self.upstream.get_or_init(Box::default).execute(self, first, &request) => answered,
            () = self.drain.cancelled() => return Err(Close::NoFirstCell),
        };
        let answer = answered.map_err(|why| {
            tracing::debug!(%why, peer = %self.entry.peer, "a request was not passed on to the first cell");
            Close::NoFirstCell
        })?;
        Ok(Step::Respond(Encoded::of(answer).into()))
    }
}

impl KafkaContext {
    /// Returns true if this is another cell than the first.
    pub(crate) fn is_further_cell(&self) -> bool {
        self.settings.first_cell.is_some()
    }

    /// Returns true if clients see a topic.
    pub(crate) fn shows(&self, topic: &Topic) -> bool {
        self.broker.catalog().is_of_clients(topic)
    }

    /// Returns the settings of a topic that a client creates: it is spread over cells if the broker's
    /// settings say so and its own do not.
    pub(crate) fn created(&self, settings: TopicSettings) -> TopicSettings {
        let spreads = self.settings.spread_topics && self.broker.catalog().cells().count > 1;
        TopicSettings {
            spread: settings.spread.or_else(|| spreads.then_some(true)),
            ..settings
        }
    }

    /// Returns the broker that leads the partitions of a cell. `None` if there is none for now.
    pub(crate) fn leader_of(&self, cell: u32) -> Option<i32> {
        if cell == self.broker.catalog().cells().own {
            return Some(self.settings.broker_id);
        }
        self.settings.brokers.as_ref()?.leader(cell)
    }
}

/// Returns the bounds of a log of this cell. `None` for one that another broker leads.
pub(crate) fn own_bounds(catalog: &TopicCatalog, log: LogId) -> Option<Bounds> {
    match cell_of(log) {
        Some(_) => None,
        None => catalog.bounds(log),
    }
}

const NO_EPOCH: i32 = -1;
/// Leader of a partition whose cell has no owner.
pub(crate) const NO_LEADER: i32 = -1;

/// Brokers that lead the partitions of all cells, at one moment.
#[derive(Debug)]
pub(crate) struct Leaders {
    own: u32,
    by_cell: Vec<Option<i32>>,
    /// That of the first cell.
    epoch: i32,
}

impl Leaders {
    pub(crate) fn new(shared: &KafkaContext) -> Self {
        let cells = shared.broker.catalog().cells();
        Self {
            own: cells.own,
            by_cell: (0..cells.count).map(|cell| shared.leader_of(cell)).collect(),
            epoch: match &shared.settings.first_cell {
                Some(first) => first.leader_epoch(),
                None => leader_epoch(&shared.broker),
            },
        }
    }

    /// Returns the leader epoch of a topic's partitions. None is told where several brokers lead: each knows
    /// its own alone, and clients compare those that they hear of.
    pub(crate) fn epoch(&self, topic: &Topic) -> i32 {
        if self.by_cell.len() > 1 && topic.settings.spread == Some(true) {
            return NO_EPOCH;
        }
        self.epoch
    }

    /// Returns the leader of a partition. `None` if there is none for now.
    pub(crate) fn of(&self, topic: &Topic, partition: i32) -> Option<i32> {
        let log = topic.log(u32::try_from(partition).ok()?)?;
        let cell = cell_of(log).unwrap_or(self.own);
        *self.by_cell.get(usize::try_from(cell).ok()?)?
    }
}

/// Requests that other cells pass on to the first one.
#[derive(Debug)]
pub struct Passed {
    shared: Arc<KafkaContext>,
}

impl Kafka {
    /// Serves requests that other cells pass on. Connections of clients must not reach it.
    pub fn passed(&self) -> Passed {
        Passed {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Protocol for Passed {
    async fn connection(&self, mut connection: Connection) {
        let peer = connection.entry.peer;
        match passed(&self.shared.broker, &mut connection).await {
            Ok(client) => connection::serve(Arc::clone(&self.shared), connection, Some(client)).await,
            Err(why) => tracing::debug!(%peer, %why, "a passed connection does not begin as it should"),
        }
    }
}

/// Reads the client that a connection is for. Its login was checked by a copy of users and rights; those of
/// this cell are in force.
async fn passed(broker: &Broker, connection: &mut Connection) -> io::Result<PassedClient> {
    let peer = connection.entry.peer.ip();
    let bytes = connection.stream.read_u32().await?;
    let mut client = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX).min(CLIENT_BYTES_MAX)];
    connection.stream.read_exact(&mut client).await?;
    let Client {
        user,
        expires_ms,
        is_tls,
    } = serde_json::from_slice(&client)?;
    let access = broker.access();
    let caller = match (user, expires_ms) {
        (None, _) => access.before_login(None, peer),
        (Some(user), None) => Arc::new(Caller::user(access.directory(), &user, peer)),
        (Some(user), Some(at)) => Arc::new(Caller::user(access.directory(), &user, peer).until(at)),
    };
    Ok(PassedClient { caller, is_tls })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;

    #[test]
    fn all_own_requests_are_served() {
        for api in OWN {
            assert!(api::is_served(*api), "{api:?}");
        }
    }
}
