//! Queues, and stored topics that were declared as streams.

use std::sync::Arc;

use axum::http::Method;
use serde_json::{Map, Value, json};
use stafett_amqp_wire::Table;
use stafett_amqp_wire::methods::queue;
use stafett_messaging::queues::Queue;
use stafett_model::Namespace;
use stafett_topics::Topic;
use stafett_topics::names::name_in;

use super::call::{Call, Fields, changed, short};
use super::client::{ClientError, change};
use super::refusal::{Answered, Refusal};
use super::statistics::{Lengths, message_stats, put};
use super::{NODE, list, values};
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
                }
            }
            Self::Stream { topic, .. } => Lengths {
                ready: stream_length(&call.context, topic),
                ..Lengths::default()
            },
        }
    }

    fn shown(&self, call: &Call) -> Value {
        let mut fields = self.named();
        let has_stats = !call.flag("disable_stats");
        if has_stats || call.flag("enable_queue_totals") {
            let lengths = self.lengths(call);
            lengths.show(&mut fields);
            if has_stats {
                statistics(&mut fields, lengths);
            }
        }
        Value::Object(fields)
    }

    fn named(&self) -> Map<String, Value> {
        let mut fields = self.definition();
        for (name, value) in [
            ("type", json!(self.kind().name())),
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
        let definition = json!({
            "name": self.name(),
            "vhost": self.vhost().as_str(),
            "durable": self.is_durable(),
            "auto_delete": self.is_auto_delete(),
            "arguments": self.arguments(),
        });
        values::fields(definition)
    }
}

fn statistics(fields: &mut Map<String, Value>, lengths: Lengths) {
    for name in [
        "memory",
        "message_bytes",
        "message_bytes_paged_out",
        "message_bytes_persistent",
        "message_bytes_ram",
        "message_bytes_ready",
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
        ("policy", Value::Null),
        ("operator_policy", Value::Null),
        ("effective_policy_definition", json!({})),
        ("exclusive_consumer_tag", Value::Null),
        ("single_active_consumer_tag", Value::Null),
        ("head_message_timestamp", Value::Null),
        ("message_stats", message_stats()),
    ] {
        fields.insert(name.to_owned(), value);
    }
}

/// Returns the queues and streams of a virtual host or of all, by virtual host and name.
pub(super) fn all(call: &Call, vhost: Option<&str>) -> Result<Vec<Entry>, Refusal> {
    let vhosts = call.vhosts(vhost)?;
    let mut entries: Vec<Entry> = call
        .context
        .queues()
        .all()
        .into_iter()
        .map(Entry::Queue)
        .collect();
    for topic in call.context.broker.topics().all() {
        if topic.settings.declared.is_none() {
            continue;
        }
        // A name that fits several is that of the namespace with the longest prefix.
        let in_vhost = |vhost: &Namespace| Some((vhost.clone(), name_in(vhost, &topic.name)?));
        let found = vhosts
            .iter()
            .filter_map(in_vhost)
            .min_by_key(|(_, name)| name.len());
        if let Some((vhost, name)) = found {
            entries.push(Entry::Stream { topic, vhost, name });
        }
    }
    if vhost.is_some() {
        entries.retain(|entry| vhosts.contains(entry.vhost()));
    }
    entries.sort_by(|one, other| {
        let key = |entry: &Entry| (entry.vhost().as_str().to_owned(), entry.name().to_owned());
        key(one).cmp(&key(other))
    });
    Ok(entries)
}

/// Returns the lengths of all queues together.
pub(super) fn total(call: &Call) -> Lengths {
    let mut total = Lengths::default();
    for entry in all(call, None).unwrap_or_default() {
        total.add(entry.lengths(call));
    }
    total
}

/// Returns the lengths of the queues of a virtual host.
pub(super) fn total_of(call: &Call, vhost: &Namespace) -> Lengths {
    let mut total = Lengths::default();
    for entry in all(call, Some(vhost.as_str())).unwrap_or_default() {
        total.add(entry.lengths(call));
    }
    total
}

pub(super) fn list(call: &Call, vhost: Option<&str>) -> Answered {
    let entries = all(call, vhost)?;
    list::entries(
        call,
        entries,
        |entry| entry.name().to_owned(),
        |entry| entry.shown(call),
    )
}

pub(super) async fn queue(call: &Call, vhost: &str, name: &str) -> Answered {
    match *call.allow(&[Method::GET, Method::PUT, Method::DELETE])? {
        Method::PUT => declare(call, vhost, name).await,
        Method::DELETE => delete(call, vhost, name).await,
        _ => {
            let vhost = call.vhost(vhost).ok_or_else(Refusal::no_object)?;
            let entry = Entry::find(call, &vhost, name).ok_or_else(Refusal::no_object)?;
            let mut shown = entry.shown(call);
            if let Some(fields) = shown.as_object_mut().filter(|_| !call.flag("disable_stats")) {
                for (field, value) in [
                    ("consumer_details", json!([])),
                    ("deliveries", json!([])),
                    ("incoming", json!([])),
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
