//! Lists connections and their channels, and ends a connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_http::api::{delete, get};
use stafett_http::list::List;
use stafett_http::{Code, Parameter, Path, Problem, Query};
use stafett_net::registry::{ChannelBoard, ChannelState, Wait, ask_channels};
use stafett_net::{ClientWords, ConnectionEntry, Connections, TlsSession, TrafficRates};
use stafett_store::wall_ms;

use crate::time::rfc3339;
use crate::{Routes, answer};

/// Time for connections to show their channels. Those that are stuck are shown as they were last.
const PATIENCE: Duration = Duration::from_millis(250);
/// Reason of an end, where the request has none.
const NO_REASON: &str = "closed by an operator";
/// Bound on the bytes of a reason.
const REASON_BYTES_MAX: usize = 1024;

/// A connection with the texts that lists compare.
struct Row {
    entry: Arc<ConnectionEntry>,
    /// The id with zeros in front, so that its order is that of numbers.
    order: String,
    name: String,
}

const LIST: List<Row, Connection> = List {
    name: |row| (&row.order, &row.name),
    sorts: &[
        ("since", |row| u64::try_from(row.entry.since_ms).unwrap_or(0)),
        ("received_bytes", |row| row.entry.traffic().received_bytes),
        ("sent_bytes", |row| row.entry.traffic().sent_bytes),
        ("received_rate", |row| whole(rates(&row.entry).received)),
        ("sent_rate", |row| whole(rates(&row.entry).sent)),
        ("channels", |row| channel_count(&row.entry)),
    ],
    shown: |row| shown(&row.entry),
};

/// A connection.
#[derive(Debug, Serialize, JsonSchema)]
struct Connection {
    /// Number of the connection, which no other has until the broker starts again.
    id: String,
    /// Listener that accepted it.
    listener: &'static str,
    /// Null until the client has introduced itself.
    protocol: Option<&'static str>,
    /// Address of the client.
    peer: String,
    /// Address that the client connected to.
    local: String,
    /// Null on a connection without TLS.
    tls: Option<TlsOf>,
    user: Option<String>,
    namespace: Option<String>,
    since: String,
    client: Client,
    /// `handshake`, `running`, `blocked` or `closing`.
    state: &'static str,
    channels: u64,
    received_bytes: u64,
    sent_bytes: u64,
    /// Bytes per second: within the latest 5 s while connections are looked at, and at the first look since
    /// the beginning of the connection.
    received_rate: f64,
    sent_rate: f64,
    /// `memory`, `journal`, `space`, `outbox` or `group`; null if it makes progress, or waits for its client.
    waits_for: Option<&'static str>,
}

/// TLS of a connection.
#[derive(Debug, Serialize, JsonSchema)]
struct TlsOf {
    /// `1.2` or `1.3`.
    version: &'static str,
    /// Cipher suite, such as `TLS13_AES_256_GCM_SHA384`.
    cipher: String,
    /// Distinguished name in the certificate of the client, as in RFC 4514; null if it showed none.
    client_subject: Option<String>,
    /// Name of the user in the certificate, by the setting `tls.client_user`; null if there is none.
    client_user: Option<String>,
}

impl TlsOf {
    fn new(session: &TlsSession) -> Self {
        let client = session.client.as_ref();
        Self {
            version: session.version,
            cipher: session.cipher.to_string(),
            client_subject: client.map(|client| client.subject.to_string()),
            client_user: client
                .and_then(|client| client.user.as_deref())
                .map(str::to_owned),
        }
    }
}

/// Client of a connection, in its own words.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ConnectionClient")]
struct Client {
    /// Name that it gave itself.
    name: Option<String>,
    product: Option<String>,
    version: Option<String>,
    properties: BTreeMap<String, String>,
}

/// A connection with its channels.
#[derive(Debug, Serialize, JsonSchema)]
struct ConnectionDetails {
    #[serde(flatten)]
    connection: Connection,
    /// Messages that its client has and did not settle yet.
    in_flight: u64,
    open_channels: Vec<Channel>,
}

/// A channel of a connection whose protocol has channels.
#[derive(Debug, Serialize, JsonSchema)]
struct Channel {
    /// Id of the connection.
    connection: String,
    number: u16,
    /// True if messages are confirmed.
    confirms: bool,
    /// True if messages and settlements wait for a commit.
    transacts: bool,
    /// Messages that each consumer may have in flight; 0 for any number.
    prefetch: u32,
    /// Messages that all consumers together may have in flight; 0 for any number.
    prefetch_shared: u32,
    /// Messages that the client has and did not settle yet.
    unsettled: u64,
    /// Messages that are not confirmed yet.
    unconfirmed: u64,
    /// Messages that wait for a commit.
    uncommitted: u64,
    /// Settlements that wait for a commit.
    uncommitted_settlements: u64,
    consumers: u32,
    /// `running` or `closing`.
    state: &'static str,
}

struct ChannelRow {
    entry: Arc<ConnectionEntry>,
    order: String,
    number: String,
    state: ChannelState,
}

const CHANNELS: List<ChannelRow, Channel> = List {
    name: |row| (&row.order, &row.number),
    sorts: &[
        ("unsettled", |row| row.state.unsettled),
        ("unconfirmed", |row| row.state.unconfirmed),
        ("uncommitted", |row| row.state.uncommitted),
        ("consumers", |row| row.state.consumers.into()),
    ],
    shown: |row| shown_channel(&row.entry, &row.state),
};

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/connections", "Lists open connections, the oldest first. `name` in the order is their age; the name that `q`, `prefix` and `pattern` choose by is `PEER -> LOCAL`.")
                .query(&[
                    Parameter::text("listener", "Only those of this listener, by its name in `GET /v1/node`."),
                    Parameter::text("user", "Only those of this user."),
                    Parameter::text("namespace", "Only those that opened this namespace."),
                    Parameter::text("client", "Only those whose client gave itself this name."),
                    Parameter::text("peer", "Only those from this address; with or without the port."),
                ])
                .lists(&LIST),
            list,
        )
        .route(
            get("/v1/connections/{id}", "Shows a connection and its channels.")
                .answers::<ConnectionDetails>(200)
                .refuses(&[Code::NoSuchConnection]),
            show,
        )
        .route(
            delete(
                "/v1/connections/{id}",
                "Ends a connection in the words of its protocol. One that does not end in 10 s is cut off.",
            )
            .query(&[Parameter::text("reason", "Reason that the client is told, up to 1,024 bytes.")])
            .answers::<Connection>(200)
            .refuses(&[Code::NoSuchConnection]),
            end,
        )
        .route(
            get("/v1/channels", "Lists the channels of connections whose protocol has channels. A connection that is stuck shows them as they were last.")
                .query(&[Parameter::text("connection", "Only those of the connection with this id.")])
                .lists(&CHANNELS)
                .refuses(&[Code::NoSuchConnection]),
            list_channels,
        )
}

async fn list(State(connections): State<Arc<Connections>>, query: Query) -> Result<Response, Problem> {
    connections.on_rates_shown();
    let mut all = connections.all();
    all.retain(|entry| is_wanted(&query, entry));
    let rows = all.into_iter().map(Row::of).collect();
    Ok(answer(StatusCode::OK, &LIST.page(&query, rows)?))
}

fn is_wanted(query: &Query, entry: &ConnectionEntry) -> bool {
    let of_peer = |peer: &str| {
        let own = entry.peer.ip().to_canonical();
        peer == own.to_string() || peer == entry.peer.to_string()
    };
    if query
        .get("listener")
        .is_some_and(|name| name != entry.metrics.name())
        || query.get("peer").is_some_and(|peer| !of_peer(peer))
    {
        return false;
    }
    if ["user", "namespace", "client"]
        .iter()
        .all(|key| query.get(key).is_none())
    {
        return true;
    }
    let words = words(entry);
    [
        ("user", words.user),
        ("namespace", words.namespace),
        ("client", words.name),
    ]
    .iter()
    .all(|(key, own)| query.get(key).is_none_or(|wanted| own.as_deref() == Some(wanted)))
}

async fn show(
    State(connections): State<Arc<Connections>>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    connections.on_rates_shown();
    let entry = find(&connections, &id)?;
    ask_channels(std::slice::from_ref(&entry), PATIENCE).await;
    let channels = channels(&entry);
    let details = ConnectionDetails {
        connection: shown(&entry),
        in_flight: channels.iter().map(|channel| channel.unsettled).sum(),
        open_channels: channels
            .iter()
            .map(|channel| shown_channel(&entry, channel))
            .collect(),
    };
    Ok(answer(StatusCode::OK, &details))
}

async fn end(
    State(connections): State<Arc<Connections>>,
    Path(id): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let reason = query.get("reason").unwrap_or(NO_REASON);
    if reason.len() > REASON_BYTES_MAX {
        let why = format!("reason has at most {REASON_BYTES_MAX} bytes");
        return Err(Problem::bad_request(why));
    }
    let entry = find(&connections, &id)?;
    if connections.end(&entry, reason) {
        tracing::info!(id = entry.id, peer = %entry.peer, reason, "an operator ends a connection");
    }
    Ok(answer(StatusCode::OK, &shown(&entry)))
}

async fn list_channels(
    State(connections): State<Arc<Connections>>,
    query: Query,
) -> Result<Response, Problem> {
    let mut entries = match query.get("connection") {
        Some(id) => vec![find(&connections, id)?],
        None => connections.all(),
    };
    entries.retain(|entry| channel_count(entry) > 0);
    ask_channels(&entries, PATIENCE).await;
    let mut rows = Vec::new();
    for entry in entries {
        rows.extend(channels(&entry).into_iter().map(|state| ChannelRow {
            entry: Arc::clone(&entry),
            order: order(entry.id),
            number: format!("{:05}", state.number),
            state,
        }));
    }
    Ok(answer(StatusCode::OK, &CHANNELS.page(&query, rows)?))
}

fn find(connections: &Connections, id: &str) -> Result<Arc<ConnectionEntry>, Problem> {
    let found = id.parse().ok().and_then(|id| connections.get(id));
    found.ok_or_else(|| {
        let why = format!("there is no connection {id:?}");
        Problem::new(Code::NoSuchConnection, why)
    })
}

fn rates(entry: &ConnectionEntry) -> TrafficRates {
    entry.rates(wall_ms())
}

/// Returns bytes per second as a number that can be sorted.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is no negative number, and one beyond the range is the largest"
)]
fn whole(rate: f64) -> u64 {
    rate as u64
}

fn words(entry: &ConnectionEntry) -> ClientWords {
    entry.client().map(|client| client.words()).unwrap_or_default()
}

fn channels(entry: &ConnectionEntry) -> Vec<ChannelState> {
    let client = entry.client();
    let board = client.as_ref().and_then(|client| client.channels());
    board.map(ChannelBoard::last).unwrap_or_default()
}

/// Returns the number of open channels; 0 for a protocol without channels.
pub(crate) fn channel_count(entry: &ConnectionEntry) -> u64 {
    let client = entry.client();
    let board = client.as_ref().and_then(|client| client.channels());
    board.map_or(0, |board| board.count().into())
}

fn order(id: u64) -> String {
    format!("{id:020}")
}

impl Row {
    fn of(entry: Arc<ConnectionEntry>) -> Self {
        Self {
            order: order(entry.id),
            name: format!("{} -> {}", entry.peer, entry.local),
            entry,
        }
    }
}

fn shown(entry: &ConnectionEntry) -> Connection {
    let words = words(entry);
    let (traffic, rates) = (entry.traffic(), rates(entry));
    Connection {
        id: entry.id.to_string(),
        listener: entry.metrics.name(),
        protocol: Some(words.protocol).filter(|protocol| !protocol.is_empty()),
        peer: entry.peer.to_string(),
        local: entry.local.to_string(),
        tls: entry.tls().map(|session| TlsOf::new(&session)),
        user: words.user,
        namespace: words.namespace,
        since: rfc3339(entry.since_ms),
        client: Client {
            name: words.name,
            product: words.product,
            version: words.version,
            properties: words.properties.into_iter().collect(),
        },
        state: entry.state().word(),
        channels: channel_count(entry),
        received_bytes: traffic.received_bytes,
        sent_bytes: traffic.sent_bytes,
        received_rate: rates.received,
        sent_rate: rates.sent,
        waits_for: entry.waits_for().map(Wait::word),
    }
}

fn shown_channel(entry: &ConnectionEntry, channel: &ChannelState) -> Channel {
    Channel {
        connection: entry.id.to_string(),
        number: channel.number,
        confirms: channel.confirms,
        transacts: channel.transacts,
        prefetch: channel.prefetch,
        prefetch_shared: channel.prefetch_shared,
        unsettled: channel.unsettled,
        unconfirmed: channel.unconfirmed,
        uncommitted: channel.uncommitted,
        uncommitted_settlements: channel.uncommitted_settlements,
        consumers: channel.consumers,
        state: if channel.closes { "closing" } else { "running" },
    }
}
