//! Queues, and stored topics that were declared as streams.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::sync::Arc;

use axum::http::Method;
use serde_json::{Map, Value, json};
use stafett_amqp_wire::Table;
use stafett_amqp_wire::methods::queue;
use stafett_broker::Timeline;
use stafett_messaging::queues::{AppliedPolicies, Queue};
use stafett_model::Namespace;
use stafett_topics::Topic;
use stafett_topics::names::name_in;

use super::call::{Call, Fields, changed, short};
use super::client::{ClientError, change};
use super::refusal::{Answered, Refusal};
use super::statistics::{Lengths, Messages, Window, put};
use super::{NODE, connections, list, policies, values};
use crate::arguments::QueueType;
use crate::session::stream::stream_length;

/// A queue of RabbitMQ.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    Queue(Arc<Queue>),
    Stream {
        topic: Arc<Topic>,
        vhost: Namespace,
        name: String,
    },
}

impl Entry {
    /// Returns the queue or stream of a name.
    pub(super) fn find(call: &Call, vhost: &Namespace, name: &str) -> Option<Self> {
        if let Some(queue) = call.context.queues().get(vhost, name) {
            return Some(Self::Queue(queue));
        }
        let topic = call.context.broker.topics().in_namespace(vhost, name)?;
        topic.settings.declared.as_ref()?;
        Some(Self::Stream {
            topic,
            vhost: vhost.clone(),
            name: name.to_owned(),
        })
    }

    pub(super) fn vhost(&self) -> &Namespace {
        match self {
            Self::Queue(queue) => &queue.namespace,
            Self::Stream { vhost, .. } => vhost,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Queue(queue) => &queue.name,
            Self::Stream { name, .. } => name,
        }
    }

    fn is_durable(&self) -> bool {
        match self {
            Self::Queue(queue) => queue.durable,
            Self::Stream { .. } => true,
        }
    }

    fn is_auto_delete(&self) -> bool {
        match self {
            Self::Queue(queue) => queue.auto_delete,
            Self::Stream { .. } => false,
        }
    }

    pub(super) fn is_exclusive(&self) -> bool {
        match self {
            Self::Queue(queue) => queue.exclusive.is_some(),
            Self::Stream { .. } => false,
        }
    }

    fn table(&self) -> Table {
        let declared = match self {
            Self::Queue(queue) => queue.arguments.clone(),
            Self::Stream { topic, .. } => topic.settings.declared.clone(),
        };
        Table::decode(declared.unwrap_or_default()).unwrap_or_default()
    }

    /// Returns the arguments, with the type, which RabbitMQ adds to all.
    fn arguments(&self) -> Value {
        let table = self.table();
        let mut shown = values::shown(&table);
        if let Some(fields) = shown.as_object_mut() {
            fields.insert("x-queue-type".to_owned(), json!(self.kind().name()));
        }
        shown
    }

    fn kind(&self) -> QueueType {
        match self {
            Self::Queue(_) => QueueType::of(&self.table()),
            Self::Stream { .. } => QueueType::Stream,
        }
    }

    fn lengths(&self, call: &Call) -> Lengths {
        match self {
            Self::Queue(queue) => {
                let counts = queue.counts();
                Lengths {
                    ready: counts.ready,
                    unacknowledged: counts.in_flight as u64,
                    consumers: counts.consumers as u64,
                    messages: Messages::of(queue),
                }
            }
            Self::Stream { topic, .. } => Lengths {
                ready: stream_length(&call.context, topic),
                ..Lengths::default()
            },
        }
    }

    fn consumers(&self, call: &Call) -> Value {
        match self {
            Self::Queue(queue) => connections::of_queue(call, queue.id),
            Self::Stream { topic, .. } => connections::of_stream(call, topic.id),
        }
    }

    fn shown(&self, call: &Call, parts: Parts) -> Value {
        let mut fields = self.named(parts);
        if parts.has_lengths {
            let lengths = self.lengths(call);
            let windows = (Window::lengths(call), Window::rates(call));
            let is_sampled = windows.0.is_some() || windows.1.is_some();
            let timeline = self.timeline().filter(|_| is_sampled);
            lengths.show(&mut fields, windows.0, timeline.as_ref());
            if parts.has_statistics {
                statistics(&mut fields, &lengths, self.bytes_ready());
                fields.extend(self.policies().map(|(name, value)| (name.to_owned(), value)));
            }
            if parts.has_message_stats {
                let stats = lengths.messages.shown(windows.1, timeline.as_ref());
                fields.insert("message_stats".to_owned(), stats);
            }
        }
        Value::Object(fields)
    }

    /// Returns the policies; a stream has none.
    fn policies(&self) -> [(&'static str, Value); 3] {
        match self {
            Self::Queue(queue) => policies::of_queue(&queue.policies()),
            Self::Stream { .. } => policies::of_queue(&AppliedPolicies::default()),
        }
    }

    /// Returns the samples of a queue; a stream has none.
    fn timeline(&self) -> Option<Timeline> {
        match self {
            Self::Queue(queue) => Some(queue.timeline()),
            Self::Stream { .. } => None,
        }
    }

    fn bytes_ready(&self) -> u64 {
        match self {
            Self::Queue(queue) => queue.bytes_ready(),
            Self::Stream { .. } => 0,
        }
    }

    /// Returns the arrivals by exchange.
    fn incoming(&self, call: &Call) -> Value {
        let window = Window::rates(call);
        let timeline = window.and_then(|_| self.timeline());
        let messages = self.lengths(call).messages;
        messages.incoming(self.vhost().as_str(), window, timeline.as_ref())
    }

    fn named(&self, parts: Parts) -> Map<String, Value> {
        let mut fields = self.names();
        if parts.has_arguments {
            fields.insert("type".to_owned(), json!(self.kind().name()));
            fields.insert("arguments".to_owned(), self.arguments());
        }
        for (name, value) in [
            ("exclusive", json!(self.is_exclusive())),
            ("node", json!(NODE)),
            ("state", json!("running")),
        ] {
            fields.insert(name.to_owned(), value);
        }
        fields
    }

    /// Returns the definition for an export.
    pub(super) fn definition(&self) -> Map<String, Value> {
        let mut fields = self.names();
        fields.insert("arguments".to_owned(), self.arguments());
        fields
    }

    fn names(&self) -> Map<String, Value> {
        values::fields(json!({
            "name": self.name(),
            "vhost": self.vhost().as_str(),
            "durable": self.is_durable(),
            "auto_delete": self.is_auto_delete(),
        }))
    }
}

/// Parts of a queue that an answer needs. In a list of very many queues the others cost most of the time.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each part stands for itself")]
struct Parts {
    has_arguments: bool,
    /// Also for the two below, which are made of them.
    has_lengths: bool,
    has_statistics: bool,
    has_message_stats: bool,
}

impl Parts {
    fn of(call: &Call) -> Self {
        let has_stats = !call.flag("disable_stats");
        let is_argument = |field: &str| matches!(field, "type" | "arguments");
        let is_length = |field: &str| {
            let name = field.strip_suffix("_details").unwrap_or(field);
            matches!(name, "messages" | "messages_ready" | "messages_unacknowledged")
        };
        let is_name = |field: &str| {
            matches!(
                field,
                "name" | "vhost" | "durable" | "auto_delete" | "exclusive" | "node" | "state"
            )
        };
        let is_statistic = |field: &str| {
            !(is_name(field) || is_argument(field) || is_length(field) || field == "message_stats")
        };
        let has_statistics = has_stats && call.needs(is_statistic);
        let has_message_stats = has_stats && call.needs(|field| field == "message_stats");
        let may_have_lengths = has_stats || call.flag("enable_queue_totals");
        Self {
            has_arguments: call.needs(is_argument),
            has_lengths: has_statistics || has_message_stats || may_have_lengths && call.needs(is_length),
            has_statistics,
            has_message_stats,
        }
    }
}

fn statistics(fields: &mut Map<String, Value>, lengths: &Lengths, bytes_ready: u64) {
    for name in [
        "memory",
        "message_bytes_paged_out",
        "message_bytes_persistent",
        "message_bytes_ram",
        "message_bytes_unacknowledged",
        "messages_paged_out",
        "messages_persistent",
        "messages_ram",
        "messages_ready_ram",
        "messages_unacknowledged_ram",
        "storage_version",
    ] {
        fields.insert(name.to_owned(), json!(0));
    }
    put(fields, "reductions", 0);
    let is_used = u8::from(lengths.consumers > 0);
    for (name, value) in [
        ("consumers", json!(lengths.consumers)),
        ("consumer_capacity", json!(is_used)),
        ("consumer_utilisation", json!(is_used)),
        ("exclusive_consumer_tag", Value::Null),
        ("single_active_consumer_tag", Value::Null),
        ("head_message_timestamp", Value::Null),
        ("message_bytes", json!(bytes_ready)),
        ("message_bytes_ready", json!(bytes_ready)),
    ] {
        fields.insert(name.to_owned(), value);
    }
}

/// Returns the queues and streams of a virtual host or of all, by virtual host and name.
pub(super) fn all(call: &Call, vhost: Option<&str>) -> Result<Vec<Entry>, Refusal> {
    let mut entries = unsorted(call, &call.vhosts(vhost)?);
    let key = |entry: &Entry| (entry.vhost().as_str().to_owned(), entry.name().to_owned());
    entries.sort_by_cached_key(key);
    Ok(entries)
}

/// Returns the queues and streams of virtual hosts in no order.
fn unsorted(call: &Call, vhosts: &[Namespace]) -> Vec<Entry> {
    let wanted: BTreeSet<&Namespace> = vhosts.iter().collect();
    let mut entries: Vec<Entry> = call
        .context
        .queues()
        .all()
        .into_iter()
        .map(Entry::Queue)
        .collect();
    entries.retain(|entry| wanted.contains(entry.vhost()));
    let streams = call.context.broker.topics().all();
    let streams = streams
        .into_iter()
        .filter(|topic| topic.settings.declared.is_some());
    let every = call.context.exchanges().namespaces();
    for topic in streams {
        // A name that fits several is that of the namespace with the longest prefix.
        let in_vhost = |vhost: &Namespace| Some((vhost.clone(), name_in(vhost, &topic.name)?));
        let found = every
            .iter()
            .filter_map(in_vhost)
            .min_by_key(|(_, name)| name.len());
        if let Some((vhost, name)) = found.filter(|(vhost, _)| wanted.contains(vhost)) {
            entries.push(Entry::Stream { topic, vhost, name });
        }
    }
    entries
}

/// Returns the lengths of the queues of each virtual host, and the number of queues.
pub(super) fn totals(call: &Call) -> (BTreeMap<Namespace, Lengths>, usize) {
    let entries = unsorted(call, &call.context.exchanges().namespaces());
    let mut totals = BTreeMap::<Namespace, Lengths>::new();
    for entry in &entries {
        totals
            .entry(entry.vhost().clone())
            .or_default()
            .add(entry.lengths(call));
    }
    (totals, entries.len())
}

/// Returns the lengths of the queues of a virtual host.
pub(super) fn total_of(call: &Call, vhost: &Namespace) -> Lengths {
    let mut total = Lengths::default();
    for entry in unsorted(call, slice::from_ref(vhost)) {
        total.add(entry.lengths(call));
    }
    total
}

pub(super) fn list(call: &Call, vhost: Option<&str>) -> Answered {
    let entries = all(call, vhost)?;
    let parts = Parts::of(call);
    list::entries(
        call,
        entries,
        |entry| entry.name().to_owned(),
        |entry| entry.shown(call, parts),
    )
}

pub(super) async fn queue(call: &Call, vhost: &str, name: &str) -> Answered {
    match *call.allow(&[Method::GET, Method::PUT, Method::DELETE])? {
        Method::PUT => declare(call, vhost, name).await,
        Method::DELETE => delete(call, vhost, name).await,
        _ => {
            let vhost = call.vhost(vhost).ok_or_else(Refusal::no_object)?;
            let entry = Entry::find(call, &vhost, name).ok_or_else(Refusal::no_object)?;
            let mut shown = entry.shown(call, Parts::of(call));
            if let Some(fields) = shown.as_object_mut().filter(|_| !call.flag("disable_stats")) {
                for (field, value) in [
                    ("consumer_details", entry.consumers(call)),
                    ("deliveries", json!([])),
                    ("incoming", entry.incoming(call)),
                    ("backing_queue_status", json!({})),
                    ("garbage_collection", json!({})),
                ] {
                    fields.insert(field.to_owned(), value);
                }
            }
            list::object(call, shown)
        }
    }
}

async fn declare(call: &Call, vhost: &str, name: &str) -> Answered {
    let vhost = call.vhost(vhost).ok_or_else(Refusal::no_vhost)?;
    let fields = call.fields()?;
    if let Some(node) = fields
        .get("node")
        .and_then(Value::as_str)
        .filter(|node| *node != NODE)
    {
        return Err(Refusal::bad_request(format!(
            "Node {node} could not be contacted"
        )));
    }
    if name.is_empty() {
        return Err(Refusal::wrong_method("HEAD, GET, OPTIONS"));
    }
    let declare = declaration(name, &fields)?;
    let is_new = Entry::find(call, &vhost, name).is_none();
    let done = change(call, &vhost, declare).await;
    done.map_err(ClientError::of_change)?;
    Ok(changed(is_new))
}

/// Returns the declaration of a queue. The field `exclusive` is passed over: such a queue would end with the
/// request.
pub(super) fn declaration(name: &str, fields: &Fields) -> Result<queue::Declare, Refusal> {
    Ok(queue::Declare {
        queue: short(name, "queue")?.into(),
        durable: fields.flag("durable")?,
        auto_delete: fields.flag("auto_delete")?,
        arguments: values::arguments(fields.get("arguments"))?,
        ..queue::Declare::default()
    })
}

async fn delete(call: &Call, vhost: &str, name: &str) -> Answered {
    let vhost = call.vhost(vhost).ok_or_else(Refusal::no_object)?;
    Entry::find(call, &vhost, name).ok_or_else(Refusal::no_object)?;
    let delete = queue::Delete {
        queue: short(name, "queue")?.into(),
        if_unused: call.flag("if-unused"),
        if_empty: call.flag("if-empty"),
        ..queue::Delete::default()
    };
    let done = change(call, &vhost, delete).await;
    done.map_err(ClientError::of_change)?;
    Ok(changed(false))
}

/// Purges a queue.
pub(super) async fn contents(call: &Call, vhost: &str, name: &str) -> Answered {
    call.allow(&[Method::DELETE])?;
    let vhost = call.vhost(vhost).ok_or_else(Refusal::no_object)?;
    Entry::find(call, &vhost, name).ok_or_else(Refusal::no_object)?;
    let purge = queue::Purge {
        queue: short(name, "queue")?.into(),
        ..queue::Purge::default()
    };
    let done = change(call, &vhost, purge).await;
    done.map_err(ClientError::of_change)?;
    Ok(changed(false))
}
