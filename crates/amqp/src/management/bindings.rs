//! Bindings. In a path, the name of a binding is its `properties_key`: routing key and a digest of arguments.

use std::sync::Arc;

use axum::http::Method;
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use stafett_amqp_wire::Table;
use stafett_amqp_wire::methods::{Method as AmqpMethod, exchange, queue};
use stafett_http::query::decoded;
use stafett_messaging::Destination;
use stafett_messaging::exchanges::Binding;
use stafett_model::Namespace;
use stafett_topics::names::{name_in, topic_name};

use super::call::{Call, changed, created, short};
use super::client::{ClientError, change};
use super::exchanges::name_of;
use super::refusal::{Answered, Refusal};
use super::{list, queues, values};

/// Letters that are escaped in a `properties_key`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b' ');

/// A binding as RabbitMQ shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    vhost: String,
    source: String,
    destination_type: &'static str,
    destination: String,
    key: String,
    arguments: Bytes,
}

impl Entry {
    fn properties_key(&self) -> String {
        let key = utf8_percent_encode(&self.key, ESCAPED)
            .to_string()
            .replace(' ', "+");
        match (key.is_empty(), self.arguments.is_empty()) {
            (true, true) => "~".to_owned(),
            (_, true) => key,
            (_, false) => format!("{key}~{}", values::digest(&self.arguments)),
        }
    }

    pub(super) fn shown(&self) -> Value {
        json!({
            "source": self.source,
            "vhost": self.vhost,
            "destination": self.destination,
            "destination_type": self.destination_type,
            "routing_key": self.key,
            "arguments": values::stored(&self.arguments),
            "properties_key": self.properties_key(),
        })
    }

    pub(super) fn is_default(&self) -> bool {
        self.source.is_empty()
    }

    /// Returns the definition for an export.
    pub(super) fn definition(&self) -> Map<String, Value> {
        let mut fields = values::fields(self.shown());
        fields.remove("properties_key");
        fields
    }
}

/// Returns all bindings of virtual hosts, with those of the exchange without a name.
pub(super) fn all(call: &Call, vhost: Option<&str>) -> Result<Vec<Entry>, Refusal> {
    let mut all = Vec::new();
    for entry in queues::all(call, vhost)? {
        all.push(by_default(entry.vhost(), entry.name()));
    }
    for vhost in call.vhosts(vhost)? {
        let bindings = call.context.exchanges().bindings(&vhost);
        all.extend(bindings.iter().map(|binding| entry(&vhost, binding)));
    }
    all.sort();
    Ok(all)
}

fn entry(vhost: &Namespace, binding: &Binding) -> Entry {
    let (destination_type, destination) = match &binding.destination {
        Destination::Queue(name) => ("queue", name.to_string()),
        Destination::Exchange(name) => ("exchange", name.to_string()),
        // A stream is a queue; our own argument leads to any other topic.
        Destination::Topic(topic) => {
            let name = name_in(vhost, topic).unwrap_or_else(|| topic.to_string());
            ("queue", name)
        }
    };
    Entry {
        vhost: vhost.to_string(),
        source: binding.source.to_string(),
        destination_type,
        destination,
        key: String::from_utf8_lossy(&binding.key).into_owned(),
        arguments: binding.arguments.clone(),
    }
}

/// Returns the binding that every queue has to the exchange without a name.
fn by_default(vhost: &Namespace, queue: &str) -> Entry {
    Entry {
        vhost: vhost.to_string(),
        source: String::new(),
        destination_type: "queue",
        destination: queue.to_owned(),
        key: queue.to_owned(),
        arguments: Bytes::new(),
    }
}

fn answer(call: &Call, entries: Vec<Entry>) -> Answered {
    list::entries(call, entries, |_| String::new(), Entry::shown)
}

pub(super) fn list(call: &Call, vhost: Option<&str>) -> Answered {
    answer(call, all(call, vhost)?)
}

pub(super) fn of_queue(call: &Call, vhost: &str, name: &str) -> Answered {
    let vhost = call.vhost(vhost).ok_or_else(Refusal::no_object)?;
    let mut entries = Vec::new();
    if queues::Entry::find(call, &vhost, name).is_some() {
        entries.push(by_default(&vhost, name));
    }
    let topic = topic_name(&vhost, name).map(|topic| Destination::Topic(Arc::from(&*topic)));
    for destination in topic.into_iter().chain([Destination::Queue(Arc::from(name))]) {
        let bindings = call.context.exchanges().bindings_to(&vhost, &destination);
        entries.extend(bindings.iter().map(|binding| entry(&vhost, binding)));
    }
    entries.sort();
    answer(call, entries)
}

pub(super) fn of_exchange(call: &Call, vhost: &str, path: &str, side: &str) -> Answered {
    let name = name_of(path);
    let mut entries = all(call, Some(vhost))?;
    match side {
        "source" => entries.retain(|entry| entry.source == name),
        "destination" => {
            entries.retain(|entry| entry.destination_type == "exchange" && entry.destination == name);
        }
        _ => return Err(Refusal::no_object()),
    }
    answer(call, entries)
}

/// Returns the bindings between two ends.
fn between_ends(call: &Call, [vhost, source, kind, destination]: [&str; 4]) -> Result<Vec<Entry>, Refusal> {
    let destination_type = match kind {
        "q" => "queue",
        "e" => "exchange",
        _ => return Err(Refusal::no_object()),
    };
    let (source, destination) = match kind {
        "e" => (name_of(source), name_of(destination)),
        _ => (name_of(source), destination),
    };
    // RabbitMQ does not look whether the virtual host exists.
    let Some(vhost) = call.vhost(vhost) else {
        return Ok(Vec::new());
    };
    if source.is_empty() {
        let is_there = kind == "q" && queues::Entry::find(call, &vhost, destination).is_some();
        return Ok(is_there
            .then(|| by_default(&vhost, destination))
            .into_iter()
            .collect());
    }
    let bindings = call.context.exchanges().bindings_from(&vhost, source);
    let mut entries: Vec<Entry> = bindings.iter().map(|binding| entry(&vhost, binding)).collect();
    entries.retain(|entry| entry.destination_type == destination_type && entry.destination == destination);
    entries.sort();
    Ok(entries)
}

/// Answers `/bindings/{vhost}/e/{source}/{q or e}/{destination}`.
pub(super) async fn between(
    call: &Call,
    vhost: &str,
    source: &str,
    kind: &str,
    destination: &str,
) -> Answered {
    let ends = [vhost, source, kind, destination];
    match *call.allow(&[Method::GET, Method::POST])? {
        Method::POST => bind(call, ends).await,
        _ => answer(call, between_ends(call, ends)?),
    }
}

async fn bind(call: &Call, [vhost, source, kind, destination]: [&str; 4]) -> Answered {
    let namespace = call.vhost(vhost).ok_or_else(Refusal::no_vhost)?;
    let fields = call.fields()?;
    let arguments = values::arguments(fields.get("arguments"))?;
    let key = fields.text("routing_key")?;
    let binding = Ends {
        source: short(name_of(source), "source")?,
        kind,
        destination: short(destination, "destination")?,
        key: short(&key, "routing_key")?,
        arguments: &arguments,
    };
    let done = change(call, &namespace, binding.bind()?).await;
    done.map_err(ClientError::of_change)?;
    let entry = Entry {
        key,
        arguments: crate::arguments::canonical(&arguments),
        ..by_default(&namespace, destination)
    };
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    // As in RabbitMQ: the key of the properties is encoded once more.
    let place = entry.properties_key();
    let place = place.replace('%', "%25").replace('+', "%2B");
    Ok(created(&format!("{}/{place}", encoded(destination))))
}

/// A binding to be made or removed.
#[derive(Debug)]
pub(super) struct Ends<'a> {
    pub(super) source: &'a str,
    /// `q` or `e`.
    pub(super) kind: &'a str,
    pub(super) destination: &'a str,
    pub(super) key: &'a str,
    pub(super) arguments: &'a Table,
}

impl Ends<'_> {
    /// Returns the method that makes the binding.
    pub(super) fn bind(&self) -> Result<AmqpMethod, Refusal> {
        match self.kind {
            "q" => Ok(queue::Bind {
                queue: self.destination.into(),
                exchange: self.source.into(),
                routing_key: self.key.into(),
                arguments: self.arguments.clone(),
                ..queue::Bind::default()
            }
            .into()),
            "e" => Ok(exchange::Bind {
                destination: name_of(self.destination).into(),
                source: self.source.into(),
                routing_key: self.key.into(),
                arguments: self.arguments.clone(),
                ..exchange::Bind::default()
            }
            .into()),
            _ => Err(Refusal::no_object()),
        }
    }

    fn unbind(&self) -> Result<AmqpMethod, Refusal> {
        match self.kind {
            "q" => Ok(queue::Unbind {
                queue: self.destination.into(),
                exchange: self.source.into(),
                routing_key: self.key.into(),
                arguments: self.arguments.clone(),
                ..queue::Unbind::default()
            }
            .into()),
            "e" => Ok(exchange::Unbind {
                destination: name_of(self.destination).into(),
                source: self.source.into(),
                routing_key: self.key.into(),
                arguments: self.arguments.clone(),
                ..exchange::Unbind::default()
            }
            .into()),
            _ => Err(Refusal::no_object()),
        }
    }
}

/// Answers `/bindings/{vhost}/e/{source}/{q or e}/{destination}/{properties_key}`.
pub(super) async fn binding(
    call: &Call,
    [vhost, source, kind, destination, properties]: [&str; 5],
) -> Answered {
    let method = call.allow(&[Method::GET, Method::DELETE])?;
    // Some tools leave the key as it is, some encode it once more.
    let unquoted = decoded(&properties.replace('+', " "));
    let is_meant = |entry: &Entry| {
        let key = entry.properties_key();
        key == properties
            || entry.arguments.is_empty()
                && (entry.key == properties || Some(&entry.key) == unquoted.as_ref())
    };
    let entries = between_ends(call, [vhost, source, kind, destination])?;
    let found = entries
        .into_iter()
        .find(is_meant)
        .ok_or_else(Refusal::no_object)?;
    if *method == Method::GET {
        return list::object(call, found.shown());
    }
    let namespace = call.vhost(vhost).ok_or_else(Refusal::no_object)?;
    let arguments = Table::decode(found.arguments.clone()).unwrap_or_default();
    let ends = Ends {
        source: &found.source,
        kind,
        destination: &found.destination,
        key: &found.key,
        arguments: &arguments,
    };
    let done = change(call, &namespace, ends.unbind()?).await;
    done.map_err(ClientError::of_change)?;
    Ok(changed(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_properties_are_escaped_as_rabbitmq_does() {
        for (key, expected) in [
            ("", "~"),
            ("a.*", "a.%2A"),
            ("a/b c~é", "a%2Fb+c%7E%C3%A9"),
            ("~", "%7E"),
            ("a_b-c", "a_b-c"),
        ] {
            let entry = Entry {
                key: key.to_owned(),
                ..by_default(&Namespace::default(), "q")
            };
            assert_eq!(entry.properties_key(), expected);
        }
        let with_arguments = |arguments: &'static [u8]| {
            let entry = Entry {
                arguments: Bytes::from_static(arguments),
                ..by_default(&Namespace::default(), "q")
            };
            entry.properties_key()
        };
        assert_ne!(with_arguments(b"1"), with_arguments(b"2"));
        assert!(with_arguments(b"1").starts_with("q~"));
    }
}
