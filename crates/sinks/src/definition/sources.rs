//! Sources: topics of the sink's own broker, topics of another one, and queues.

use toml::Value;

use super::DefinitionError;
use super::targets::address;
use crate::fields::Fields;
use crate::secret::Secret;

/// Prefix of queues in `from`.
const QUEUE: &str = "queue:";

/// Origin of the records of a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSpec {
    /// Topics of the broker that the sink belongs to.
    Own,
    /// Topics of another broker, over Kafka's protocol. A group of that broker shares the partitions.
    Broker(BrokerSpec),
    /// A queue, over AMQP 0-9-1. One process reads it at a time.
    Queue(QueueSpec),
}

/// Another broker of Kafka's protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerSpec {
    /// `HOST:PORT`.
    pub servers: Vec<String>,
    /// `USER:PASSWORD`, for SASL PLAIN.
    pub login: Option<Secret>,
    pub is_tls: bool,
    /// PEM file of trusted authorities. `None` is those of the system.
    pub ca: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSpec {
    pub url: Secret,
    /// PEM file of trusted authorities, with TLS. `None` is those of the system.
    pub ca: Option<String>,
    pub queue: String,
    /// Messages that are read and not yet written, at most.
    pub prefetch: u16,
}

pub(super) fn read(fields: &mut Fields, from: &[String]) -> Result<SourceSpec, DefinitionError> {
    let mut source = fields.below("source")?;
    let broker = broker_of(&mut source, "kafka")?;
    let url = if source.has("amqp") {
        Some(address(&mut source, "amqp")?)
    } else {
        None
    };
    let prefetch = source.count("prefetch")?;
    let ca = if url.is_some() { source.text("ca")? } else { None };
    source.end()?;
    let queue = from.iter().find_map(|name| name.strip_prefix(QUEUE));
    match (queue, url, broker) {
        (None, None, None) => Ok(SourceSpec::Own),
        (None, None, Some(broker)) => Ok(SourceSpec::Broker(broker)),
        (Some(queue), Some(url), None) if from.len() == 1 => Ok(SourceSpec::Queue(QueueSpec {
            url,
            ca,
            queue: queue.to_owned(),
            prefetch: prefetch.map_or(u16::MAX, |count| u16::try_from(count).unwrap_or(u16::MAX)),
        })),
        (Some(_), None, _) => {
            let why = "a queue is read over AMQP: source = { amqp = \"amqp://HOST:5672\" }";
            Err(fields.bad("source", why))
        }
        _ => Err(fields.bad("from", "a sink reads topics of one broker, or one queue")),
    }
}

/// Reads `NAME = ["HOST:PORT"]`, `login`, `tls` and `ca`.
pub(super) fn broker_of(fields: &mut Fields, name: &str) -> Result<Option<BrokerSpec>, DefinitionError> {
    let why = "it has to be a list of HOST:PORT";
    let servers = match fields.take(name) {
        None => return Ok(None),
        Some(Value::String(server)) => vec![server],
        Some(Value::Array(servers)) => {
            let texts = servers.iter().map(|server| server.as_str().map(str::to_owned));
            texts
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| fields.bad(name, why))?
        }
        Some(_) => return Err(fields.bad(name, why)),
    };
    let is_server = |server: &String| {
        let port = server.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        matches!(port, Some(Ok(_))) && !server.contains('@') && !server.contains("//")
    };
    if servers.is_empty() || !servers.iter().all(is_server) {
        return Err(fields.bad(name, why));
    }
    let login = login(fields, "login")?;
    let ca = fields.text("ca")?;
    let is_tls = fields.flag("tls")?.unwrap_or_else(|| ca.is_some());
    if ca.is_some() && !is_tls {
        return Err(fields.bad("ca", "authorities belong to tls = true"));
    }
    Ok(Some(BrokerSpec {
        servers,
        login,
        is_tls,
        ca,
    }))
}

/// Reads a secret, which may not stand in the definition itself.
pub(super) fn login(fields: &mut Fields, name: &str) -> Result<Option<Secret>, DefinitionError> {
    let Some(text) = fields.text(name)? else {
        return Ok(None);
    };
    let secret = Secret::parse(&text);
    if secret.is_plain() {
        return Err(fields.bad(
            name,
            "it is a secret: write env:NAME or file:PATH, and keep it there",
        ));
    }
    Ok(Some(secret))
}
