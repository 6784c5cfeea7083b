//! Connections, their channels, and consumers.
//!
//! Only connections that opened a virtual host are listed, as in RabbitMQ.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use serde_json::{Map, Value, json};
use stafett_amqp_wire::{Table, Value as AmqpValue};
use stafett_messaging::queues::QueueId;
use stafett_messaging::{ConsumerEntry, ConsumerSource};
use stafett_model::Namespace;
use stafett_net::registry::{ChannelState, ask_channels};
use stafett_net::{ConnectionEntry, TlsSession};
use stafett_store::wall_ms;
use stafett_topics::TopicId;

use super::call::{Call, changed};
use super::refusal::{Answered, Refusal};
use super::statistics::{Messages, Statistic, put};
use super::{NODE, list, rights, values};
use crate::client::AmqpClient;

/// Time for connections to show their channels. Those that are stuck are shown as they were last.
const PATIENCE: Duration = Duration::from_millis(250);
/// Header with the reason for an end.
const REASON: &str = "x-reason";
/// RabbitMQ's reason where none is given.
const NO_REASON: &str = "Closed via management plugin";
/// Fields of connections with TLS.
const OF_TLS: [&str; 7] = [
    "peer_cert_issuer",
    "peer_cert_subject",
    "peer_cert_validity",
    "ssl_cipher",
    "ssl_hash",
    "ssl_key_exchange",
    "ssl_protocol",
];

/// An open connection.
#[derive(Debug, Clone)]
struct Open {
    entry: Arc<ConnectionEntry>,
    client: Arc<AmqpClient>,
}

/// A channel of an open connection.
#[derive(Debug, Clone)]
struct OpenChannel {
    connection: Open,
    state: ChannelState,
}

impl Open {
    fn of(entry: Arc<ConnectionEntry>) -> Option<Self> {
        let client: Arc<dyn Any + Send + Sync> = entry.client()?;
        let client = client.downcast::<AmqpClient>().ok()?;
        Some(Self { entry, client })
    }

    fn all(call: &Call) -> Vec<Self> {
        call.connections.on_rates_shown();
        call.connections.all().into_iter().filter_map(Self::of).collect()
    }

    /// Returns the connections that the caller may see in lists: without `monitoring`, its own.
    fn shown_to(call: &Call) -> Vec<Self> {
        let mut all = Self::all(call);
        if !rights::is_monitor(&call.user.caller) {
            all.retain(|open| *open.client.agreed.user == *call.user.user);
        }
        all
    }

    fn find(call: &Call, name: &str) -> Result<Self, Refusal> {
        let mut all = Self::all(call).into_iter();
        all.find(|open| open.name() == name)
            .ok_or_else(Refusal::no_object)
    }

    fn name(&self) -> String {
        let (peer, local) = (self.entry.peer, self.entry.local);
        format!("{} -> {}", address(peer), address(local))
    }

    fn peer_host(&self) -> String {
        self.entry.peer.ip().to_canonical().to_string()
    }

    fn is_in(&self, vhost: &Namespace) -> bool {
        *self.client.agreed.virtual_host == *vhost.as_str()
    }

    /// Returns the fields of an entry of a list.
    fn shown(&self, call: &Call) -> Value {
        let mut fields = self.named();
        if !call.flag("disable_stats") {
            self.describe(&mut fields);
            self.count(&mut fields);
        }
        Value::Object(fields)
    }

    /// Returns the fields that tell the connection from others.
    fn named(&self) -> Map<String, Value> {
        let agreed = &self.client.agreed;
        values::fields(json!({
            "name": self.name(),
            "node": NODE,
            "user": &*agreed.user,
            "vhost": &*agreed.virtual_host,
        }))
    }

    fn describe(&self, fields: &mut Map<String, Value>) {
        let agreed = &self.client.agreed;
        fields.extend(values::fields(json!({
            "auth_mechanism": &*agreed.mechanism,
            "channel_max": agreed.channels_max,
            "channels": self.client.board.count(),
            "client_properties": values::shown(&agreed.client.table),
            "connected_at": self.entry.since_ms,
            "frame_max": agreed.frame_bytes_max,
            "host": self.entry.local.ip().to_canonical().to_string(),
            "peer_host": self.peer_host(),
            "peer_port": self.entry.peer.port(),
            "port": self.entry.local.port(),
            "protocol": "AMQP 0-9-1",
            "ssl": self.entry.tls().is_some(),
            "state": self.entry.state().word(),
            "timeout": agreed.heartbeat.as_secs(),
            "type": "network",
            "user_who_performed_action": &*agreed.user,
        })));
        for name in OF_TLS {
            fields.insert(name.to_owned(), Value::Null);
        }
        if let Some(session) = self.entry.tls() {
            fields.extend(tls_fields(&session));
        }
        if let Some(AmqpValue::LongString(name)) = agreed.client.table.get("connection_name") {
            let name = String::from_utf8_lossy(&name).into_owned();
            fields.insert("user_provided_name".to_owned(), json!(name));
        }
    }

    fn count(&self, fields: &mut Map<String, Value>) {
        let (traffic, rates) = (self.entry.traffic(), self.entry.rates(wall_ms()));
        let (received, sent) = (traffic.received_bytes, traffic.sent_bytes);
        Statistic::new(received, rates.received).put(fields, "recv_oct", None);
        Statistic::new(sent, rates.sent).put(fields, "send_oct", None);
        put(fields, "reductions", 0);
        fields.insert("recv_cnt".to_owned(), json!(traffic.reads));
        fields.insert("send_cnt".to_owned(), json!(traffic.writes));
        fields.insert("send_pend".to_owned(), json!(0));
        fields.insert("garbage_collection".to_owned(), garbage_collection());
    }

    fn channels(&self) -> Vec<OpenChannel> {
        let states = self.client.board.last();
        let channel = |state| OpenChannel {
            connection: self.clone(),
            state,
        };
        states.into_iter().map(channel).collect()
    }

    fn end(&self, call: &Call) {
        let reason = call.headers.get(REASON);
        let reason = reason.map(|reason| text(reason.as_bytes()));
        let reason = reason.as_deref().unwrap_or(NO_REASON);
        if call.connections.end(&self.entry, reason) {
            tracing::info!(id = self.entry.id, peer = %self.entry.peer, reason, "an operator ends a connection");
        }
    }
}

impl OpenChannel {
    fn name(&self) -> String {
        format!("{} ({})", self.connection.name(), self.state.number)
    }

    fn shown(&self) -> Value {
        let agreed = &self.connection.client.agreed;
        let state = &self.state;
        json!({
            "acks_uncommitted": state.uncommitted_settlements,
            "confirm": state.confirms,
            "connection_details": {
                "name": self.connection.name(),
                "peer_host": self.connection.peer_host(),
                "peer_port": self.connection.entry.peer.port(),
            },
            "consumer_count": state.consumers,
            "garbage_collection": garbage_collection(),
            "global_prefetch_count": state.prefetch_shared,
            "message_stats": Messages::default().shown(None, None),
            "messages_unacknowledged": state.unsettled,
            "messages_uncommitted": state.uncommitted,
            "messages_unconfirmed": state.unconfirmed,
            "name": self.name(),
            "node": NODE,
            "number": state.number,
            "pending_raft_commands": 0,
            "prefetch_count": state.prefetch,
            "reductions": 0,
            "reductions_details": { "rate": 0.0 },
            "state": if state.closes { "closing" } else { "running" },
            "transactional": state.transacts,
            "user": &*agreed.user,
            "user_who_performed_action": &*agreed.user,
            "vhost": &*agreed.virtual_host,
        })
    }
}

/// Returns figures of Erlang's memory.
fn garbage_collection() -> Value {
    json!({
        "fullsweep_after": 0,
        "max_heap_size": 0,
        "min_bin_vheap_size": 0,
        "min_heap_size": 0,
        "minor_gcs": 0,
    })
}

/// Returns the text of a header, which is in UTF-8 or, as RabbitMQ reads it, in ISO 8859-1.
fn text(header: &[u8]) -> String {
    match std::str::from_utf8(header) {
        Ok(text) => text.to_owned(),
        Err(_) => header.iter().copied().map(char::from).collect(),
    }
}

fn address(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

/// Has connections show their channels, where the answer needs them.
pub(super) async fn prepare(call: &Call) {
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    let asked = match path.as_slice() {
        ["channels"] | ["channels", _] | ["vhosts", _, "channels"] => Open::shown_to(call),
        ["connections", name, "channels"] => Open::find(call, name).into_iter().collect(),
        _ => return,
    };
    let entries: Vec<_> = asked.into_iter().map(|open| open.entry).collect();
    ask_channels(&entries, PATIENCE).await;
}

/// Answers with connections of a virtual host or of all.
pub(super) fn list(call: &Call, vhost: Option<&str>) -> Answered {
    let mut all = Open::shown_to(call);
    if let Some(vhost) = vhost {
        let vhost = call.vhost(vhost).ok_or_else(Refusal::no_object)?;
        all.retain(|open| open.is_in(&vhost));
    }
    list::entries(call, all, Open::name, |open| open.shown(call))
}

/// Returns the fields of a TLS session, in RabbitMQ's words. The names of suites are `TLS13_CIPHER_HASH` or
/// `TLS_EXCHANGE_WITH_CIPHER_HASH`.
fn tls_fields(session: &TlsSession) -> Map<String, Value> {
    let suite = session.cipher.to_lowercase();
    let (exchange, rest) = suite
        .strip_prefix("tls_")
        .and_then(|rest| rest.split_once("_with_"))
        .unwrap_or_else(|| ("any", suite.trim_start_matches("tls13_")));
    let (cipher, hash) = rest.rsplit_once('_').unwrap_or((rest, ""));
    let client = session.client.as_ref();
    values::fields(json!({
        "peer_cert_issuer": client.map(|client| &client.issuer),
        "peer_cert_subject": client.map(|client| &client.subject),
        "ssl_cipher": cipher,
        "ssl_hash": hash,
        "ssl_key_exchange": exchange,
        "ssl_protocol": format!("tlsv{}", session.version),
    }))
}

/// Answers for one connection.
pub(super) fn connection(call: &Call, name: &str) -> Answered {
    let method = call.allow(&[Method::GET, Method::DELETE])?.clone();
    let open = Open::find(call, name)?;
    if method == Method::DELETE {
        open.end(call);
        return Ok(changed(false));
    }
    let mut shown = values::fields(open.shown(call));
    // Lists have nulls here, and one connection has empty texts.
    for name in OF_TLS {
        if let Some(value) = shown.get_mut(name).filter(|value| value.is_null()) {
            *value = json!("");
        }
    }
    list::object(call, Value::Object(shown))
}

/// Answers for the connections of a user.
pub(super) fn of_user(call: &Call, user: &str) -> Answered {
    let method = call.allow(&[Method::GET, Method::DELETE])?.clone();
    let mut all = Open::all(call);
    all.retain(|open| *open.client.agreed.user == *user);
    if method == Method::DELETE {
        for open in all {
            open.end(call);
        }
        return Ok(changed(false));
    }
    list::entries(call, all, Open::name, |open| Value::Object(open.named()))
}

/// Answers with the channels of a virtual host or of all.
pub(super) fn channels(call: &Call, vhost: Option<&str>) -> Answered {
    let mut all = Open::shown_to(call);
    if let Some(vhost) = vhost {
        let vhost = call.vhost(vhost).ok_or_else(Refusal::no_object)?;
        all.retain(|open| open.is_in(&vhost));
    }
    let all = all.iter().flat_map(Open::channels).collect();
    list::entries(call, all, OpenChannel::name, OpenChannel::shown)
}

/// Answers with the channels of a connection.
pub(super) fn channels_of(call: &Call, name: &str) -> Answered {
    let all = Open::find(call, name)?.channels();
    list::entries(call, all, OpenChannel::name, OpenChannel::shown)
}

/// Answers for one channel.
pub(super) fn channel(call: &Call, name: &str) -> Answered {
    let all = Open::all(call);
    let mut channels = all.iter().flat_map(Open::channels);
    let found = channels.find(|channel| channel.name() == name);
    let found = found.ok_or_else(Refusal::no_object)?;
    let mut shown = values::fields(found.shown());
    let (id, number) = (found.connection.entry.id, found.state.number);
    let consumers = call.context.broker.messaging().consumers().all();
    let own = consumers
        .iter()
        .filter(|entry| entry.facts.connection == id && entry.facts.channel == number);
    let details: Vec<Value> = own.map(|entry| consumer(call, entry)).collect();
    shown.insert("consumer_details".to_owned(), json!(details));
    shown.insert("publishes".to_owned(), json!([]));
    shown.insert("deliveries".to_owned(), json!([]));
    list::object(call, Value::Object(shown))
}

/// Answers with the consumers of a virtual host or of all.
pub(super) fn consumers(call: &Call, vhost: Option<&str>) -> Answered {
    let mut all = call.context.broker.messaging().consumers().all();
    if let Some(vhost) = vhost {
        let vhost = call.vhost(vhost).ok_or_else(Refusal::no_object)?;
        all.retain(|entry| entry.facts.namespace == vhost);
    }
    list::entries(
        call,
        all,
        |entry| entry.facts.name.to_string(),
        |entry| consumer(call, entry),
    )
}

/// Returns the consumers of a queue.
pub(super) fn of_queue(call: &Call, queue: QueueId) -> Value {
    details(call, ConsumerSource::Queue(queue))
}

/// Returns the consumers of a stream.
pub(super) fn of_stream(call: &Call, topic: TopicId) -> Value {
    details(call, ConsumerSource::Topic(topic))
}

fn details(call: &Call, source: ConsumerSource) -> Value {
    let all = call.context.broker.messaging().consumers().of(source);
    all.iter().map(|entry| consumer(call, entry)).collect()
}

fn consumer(call: &Call, entry: &ConsumerEntry) -> Value {
    let facts = &entry.facts;
    let is_active = entry.state().is_some_and(|state| state.is_active);
    let arguments = Table::decode(facts.arguments.clone()).unwrap_or_default();
    let connection = call.connections.get(facts.connection).and_then(Open::of);
    let channel = match &connection {
        Some(open) => json!({
            "connection_name": open.name(),
            "name": format!("{} ({})", open.name(), facts.channel),
            "node": NODE,
            "number": facts.channel,
            "peer_host": open.peer_host(),
            "peer_port": open.entry.peer.port(),
            "user": &*open.client.agreed.user,
        }),
        // It ends just now.
        None => json!({
            "connection_name": "",
            "name": "",
            "node": NODE,
            "number": facts.channel,
            "peer_host": "",
            "peer_port": 0,
            "user": "",
        }),
    };
    json!({
        "ack_required": facts.settles,
        "active": is_active,
        "activity_status": if is_active { "up" } else { "waiting" },
        "arguments": values::shown(&arguments),
        "channel_details": channel,
        "consumer_tag": &*facts.name,
        // None.
        "consumer_timeout": 0,
        "exclusive": facts.exclusive,
        "prefetch_count": facts.credit.unwrap_or_default(),
        "queue": { "name": &*facts.source_name, "vhost": facts.namespace.as_str() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_suites_are_taken_apart() {
        for (version, cipher, expected) in [
            (
                "1.3",
                "TLS13_AES_256_GCM_SHA384",
                ("any", "aes_256_gcm", "sha384"),
            ),
            (
                "1.2",
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
                ("ecdhe_rsa", "chacha20_poly1305", "sha256"),
            ),
        ] {
            let session = TlsSession {
                version,
                cipher: cipher.into(),
                client: None,
            };
            let fields = tls_fields(&session);
            let field = |name: &str| fields.get(name).and_then(Value::as_str).unwrap();
            let found = (field("ssl_key_exchange"), field("ssl_cipher"), field("ssl_hash"));
            assert_eq!(found, expected);
            assert_eq!(field("ssl_protocol"), format!("tlsv{version}"));
        }
    }
}
